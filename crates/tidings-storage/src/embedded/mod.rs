//! The embedded engine: an index in memory, records in a log on disk (or in memory), a thread that commits and one that reads.
//!
//! The callers cache their working set, so the engine does not cache values: the index has about 100 bytes per key, and reading a
//! value reads the disk. Writes that wait while the disk syncs share the next sync.
//!
//! `engine` does all work and has no thread; `committer` and `reader` are the threads; `log` stores records on disk.

pub mod backup;

mod committer;
mod crowd;
pub mod disk;
mod engine;
mod index;
mod lifetime;
mod log;
mod memory;
mod reader;
mod record;
#[cfg(test)]
mod simulation;
mod watch;
mod watch_slots;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::contract::{
    BoxFuture, Error, HistoryHold, Range, RangeResult, Revision, Stats, Storage, Trouble,
    WatchStream, Write,
};
use committer::CommitterTask;
use disk::{Disk, RealDisk};
use engine::Engine;
#[cfg(feature = "simulation")]
pub use log::fuzzing;
pub use log::{OpenError, check};
use reader::DiskReader;
use watch::EmbeddedWatch;

/// The maximum number of writes that wait for a commit.
const QUEUED_WRITES_MAX: usize = 4096;
/// The default size of a segment: small enough to be rewritten quickly, large enough to have few segments.
const SEGMENT_BYTES_MAX: u64 = 16 << 20;
/// The default interval of maintenance.
const COMPACT_EVERY: Duration = Duration::from_secs(1);
/// The clock is read at least once a second; a much longer step was a jump, or the machine slept.
const CLOCK_STEP_MAX: Duration = Duration::from_secs(10);

/// Options of an embedded store.
#[derive(Clone)]
#[non_exhaustive]
pub struct EmbeddedOptions {
    /// The minimum age of history: younger revisions can be read and watched from. Time while the store is closed does not count.
    pub history_age: Duration,
    /// The minimum number of revisions of history, of any age.
    pub history_revisions_min: u64,
    /// The maximum size of history, of any age; `history_revisions_min` revisions are kept all the same.
    pub history_bytes_max: u64,
    /// The maximum size of a key and its value together.
    pub value_bytes_max: usize,
    /// The size at which a segment is closed.
    pub segment_bytes_max: u64,
    /// The interval of compaction and disk maintenance.
    pub compact_every: Duration,
    /// Key prefixes with lifetimes: a key is deleted when this time has passed since its last write.
    pub lifetimes: Vec<(Bytes, Duration)>,
    /// Names of other files that the owner keeps in the data directory. A directory without a store that contains any other file
    /// is refused.
    pub beside: &'static [&'static str],
    /// A monotonic clock that counts from any moment; tests pass their own.
    pub now: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// The maximum step of the running time between two readings of the clock.
    pub clock_step_max: Duration,
    /// The file system; tests pass one that fails on purpose.
    pub disk: Arc<dyn Disk>,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        EmbeddedOptions {
            history_age: Duration::from_secs(600),
            history_revisions_min: 1000,
            history_bytes_max: 1 << 30,
            value_bytes_max: crate::VALUE_BYTES_MAX,
            segment_bytes_max: SEGMENT_BYTES_MAX,
            compact_every: COMPACT_EVERY,
            lifetimes: Vec::new(),
            beside: &[],
            now: Arc::new(crate::monotonic_clock),
            clock_step_max: CLOCK_STEP_MAX,
            disk: Arc::new(RealDisk),
        }
    }
}

impl std::fmt::Debug for EmbeddedOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedOptions")
            .field("history_age", &self.history_age)
            .field("history_revisions_min", &self.history_revisions_min)
            .field("history_bytes_max", &self.history_bytes_max)
            .finish_non_exhaustive()
    }
}

