//! The state of a store at a version.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use tidings_api::{LabelSelector, ObjectKey};

use super::index::{AnyIndex, Index, IndexData, IndexValue};
use crate::object::Cached;
use crate::reflector::Version;

/// An object in a map: two are equal if they are the same allocation.
pub(crate) struct Held<K>(pub(crate) Arc<Cached<K>>);

impl<K> Clone for Held<K> {
    fn clone(&self) -> Held<K> {
        Held(Arc::clone(&self.0))
    }
}

impl<K> PartialEq for Held<K> {
    fn eq(&self, other: &Held<K>) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

pub(super) struct NamedIndex<K> {
    pub(super) name: Arc<str>,
    pub(super) data: Box<dyn AnyIndex<K>>,
}

impl<K> Clone for NamedIndex<K> {
    fn clone(&self) -> NamedIndex<K> {
        NamedIndex {
            name: Arc::clone(&self.name),
            data: self.data.clone_box(),
        }
    }
}

/// The state of a store at a version: all objects in the order of their keys, and every index over exactly these objects.
///
/// It never changes. Having one costs nothing, and keeps alive what it shows.
pub struct Snapshot<K> {
    pub(super) objects: OrdMap<ObjectKey, Held<K>>,
    pub(super) indexes: Vec<NamedIndex<K>>,
    pub(super) version: Version,
    pub(super) memory_bytes: usize,
}

/// There is no index of that name, or it has values of another type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no index {0:?} with values of this type")]
pub struct UnknownIndex(pub String);

/// How the state of an object differs between two snapshots.
pub(crate) enum Difference<'a, K> {
    Added(&'a Arc<Cached<K>>),
    Updated(&'a Arc<Cached<K>>, &'a Arc<Cached<K>>),
    Deleted(&'a Arc<Cached<K>>),
}

impl<K: Send + Sync + 'static> Snapshot<K> {
    pub(super) fn empty() -> Snapshot<K> {
        Snapshot {
            objects: OrdMap::new(),
            indexes: Vec::new(),
            version: Version::default(),
            memory_bytes: 0,
        }
    }

    /// The version of which this is the state. Unset before the first state.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// About how many bytes the objects keep.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// An object by its namespace, which is empty for cluster-scoped objects, and its name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Cached<K>>> {
        self.get_by_key(ObjectKey::new(namespace, name).as_str())
    }

    /// An object by its key, `namespace/name`.
    pub fn get_by_key(&self, key: &str) -> Option<&Arc<Cached<K>>> {
        self.objects.get(key).map(|held| &held.0)
    }

    /// All objects, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Cached<K>>> {
        self.objects.values().map(|held| &held.0)
    }

    /// All objects behind a key, in order.
    pub fn after(&self, key: &str) -> impl Iterator<Item = &Arc<Cached<K>>> {
        let range = (Bound::Excluded(key), Bound::Unbounded);
        self.objects.range::<_, str>(range).map(|(_, held)| &held.0)
    }

    /// The objects of a namespace, in the order of their names. The objects are ordered by it already: this is an index that
    /// costs nothing.
    pub fn namespace<'a>(
        &'a self,
        namespace: &str,
    ) -> impl Iterator<Item = &'a Arc<Cached<K>>> + use<'a, K> {
        let prefix = format!("{namespace}/");
        let range = (Bound::Included(prefix.as_str()), Bound::Unbounded);
        let namespace = namespace.to_owned();
        self.objects
            .range::<_, str>(range)
            .take_while(move |(key, _)| key.namespace() == namespace)
            .map(|(_, held)| &held.0)
    }

    /// The objects with a value in an index, in the order of their keys.
    ///
    /// # Errors
    /// If the index is of another store.
    pub fn by_index<'a, V: IndexValue>(
        &'a self,
        index: &Index<K, V>,
        value: &V,
    ) -> Result<impl Iterator<Item = &'a Arc<Cached<K>>> + use<'a, K, V>, UnknownIndex> {
        Ok(self.index(&index.name)?.lookup(value))
    }

    /// The values that an index has, in order.
    ///
    /// # Errors
    /// If the index is of another store.
    pub fn index_values<V: IndexValue>(&self, index: &Index<K, V>) -> Result<Vec<V>, UnknownIndex> {
        Ok(self.index(&index.name)?.all_values())
    }

    pub(super) fn index<V: IndexValue>(
        &self,
        name: &str,
    ) -> Result<&IndexData<K, V>, UnknownIndex> {
        self.indexes
            .iter()
            .find(|index| *index.name == *name)
            .and_then(|index| index.data.as_any().downcast_ref())
            .ok_or_else(|| UnknownIndex(name.to_owned()))
    }

    /// The objects that a selector selects, in the order of their keys. An index over labels is used if there is one.
    pub fn select<'a>(
        &'a self,
        namespace: Option<&str>,
        selector: &'a LabelSelector,
    ) -> Box<dyn Iterator<Item = &'a Arc<Cached<K>>> + 'a> {
        if let Some(label) = selector.required_label()
            && let Ok(index) = self.index::<(Box<str>, Box<str>)>(super::LABEL_INDEX)
        {
            let found = index.lookup(&(label.0.into(), label.1.into()));
            let namespace = namespace.map(str::to_owned);
            return Box::new(found.filter(move |object| {
                namespace
                    .as_deref()
                    .is_none_or(|namespace| object.namespace() == namespace)
                    && selector.matches(object.labels())
            }));
        }
        let matches =
            |object: &&Arc<Cached<K>>| selector.is_empty() || selector.matches(object.labels());
        match namespace {
            Some(namespace) => Box::new(self.namespace(namespace).filter(matches)),
            None => Box::new(self.iter().filter(matches)),
        }
    }

    /// What changed between this state and a later one, in the order of the keys. What both share is not looked at.
    pub(crate) fn differences<'a>(
        &'a self,
        later: &'a Snapshot<K>,
    ) -> impl Iterator<Item = Difference<'a, K>> {
        self.objects.diff(&later.objects).map(|item| match item {
            DiffItem::Add(_, new) => Difference::Added(&new.0),
            DiffItem::Update { old, new } => Difference::Updated(&old.1.0, &new.1.0),
            DiffItem::Remove(_, old) => Difference::Deleted(&old.0),
        })
    }
}

impl<K> Clone for Snapshot<K> {
    fn clone(&self) -> Snapshot<K> {
        Snapshot {
            objects: self.objects.clone(),
            indexes: self.indexes.clone(),
            version: self.version.clone(),
            memory_bytes: self.memory_bytes,
        }
    }
}

impl<K> std::fmt::Debug for Snapshot<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot")
            .field("version", &self.version)
            .field("objects", &self.objects.len())
            .finish_non_exhaustive()
    }
}
