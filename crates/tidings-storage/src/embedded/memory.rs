//! Records in memory, for stores that are not durable.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::record::{AppendError, Record, RecordStore};
use crate::contract::{Error, Revision};

/// A [`RecordStore`] in memory.
#[derive(Debug, Default)]
pub(super) struct MemoryRecords(Mutex<MemoryState>);

#[derive(Debug, Default)]
struct MemoryState {
    records: BTreeMap<Revision, Record>,
    /// Keys of forgotten values that [`RecordStore::reclaim`] has not returned yet.
    dropped: Vec<Bytes>,
}

impl MemoryRecords {
    fn kept(&self) -> MutexGuard<'_, MemoryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordStore for MemoryRecords {
    fn append(&self, records: &[(Revision, Record)]) -> Result<(), AppendError> {
        self.kept().records.extend(records.iter().cloned());
        Ok(())
    }

    fn read(&self, revisions: &[Revision]) -> Result<Vec<Option<Record>>, Error> {
        let kept = self.kept();
        let record = |revision| kept.records.get(revision).cloned();
        Ok(revisions.iter().map(record).collect())
    }

    fn note_oldest(&self, _: Revision, _: u64) -> Result<(), Error> {
        Ok(())
    }

    fn forget(&self, forgotten: &[Revision]) {
        let mut kept = self.kept();
        for revision in forgotten {
            if let Some(Record {
                key,
                value: Some(_),
                ..
            }) = kept.records.remove(revision)
            {
                kept.dropped.push(key);
            }
        }
    }

    fn reclaim(&self, _: bool) -> Result<Option<Vec<Bytes>>, Error> {
        let dropped = std::mem::take(&mut self.kept().dropped);
        Ok((!dropped.is_empty()).then_some(dropped))
    }
}
