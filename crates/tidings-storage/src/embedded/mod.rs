//! The embedded engine: an index in memory, records in a log on disk (or in memory), one thread that commits.
//!
//! The working set lives in the caller's caches, so values are not kept here: the index holds 100-odd bytes per key, and a
//! read of a value is a read of the disk. Writes that wait while the disk syncs share the next sync.

mod crowd;
mod index;
mod lifetime;
mod log;
mod memory;
mod record;
mod watch;
mod write;

use std::path::Path;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::contract::{
    BoxFuture, Error, KeyValue, Previous, Range, RangeResult, Revision, Stats, Storage,
    WatchStream, Write,
};
use crate::history::{Keep, Times};
use crowd::Crowd;
use index::Index;
use lifetime::Lifetimes;
use log::LogRecords;
pub use log::OpenError;
use memory::MemoryRecords;
use record::{Record, Records};
use watch::{Slots, Watch};
use write::Task;

/// How many writes may wait for the disk.
const QUEUED_WRITES_MAX: usize = 4096;

/// How an embedded store keeps history.
#[derive(Clone)]
#[non_exhaustive]
pub struct EmbeddedOptions {
    /// Changes younger than this can be read and watched from.
    pub history_age: Duration,
    /// However old they are, this many last revisions can be.
    pub history_revisions_min: u64,
    /// However young it is, history does not grow beyond this (but keeps `history_revisions_min`).
    pub history_bytes_max: u64,
    /// Keys that begin with this are deleted so long after their last write.
    pub lifetimes: Vec<(Bytes, Duration)>,
    /// What the owner of the directory keeps there besides the store. Anything else in a directory without a store means that
    /// the directory is somebody else's.
    pub beside: &'static [&'static str],
    /// Milliseconds since 1970; tests pass their own.
    pub now: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        EmbeddedOptions {
            history_age: Duration::from_secs(600),
            history_revisions_min: 1000,
            history_bytes_max: 1 << 30,
            lifetimes: Vec::new(),
            beside: &[],
            now: Arc::new(crate::wall_clock_ms),
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

/// What the index and the watches agree on. Written by the committing thread only.
struct State {
    revision: Revision,
    oldest: Revision,
    index: Index,
    times: Times,
    lifetimes: Lifetimes,
    slots: Slots,
    commits: u64,
    writes: u64,
}

impl State {
    fn new(options: &EmbeddedOptions) -> State {
        State {
            revision: Revision(0),
            oldest: Revision(0),
            index: Index::default(),
            times: Times::default(),
            lifetimes: Lifetimes::new(&options.lifetimes),
            slots: Slots::default(),
            commits: 0,
            writes: 0,
        }
    }

    /// Takes in the next record. Returns when its key was written before.
    fn apply(&mut self, revision: Revision, record: &Record) -> Option<Revision> {
        assert!(revision > self.revision, "revisions only grow");
        self.revision = revision;
        self.times.note(record.written_ms, revision);
        let deleted = record.value.is_none();
        if !deleted {
            self.lifetimes
                .note(&record.key, revision, record.written_ms);
        }
        let before = self
            .index
            .apply(&record.key, revision, deleted, record.bytes());
        before.revision
    }
}

struct Shared {
    state: RwLock<State>,
    records: Box<dyn Records>,
    keep: Keep,
    history_bytes_max: u64,
    now: Arc<dyn Fn() -> u64 + Send + Sync>,
    crowd: Crowd,
}

impl Shared {
    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store on this machine. Dropping it ends its watches and its thread.
pub struct Embedded {
    shared: Arc<Shared>,
    tasks: Option<SyncSender<Task>>,
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
    /// A store that is gone with the process.
    pub fn ephemeral(options: EmbeddedOptions) -> Embedded {
        let state = State::new(&options);
        Embedded::start(Box::new(MemoryRecords::default()), state, options)
    }

    /// Opens or creates a store in a directory of its own.
    ///
    /// # Errors
    /// If the directory is in use, holds something else or is damaged. It is left as it was.
    pub fn open(directory: &Path, options: EmbeddedOptions) -> Result<Embedded, OpenError> {
        let mut state = State::new(&options);
        let (records, oldest) = LogRecords::open(directory, options.beside, &mut |at, record| {
            state.apply(at, record);
        })?;
        // Records that were forgotten before may still stand in their segments.
        let (forgotten, _) = state.index.compact(oldest, usize::MAX);
        records.forget(&forgotten);
        let revision = state.revision;
        tracing::debug!(%revision, %oldest, forgotten = forgotten.len(), "opened the store");
        state.revision = revision.max(oldest);
        state.oldest = oldest;
        Ok(Embedded::start(Box::new(records), state, options))
    }

    fn start(records: Box<dyn Records>, state: State, options: EmbeddedOptions) -> Embedded {
        let keep = Keep {
            age: options.history_age,
            revisions_min: options.history_revisions_min,
        };
        let shared = Arc::new(Shared {
            state: RwLock::new(state),
            records,
            keep,
            history_bytes_max: options.history_bytes_max,
            now: options.now,
            crowd: Crowd::default(),
        });
        let (tasks, queue) = sync_channel(QUEUED_WRITES_MAX);
        let committer = std::thread::Builder::new()
            .name("tidings-commit".into())
            .spawn({
                let shared = shared.clone();
                move || write::run(&shared, &queue)
            });
        // Without the thread every write answers that the store is closed.
        Embedded {
            shared,
            tasks: Some(tasks),
            committer: committer.ok(),
        }
    }

    /// Forgets all history that is due now, instead of within the next second, and says where it starts.
    ///
    /// # Errors
    /// If the disk refuses.
    pub async fn compact(&self) -> Result<Revision, Error> {
        let (answer, done) = oneshot::channel();
        self.submit(Task::Compact(answer))?;
        done.await.map_err(|_| Error::Closed)?
    }

    fn submit(&self, task: Task) -> Result<(), Error> {
        self.tasks
            .as_ref()
            .ok_or(Error::Closed)?
            .try_send(task)
            .map_err(|error| match error {
                TrySendError::Full(_) => Error::Overloaded,
                TrySendError::Disconnected(_) => Error::Closed,
            })
    }

    /// The revision to read at, if it can be.
    fn readable(state: &State, at: Option<Revision>) -> Result<Revision, Error> {
        match at {
            None => Ok(state.revision),
            Some(requested) if requested > state.revision => Err(Error::Future {
                requested,
                current: state.revision,
            }),
            Some(requested) if requested < state.oldest => Err(Error::Compacted {
                requested,
                oldest: state.oldest,
            }),
            Some(requested) => Ok(requested),
        }
    }

    fn read(&self, range: &Range) -> Result<RangeResult, Error> {
        let (revision, found, more) = {
            let state = self.shared.state();
            let revision = Embedded::readable(&state, range.at)?;
            let limit = if range.limit == 0 {
                usize::MAX
            } else {
                range.limit
            };
            let mut keys = state
                .index
                .range(&range.prefix, range.start.as_deref(), revision);
            let found: Vec<Revision> = keys.by_ref().take(limit).map(|(_, at)| at).collect();
            (revision, found, keys.next().is_some())
        };
        let mut entries = Vec::with_capacity(found.len());
        for at in found {
            entries.push(self.value(at, revision)?);
        }
        Ok(RangeResult {
            entries,
            revision,
            more,
        })
    }

    /// The value written at a revision, for a read as of `read_at`.
    fn value(&self, at: Revision, read_at: Revision) -> Result<KeyValue, Error> {
        match self.shared.records.get(at)? {
            Some(record::Record {
                key,
                value: Some(value),
                ..
            }) => Ok(KeyValue {
                key,
                value,
                revision: at,
            }),
            // Compaction has passed the read between its look at the index and this one.
            _ => Err(Error::Compacted {
                requested: read_at,
                oldest: self.shared.state().oldest,
            }),
        }
    }
}

impl Storage for Embedded {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        let revision = self.shared.state().revision;
        Box::pin(std::future::ready(Ok(revision)))
    }

    fn oldest(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        let oldest = self.shared.state().oldest;
        Box::pin(std::future::ready(Ok(oldest)))
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(async move {
            let (answer, done) = oneshot::channel();
            let count = self.shared.crowd.enter(1);
            if let Err(error) = self.submit(Task::Write(write, answer)) {
                self.shared.crowd.leave(1);
                return Err(error);
            }
            self.shared.crowd.entered(count);
            done.await.map_err(|_| Error::Closed)?
        })
    }

    fn get(
        &self,
        key: Bytes,
        at: Option<Revision>,
    ) -> BoxFuture<'_, Result<Option<KeyValue>, Error>> {
        Box::pin(async move {
            let (read_at, found) = {
                let state = self.shared.state();
                let read_at = Embedded::readable(&state, at)?;
                (read_at, state.index.at(&key, read_at))
            };
            found.map(|at| self.value(at, read_at)).transpose()
        })
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult, Error>> {
        Box::pin(async move { self.read(&range) })
    }

    fn watch(
        &self,
        prefix: Bytes,
        after: Revision,
        previous: Previous,
    ) -> BoxFuture<'_, Result<WatchStream, Error>> {
        Box::pin(async move {
            let mut state = self.shared.state_mut();
            Embedded::readable(&state, Some(after))?;
            let slot = state.slots.add(prefix);
            let live_after = state.revision;
            drop(state);
            let shared = self.shared.clone();
            let watch = Watch {
                shared,
                slot,
                previous,
                position: after,
                live_after,
                failed: false,
            };
            Ok(Box::pin(watch) as WatchStream)
        })
    }

    fn request_progress(&self, prefix: &[u8]) {
        let slots: Vec<_> = self.shared.state().slots.iter().collect();
        for slot in slots {
            slot.request_progress(prefix);
        }
    }

    fn stats(&self) -> Stats {
        let state = self.shared.state();
        Stats {
            revision: state.revision,
            oldest: state.oldest,
            keys: state.index.live(),
            history_entries: state.index.history_len(),
            history_bytes: state.index.history_bytes(),
            commits: state.commits,
            writes: state.writes,
            queued: self.shared.crowd.waiting(),
            remote: None,
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.tasks = None; // the committing thread ends when it has done what waits
        if let Some(committer) = self.committer.take()
            && committer.join().is_err()
        {
            tracing::error!("the committing thread panicked");
        }
        let slots: Vec<_> = self.shared.state().slots.iter().collect();
        for slot in slots {
            slot.close();
        }
    }
}
