//! The contract that every engine fulfils. `tests/contract.rs` is its test-suite.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_core::Stream;

/// A position in the one log of changes. It only grows, over restarts too. Zero is before every change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A boxed future: the contract is used as `dyn Storage`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A watch. Dropping it ends it.
pub type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchBatch, Error>> + Send>>;

/// What a write expects of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The key does not exist.
    Absent,
    /// The key was last modified at this revision.
    At(Revision),
}

/// One compare-and-swap.
#[derive(Debug, Clone)]
pub struct Write {
    /// The key.
    pub key: Bytes,
    /// What it must be like.
    pub expected: Expected,
    /// Its new value; `None` deletes it.
    pub value: Option<Bytes>,
}

impl Write {
    /// How large its key and value are.
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }

    /// Refuses what is larger than a store takes. A deletion always has room.
    pub(crate) fn check_size(&self, bytes_max: usize) -> Result<(), Error> {
        let bytes = self.bytes();
        match self.value.is_some() && bytes > bytes_max {
            true => Err(Error::TooLarge {
                bytes: bytes as u64,
                bytes_max: Some(bytes_max as u64),
            }),
            false => Ok(()),
        }
    }

    /// Creates a key.
    pub fn create(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Write {
        Write {
            key: key.into(),
            expected: Expected::Absent,
            value: Some(value.into()),
        }
    }

    /// Replaces the value of a key.
    pub fn update(key: impl Into<Bytes>, at: Revision, value: impl Into<Bytes>) -> Write {
        Write {
            key: key.into(),
            expected: Expected::At(at),
            value: Some(value.into()),
        }
    }

    /// Deletes a key.
    pub fn delete(key: impl Into<Bytes>, at: Revision) -> Write {
        Write {
            key: key.into(),
            expected: Expected::At(at),
            value: None,
        }
    }
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
    /// When it was last modified.
    pub revision: Revision,
}

/// Which keys to read: those with a prefix, from `start` on, in bytewise order.
#[derive(Debug, Clone, Default)]
pub struct Range {
    /// What the keys begin with.
    pub prefix: Bytes,
    /// The first key, if it is not the first with the prefix.
    pub start: Option<Bytes>,
    /// How many keys at most; zero means all.
    pub limit: usize,
    /// The state to read; `None` is the current one.
    pub at: Option<Revision>,
}

/// What a range holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeResult {
    /// The keys in order.
    pub entries: Vec<KeyValue>,
    /// The revision of which this is the state.
    pub revision: Revision,
    /// More keys follow.
    pub more: bool,
}

/// What happened to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It was created or its value replaced.
    Put(Bytes),
    /// It was deleted.
    Delete,
}

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When it happened.
    pub revision: Revision,
    /// The key.
    pub key: Bytes,
    /// What happened.
    pub change: Change,
    /// True if the key did not exist before.
    pub created: bool,
}

/// A step of a watch: the next events, and up to where they are complete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchBatch {
    /// The events in the order of their revisions; none if the batch only reports progress.
    pub events: Vec<Event>,
    /// Every event of the watch up to this revision has been delivered.
    pub revision: Revision,
}

/// Figures of an engine, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The current revision.
    pub revision: Revision,
    /// The oldest revision that can be read and watched from.
    pub oldest: Revision,
    /// Keys that exist now.
    pub keys: u64,
    /// Superseded values and deletions that are kept as history.
    pub history_entries: u64,
    /// Their size.
    pub history_bytes: u64,
    /// Durable commits so far.
    pub commits: u64,
    /// Writes in those commits.
    pub writes: u64,
    /// Writes that wait for a commit now.
    pub queued: u64,
    /// How long ago the oldest revision was replaced by the next, in the time that the store has been running.
    pub oldest_age: Duration,
    /// Commits that failed; their writes were refused.
    pub failed_commits: u64,
    /// Compactions that failed and are tried again.
    pub failed_compactions: u64,
    /// Deletions that are kept only because a value of their key still stands on disk.
    pub tombstones: u64,
    /// Of an engine that is on this machine.
    pub disk: Option<DiskStats>,
    /// Of an engine that is elsewhere.
    pub remote: Option<RemoteStats>,
}

/// Figures of an engine that keeps its records in files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskStats {
    /// What its files take.
    pub bytes: u64,
    /// How many files the log has.
    pub segments: u64,
    /// How much of that is kept for compaction on a full disk.
    pub reserve_bytes: u64,
    /// How much can still be written; `None` if the operating system does not say.
    pub free_bytes: Option<u64>,
    /// How long commits took to become durable.
    pub syncs: SyncTimes,
}

/// How long commits took to become durable: a histogram.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SyncTimes {
    /// How many there were.
    pub count: u64,
    /// How long all of them took.
    pub sum: Duration,
    /// How many took no longer than each of [`SyncTimes::BOUNDS`].
    pub buckets: [u64; 10],
}

impl SyncTimes {
    /// In seconds.
    pub const BOUNDS: [f64; 10] = [
        0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.01, 0.025, 0.1, 0.5, 2.0,
    ];
}

