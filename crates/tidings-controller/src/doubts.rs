//! Writes in doubt: nobody knows whether they were done, because their answer was lost. A reconcile that starts before the cache has
//! them would do them again.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tidings_api::ObjectKey;

/// What may have been written to the objects of a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// Only to one object.
    Object(ObjectKey),
    /// To an object whose name the server has chosen, or to several.
    Any,
}

/// The caches with writes in doubt, by their position among the sources of a controller. Bound: the sources.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    by_source: Mutex<BTreeMap<usize, PendingDoubt>>,
    /// Held by the reconcile that resolves them; others wait for it.
    pub(crate) resolving: tokio::sync::Mutex<()>,
}

/// A doubt that is not resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingDoubt {
    pub(crate) doubt: Doubt,
    /// How often something was added.
    additions: u64,
}

impl Doubts {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<usize, PendingDoubt>> {
        self.by_source
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, source: usize, object: Option<ObjectKey>) {
        let mut doubts = self.lock();
        let known = doubts.get(&source);
        let additions = known.map_or(0, |known| known.additions) + 1;
        let doubt = match (known.map(|known| &known.doubt), object) {
            (None, Some(object)) => Doubt::Object(object),
            (Some(Doubt::Object(known)), Some(object)) if *known == object => Doubt::Object(object),
            _ => Doubt::Any,
        };
        doubts.insert(source, PendingDoubt { doubt, additions });
    }

    /// True if nothing is in doubt.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// What is in doubt now. It stays so until it is resolved: whoever resolves it may be dropped.
    pub(crate) fn pending(&self) -> Vec<(usize, PendingDoubt)> {
        let doubts = self.lock();
        let pending = doubts.iter();
        pending
            .map(|(source, pending)| (*source, pending.clone()))
            .collect()
    }

    /// A doubt is resolved, unless something was added to it meanwhile.
    pub(crate) fn resolved(&self, source: usize, resolved: &PendingDoubt) {
        let mut doubts = self.lock();
        if doubts.get(&source) == Some(resolved) {
            doubts.remove(&source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Option<ObjectKey> {
        Some(ObjectKey::new("default", name))
    }

    #[test]
    fn two_objects_in_doubt_are_any() {
        let doubts = Doubts::default();
        assert!(doubts.is_empty());
        doubts.add(1, key("a"));
        doubts.add(1, key("a"));
        doubts.add(2, key("a"));
        doubts.add(2, key("b"));
        doubts.add(3, None);
        doubts.add(3, key("a"));
        let pending = doubts.pending().into_iter();
        let pending: Vec<_> = pending
            .map(|(source, pending)| (source, pending.doubt))
            .collect();
        let one = Doubt::Object(ObjectKey::new("default", "a"));
        assert_eq!(pending, [(1, one), (2, Doubt::Any), (3, Doubt::Any)]);
    }

    #[test]
    fn what_is_added_while_a_doubt_is_resolved_stays_in_doubt() {
        let doubts = Doubts::default();
        doubts.add(1, key("a"));
        let pending = doubts.pending();
        doubts.add(1, key("a"));
        doubts.resolved(1, &pending[0].1);
        assert!(
            !doubts.is_empty(),
            "the second write may be later than the answer"
        );
        let pending = doubts.pending();
        doubts.resolved(1, &pending[0].1);
        assert!(doubts.is_empty());
    }
}