/// A store on this machine. Dropping it ends its watches and threads.
pub struct Embedded {
    engine: Arc<Engine>,
    /// `None` if the records are in memory.
    reader: Option<Arc<DiskReader>>,
    tasks: Option<SyncSender<CommitterTask>>,
    committer: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Embedded {
    /// A store in memory, which ends with the process.
    pub fn ephemeral(options: EmbeddedOptions) -> Embedded {
        Embedded::start(Engine::ephemeral(options), None)
    }

    /// Opens or creates a store in a data directory.
    ///
    /// # Errors
    /// If the directory is in use, contains something else or is damaged. It is not changed then.
    pub fn open(directory: &Path, options: EmbeddedOptions) -> Result<Embedded, OpenError> {
        let engine = Engine::open(directory, options)?;
        Ok(Embedded::start(engine, Some(Arc::new(DiskReader::start()))))
    }

    fn start(engine: Engine, reader: Option<Arc<DiskReader>>) -> Embedded {
        let engine = Arc::new(engine);
        let (tasks, queue) = sync_channel(QUEUED_WRITES_MAX);
        let committer = std::thread::Builder::new()
            .name("tidings-commit".into())
            .spawn({
                let engine = engine.clone();
                move || committer::run(&engine, &queue)
            });
        // If the thread cannot be started, every write fails with `Error::Closed`.
        Embedded {
            engine,
            reader,
            tasks: Some(tasks),
            committer: committer.ok(),
        }
    }

    /// Compacts all due history immediately, instead of within the next second, and returns the oldest revision.
    ///
    /// # Errors
    /// If the disk fails.
    pub async fn compact(&self) -> Result<Revision, Error> {
        let (answer, done) = oneshot::channel();
        self.submit(CommitterTask::Compact(answer))?;
        done.await.map_err(|_| Error::Closed)?
    }

    fn submit(&self, task: CommitterTask) -> Result<(), Error> {
        self.tasks
            .as_ref()
            .ok_or(Error::Closed)?
            .try_send(task)
            .map_err(|error| match error {
                TrySendError::Full(_) => Error::Overloaded,
                TrySendError::Disconnected(_) => Error::Closed,
            })
    }
}

impl Storage for Embedded {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        let revision = self.engine.state().revision;
        Box::pin(std::future::ready(Ok(revision)))
    }

    fn oldest(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        let oldest = self.engine.state().oldest;
        Box::pin(std::future::ready(Ok(oldest)))
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(async move {
            self.engine.check_size(&write)?;
            let (answer, done) = oneshot::channel();
            let count = self.engine.crowd.enter(1);
            if let Err(error) = self.submit(CommitterTask::Write(write, answer)) {
                self.engine.crowd.leave(1);
                return Err(error);
            }
            self.engine.crowd.entered(count);
            // The committing thread answers all writes before it ends, unless it panics.
            let unknown =
                || Error::Uncertain("the thread that commits writes has ended".to_owned());
            done.await.map_err(|_| unknown())?
        })
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult, Error>> {
        Box::pin(async move {
            match &self.reader {
                None => self.engine.read(&range),
                Some(reader) => {
                    let engine = self.engine.clone();
                    let read = reader.run(move || engine.read(&range));
                    read.await.map_err(|_| Error::Closed)?
                }
            }
        })
    }

    fn watch(&self, prefix: Bytes, after: Revision) -> BoxFuture<'_, Result<WatchStream, Error>> {
        let (engine, reader) = (self.engine.clone(), self.reader.clone());
        let watch = EmbeddedWatch::start(engine, reader, &prefix, after);
        let watch = watch.map(|watch| Box::pin(watch) as WatchStream);
        Box::pin(std::future::ready(watch))
    }

    fn request_progress(&self, prefix: &[u8]) {
        let slots: Vec<_> = self.engine.state().slots.iter().collect();
        for slot in slots {
            slot.request_progress(prefix);
        }
    }

    fn hold_history(&self) -> HistoryHold {
        self.engine.hold_history()
    }

    fn trouble(&self) -> Option<Trouble> {
        let committer = self.committer.as_ref();
        let ended = if committer.is_none_or(JoinHandle::is_finished) {
            Some("the thread that commits writes has ended")
        } else if self
            .reader
            .as_ref()
            .is_some_and(|reader| reader.has_ended())
        {
            Some("the thread that reads the disk has ended")
        } else {
            None
        };
        if let Some(ended) = ended {
            return Some(Trouble {
                what: format!("{ended}: restart the server"),
                needs_restart: true,
            });
        }
        let what = self.engine.trouble()?;
        Some(Trouble {
            what,
            needs_restart: false,
        })
    }

    fn stats(&self) -> Stats {
        self.engine.stats(self.reader.is_some())
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.tasks = None; // the committing thread ends after the waiting tasks
        if let Some(committer) = self.committer.take()
            && committer.join().is_err()
        {
            tracing::error!("the committing thread panicked");
        }
        if let Some(reader) = &self.reader {
            reader.close();
        }
        let slots: Vec<_> = self.engine.state().slots.iter().collect();
        for slot in slots {
            slot.close();
        }
    }
}
