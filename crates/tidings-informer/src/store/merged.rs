//! Several stores read as one: of several namespaces or selectors of one resource.

use std::sync::Arc;

use tidings_api::{LabelSelector, ObjectKey};

use super::{Index, IndexValue, Store, UnknownIndex};
use crate::object::Cached;

/// Several stores of one type, read as one. An object that several of them have is there once, in its newest version.
///
/// Each read sees each store at one moment, but not all stores at the same: they are filled by different watches.
///
/// ```
/// use tidings_informer::{Cached, Decode, Indexer, MergedStore};
/// use tidings_api::Object;
///
/// let stores = ["a", "b"].map(|namespace| {
///     let json = format!(r#"{{"metadata":{{"namespace":"{namespace}","name":"x","resourceVersion":"1"}}}}"#);
///     let store = Indexer::<()>::new();
///     store.put(Cached::new(&Object::parse(json).unwrap(), &Decode::keys()).unwrap());
///     store.store()
/// });
/// let both = MergedStore::new(stores);
/// assert_eq!(both.len(), 2);
/// assert!(both.get("b", "x").is_some());
/// ```
pub struct MergedStore<K> {
    stores: Vec<Store<K>>,
}

impl<K> Clone for MergedStore<K> {
    fn clone(&self) -> MergedStore<K> {
        MergedStore {
            stores: self.stores.clone(),
        }
    }
}

impl<K: Send + Sync + 'static> MergedStore<K> {
    /// Reads stores as one.
    pub fn new(stores: impl IntoIterator<Item = Store<K>>) -> MergedStore<K> {
        MergedStore {
            stores: stores.into_iter().collect(),
        }
    }

    /// An object by its key, `namespace/name`.
    pub fn get_by_key(&self, key: &str) -> Option<Arc<Cached<K>>> {
        let found = self.stores.iter().filter_map(|store| store.get_by_key(key));
        found.max_by_key(|object| object.version())
    }

    /// An object by namespace and name; the namespace of cluster-scoped objects is empty.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Cached<K>>> {
        self.get_by_key(ObjectKey::new(namespace, name).as_str())
    }

    /// All objects, sorted by key.
    pub fn list(&self) -> Vec<Arc<Cached<K>>> {
        self.merged(|store| store.list())
    }

    /// The objects that a selector matches, in one namespace or in all, sorted by key.
    pub fn select(&self, namespace: Option<&str>, selector: &LabelSelector) -> Vec<Arc<Cached<K>>> {
        self.merged(|store| store.select(namespace, selector))
    }

    /// The objects that have a value in an index, sorted by key. All stores must have the index.
    ///
    /// # Errors
    /// If a store does not have the index, or has it with values of another type.
    pub fn by_index<V: IndexValue>(
        &self,
        index: &Index<K, V>,
        value: &V,
    ) -> Result<Vec<Arc<Cached<K>>>, UnknownIndex> {
        let mut unknown = None;
        let found = self.merged(|store| {
            store.by_index(index, value).unwrap_or_else(|error| {
                unknown = Some(error);
                Vec::new()
            })
        });
        unknown.map_or(Ok(found), Err)
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        match &*self.stores {
            [only] => only.len(),
            _ => self.list().len(),
        }
    }

    /// True if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.stores.iter().all(Store::is_empty)
    }

    /// The stores.
    pub fn stores(&self) -> &[Store<K>] {
        &self.stores
    }

    fn merged(
        &self,
        mut read: impl FnMut(&Store<K>) -> Vec<Arc<Cached<K>>>,
    ) -> Vec<Arc<Cached<K>>> {
        if let [only] = &*self.stores {
            return read(only);
        }
        let mut objects: Vec<_> = self.stores.iter().flat_map(&mut read).collect();
        objects.sort_by(|left, right| {
            let newest_first = || right.version().cmp(&left.version());
            left.key().cmp(right.key()).then_with(newest_first)
        });
        objects.dedup_by(|next, kept| next.key() == kept.key());
        objects
    }
}

impl<K: Send + Sync + 'static> std::fmt::Debug for MergedStore<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.stores).finish()
    }
}

#[cfg(test)]
mod tests {
    use tidings_api::Object;

    use super::*;
    use crate::object::Decode;
    use crate::store::Indexer;

    fn store(objects: &[(&str, u64, &str)]) -> Store<Object> {
        let indexer = Indexer::new();
        let label = |object: &Cached<Object>| {
            let value = object.labels().get("l").map(str::to_owned);
            Ok(value.into_iter().collect::<Vec<String>>())
        };
        indexer.add_index("l", label).unwrap();
        for (name, version, label) in objects {
            let json = format!(
                r#"{{"metadata":{{"namespace":"n","name":"{name}","resourceVersion":"{version}","labels":{{"l":"{label}"}}}}}}"#
            );
            let object = Object::parse(json).unwrap();
            indexer.put(Cached::new(&object, &Decode::bytes()).unwrap());
        }
        indexer.store()
    }

    #[test]
    fn an_object_of_several_stores_is_there_once_in_its_newest_version() {
        let first = store(&[("a", 1, "x"), ("b", 5, "x"), ("d", 2, "y")]);
        let second = store(&[("b", 4, "x"), ("c", 3, "x"), ("d", 9, "x")]);
        let merged = MergedStore::new([first, second]);
        let read = |objects: Vec<Arc<Cached<Object>>>| -> Vec<(String, u64)> {
            let objects = objects.iter();
            objects
                .map(|object| (object.name().to_owned(), object.version()))
                .collect()
        };
        let of = |expected: &[(&str, u64)]| -> Vec<(String, u64)> {
            let expected = expected.iter();
            expected
                .map(|(name, version)| ((*name).to_owned(), *version))
                .collect()
        };
        let all = of(&[("a", 1), ("b", 5), ("c", 3), ("d", 9)]);
        assert_eq!(read(merged.list()), all);
        assert_eq!((merged.len(), merged.is_empty()), (4, false));
        assert_eq!(merged.get("n", "d").unwrap().version(), 9);
        assert!(merged.get("n", "z").is_none());
        let selector = LabelSelector::parse("l=x").unwrap();
        assert_eq!(read(merged.select(Some("n"), &selector)), all);
        let index = Index::named("l");
        let found = merged.by_index(&index, &"x".to_owned()).unwrap();
        assert_eq!(read(found), all);
        assert!(merged.by_index(&Index::named("l"), &7_u64).is_err());
    }
}
