//! The objects of a resource at one revision, by key and by the values of facets.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use imbl::{OrdMap, OrdSet};
use tidings_api::{Facet, Object, ObjectKey};

/// The objects of a resource at one revision, by key.
///
/// A persistent map: a clone shares its nodes with the original. It may have indexes, which are kept up to date.
#[derive(Debug, Clone, Default)]
pub struct ObjectMap {
    by_key: OrdMap<ObjectKey, Object>,
    /// A few: see [`CacheOptions`](crate::CacheOptions).
    indexes: Vec<FacetIndex>,
}

impl ObjectMap {
    /// No objects.
    pub fn new() -> ObjectMap {
        ObjectMap::default()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// The object with a key.
    pub fn get(&self, key: &ObjectKey) -> Option<&Object> {
        self.by_key.get(key)
    }

    /// All objects in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &Object)> {
        self.by_key.iter()
    }

    /// The objects with keys in a range, in the order of their keys.
    pub fn range(
        &self,
        range: impl RangeBounds<ObjectKey>,
    ) -> impl Iterator<Item = (&ObjectKey, &Object)> {
        self.by_key.range(range)
    }

    /// The objects in which a facet has a value, with keys after a bound, in the order of their keys. `None` if there is no index for the
    /// facet.
    pub fn with_value<'m>(
        &'m self,
        facet: &Facet,
        value: &str,
        start: &Bound<ObjectKey>,
    ) -> Option<impl Iterator<Item = (&'m ObjectKey, &'m Object)> + use<'m>> {
        let index = self.index(facet)?;
        let value: Arc<str> = value.into();
        let entry = |key: &ObjectKey| IndexEntry {
            value: value.clone(),
            key: key.clone(),
        };
        let start = match start {
            Bound::Included(key) => Bound::Included(entry(key)),
            Bound::Excluded(key) => Bound::Excluded(entry(key)),
            Bound::Unbounded => Bound::Included(entry(&ObjectKey::from_joined(""))),
        };
        let entries = index.entries.range((start, Bound::Unbounded));
        let entries = entries.take_while(move |entry| entry.value == value);
        Some(entries.filter_map(|entry| Some((&entry.key, self.by_key.get(&entry.key)?))))
    }

    /// Puts an object in the place of the one with its key. Returns that one.
    pub(crate) fn insert(&mut self, key: ObjectKey, object: Object) -> Option<Object> {
        if self.indexes.is_empty() {
            return self.by_key.insert(key, object);
        }
        let before = self.by_key.insert(key.clone(), object.clone());
        for index in &mut self.indexes {
            index.change(&key, before.as_ref(), Some(&object));
        }
        before
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<Object> {
        let removed = self.by_key.remove(key)?;
        for index in &mut self.indexes {
            index.change(key, Some(&removed), None);
        }
        Some(removed)
    }

    /// The index for a facet.
    pub(crate) fn index(&self, facet: &Facet) -> Option<&FacetIndex> {
        self.indexes.iter().find(|index| *index.facet == *facet)
    }

    /// True if another index may be made: there are fewer than `most`, or one was last used before a time.
    pub(crate) fn has_room(&self, most: usize, before: u64) -> bool {
        let mut indexes = self.indexes.iter();
        let is_old = |index: &FacetIndex| index.used.load(Ordering::Relaxed) < before;
        self.indexes.len() < most || (most > 0 && indexes.any(is_old))
    }

    /// Adds an index of these objects. The one that was used least recently goes if there are more than `most` then.
    pub(crate) fn add_index(&mut self, index: FacetIndex, most: usize) {
        self.indexes.push(index);
        if self.indexes.len() > most {
            let used = |index: &FacetIndex| index.used.load(Ordering::Relaxed);
            let mut indexes = self.indexes.iter().enumerate();
            let first = indexes.next().map(|(at, index)| (at, used(index)));
            let least = indexes.fold(first, |least, (at, index)| match least {
                Some((_, known)) if used(index) >= known => least,
                _ => Some((at, used(index))),
            });
            least.map(|(at, _)| self.indexes.remove(at));
        }
    }

    /// Drops the indexes that were last used before a time.
    pub(crate) fn drop_unused(&mut self, before: u64) {
        self.indexes
            .retain(|index| index.used.load(Ordering::Relaxed) >= before);
    }

    /// How many indexes there are.
    pub(crate) fn indexes(&self) -> usize {
        self.indexes.len()
    }
}

/// The keys of objects by the value of a facet. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct FacetIndex {
    facet: Arc<Facet>,
    entries: OrdSet<IndexEntry>,
    /// When a list last used it, in the time of the cache.
    used: Arc<AtomicU64>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct IndexEntry {
    value: Arc<str>,
    key: ObjectKey,
}

impl FacetIndex {
    pub(crate) fn new(facet: Facet) -> FacetIndex {
        FacetIndex {
            facet: Arc::new(facet),
            entries: OrdSet::new(),
            used: Arc::default(),
        }
    }

    /// Notes that a list uses it.
    pub(crate) fn use_at(&self, time: u64) {
        self.used.fetch_max(time, Ordering::Relaxed);
    }

    /// Follows the change of one object from one state to another.
    pub(crate) fn change(
        &mut self,
        key: &ObjectKey,
        before: Option<&Object>,
        after: Option<&Object>,
    ) {
        let before = before.and_then(|object| self.facet.value(object));
        let after = after.and_then(|object| self.facet.value(object));
        if before == after {
            return;
        }
        if let Some(value) = before {
            let value = Arc::from(&*value);
            let key = key.clone();
            self.entries.remove(&IndexEntry { value, key });
        }
        if let Some(value) = after {
            let value = self.shared(&value);
            let key = key.clone();
            self.entries.insert(IndexEntry { value, key });
        }
    }

    /// A value, shared with an entry that has it already.
    fn shared(&self, value: &str) -> Arc<str> {
        let first = IndexEntry {
            value: value.into(),
            key: ObjectKey::from_joined(""),
        };
        let known = self.entries.get_next(&first);
        match known.filter(|known| *known.value == *value) {
            Some(known) => known.value.clone(),
            None => first.value,
        }
    }
}
