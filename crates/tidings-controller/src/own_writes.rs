//! Own writes: what this process wrote, by the key whose reconcile must see it. Pure.

use std::collections::HashMap;

use tidings_api::ObjectKey;
use tidings_informer::Uid;

/// The table is swept when it has grown to this many writes, or more.
const SWEEP_LEAST: usize = 1024;

/// What a cache must have before a reconcile may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The resource at this version or a later one.
    Version(u64),
    /// No object with this uid.
    Gone(Uid),
}

/// A written object: which of the controller's caches will have it, and its key.
pub(crate) type WrittenObject = (usize, ObjectKey);

/// The writes of this process that caches may not have yet, by the key that is reconciled.
///
/// Bound: one entry for each written object, removed when its key is reconciled, and swept of those that the caches have.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites {
    by_key: HashMap<ObjectKey, HashMap<WrittenObject, Awaited>>,
    writes: usize,
    sweep_at: usize,
}

impl OwnWrites {
    /// Notes a write. Of several writes to one object the latest version counts: answers may come in another order. `has` tells
    /// whether a cache has a write already.
    pub(crate) fn wrote(
        &mut self,
        key: ObjectKey,
        object: WrittenObject,
        awaited: Awaited,
        has: impl Fn(&WrittenObject, Awaited) -> bool,
    ) {
        if self.writes >= self.sweep_at.max(SWEEP_LEAST) {
            self.by_key.retain(|_, writes| {
                writes.retain(|object, awaited| !has(object, *awaited));
                !writes.is_empty()
            });
            self.writes = self.by_key.values().map(HashMap::len).sum();
            self.sweep_at = self.writes * 2;
        }
        let writes = self.by_key.entry(key).or_default();
        let awaited = match (writes.get(&object), awaited) {
            (Some(Awaited::Version(known)), Awaited::Version(new)) => {
                Awaited::Version(new.max(*known))
            }
            (_, awaited) => awaited,
        };
        self.writes += usize::from(writes.insert(object, awaited).is_none());
    }

    /// The writes that the next reconcile of a key must see.
    pub(crate) fn of(&self, key: &ObjectKey) -> Vec<(WrittenObject, Awaited)> {
        let writes = self.by_key.get(key).into_iter().flatten();
        writes
            .map(|(object, awaited)| (object.clone(), *awaited))
            .collect()
    }

    /// Forgets writes of a key: those that the caches have, or all.
    pub(crate) fn forget(
        &mut self,
        key: &ObjectKey,
        is_seen: impl Fn(&WrittenObject, Awaited) -> bool,
    ) {
        let Some(writes) = self.by_key.get_mut(key) else {
            return;
        };
        let before = writes.len();
        writes.retain(|object, awaited| !is_seen(object, *awaited));
        self.writes -= before - writes.len();
        if writes.is_empty() {
            self.by_key.remove(key);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.writes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> WrittenObject {
        (0, ObjectKey::new("ns", name))
    }

    #[test]
    fn the_latest_write_to_an_object_counts_until_it_is_seen() {
        let key = ObjectKey::new("ns", "site");
        let mut writes = OwnWrites::default();
        for (name, version) in [("a", 5), ("b", 6), ("a", 7), ("b", 4)] {
            writes.wrote(
                key.clone(),
                object(name),
                Awaited::Version(version),
                |_, _| false,
            );
        }
        let mut found = writes.of(&key);
        found.sort_by_key(|(object, _)| object.clone());
        let expected = [
            (object("a"), Awaited::Version(7)),
            (object("b"), Awaited::Version(6)),
        ];
        assert_eq!(found, expected);
        writes.forget(&key, |_, awaited| awaited == Awaited::Version(6));
        assert_eq!(
            (writes.of(&key), writes.len()),
            (vec![expected[0].clone()], 1)
        );
        writes.forget(&key, |_, _| true);
        assert_eq!((writes.of(&key), writes.len()), (vec![], 0));
    }

    #[test]
    fn writes_that_the_caches_have_are_swept_even_of_one_key() {
        let key = ObjectKey::new("ns", "site");
        let mut writes = OwnWrites::default();
        for number in 0..100_000_u64 {
            let has = |_: &WrittenObject, awaited| awaited != Awaited::Version(99_999);
            let name = format!("child-{number}");
            writes.wrote(key.clone(), object(&name), Awaited::Version(number), has);
            assert!(writes.len() <= SWEEP_LEAST + 1);
        }
        assert!(
            writes
                .of(&key)
                .contains(&(object("child-99999"), Awaited::Version(99_999)))
        );
    }
}
