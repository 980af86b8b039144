//! The contract of every storage engine. `tests/contract.rs` is its test suite.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_core::Stream;

/// A position in the global log of changes. It only grows, over restarts too. Zero is before every change.
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

/// The state of a key that a write requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The key does not exist.
    Absent,
    /// The key was last modified at this revision.
    At(Revision),
}

/// One compare-and-swap.
#[derive(Clone)]
pub struct Write {
    /// The key.
    pub key: Bytes,
    /// The required state of the key.
    pub expected: Expected,
    /// The new value; `None` deletes the key.
    pub value: Option<Bytes>,
}

impl fmt::Debug for Write {
    /// Never shows the value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Write")
            .field("key", &self.key)
            .field("expected", &self.expected)
            .field("value_bytes", &self.value.as_ref().map(Bytes::len))
            .finish()
    }
}

impl Write {
    /// The size of key and value.
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }

    /// Refuses a write that is larger than `bytes_max`. Deletions are never refused.
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
    /// The value.
    pub value: Bytes,
    /// The revision of the last change of the key.
    pub revision: Revision,
}

/// The keys to read: those with a prefix, from `start` on, in bytewise order.
#[derive(Debug, Clone, Default)]
pub struct Range {
    /// The prefix of the keys.
    pub prefix: Bytes,
    /// The first key to read; `None` starts with the first key of the prefix.
    pub start: Option<Bytes>,
    /// The maximum number of keys; zero means all.
    pub limit: usize,
    /// The revision to read at; `None` is the current one.
    pub at: Option<Revision>,
}

/// The keys and values of a range.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeResult {
    /// The keys with their values, in order.
    pub entries: Vec<KeyValue>,
    /// The revision of this state.
    pub revision: Revision,
    /// True if more keys follow.
    pub more: bool,
}

/// What happened to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The key was created or its value was replaced.
    Put(Bytes),
    /// The key was deleted.
    Delete,
}

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The revision of the change.
    pub revision: Revision,
    /// The key.
    pub key: Bytes,
    /// The change.
    pub change: Change,
    /// True if the key did not exist before.
    pub created: bool,
}

/// The next events of a watch, and the revision up to which they are complete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchBatch {
    /// The events in the order of their revisions; none if the batch only reports progress.
    pub events: Vec<Event>,
    /// All events of the watch up to this revision have been delivered.
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
    /// Number of existing keys.
    pub keys: u64,
    /// Number of superseded values and deletions that are kept as history.
    pub history_entries: u64,
    /// Size of the history in bytes.
    pub history_bytes: u64,
    /// Number of durable commits since the start.
    pub commits: u64,
    /// Number of writes in those commits.
    pub writes: u64,
    /// Number of writes that wait for a commit.
    pub queued: u64,
    /// The age of the history: the running time since the first revision after `oldest` was written.
    pub oldest_age: Duration,
    /// Number of failed commits; their writes were refused.
    pub failed_commits: u64,
    /// Number of failed compactions; they are retried.
    pub failed_compactions: u64,
    /// Number of tombstones that are kept only because a value of their key is still on disk.
    pub tombstones: u64,
    /// Figures of the files, for an engine on this machine.
    pub disk: Option<DiskStats>,
    /// Figures of the connection, for a remote engine.
    pub remote: Option<RemoteStats>,
    /// Figures of encryption, if values are encrypted.
    pub encryption: Option<EncryptionStats>,
}

/// How many values were encrypted and decrypted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncryptionStats {
    /// Values that were encrypted.
    pub sealed: u64,
    /// Values that were decrypted.
    pub opened: u64,
    /// Values that could not be encrypted or decrypted.
    pub failed: u64,
}

/// Figures of an engine that keeps its records in files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskStats {
    /// Size of all files.
    pub bytes: u64,
    /// Number of segments of the log.
    pub segments: u64,
    /// Size of the reserve, which compaction uses on a full disk.
    pub reserve_bytes: u64,
    /// Free space on the disk; `None` if the operating system does not report it.
    pub free_bytes: Option<u64>,
    /// How long syncs took.
    pub syncs: SyncTimes,
}

/// A histogram of the time that commits took to become durable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SyncTimes {
    /// Number of syncs.
    pub count: u64,
    /// Time of all syncs together.
    pub sum: Duration,
    /// Number of syncs that took no longer than each of [`SyncTimes::BOUNDS`].
    pub buckets: [u64; 10],
}

impl SyncTimes {
    /// The upper bounds of the buckets, in seconds.
    pub const BOUNDS: [f64; 10] = [
        0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.01, 0.025, 0.1, 0.5, 2.0,
    ];
}

