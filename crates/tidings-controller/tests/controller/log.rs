//! Captures the errors that are logged.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps the errors of all tests, each with its fields in one line.
///
/// For the whole process: what a thread without a subscriber does first is never logged, also not for a subscriber of another thread.
#[derive(Clone, Default)]
pub(crate) struct ErrorLog(Arc<Mutex<Vec<String>>>);

impl ErrorLog {
    /// The log, from now on.
    pub(crate) fn start() -> &'static ErrorLog {
        static LOG: OnceLock<ErrorLog> = OnceLock::new();
        LOG.get_or_init(|| {
            let log = ErrorLog::default();
            tracing::subscriber::set_global_default(log.clone()).unwrap();
            log
        })
    }

    /// The errors of a controller, whose name no other test uses.
    pub(crate) fn of_controller(&self, name: &str) -> Vec<String> {
        let field = format!("controller={name:?} ");
        let lines = self.0.lock().unwrap();
        let lines = lines.iter().filter(|line| line.contains(&field));
        lines.cloned().collect()
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for ErrorLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
