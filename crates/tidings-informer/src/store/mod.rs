//! What a program knows of a resource: objects by key, indexes over them, read without locks.
//!
//! An [`Indexer`] writes; a [`Store`] reads. Each write publishes one new [`Snapshot`], and a reader sees one or the other,
//! whole. Nobody waits for anybody.

mod expiring;
mod index;
mod indexer;
mod overlay;
mod snapshot;
mod undelta;

use std::sync::Arc;

use arc_swap::ArcSwap;
use tidings_api::{LabelSelector, ObjectKey};

use crate::object::Cached;

pub use expiring::ExpirationCache;
pub use index::{Index, IndexError, IndexValue};
pub(crate) use indexer::{Applied, NotIndexed, Write};
pub use indexer::{IndexConflict, Indexer};
pub use overlay::WriteOverlay;
pub(crate) use snapshot::{Difference, Held};
pub use snapshot::{Snapshot, UnknownIndex};
pub use undelta::UndeltaStore;

/// The name of the index over labels.
pub(crate) const LABEL_INDEX: &str = "labels";

/// Reads a store. Cloning it costs nothing.
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

    /// The state now: for several reads that belong together, or to walk in peace.
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

    /// All objects, in the order of their keys. [`Store::snapshot`] has them without a copy.
    pub fn list(&self) -> Vec<Arc<Cached<K>>> {
        self.published.load().iter().cloned().collect()
    }

    /// All keys, in order.
    pub fn list_keys(&self) -> Vec<ObjectKey> {
        let snapshot = self.published.load();
        snapshot.iter().map(|object| object.key().clone()).collect()
    }

    /// The objects that a selector selects, of one namespace or of all.
    pub fn select(&self, namespace: Option<&str>, selector: &LabelSelector) -> Vec<Arc<Cached<K>>> {
        self.published
            .load()
            .select(namespace, selector)
            .cloned()
            .collect()
    }

    /// The objects with a value in an index, in the order of their keys.
    ///
    /// # Errors
    /// If the index is of another store.
    pub fn by_index<V: IndexValue>(
        &self,
        index: &Index<K, V>,
        value: &V,
    ) -> Result<Vec<Arc<Cached<K>>>, UnknownIndex> {
        let snapshot = self.published.load();
        let found = snapshot.by_index(index, value)?;
        Ok(found.cloned().collect())
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.published.load().len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K> std::fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.published.load().fmt(f)
    }
}
