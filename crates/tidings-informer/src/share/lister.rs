//! Listers: read an informer's store as client-go's generated listers do.

use std::sync::Arc;

use tidings_api::LabelSelector;

use super::informer::SharedInformer;
use crate::object::Cached;
use crate::store::{Index, IndexValue, Snapshot, UnknownIndex};

/// The store has no object with this key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{informer} {key:?} not found")]
pub struct NotFound {
    /// The informer's name.
    pub informer: String,
    /// The key that was asked for.
    pub key: String,
}

impl<K: Send + Sync + 'static> SharedInformer<K> {
    /// A lister that reads the store and keeps the informer running.
    pub fn lister(&self) -> GenericLister<K> {
        GenericLister {
            informer: self.clone(),
        }
    }
}

/// Reads the store of an informer, and keeps the informer running.
#[derive(Debug)]
pub struct GenericLister<K: Send + Sync + 'static> {
    informer: SharedInformer<K>,
}

impl<K: Send + Sync + 'static> Clone for GenericLister<K> {
    fn clone(&self) -> GenericLister<K> {
        self.informer.lister()
    }
}

impl<K: Send + Sync + 'static> GenericLister<K> {
    /// The current state of the store.
    pub fn snapshot(&self) -> Arc<Snapshot<K>> {
        self.informer.store().snapshot()
    }

    /// The objects that a selector selects, in the order of their keys.
    pub fn list(&self, selector: &LabelSelector) -> Vec<Arc<Cached<K>>> {
        self.informer.store().select(None, selector)
    }

    /// A cluster-scoped object by its name.
    ///
    /// # Errors
    /// If there is no object of that name.
    pub fn get(&self, name: &str) -> Result<Arc<Cached<K>>, NotFound> {
        self.get_in("", name)
    }

    fn get_in(&self, namespace: &str, name: &str) -> Result<Arc<Cached<K>>, NotFound> {
        self.informer
            .store()
            .get(namespace, name)
            .ok_or_else(|| NotFound {
                informer: self.informer.name().to_owned(),
                key: tidings_api::ObjectKey::new(namespace, name).to_string(),
            })
    }

    /// A lister for one namespace; for all namespaces if it is empty.
    pub fn by_namespace(&self, namespace: impl Into<String>) -> GenericNamespaceLister<K> {
        GenericNamespaceLister {
            lister: self.clone(),
            namespace: namespace.into(),
        }
    }

    /// The objects that have a value in an index.
    ///
    /// # Errors
    /// If the index belongs to another store.
    pub fn by_index<V: IndexValue>(
        &self,
        index: &Index<K, V>,
        value: &V,
    ) -> Result<Vec<Arc<Cached<K>>>, UnknownIndex> {
        self.informer.store().by_index(index, value)
    }
}

/// Reads the objects of one namespace.
#[derive(Debug)]
pub struct GenericNamespaceLister<K: Send + Sync + 'static> {
    lister: GenericLister<K>,
    namespace: String,
}

impl<K: Send + Sync + 'static> GenericNamespaceLister<K> {
    /// The objects that a selector selects, in the order of their names.
    pub fn list(&self, selector: &LabelSelector) -> Vec<Arc<Cached<K>>> {
        let namespace = Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        self.lister.informer.store().select(namespace, selector)
    }

    /// An object by its name.
    ///
    /// # Errors
    /// If there is no object of that name.
    pub fn get(&self, name: &str) -> Result<Arc<Cached<K>>, NotFound> {
        self.lister.get_in(&self.namespace, name)
    }
}
