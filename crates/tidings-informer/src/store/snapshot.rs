//! Snapshots: the immutable state of a store at a version.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use tidings_api::{LabelSelector, ObjectKey};

use super::held_object::HeldObject;
use super::index::{AnyIndex, Index, IndexData, IndexValue};
use crate::object::Cached;
use crate::version::ServerVersion;

/// An index and its name.
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

/// The state of a store at a version: all objects sorted by key, and every index over exactly these objects.
///
/// Immutable. Holding one is cheap, but keeps its objects in memory.
pub struct Snapshot<K> {
    pub(super) objects: OrdMap<ObjectKey, HeldObject<K>>,
    pub(super) indexes: Vec<NamedIndex<K>>,
    pub(super) version: ServerVersion,
    pub(super) memory_bytes: usize,
}

/// The store has no index of this name, or it has values of another type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no index {0:?} with values of this type")]
pub struct UnknownIndex(pub String);

/// How an object differs between two snapshots.
pub(crate) enum SnapshotDifference<'a, K> {
    Added(&'a Arc<Cached<K>>),
    Updated(&'a Arc<Cached<K>>, &'a Arc<Cached<K>>),
    Deleted(&'a Arc<Cached<K>>),
}

impl<K: Send + Sync + 'static> Snapshot<K> {
    pub(super) fn empty() -> Snapshot<K> {
        Snapshot {
            objects: OrdMap::new(),
            indexes: Vec::new(),
            version: ServerVersion::default(),
            memory_bytes: 0,
        }
    }

    /// The resource version of this state. Unset before the first list.
    pub fn version(&self) -> &ServerVersion {
        &self.version
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// True if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Estimated bytes of the objects.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// An object by namespace (empty for cluster-scoped objects) and name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Cached<K>>> {
        self.get_by_key(ObjectKey::new(namespace, name).as_str())
    }

    /// An object by its key, `namespace/name`.
    pub fn get_by_key(&self, key: &str) -> Option<&Arc<Cached<K>>> {
        self.objects.get(key).map(|held| &held.0)
    }

    /// All objects, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Cached<K>>> {
        self.objects.values().map(|held| &held.0)
    }

    /// The objects after a key, sorted by key.
    pub fn after(&self, key: &str) -> impl Iterator<Item = &Arc<Cached<K>>> {
        let range = (Bound::Excluded(key), Bound::Unbounded);
        self.objects.range::<_, str>(range).map(|(_, held)| &held.0)
    }

    /// The objects of a namespace, sorted by name. Reads a range of the keys, so it needs no index.
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

    /// The objects that have a value in an index, sorted by key.
    ///
    /// # Errors
    /// If the index belongs to another store.
    pub fn by_index<'a, V: IndexValue>(
        &'a self,
        index: &Index<K, V>,
        value: &V,
    ) -> Result<impl Iterator<Item = &'a Arc<Cached<K>>> + use<'a, K, V>, UnknownIndex> {
        Ok(self.index(&index.name)?.lookup(value))
    }

    /// The values of an index, sorted.
    ///
    /// # Errors
    /// If the index belongs to another store.
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

    /// The objects that a selector matches, sorted by key. Uses the label index if there is one.
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

    /// The differences between this state and a later one, sorted by key. Skips the parts that both share.
    pub(crate) fn differences<'a>(
        &'a self,
        later: &'a Snapshot<K>,
    ) -> impl Iterator<Item = SnapshotDifference<'a, K>> {
        self.objects.diff(&later.objects).map(|item| match item {
            DiffItem::Add(_, new) => SnapshotDifference::Added(&new.0),
            DiffItem::Update { old, new } => SnapshotDifference::Updated(&old.1.0, &new.1.0),
            DiffItem::Remove(_, old) => SnapshotDifference::Deleted(&old.0),
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
