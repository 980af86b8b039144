//! Own writes: what this process wrote, by the key whose reconcile must see it. Pure.

use std::collections::HashMap;

use tidings_api::ObjectKey;
use tidings_informer::Uid;

/// The table is swept when it has grown to this many keys, or more.
const SWEEP_LEAST: usize = 1024;

/// What a cache must have before a reconcile may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The resource at this version or a later one.
    Version(u64),
    /// No object with this uid.
    Gone(Uid),
}

/// A write that a cache may not have yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnWrite {
    /// Which of the controller's caches.
    pub(crate) source: usize,
    /// The object that was written.
    pub(crate) object: ObjectKey,
    pub(crate) awaited: Awaited,
}

/// The writes of this process that caches may not have yet, by the key that is reconciled.
///
/// Bound: one entry for each written object, removed when its key is reconciled, and swept of those that the caches have.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites {
    by_key: HashMap<ObjectKey, Vec<OwnWrite>>,
    sweep_at: usize,
}

impl OwnWrites {
    /// Notes a write. Of several writes to one object the last counts. `has` tells whether a cache has a write already.
    pub(crate) fn wrote(
        &mut self,
        key: ObjectKey,
        write: OwnWrite,
        has: impl Fn(&OwnWrite) -> bool,
    ) {
        if self.by_key.len() >= self.sweep_at.max(SWEEP_LEAST) {
            self.by_key.retain(|_, writes| {
                writes.retain(|write| !has(write));
                !writes.is_empty()
            });
            self.sweep_at = self.by_key.len() * 2;
        }
        let writes = self.by_key.entry(key).or_default();
        writes.retain(|known| known.source != write.source || known.object != write.object);
        writes.push(write);
    }

    /// Takes the writes that the next reconcile of a key must see.
    pub(crate) fn take(&mut self, key: &ObjectKey) -> Vec<OwnWrite> {
        self.by_key.remove(key).unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(name: &str, version: u64) -> OwnWrite {
        OwnWrite {
            source: 0,
            object: ObjectKey::new("ns", name),
            awaited: Awaited::Version(version),
        }
    }

    #[test]
    fn the_last_write_to_an_object_counts_and_is_taken_once() {
        let key = ObjectKey::new("ns", "site");
        let mut writes = OwnWrites::default();
        for (name, version) in [("a", 5), ("b", 6), ("a", 7)] {
            writes.wrote(key.clone(), write(name, version), |_| false);
        }
        assert_eq!(writes.take(&key), [write("b", 6), write("a", 7)]);
        assert_eq!(writes.take(&key), []);
    }

    #[test]
    fn writes_that_the_caches_have_are_swept() {
        let mut writes = OwnWrites::default();
        for number in 0..100_000_u64 {
            let name = format!("site-{number}");
            let has = |write: &OwnWrite| write.awaited != Awaited::Version(99_999);
            writes.wrote(ObjectKey::new("ns", &name), write(&name, number), has);
            assert!(writes.len() <= SWEEP_LEAST + 1);
        }
        assert_eq!(writes.take(&ObjectKey::new("ns", "site-99999")).len(), 1);
    }
}
