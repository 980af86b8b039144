//! The write overlay: makes the program's own writes visible before the watch delivers them.

use std::collections::HashMap;
use std::sync::Arc;

use tidings_api::{LabelSelector, Object, ObjectKey};

use super::{Snapshot, Store};
use crate::object::{Cached, Decode, DecodeError, Uid};
use crate::sync::{Mutex, lock};
use crate::version::ServerVersion;

/// Writes of this program that the watch has not delivered yet.
///
/// A write is visible here until the store includes its version. client-go's `MutationCache`.
///
/// Bound: an entry is removed when the store reaches its version, so there are at most as many entries as writes within the lag
/// of the watch.
pub struct WriteOverlay<K> {
    store: Store<K>,
    writes: Mutex<OverlayWrites<K>>,
}

/// The writes under their lock.
struct OverlayWrites<K> {
    by_key: HashMap<ObjectKey, OverlayWrite<K>>,
    /// The version of the store at the last call of `caught_up`.
    seen: ServerVersion,
}

/// One write.
struct OverlayWrite<K> {
    /// The version of the write. For a deletion, whose own version is not known, the version of the last state.
    version: u64,
    uid: Uid,
    /// `None` for a deletion.
    object: Option<Arc<Cached<K>>>,
    /// The object is what the watch will send.
    is_as_sent: bool,
}

