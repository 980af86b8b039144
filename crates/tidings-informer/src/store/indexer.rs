//! The writing side of a store.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use tidings_api::ObjectKey;

use super::index::{AnyIndex, Index, IndexData, IndexError, IndexValue};
use super::snapshot::{Held, NamedIndex, Snapshot};
use super::{LABEL_INDEX, Store};
use crate::object::Cached;
use crate::reflector::Version;

/// Writes a store, and reads it as a [`Store`].
///
/// A write changes a private copy, which shares with the published one what did not change, and publishes it when it is done.
/// Index functions run on the writer's time; readers never wait.
pub struct Indexer<K> {
    store: Store<K>,
    /// The next snapshot. Writers take turns.
    working: Mutex<Snapshot<K>>,
}

/// There is an index of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store has an index {0:?} already")]
pub struct IndexConflict(pub String);

/// One write.
#[derive(Debug)]
pub(crate) enum Write<K> {
    Put(Arc<Cached<K>>),
    Delete(ObjectKey),
}

/// What a write changed.
#[derive(Debug)]
pub(crate) struct Applied<K> {
    pub(crate) old: Option<Arc<Cached<K>>>,
    pub(crate) new: Option<Arc<Cached<K>>>,
}

/// An object that an index function has no answer for.
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

    /// The reading side.
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// Adds an index. It covers the objects that the store has already, and may be added at any time.
    ///
    /// An object for which the function fails or panics is in the store and not in the index.
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
                tracing::warn!(index = &*name, key = %held.0.key(), %error, "an object is not in an index");
            }
        }
        working.indexes.push(NamedIndex {
            name: Arc::clone(&name),
            data: Box::new(data),
        });
        self.publish(&working);
        Ok(Index::new(name))
    }

    /// Adds an index over all labels: selectors that name a value are answered from it. Worth its room where selectors are
    /// frequent and select few of many.
    ///
    /// # Errors
    /// If there is one already.
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
        self.write(vec![Write::Put(object)], None);
    }

    /// Deletes an object.
    pub fn delete(&self, key: &ObjectKey) {
        self.write(vec![Write::Delete(key.clone())], None);
    }

    /// These are all objects, at this version. Of several with one key the last counts.
    pub fn replace(&self, objects: impl IntoIterator<Item = Arc<Cached<K>>>, version: &Version) {
        let listed = objects
            .into_iter()
            .map(|object| (object.key().clone(), Held(object)));
        self.replace_with(listed.collect(), version);
    }

    /// These are all objects, at this version. Returns the deletions first, then the rest, each in the order of the keys.
    ///
    /// What is the same object as before is no change and is not looked at twice. The old generation is freed elsewhere: who
    /// replaces a hundred thousand objects does not pay for their end.
    pub(crate) fn replace_with(
        &self,
        listed: OrdMap<ObjectKey, Held<K>>,
        version: &Version,
    ) -> (Vec<Applied<K>>, Vec<NotIndexed>) {
        let mut working = self.working();
        let (mut applied, mut changed) = (Vec::new(), Vec::new());
        for item in working.objects.diff(&listed) {
            match item {
                DiffItem::Remove(_, old) => applied.push(Applied::new(Some(&old.0), None)),
                DiffItem::Add(_, new) => changed.push(Applied::new(None, Some(&new.0))),
                DiffItem::Update { old, new } => {
                    changed.push(Applied::new(Some(&old.1.0), Some(&new.1.0)));
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

    /// Does several writes and publishes once. The version of the store only grows.
    pub(crate) fn write(
        &self,
        writes: Vec<Write<K>>,
        version: Option<&Version>,
    ) -> (Vec<Applied<K>>, Vec<NotIndexed>) {
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

/// Drops something large where nobody waits.
fn free_elsewhere(garbage: impl Send + 'static) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(move || drop(garbage))),
        Err(_) => drop(garbage),
    }
}

impl<K> Applied<K> {
    fn new(old: Option<&Arc<Cached<K>>>, new: Option<&Arc<Cached<K>>>) -> Applied<K> {
        Applied {
            old: old.cloned(),
            new: new.cloned(),
        }
    }
}

impl<K: Send + Sync + 'static> Snapshot<K> {
    fn apply(&mut self, writes: Vec<Write<K>>) -> (Vec<Applied<K>>, Vec<NotIndexed>) {
        let mut applied = Vec::with_capacity(writes.len());
        let mut not_indexed = Vec::new();
        for write in writes {
            let (old, new) = match write {
                Write::Put(object) => {
                    let held = Held(Arc::clone(&object));
                    let old = self.objects.insert(object.key().clone(), held);
                    (old.map(|old| old.0), Some(object))
                }
                Write::Delete(key) => (self.objects.remove(&key).map(|old| old.0), None),
            };
            if old.is_some() || new.is_some() {
                let change = Applied { old, new };
                self.account(&change, &mut not_indexed);
                applied.push(change);
            }
        }
        (applied, not_indexed)
    }

    /// Brings indexes and figures up to a change.
    fn account(&mut self, change: &Applied<K>, not_indexed: &mut Vec<NotIndexed>) {
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
