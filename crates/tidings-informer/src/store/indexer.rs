//! The writing side of a store.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use tidings_api::ObjectKey;

use super::held_object::HeldObject;
use super::index::{AnyIndex, Index, IndexData, IndexError, IndexValue};
use super::snapshot::{NamedIndex, Snapshot};
use super::{LABEL_INDEX, Store};
use crate::object::Cached;
use crate::version::ServerVersion;

/// Writes a store. Dereferences to the [`Store`] for reading.
///
/// A write changes a private snapshot, which shares all unchanged parts with the published one, and then publishes it. Index
/// functions run in the writer; readers never wait.
pub struct Indexer<K> {
    store: Store<K>,
    /// The next snapshot. Writers take turns.
    working: Mutex<Snapshot<K>>,
}

/// The store already has an index of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store has an index {0:?} already")]
pub struct IndexConflict(pub String);

/// One write.
#[derive(Debug)]
pub(crate) enum StoreWrite<K> {
    Put(Arc<Cached<K>>),
    Delete(ObjectKey),
}

/// An object before and after a write.
#[derive(Debug)]
pub(crate) struct AppliedWrite<K> {
    pub(crate) old: Option<Arc<Cached<K>>>,
    pub(crate) new: Option<Arc<Cached<K>>>,
}

/// An object that is missing in an index because the index function failed.
#[derive(Debug)]
pub(crate) struct NotIndexed {
    pub(crate) key: ObjectKey,
    pub(crate) index: Arc<str>,
    pub(crate) error: IndexError,
}

impl<K: Send + Sync + 'static> Default for Indexer<K> {
    fn default() -> Indexer<K> {
        Indexer {
            store: Store::empty(),
            working: Mutex::new(Snapshot::empty()),
        }
    }
}

impl<K: Send + Sync + 'static> Indexer<K> {
    /// An empty store.
    pub fn new() -> Indexer<K> {
        Indexer::default()
    }

    /// The reading side of the store.
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// Adds an index, at any time. It covers the objects that are already in the store.
    ///
    /// An object for which the function fails or panics stays in the store but is not in the index.
    ///
    /// # Errors
    /// If there is an index of that name.
    pub fn add_index<V: IndexValue>(
        &self,
        name: &str,
        function: impl Fn(&Cached<K>) -> Result<Vec<V>, IndexError> + Send + Sync + 'static,
    ) -> Result<Index<K, V>, IndexConflict> {
        let name: Arc<str> = name.into();
        let mut working = self.working();
        if working.indexes.iter().any(|index| index.name == name) {
            return Err(IndexConflict(name.to_string()));
        }
        let mut data = IndexData::new(function);
        for held in working.objects.values() {
            if let Err(error) = data.change(None, Some(&held.0)) {
                tracing::warn!(index = &*name, key = %held.0.key(), %error, "the index function failed: the object is left out of the index");
            }
        }
        working.indexes.push(NamedIndex {
            name: Arc::clone(&name),
            data: Box::new(data),
        });
        self.publish(&working);
        Ok(Index::new(name))
    }

    /// The index of a name, for several parts of a program that need the same one: the first call adds it. An index of this name with
    /// values of another type is a conflict.
    ///
    /// # Errors
    /// If there is an index of that name with values of another type.
    pub fn ensure_index<V: IndexValue>(
        &self,
        name: &str,
        function: impl Fn(&Cached<K>) -> Result<Vec<V>, IndexError> + Send + Sync + 'static,
    ) -> Result<Index<K, V>, IndexConflict> {
        match self.add_index(name, function) {
            Ok(index) => Ok(index),
            Err(conflict) => {
                let working = self.working();
                let known = working.indexes.iter().find(|index| *index.name == *name);
                let same = known.is_some_and(|known| known.data.as_any().is::<IndexData<K, V>>());
                if same {
                    Ok(Index::new(name.into()))
                } else {
                    Err(conflict)
                }
            }
        }
    }

    /// Adds an index over all labels, which serves selectors that require a value of a label. Worth its memory where selectors
    /// are frequent and match few of many objects.
    ///
    /// # Errors
    /// If the store already has it.
    pub fn add_label_index(&self) -> Result<(), IndexConflict> {
        let labels = |object: &Cached<K>| {
            let pairs = object.labels().iter();
            Ok(pairs
                .map(|(key, value)| (Box::from(key), Box::from(value)))
                .collect())
        };
        self.add_index::<(Box<str>, Box<str>)>(LABEL_INDEX, labels)
            .map(drop)
    }

    /// Adds an object or updates the one with its key.
    pub fn put(&self, object: Arc<Cached<K>>) {
        self.write(vec![StoreWrite::Put(object)], None);
    }

    /// Deletes an object.
    pub fn delete(&self, key: &ObjectKey) {
        self.write(vec![StoreWrite::Delete(key.clone())], None);
    }

    /// Replaces all objects by these, at a version. Of several objects with one key the last counts.
    pub fn replace(
        &self,
        objects: impl IntoIterator<Item = Arc<Cached<K>>>,
        version: &ServerVersion,
    ) {
        let listed = objects
            .into_iter()
            .map(|object| (object.key().clone(), HeldObject(object)));
        self.replace_with(listed.collect(), version);
    }

    /// Replaces all objects by these, at a version. Returns the deletions first, then the other changes, each sorted by key.
    ///
    /// Objects that share their allocation with the stored one are unchanged. The old map is freed on another thread: freeing a
    /// hundred thousand objects must not delay the caller.
    pub(crate) fn replace_with(
        &self,
        listed: OrdMap<ObjectKey, HeldObject<K>>,
        version: &ServerVersion,
    ) -> (Vec<AppliedWrite<K>>, Vec<NotIndexed>) {
        let mut working = self.working();
        let (mut applied, mut changed) = (Vec::new(), Vec::new());
        for item in working.objects.diff(&listed) {
            match item {
                DiffItem::Remove(_, old) => applied.push(AppliedWrite::new(Some(&old.0), None)),
                DiffItem::Add(_, new) => changed.push(AppliedWrite::new(None, Some(&new.0))),
                DiffItem::Update { old, new } => {
                    changed.push(AppliedWrite::new(Some(&old.1.0), Some(&new.1.0)));
                }
            }
        }
        applied.append(&mut changed);
        let before = std::mem::replace(&mut working.objects, listed);
        let mut not_indexed = Vec::new();
        for change in &applied {
            working.account(change, &mut not_indexed);
        }
        working.version = version.clone();
        let published = self.publish(&working);
        drop(working);
        free_elsewhere((before, published));
        (applied, not_indexed)
    }

    /// Applies several writes and publishes once. The version of the store only grows.
    pub(crate) fn write(
        &self,
        writes: Vec<StoreWrite<K>>,
        version: Option<&ServerVersion>,
    ) -> (Vec<AppliedWrite<K>>, Vec<NotIndexed>) {
        tracing::trace!(target: "tidings::walk", "publishes the next snapshot");
        let mut working = self.working();
        let applied = working.apply(writes);
        if let Some(version) = version.filter(|version| !version.is_before(&working.version)) {
            working.version = version.clone();
        }
        self.publish(&working);
        applied
    }

    fn working(&self) -> MutexGuard<'_, Snapshot<K>> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, working: &Snapshot<K>) -> Arc<Snapshot<K>> {
        self.store.published.swap(Arc::new(working.clone()))
    }
}

