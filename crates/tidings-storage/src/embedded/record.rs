//! Records: what a revision did, as it is kept.

use bytes::Bytes;

use crate::contract::{DiskStats, Error, Revision};

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// The store's running time in milliseconds: history is kept by age, over restarts too.
    pub(crate) written_ms: u64,
    pub(crate) key: Bytes,
    /// `None` is a deletion.
    pub(crate) value: Option<Bytes>,
}

impl Record {
    /// How many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }
}

/// Why records could not be kept.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum AppendError {
    /// None of them is there.
    #[error("{why}")]
    Refused {
        why: String,
        /// There is no room.
        full: bool,
    },
    /// They may be there after a restart, or some of them.
    #[error("{0}")]
    Unknown(String),
}

impl AppendError {
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, AppendError::Refused { full: true, .. })
    }
}

/// Where records are kept, by revision. Only one thread calls what changes something.
pub(super) trait Records: Send + Sync {
    /// Keeps records durably: when it returns, all of them are.
    fn append(&self, records: &[(Revision, Record)]) -> Result<(), AppendError>;

    /// The records of some revisions, in the same order; `None` for those that have been forgotten.
    fn read(&self, revisions: &[Revision]) -> Result<Vec<Option<Record>>, Error>;

    /// Notes durably that history starts at `oldest` since `time_ms`. Only then may records be forgotten.
    fn note_oldest(&self, oldest: Revision, time_ms: u64) -> Result<(), Error>;

    /// Lets go of records that nobody needs any more. They may still stand where they are kept.
    fn forget(&self, forgotten: &[Revision]);

    /// Frees some of the room of forgotten records, and returns the keys of the values that stand nowhere now, one for each
    /// value. `None` if there is nothing worth freeing. If it is `urgent`, because the disk is full, more is worth it.
    fn reclaim(&self, urgent: bool) -> Result<Option<Vec<Bytes>>, Error>;

    /// Called now and then: settles what failed before. Says what keeps records from being kept, if anything does.
    fn maintain(&self) -> Option<String> {
        None
    }

    /// Tries whether something can be written.
    fn probe(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Notes the store's running time, for when it is opened again.
    fn note_time(&self, _: u64) {}

    /// Figures for metrics. Does not wait for the disk.
    fn stats(&self) -> DiskStats {
        DiskStats::default()
    }
}
