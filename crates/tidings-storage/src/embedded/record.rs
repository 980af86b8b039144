//! A record is the stored change of one revision.

use bytes::Bytes;

use crate::contract::{DiskStats, Error, Revision};

/// The change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// The running time of the store in milliseconds, from which the age of history follows.
    pub(crate) written_ms: u64,
    pub(crate) key: Bytes,
    /// `None` is a deletion.
    pub(crate) value: Option<Bytes>,
}

impl Record {
    /// The size of key and value.
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }
}

/// Why records could not be appended.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum AppendError {
    /// No record was written.
    #[error("{why}")]
    Refused {
        why: String,
        /// True if the disk is full.
        full: bool,
    },
    /// Some or all of the records may be there after a restart.
    #[error("{0}")]
    Unknown(String),
}

impl AppendError {
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, AppendError::Refused { full: true, .. })
    }
}

/// Stores records by revision. Only one thread calls the methods that change it.
pub(super) trait RecordStore: Send + Sync {
    /// Appends records. They are durable when it returns.
    fn append(&self, records: &[(Revision, Record)]) -> Result<(), AppendError>;

    /// The records of some revisions, in the same order; `None` for forgotten ones.
    fn read(&self, revisions: &[Revision]) -> Result<Vec<Option<Record>>, Error>;

    /// Stores durably that history starts at `oldest`. Records may be forgotten only after this.
    fn note_oldest(&self, oldest: Revision, time_ms: u64) -> Result<(), Error>;

    /// Forgets records that are not needed any more. Their space is reclaimed later.
    fn forget(&self, forgotten: &[Revision]);

    /// Reclaims some of the space of forgotten records. Returns the keys of the values that were removed, one for each value, or
    /// `None` if no space is worth reclaiming. `urgent` if the disk is full: then less space is worth it.
    fn reclaim(&self, urgent: bool) -> Result<Option<Vec<Bytes>>, Error>;

    /// Called at intervals: repairs earlier failures. Returns why records cannot be appended, if there is a reason.
    fn maintain(&self) -> Option<String> {
        None
    }

    /// Checks that a write succeeds.
    fn probe(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Stores the running time for the next start.
    fn note_time(&self, _: u64) {}

    /// Figures for metrics. Does not wait for the disk.
    fn stats(&self) -> DiskStats {
        DiskStats::default()
    }
}
