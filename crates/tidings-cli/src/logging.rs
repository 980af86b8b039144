//! Log lines go to standard error through a thread of their own: whoever logs never waits for it, and whether it can be written
//! to decides nothing else.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// How many lines may wait to be written. What comes faster is lost, and counted.
const LINES_MAX: usize = 4096;
/// How long the last lines may take when the process ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

enum Message {
    Line(Vec<u8>),
    /// Answered when everything before it is written.
    Flush(SyncSender<()>),
}

#[derive(Clone)]
struct Lines {
    messages: SyncSender<Message>,
    lost: Arc<AtomicU64>,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        self.clone()
    }
}

impl Write for Lines {
    /// Takes a whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self
            .messages
            .try_send(Message::Line(line.to_vec()))
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

/// Writes what is logged, until it is dropped: then what waits is written.
pub(crate) struct Logging(Lines);

impl Logging {
    /// Starts to log. Without a thread, all lines are lost.
    pub(crate) fn start(format: LogFormat) -> Logging {
        let (messages, waiting) = sync_channel(LINES_MAX);
        let lines = Lines {
            messages,
            lost: Arc::default(),
        };
        let lost = lines.lost.clone();
        let thread = std::thread::Builder::new().name("tidings-log".into());
        if thread.spawn(move || write(&waiting, &lost)).is_err() {
            lines.lost.fetch_add(1, Ordering::Relaxed);
        }
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
        let builder = tracing_subscriber::fmt()
            .with_env_filter(filter)
            // It would say so on standard error, and panic where that cannot be written to.
            .log_internal_errors(false)
            .with_writer(lines.clone());
        match format {
            LogFormat::Text => builder.init(),
            LogFormat::Json => builder.json().init(),
        }
        Logging(lines)
    }

    /// How many lines were lost.
    pub(crate) fn lost(&self) -> Arc<AtomicU64> {
        self.0.lost.clone()
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let (flushed, done) = sync_channel(1);
        if self.0.messages.try_send(Message::Flush(flushed)).is_ok() {
            // Whoever does not read standard error does not keep the process.
            let _ = done.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

fn write(messages: &Receiver<Message>, lost: &AtomicU64) {
    let mut told = 0;
    for message in messages {
        let line = match message {
            Message::Line(line) => line,
            Message::Flush(flushed) => {
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
