//! Writes log lines to standard error from a thread of its own: logging never blocks the server, and a standard error that cannot
//! be written has no other effect.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait to be written. Further lines are lost, and counted.
const LINES_MAX: usize = 4096;
/// How long writing the last lines may take when the process ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// A message to the thread that writes.
enum LogMessage {
    Line(Vec<u8>),
    /// Answered when everything before it is written.
    Flush(SyncSender<()>),
}

/// Sends lines to the thread that writes them.
#[derive(Clone)]
struct LogLines {
    messages: SyncSender<LogMessage>,
    lost: Arc<AtomicU64>,
}

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = LogLines;

    fn make_writer(&'a self) -> LogLines {
        self.clone()
    }
}

impl Write for LogLines {
    /// Takes a complete line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self
            .messages
            .try_send(LogMessage::Line(line.to_vec()))
            .is_err()
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The running log. Writes the waiting lines when it is dropped.
pub(crate) struct Logging(LogLines);

impl Logging {
    /// Starts logging. If the thread cannot be started, all lines are lost.
    pub(crate) fn start(format: LogFormat, access: bool) -> Logging {
        let (messages, waiting) = sync_channel(LINES_MAX);
        let lines = LogLines {
            messages,
            lost: Arc::default(),
        };
        let lost = lines.lost.clone();
        let thread = std::thread::Builder::new().name("tidings-log".into());
        if thread.spawn(move || write(&waiting, &lost)).is_err() {
            lines.lost.fetch_add(1, Ordering::Relaxed);
        }
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
        let directive = "tidings::access=debug".parse().ok().filter(|_| access);
        let filter = match directive {
            Some(directive) => filter.add_directive(directive),
            None => filter,
        };
        let builder = tracing_subscriber::fmt()
            .with_env_filter(filter)
            // It would write them to standard error, and panic if that fails.
            .log_internal_errors(false)
            .with_writer(lines.clone());
        match format {
            LogFormat::Text => builder.init(),
            LogFormat::Json => builder.json().init(),
        }
        Logging(lines)
    }

    /// The number of lost lines.
    pub(crate) fn lost(&self) -> Arc<AtomicU64> {
        self.0.lost.clone()
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let (flushed, done) = sync_channel(1);
        if self.0.messages.try_send(LogMessage::Flush(flushed)).is_ok() {
            // A blocked standard error must not keep the process alive.
            let _ = done.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

fn write(messages: &Receiver<LogMessage>, lost: &AtomicU64) {
    let mut told = 0;
    for message in messages {
        let line = match message {
            LogMessage::Line(line) => line,
            LogMessage::Flush(flushed) => {
                let _ = flushed.send(());
                continue;
            }
        };
        let mut stderr = io::stderr().lock();
        if stderr.write_all(&line).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let all = lost.load(Ordering::Relaxed);
        if all > told
            && writeln!(stderr, "{} log lines before this one are lost", all - told).is_ok()
        {
            told = all;
        }
    }
}