/// Why a store cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The problem, as a sentence.
    pub what: String,
    /// True if only a restart helps.
    pub needs_restart: bool,
}

/// Prevents compaction by age until it is dropped, for at most ten minutes. History that exceeds its maximum size is compacted
/// all the same.
#[derive(Debug, Clone, Default)]
pub struct HistoryHold(
    #[allow(dead_code, reason = "it counts as long as it lives")] Option<Arc<()>>,
);

/// The maximum time of a hold: a stalled reader must not keep history forever.
const HOLD_MAX: Duration = Duration::from_secs(600);

/// All holds with their start times.
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
    /// All changes up to this revision have been received.
    pub watched: Revision,
    /// Number of times the watch was opened.
    pub opened: u64,
    /// Number of calls without an answer.
    pub unanswered: u64,
    /// Number of times the remote store was found to have lost revisions.
    pub went_back: u64,
}

/// Why an engine refuses a call.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key does not have the required state.
    #[error("the key {}, which is not what the write expects", .current.map_or("does not exist".to_owned(), |at| format!("is at revision {at}")))]
    Conflict {
        /// The revision of the key's last change; `None` if the key does not exist.
        current: Option<Revision>,
    },
    /// History before this revision has been compacted.
    #[error("revision {requested} is older than the history kept, which starts at {oldest}")]
    Compacted {
        /// What was asked for.
        requested: Revision,
        /// The oldest revision that can be read.
        oldest: Revision,
    },
    /// The revision does not exist yet.
    #[error("revision {requested} is in the future, the current one is {current}")]
    Future {
        /// What was asked for.
        requested: Revision,
        /// The current revision.
        current: Revision,
    },
    /// Too many writes wait for a commit.
    #[error("too many writes are waiting")]
    Overloaded,
    /// The remote store does not answer. Nothing was done.
    #[error("the store cannot be reached: {0}")]
    Unavailable(String),
    /// No answer was received: the write may have been done, or may still be done.
    #[error("the store has not answered, and the write may have been done: {0}")]
    Uncertain(String),
    /// Key and value are larger than the store allows.
    #[error("a write of {bytes} bytes is larger than the store allows{}", .bytes_max.map_or(String::new(), |most| format!(": at most {most}")))]
    TooLarge {
        /// The size of key and value.
        bytes: u64,
        /// The maximum size, if the engine knows it.
        bytes_max: Option<u64>,
    },
    /// The store has lost revisions, so everything that was read from it is void.
    #[error("the store went back from revision {from} to {to}")]
    WentBack {
        /// The revision before the loss.
        from: Revision,
        /// The current revision, after the loss.
        to: Revision,
    },
    /// A read or write failed below the engine. The write was not done; acknowledged writes are not lost.
    #[error("{0}")]
    Failed(String),
    /// The engine has been shut down.
    #[error("the store is closed")]
    Closed,
}

/// A revisioned key-value store.
///
/// All methods may be cancelled. A cancelled write is either done completely or not at all.
pub trait Storage: Send + Sync + 'static {
    /// The current revision: that of the last acknowledged write, or a later one.
    fn revision(&self) -> BoxFuture<'_, Result<Revision, Error>>;

    /// The oldest revision that can be read and watched from.
    fn oldest(&self) -> BoxFuture<'_, Result<Revision, Error>>;

    /// Does one compare-and-swap. Returns when the write is durable.
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Revision, Error>>;

    /// Reads a range at the current or an earlier revision.
    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult, Error>>;

    /// Watches the keys with a prefix: delivers every change after `after`, in order and exactly once, until the stream is
    /// dropped or ends with an error.
    fn watch(&self, prefix: Bytes, after: Revision) -> BoxFuture<'_, Result<WatchStream, Error>>;

    /// Asks the watches of a prefix to deliver a batch soon, also if it only reports progress.
    fn request_progress(&self, prefix: &[u8]);

    /// Reads a range as it is stored: what is encrypted stays encrypted. For backups.
    fn stored_range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult, Error>> {
        self.range(range)
    }

    /// True if the value of a key would be stored in another way now, for example encrypted with another key: a write that changes nothing should
    /// be done all the same.
    fn is_outdated(&self, key: Bytes) -> BoxFuture<'_, Result<bool, Error>> {
        let _ = key;
        Box::pin(std::future::ready(Ok(false)))
    }

    /// Prevents compaction by age until the hold is dropped. For readers that start at the oldest revision: call
    /// [`Storage::oldest`] after this.
    fn hold_history(&self) -> HistoryHold {
        HistoryHold::default()
    }

    /// Why the store cannot be used; `None` if it can.
    fn trouble(&self) -> Option<Trouble> {
        None
    }

    /// Figures for metrics.
    fn stats(&self) -> Stats;
}