/// Drops a large value on a blocking thread.
fn free_elsewhere(garbage: impl Send + 'static) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(move || drop(garbage))),
        Err(_) => drop(garbage),
    }
}

impl<K> AppliedWrite<K> {
    fn new(old: Option<&Arc<Cached<K>>>, new: Option<&Arc<Cached<K>>>) -> AppliedWrite<K> {
        AppliedWrite {
            old: old.cloned(),
            new: new.cloned(),
        }
    }
}

impl<K: Send + Sync + 'static> Snapshot<K> {
    fn apply(&mut self, writes: Vec<StoreWrite<K>>) -> (Vec<AppliedWrite<K>>, Vec<NotIndexed>) {
        let mut applied = Vec::with_capacity(writes.len());
        let mut not_indexed = Vec::new();
        for write in writes {
            let (old, new) = match write {
                StoreWrite::Put(object) => {
                    let held = HeldObject(Arc::clone(&object));
                    let old = self.objects.insert(object.key().clone(), held);
                    (old.map(|old| old.0), Some(object))
                }
                StoreWrite::Delete(key) => (self.objects.remove(&key).map(|old| old.0), None),
            };
            if old.is_some() || new.is_some() {
                let change = AppliedWrite { old, new };
                self.account(&change, &mut not_indexed);
                applied.push(change);
            }
        }
        (applied, not_indexed)
    }

    /// Updates the indexes and the size for a change.
    fn account(&mut self, change: &AppliedWrite<K>, not_indexed: &mut Vec<NotIndexed>) {
        let bytes = |object: &Option<Arc<Cached<K>>>| {
            object.as_ref().map_or(0, |object| object.memory_bytes())
        };
        self.memory_bytes += bytes(&change.new);
        self.memory_bytes -= bytes(&change.old);
        for index in &mut self.indexes {
            let indexed = index.data.change(change.old.as_ref(), change.new.as_ref());
            if let (Err(error), Some(new)) = (indexed, &change.new) {
                not_indexed.push(NotIndexed {
                    key: new.key().clone(),
                    index: Arc::clone(&index.name),
                    error,
                });
            }
        }
    }
}

impl<K> Deref for Indexer<K> {
    type Target = Store<K>;

    fn deref(&self) -> &Store<K> {
        &self.store
    }
}

impl<K> std::fmt::Debug for Indexer<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.store.fmt(f)
    }
}
