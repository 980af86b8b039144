//! The program's own writes, laid over a store.

use std::collections::HashMap;
use std::sync::Arc;

use tidings_api::{LabelSelector, Object, ObjectKey};

use super::{Snapshot, Store};
use crate::object::{Cached, Decode, DecodeError, Uid};
use crate::reflector::Version;
use crate::sync::{Mutex, lock};

/// What a program wrote and the watch has not brought back yet.
///
/// A write is visible here from the moment it is laid over, and until the store includes its version. client-go calls this a
/// MutationCache.
///
/// Bound: an entry goes when the store's version has passed it, so there are at most as many as writes within the lag of the
/// watch.
pub struct WriteOverlay<K> {
    store: Store<K>,
    writes: Mutex<Writes<K>>,
}

struct Writes<K> {
    laid: HashMap<ObjectKey, Written<K>>,
    /// The version of the store when it was last looked at.
    seen: Version,
}

struct Written<K> {
    /// The version of the write; of a deletion, whose own version is not known, that of the object before it.
    version: u64,
    uid: Uid,
    /// `None` for a deletion.
    object: Option<Arc<Cached<K>>>,
}

impl<K: Send + Sync + 'static> WriteOverlay<K> {
    pub(crate) fn new(store: Store<K>) -> WriteOverlay<K> {
        WriteOverlay {
            store,
            writes: Mutex::new(Writes {
                laid: HashMap::new(),
                seen: Version::default(),
            }),
        }
    }

    /// Lays an object over the store, as the server returned it from a create or update.
    ///
    /// # Errors
    /// If it cannot be decoded.
    pub fn wrote_raw(
        &self,
        object: &Object,
        decode: &Decode<K>,
    ) -> Result<Arc<Cached<K>>, DecodeError> {
        let written = Cached::new(object, decode)?;
        self.wrote(&written);
        Ok(written)
    }

    /// Lays an object over the store that was decoded already.
    pub fn wrote(&self, object: &Arc<Cached<K>>) {
        let written = Written {
            version: object.version(),
            uid: object.uid(),
            object: Some(Arc::clone(object)),
        };
        self.lay(object.key().clone(), written);
    }

    /// Says that the program deleted an object, whose last known state is this. It is hidden until the watch shows that it has
    /// gone.
    ///
    /// Only for a deletion that is done: an object that waits for finalizers is what the server answers to the deletion, and
    /// goes into [`WriteOverlay::wrote`].
    pub fn deleted(&self, last: &Cached<K>) {
        let written = Written {
            version: last.version(),
            uid: last.uid(),
            object: None,
        };
        self.lay(last.key().clone(), written);
    }

    fn lay(&self, key: ObjectKey, written: Written<K>) {
        let mut writes = lock(&self.writes);
        let snapshot = self.store.snapshot();
        let newer = writes.laid.get(&key).is_none_or(|known| {
            // An answer that comes late does not bring back what was deleted after it.
            let of_deleted = known.object.is_none() && known.uid == written.uid;
            known.version <= written.version && !of_deleted
        });
        if newer && !written.is_old(&key, &snapshot) {
            writes.laid.insert(key, written);
        }
    }

    /// Forgets what the store has caught up with.
    pub(crate) fn caught_up(&self) {
        let mut writes = lock(&self.writes);
        let snapshot = self.store.snapshot();
        if snapshot.version().is_before(&writes.seen) {
            writes.laid.clear(); // the server has lost them
        }
        writes.seen = snapshot.version().clone();
        if !writes.laid.is_empty() {
            writes
                .laid
                .retain(|key, written| !written.is_old(key, &snapshot));
        }
    }

    /// An object by its namespace, which is empty for cluster-scoped objects, and its name, with the program's own writes.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Cached<K>>> {
        self.get_by_key(ObjectKey::new(namespace, name).as_str())
    }

    /// The objects whose labels a selector selects, in the order of their keys, with the program's own writes.
    pub fn select(&self, selector: &LabelSelector) -> Vec<Arc<Cached<K>>> {
        let mut objects = self.list();
        objects.retain(|object| selector.matches(object.labels()));
        objects
    }

    /// An object by its key, with the program's own writes.
    pub fn get_by_key(&self, key: &str) -> Option<Arc<Cached<K>>> {
        // The lock first: a write that is forgotten in between is in the snapshot then.
        let writes = lock(&self.writes);
        let snapshot = self.store.snapshot();
        match writes.laid.get(key) {
            Some(written) if !written.is_old(&ObjectKey::from_joined(key), &snapshot) => {
                written.object.clone()
            }
            _ => snapshot.get_by_key(key).cloned(),
        }
    }

    /// All objects in the order of their keys, with the program's own writes.
    pub fn list(&self) -> Vec<Arc<Cached<K>>> {
        let writes = lock(&self.writes);
        let snapshot = self.store.snapshot();
        let mut objects = snapshot.objects.clone();
        for (key, written) in &writes.laid {
            if written.is_old(key, &snapshot) {
                continue;
            }
            match &written.object {
                Some(object) => {
                    objects.insert(key.clone(), super::Held(Arc::clone(object)));
                }
                None => {
                    objects.remove(key);
                }
            }
        }
        objects.values().map(|held| Arc::clone(&held.0)).collect()
    }

    /// How many writes the store has not caught up with.
    pub fn len(&self) -> usize {
        lock(&self.writes).laid.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Send + Sync + 'static> Written<K> {
    /// The store has this write, or something newer.
    fn is_old(&self, key: &ObjectKey, snapshot: &Snapshot<K>) -> bool {
        let passed = snapshot
            .version()
            .number()
            .is_some_and(|version| version >= self.version);
        let stored = snapshot.get_by_key(key.as_str());
        if self.object.is_none() {
            // An object that was created again is another.
            return stored.map_or(passed, |stored| {
                let is_another = stored.uid() != self.uid || self.uid.is_unset();
                is_another && stored.version() > self.version
            });
        }
        // What was written to the object before is over if it is older.
        passed
            || stored.is_some_and(|stored| stored.version() >= self.version && !self.uid.is_unset())
    }
}

impl<K> std::fmt::Debug for WriteOverlay<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteOverlay")
            .field("writes", &lock(&self.writes).laid.len())
            .finish_non_exhaustive()
    }
}
