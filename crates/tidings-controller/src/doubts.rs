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
    by_source: Mutex<BTreeMap<usize, Doubt>>,
    /// Held by the reconcile that resolves them; others wait for it.
    pub(crate) resolving: tokio::sync::Mutex<()>,
}

impl Doubts {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<usize, Doubt>> {
        self.by_source
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, source: usize, object: Option<ObjectKey>) {
        let mut doubts = self.lock();
        let doubt = match (doubts.get(&source), object) {
            (None, Some(object)) => Doubt::Object(object),
            (Some(Doubt::Object(known)), Some(object)) if *known == object => return,
            _ => Doubt::Any,
        };
        doubts.insert(source, doubt);
    }

    /// True if nothing is in doubt. What a reconcile has taken and not resolved yet still is.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty() && self.resolving.try_lock().is_ok()
    }

    /// Takes what is in doubt now.
    pub(crate) fn take(&self) -> Vec<(usize, Doubt)> {
        std::mem::take(&mut *self.lock()).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_objects_in_doubt_are_any() {
        let key = |name| Some(ObjectKey::new("default", name));
        let doubts = Doubts::default();
        assert!(doubts.is_empty());
        doubts.add(1, key("a"));
        doubts.add(1, key("a"));
        doubts.add(2, key("a"));
        doubts.add(2, key("b"));
        doubts.add(3, None);
        doubts.add(3, key("a"));
        let taken = doubts.take();
        let one = Doubt::Object(ObjectKey::new("default", "a"));
        assert_eq!(taken, [(1, one), (2, Doubt::Any), (3, Doubt::Any)]);
        let resolving = doubts.resolving.try_lock();
        assert!(!doubts.is_empty(), "what was taken is not resolved yet");
        drop(resolving);
        assert!(doubts.is_empty());
    }
}
