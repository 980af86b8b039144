//! Records: what a revision did, as it is kept.

use bytes::Bytes;

use crate::contract::{Error, Revision};

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// Milliseconds since 1970: history is kept by age, over restarts too.
    pub(super) written_ms: u64,
    pub(super) key: Bytes,
    /// `None` is a deletion.
    pub(super) value: Option<Bytes>,
}

impl Record {
    /// How many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }
}

/// Called with each record of a scan; returns whether the scan goes on.
pub(super) type Visit<'a> = &'a mut dyn FnMut(Revision, Record) -> bool;

/// Where records are kept, by revision.
pub(super) trait Records: Send + Sync {
    /// Keeps records durably: when it returns, all of them are, and if it fails, none of them is.
    fn append(&self, records: &[(Revision, Record)]) -> Result<(), Error>;

    fn get(&self, revision: Revision) -> Result<Option<Record>, Error>;

    /// Visits the records after `after` up to `through` in order.
    fn scan(&self, after: Revision, through: Revision, visit: Visit<'_>) -> Result<(), Error>;

    /// Removes records and notes that history starts at `oldest` now.
    fn compact(&self, forgotten: &[Revision], oldest: Revision) -> Result<(), Error>;
}