impl<K: Send + Sync + 'static> WriteOverlay<K> {
    pub(crate) fn new(store: Store<K>) -> WriteOverlay<K> {
        WriteOverlay {
            store,
            writes: Mutex::new(OverlayWrites {
                by_key: HashMap::new(),
                seen: ServerVersion::default(),
            }),
        }
    }

    /// Adds an object as the server returned it from a create or update.
    ///
    /// # Errors
    /// If the object cannot be decoded.
    pub fn wrote_raw(
        &self,
        object: &Object,
        decode: &Decode<K>,
    ) -> Result<Arc<Cached<K>>, DecodeError> {
        let written = Cached::new(object, decode)?;
        self.wrote(&written);
        Ok(written)
    }

    /// Adds a decoded object that the server returned from a create or update.
    pub fn wrote(&self, object: &Arc<Cached<K>>) {
        self.lay_object(object, false);
    }

    /// Adds an object that is what the watch will send.
    pub(crate) fn wrote_as_sent(&self, object: &Arc<Cached<K>>) {
        self.lay_object(object, true);
    }

    fn lay_object(&self, object: &Arc<Cached<K>>, is_as_sent: bool) {
        let written = OverlayWrite {
            version: object.version(),
            uid: object.uid(),
            object: Some(Arc::clone(object)),
            is_as_sent,
        };
        self.lay(object.key().clone(), written);
    }

    /// The decoded object of a write that the watch sends now.
    pub(crate) fn received(
        &self,
        key: &ObjectKey,
        version: u64,
        uid: &str,
    ) -> Option<Arc<Cached<K>>> {
        let writes = lock(&self.writes);
        let written = writes.by_key.get(key).filter(|write| write.is_as_sent)?;
        let object = written.object.as_ref()?;
        object
            .is_same(version, Uid::new(uid))
            .then(|| Arc::clone(object))
    }

    /// Hides an object that the program deleted until the watch delivers the deletion. `last` is its last known state.
    ///
    /// Only for a completed deletion. If the object waits for finalizers, the server answers the deletion with the object: pass
    /// that to [`WriteOverlay::wrote`].
    pub fn deleted(&self, last: &Cached<K>) {
        let written = OverlayWrite {
            version: last.version(),
            uid: last.uid(),
            object: None,
            is_as_sent: false,
        };
        self.lay(last.key().clone(), written);
    }

    fn lay(&self, key: ObjectKey, written: OverlayWrite<K>) {
        let mut writes = lock(&self.writes);
        let snapshot = self.store.snapshot();
        let newer = writes.by_key.get(&key).is_none_or(|known| {
            // A late answer to a write must not bring back an object that was deleted after it.
            let of_deleted = known.object.is_none() && known.uid == written.uid;
            known.version <= written.version && !of_deleted
        });
        if newer && !written.is_old(&key, &snapshot) {
            writes.by_key.insert(key, written);
        }
    }

    /// Removes the writes that the store includes.
    pub(crate) fn caught_up(&self) {
        let mut writes = lock(&self.writes);
        let snapshot = self.store.snapshot();
        if snapshot.version().is_before(&writes.seen) {
            writes.by_key.clear(); // the server went back and has lost them
        }
        writes.seen = snapshot.version().clone();
        if !writes.by_key.is_empty() {
            writes.by_key.retain(|key, written| {
                written.confirm_stored(key, &snapshot);
                !written.is_old(key, &snapshot)
            });
        }
    }

    /// An object by namespace (empty for cluster-scoped objects) and name, with the program's own writes.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Cached<K>>> {
        self.get_by_key(ObjectKey::new(namespace, name).as_str())
    }

    /// The objects that a selector matches, sorted by key, with the program's own writes.
    pub fn select(&self, selector: &LabelSelector) -> Vec<Arc<Cached<K>>> {
        let mut objects = self.list();
        objects.retain(|object| selector.matches(object.labels()));
        objects
    }

    /// An object by its key, with the program's own writes.
    pub fn get_by_key(&self, key: &str) -> Option<Arc<Cached<K>>> {
        // Lock before the snapshot: a write that is removed in between would be in neither.
        let writes = lock(&self.writes);
        let snapshot = self.store.snapshot();
        match writes.by_key.get(key) {
            Some(written) if !written.is_old(&ObjectKey::from_joined(key), &snapshot) => {
                written.object.clone()
            }
            _ => snapshot.get_by_key(key).cloned(),
        }
    }

    /// All objects, sorted by key, with the program's own writes.
    pub fn list(&self) -> Vec<Arc<Cached<K>>> {
        let writes = lock(&self.writes);
        let snapshot = self.store.snapshot();
        let mut objects = snapshot.objects.clone();
        for (key, written) in &writes.by_key {
            if written.is_old(key, &snapshot) {
                continue;
            }
            match &written.object {
                Some(object) => {
                    objects.insert(key.clone(), super::HeldObject(Arc::clone(object)));
                }
                None => {
                    objects.remove(key);
                }
            }
        }
        objects.values().map(|held| Arc::clone(&held.0)).collect()
    }

    /// The number of writes that the store does not include yet.
    pub fn len(&self) -> usize {
        lock(&self.writes).by_key.len()
    }

    /// True if the store includes all writes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Send + Sync + 'static> OverlayWrite<K> {
    /// Passes on that the mark of the object was confirmed, if the watch brought this state of it before its answer was decoded.
    fn confirm_stored(&self, key: &ObjectKey, snapshot: &Snapshot<K>) {
        let Some(object) = self
            .object
            .as_ref()
            .filter(|known| known.is_mark_confirmed())
        else {
            return;
        };
        let stored = snapshot.get_by_key(key.as_str());
        if let Some(stored) = stored.filter(|stored| stored.is_same(self.version, self.uid))
            && stored.mark() == object.mark()
        {
            stored.confirm_mark();
        }
    }

    /// True if the store includes this write or a newer one.
    fn is_old(&self, key: &ObjectKey, snapshot: &Snapshot<K>) -> bool {
        let passed = snapshot
            .version()
            .number()
            .is_some_and(|version| version >= self.version);
        let stored = snapshot.get_by_key(key.as_str());
        if self.object.is_none() {
            // A stored object with another uid was created again after the deletion.
            return stored.map_or(passed, |stored| {
                let is_another = stored.uid() != self.uid || self.uid.is_unset();
                is_another && stored.version() > self.version
            });
        }
        // The version of the store may lag behind its objects: a stored object of a later version includes the write.
        passed
            || stored.is_some_and(|stored| stored.version() >= self.version && !self.uid.is_unset())
    }
}

impl<K> std::fmt::Debug for WriteOverlay<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteOverlay")
            .field("writes", &lock(&self.writes).by_key.len())
            .finish_non_exhaustive()
    }
}
