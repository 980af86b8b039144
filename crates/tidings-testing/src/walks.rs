//! Records the files that a request or an event passes, and compares them with ARCHITECTURE.md.
//!
//! Code on the way says `tracing::trace!(target: "tidings::walk", ...)`. ARCHITECTURE.md has a block for each walk, which begins with
//! three backquotes and `walk NAME`. With `TIDINGS_WRITE=1` in the environment the block is written instead of compared.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

/// A walk has at most this many files.
const FILES_MAX: usize = 15;

/// One step: the file, and what happens in it.
type WalkStep = (String, String);

/// Records the steps of walks.
#[derive(Debug, Clone, Default)]
pub struct WalkRecorder(Arc<Mutex<Vec<WalkStep>>>);

impl WalkRecorder {
    /// Records the steps of all threads of this process from now on.
    ///
    /// # Panics
    /// If the process has another subscriber of tracing.
    pub fn install() -> WalkRecorder {
        let recorder = WalkRecorder::default();
        let subscriber = tracing_subscriber::registry().with(WalkLayer(recorder.clone()));
        let installed = tracing::subscriber::set_global_default(subscriber);
        installed.expect("the only subscriber of the process");
        recorder
    }

    /// The steps since the last call.
    pub fn take(&self) -> Vec<WalkStep> {
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *steps)
    }
}

struct WalkLayer(WalkRecorder);

impl<S: Subscriber> Layer<S> for WalkLayer {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target() == "tidings::walk"
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let file = event.metadata().file().unwrap_or_default();
        let file = file.split_once("crates/").map_or(file, |(_, file)| file);
        let file = file.replacen("/src/", "/", 1);
        let mut message = MessageVisitor::default();
        event.record(&mut message);
        let mut steps = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        steps.push((file, message.0));
    }
}

#[derive(Default)]
struct MessageVisitor(String);

impl Visit for MessageVisitor {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

/// Compares the files of a walk, in the order of their first steps, with its block in ARCHITECTURE.md, or writes them there.
///
/// # Panics
/// If they differ, or the walk has too many files.
pub fn check_walk(name: &str, steps: &[WalkStep]) {
    let mut walk: Vec<&WalkStep> = Vec::new();
    for step in steps {
        if !walk.iter().any(|(file, _)| *file == step.0) {
            walk.push(step);
        }
    }
    let files = walk.len();
    assert!(files <= FILES_MAX, "{name} passes {files} files: {walk:#?}");
    let longest = walk.iter().map(|(file, _)| file.len()).max().unwrap_or(0);
    let mut block = String::new();
    for (file, what) in &walk {
        let _ = writeln!(block, "{file:longest$}  {what}");
    }
    let page = page();
    let text = std::fs::read_to_string(&page).expect("ARCHITECTURE.md can be read");
    let fence = format!("```walk {name}\n");
    let start = text.find(&fence).expect("ARCHITECTURE.md has the walk") + fence.len();
    let end = start + text[start..].find("```").expect("the block ends");
    if std::env::var_os("TIDINGS_WRITE").is_some() {
        let written = format!("{}{block}{}", &text[..start], &text[end..]);
        std::fs::write(&page, written).expect("ARCHITECTURE.md can be written");
        return;
    }
    let known = &text[start..end];
    assert_eq!(
        known, block,
        "the walk {name} in ARCHITECTURE.md: run the test with TIDINGS_WRITE=1"
    );
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md")
}
