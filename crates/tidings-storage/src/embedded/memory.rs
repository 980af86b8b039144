//! Records in memory, for stores that need not survive.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock};

use super::record::{Record, Records, Visit};
use crate::contract::{Error, Revision};

#[derive(Debug, Default)]
pub(super) struct MemoryRecords(RwLock<BTreeMap<Revision, Record>>);

impl Records for MemoryRecords {
    fn append(&self, records: &[(Revision, Record)]) -> Result<(), Error> {
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        kept.extend(records.iter().cloned());
        Ok(())
    }

    fn get(&self, revision: Revision) -> Result<Option<Record>, Error> {
        Ok(self
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&revision)
            .cloned())
    }

    fn scan(&self, after: Revision, through: Revision, visit: Visit<'_>) -> Result<(), Error> {
        let kept = self.0.read().unwrap_or_else(PoisonError::into_inner);
        for (revision, record) in kept.range((Bound::Excluded(after), Bound::Included(through))) {
            if !visit(*revision, record.clone()) {
                break;
            }
        }
        Ok(())
    }

    fn compact(&self, forgotten: &[Revision], _: Revision) -> Result<(), Error> {
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for revision in forgotten {
            kept.remove(revision);
        }
        Ok(())
    }
}