/// What keeps a store from being used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// What is wrong, as a sentence.
    pub what: String,
    /// It does not get better by itself: only a restart helps.
    pub needs_restart: bool,
}

/// Keeps history from ending by age as long as it lives, but not for longer than ten minutes. History that is larger than it may be
/// ends all the same.
#[derive(Debug, Clone, Default)]
pub struct HistoryHold(
    #[allow(dead_code, reason = "it counts as long as it lives")] Option<Arc<()>>,
);

/// Who has stalled for longer does not keep history.
const HOLD_MAX: Duration = Duration::from_secs(600);

/// The holds that live, and since when.
#[derive(Debug, Default)]
pub(crate) struct HistoryHolds(Mutex<Vec<(Weak<()>, Instant)>>);

impl HistoryHolds {
    fn known(&self) -> MutexGuard<'_, Vec<(Weak<()>, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn hold(&self) -> HistoryHold {
        let hold = Arc::new(());
        self.known().push((Arc::downgrade(&hold), Instant::now()));
        HistoryHold(Some(hold))
    }

    pub(crate) fn any(&self) -> bool {
        self.any_at(Instant::now())
    }

    pub(crate) fn any_at(&self, now: Instant) -> bool {
        let mut known = self.known();
        known.retain(|(hold, since)| {
            hold.strong_count() > 0 && now.saturating_duration_since(*since) < HOLD_MAX
        });
        !known.is_empty()
    }
}

/// Figures of an engine that is reached over a network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteStats {
    /// Every change up to this revision has come.
    pub watched: Revision,
    /// How often the watch was opened.
    pub opened: u64,
    /// Calls that nobody answered.
    pub unanswered: u64,
    /// How often it was found to have lost revisions.
    pub went_back: u64,
}

/// Why an engine refuses.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key is not as the write expects.
    #[error("the key is at {}, not as expected", .current.map_or("no revision".to_owned(), |at| format!("revision {at}")))]
    Conflict {
        /// When the key was last modified; `None` if it does not exist.
        current: Option<Revision>,
    },
    /// History before this revision has been compacted.
    #[error("revision {requested} is older than the history kept, which starts at {oldest}")]
    Compacted {
        /// What was asked for.
        requested: Revision,
        /// The oldest that can be had.
        oldest: Revision,
    },
    /// The revision has not been reached.
    #[error("revision {requested} is in the future, the current one is {current}")]
    Future {
        /// What was asked for.
        requested: Revision,
        /// Where the store is.
        current: Revision,
    },
    /// Too many writes wait for the disk.
    #[error("too many writes are waiting")]
    Overloaded,
    /// Nobody answers. Nothing was done.
    #[error("the store cannot be reached: {0}")]
    Unavailable(String),
    /// No answer came: the write may have been done, or may be done still.
    #[error("the store has not answered, and may have done what was asked: {0}")]
    Uncertain(String),
    /// The key and value are larger than the store takes.
    #[error("{bytes} bytes are more than the store takes{}", .bytes_max.map_or(String::new(), |most| format!(", which is {most}")))]
    TooLarge {
        /// How large they are.
        bytes: u64,
        /// How large they may be, if the engine says so.
        bytes_max: Option<u64>,
    },
    /// The store has lost what it had, and everything that was read of it is void.
    #[error("the store went back from revision {from} to {to}")]
    WentBack {
        /// Where it had been.
        from: Revision,
        /// Where it is now.
        to: Revision,
    },
    /// A write or read failed below the engine. A write was not done, and nothing that was acknowledged is lost.
    #[error("{0}")]
    Failed(String),
    /// The engine has been shut down.
    #[error("the store is closed")]
    Closed,
}

/// A revisioned key-value store.
///
/// All methods may be cancelled. A write that is cancelled is either done whole or not at all.
pub trait Storage: Send + Sync + 'static {
    /// The current revision: that of the last acknowledged write or later.
    fn revision(&self) -> BoxFuture<'_, Result<Revision, Error>>;

    /// The oldest revision that can be read and watched from.
    fn oldest(&self) -> BoxFuture<'_, Result<Revision, Error>>;

    /// Does one compare-and-swap and answers when it is durable.
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Revision, Error>>;

    /// Reads a range at the current or an earlier revision.
    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult, Error>>;

    /// Watches the keys with a prefix: every change after `after`, in order, each exactly once, until the stream is dropped
    /// or ends with an error.
    fn watch(&self, prefix: Bytes, after: Revision) -> BoxFuture<'_, Result<WatchStream, Error>>;

    /// Asks the watches of a prefix to deliver a batch soon, even if it only reports progress.
    fn request_progress(&self, prefix: &[u8]);

    /// Keeps history from ending by age until what is returned is dropped, for whoever reads it from its start: from what
    /// [`Storage::oldest`] says after this.
    fn hold_history(&self) -> HistoryHold {
        HistoryHold::default()
    }

    /// What keeps the store from being used, if anything does.
    fn trouble(&self) -> Option<Trouble> {
        None
    }

    /// Figures for metrics.
    fn stats(&self) -> Stats;
}
