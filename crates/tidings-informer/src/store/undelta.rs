//! A store that pushes its complete state after each write.

use std::ops::Deref;
use std::sync::Arc;

use tidings_api::ObjectKey;

use super::{Indexer, Snapshot, Store};
use crate::object::Cached;
use crate::sync::{Mutex, lock};
use crate::version::ServerVersion;

/// The function that gets the state after each write.
type PushFunc<K> = Box<dyn FnMut(Arc<Snapshot<K>>) + Send>;

/// A store that pushes its complete state once for each write, and never for a read. client-go's `UndeltaStore`.
///
/// Pushes come in the order of the writes, and none is skipped. The push function may read the store but must not write it, which
/// would be a deadlock.
pub struct UndeltaStore<K> {
    indexer: Indexer<K>,
    push: Mutex<PushFunc<K>>,
}

impl<K: Send + Sync + 'static> UndeltaStore<K> {
    /// An empty store that calls `push` after each write.
    pub fn new(push: impl FnMut(Arc<Snapshot<K>>) + Send + 'static) -> UndeltaStore<K> {
        UndeltaStore {
            indexer: Indexer::new(),
            push: Mutex::new(Box::new(push)),
        }
    }

    /// Adds an object or updates the one with its key.
    pub fn put(&self, object: Arc<Cached<K>>) {
        self.write(|indexer| indexer.put(object));
    }

    /// Deletes an object. Pushes even if the object does not exist.
    pub fn delete(&self, key: &ObjectKey) {
        self.write(|indexer| indexer.delete(key));
    }

    /// Replaces all objects by these, at a version, in one write.
    pub fn replace(
        &self,
        objects: impl IntoIterator<Item = Arc<Cached<K>>>,
        version: &ServerVersion,
    ) {
        self.write(|indexer| indexer.replace(objects, version));
    }

    fn write(&self, write: impl FnOnce(&Indexer<K>)) {
        let mut push = lock(&self.push);
        write(&self.indexer);
        push(self.indexer.snapshot());
    }
}

impl<K> Deref for UndeltaStore<K> {
    type Target = Store<K>;

    fn deref(&self) -> &Store<K> {
        &self.indexer
    }
}

impl<K> std::fmt::Debug for UndeltaStore<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("UndeltaStore").field(&self.indexer).finish()
    }
}
