//! The store: objects by key with indexes over them, read without locks.
//!
//! An [`Indexer`] writes; a [`Store`] reads. Each write publishes one new [`Snapshot`]: a reader sees the state before or after
//! it, never a part of it, and never waits for a writer.

mod expiring;
mod held_object;
mod index;
mod indexer;
mod merged;
mod overlay;
mod snapshot;
mod undelta;

use std::sync::Arc;

use arc_swap::ArcSwap;
use tidings_api::{LabelSelector, ObjectKey};

use crate::object::Cached;

pub use expiring::ExpirationCache;
pub(crate) use held_object::HeldObject;
pub use index::{Index, IndexError, IndexValue};
pub(crate) use indexer::{AppliedWrite, NotIndexed, StoreWrite};
pub use indexer::{IndexConflict, Indexer};
pub use merged::MergedStore;
pub use overlay::WriteOverlay;
pub(crate) use snapshot::SnapshotDifference;
pub use snapshot::{Snapshot, UnknownIndex};
pub use undelta::UndeltaStore;

/// The name of the index over labels.
pub(crate) const LABEL_INDEX: &str = "labels";

/// The reading side of a store. Cloning it is cheap.
pub struct Store<K> {
    published: Arc<ArcSwap<Snapshot<K>>>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Store<K> {
        Store {
            published: Arc::clone(&self.published),
        }
    }
}

impl<K: Send + Sync + 'static> Store<K> {
    fn empty() -> Store<K> {
        Store {
            published: Arc::new(ArcSwap::from_pointee(Snapshot::empty())),
        }
    }

    /// The current state, for several consistent reads or for iteration.
    pub fn snapshot(&self) -> Arc<Snapshot<K>> {
        self.published.load_full()
    }

    /// An object by its key, `namespace/name`.
    pub fn get_by_key(&self, key: &str) -> Option<Arc<Cached<K>>> {
        self.published.load().get_by_key(key).cloned()
    }

    /// An object by namespace and name; the namespace of cluster-scoped objects is empty.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Cached<K>>> {
        self.get_by_key(ObjectKey::new(namespace, name).as_str())
    }

    /// All objects, sorted by key. [`Store::snapshot`] avoids the copy of the list.
    pub fn list(&self) -> Vec<Arc<Cached<K>>> {
        self.published.load().iter().cloned().collect()
    }

    /// All keys, sorted.
    pub fn list_keys(&self) -> Vec<ObjectKey> {
        let snapshot = self.published.load();
        snapshot.iter().map(|object| object.key().clone()).collect()
    }

    /// The objects that a selector matches, in one namespace or in all, sorted by key.
    pub fn select(&self, namespace: Option<&str>, selector: &LabelSelector) -> Vec<Arc<Cached<K>>> {
        self.published
            .load()
            .select(namespace, selector)
            .cloned()
            .collect()
    }

    /// The objects that have a value in an index, sorted by key.
    ///
    /// # Errors
    /// If the index belongs to another store.
    pub fn by_index<V: IndexValue>(
        &self,
        index: &Index<K, V>,
        value: &V,
    ) -> Result<Vec<Arc<Cached<K>>>, UnknownIndex> {
        let snapshot = self.published.load();
        let found = snapshot.by_index(index, value)?;
        Ok(found.cloned().collect())
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.published.load().len()
    }

    /// True if the store is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K> std::fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.published.load().fmt(f)
    }
}
