//! Secondary indexes.
//!
//! An index is one ordered persistent map from (value, key) to object: a lookup is a range, a value without objects takes no
//! memory, and a clone for a snapshot is O(1).

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use imbl::OrdMap;
use tidings_api::ObjectKey;

use super::held_object::HeldObject;
use crate::object::Cached;

/// Why an index function failed for an object.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct IndexError(String);

impl IndexError {
    /// With this reason.
    pub fn new(reason: impl fmt::Display) -> IndexError {
        IndexError(reason.to_string())
    }
}

/// The values of an index. Implemented for all types that qualify.
pub trait IndexValue: Ord + Clone + Send + Sync + 'static {}

impl<T: Ord + Clone + Send + Sync + 'static> IndexValue for T {}

type IndexFunc<K, V> = dyn Fn(&Cached<K>) -> Result<Vec<V>, IndexError> + Send + Sync;

/// A handle to an index of a store, with the type of its values.
pub struct Index<K, V> {
    pub(super) name: Arc<str>,
    marker: PhantomData<fn(&K) -> V>,
}

impl<K, V> Index<K, V> {
    pub(super) fn new(name: Arc<str>) -> Index<K, V> {
        Index {
            name,
            marker: PhantomData,
        }
    }

    /// The handle of an index that was added under a name. Reading a store that has no such index, or one with values of another type,
    /// is an error.
    pub fn named(name: impl Into<Arc<str>>) -> Index<K, V> {
        Index::new(name.into())
    }

    /// The name of the index.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<K, V> Clone for Index<K, V> {
    fn clone(&self) -> Index<K, V> {
        Index::new(Arc::clone(&self.name))
    }
}

impl<K, V> fmt::Debug for Index<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Index").field(&self.name).finish()
    }
}

/// An index with values of any type.
pub(super) trait AnyIndex<K>: Send + Sync {
    /// Updates the index for a changed object. An error is that of the new state; the old state is removed in any case.
    fn change(
        &mut self,
        old: Option<&Arc<Cached<K>>>,
        new: Option<&Arc<Cached<K>>>,
    ) -> Result<(), IndexError>;
    fn clone_box(&self) -> Box<dyn AnyIndex<K>>;
    fn as_any(&self) -> &dyn Any;
}

/// The index function and the entries.
pub(super) struct IndexData<K, V> {
    function: Arc<IndexFunc<K, V>>,
    /// Sorted by value, then by key. Keys are never empty, so (value, "") is the start of a value's range.
    entries: OrdMap<(V, ObjectKey), HeldObject<K>>,
}

impl<K: Send + Sync + 'static, V: IndexValue> IndexData<K, V> {
    pub(super) fn new(
        function: impl Fn(&Cached<K>) -> Result<Vec<V>, IndexError> + Send + Sync + 'static,
    ) -> IndexData<K, V> {
        IndexData {
            function: Arc::new(function),
            entries: OrdMap::new(),
        }
    }

    fn values(&self, object: &Cached<K>) -> Result<Vec<V>, IndexError> {
        catch_unwind(AssertUnwindSafe(|| (self.function)(object)))
            .unwrap_or_else(|_| Err(IndexError::new("the index function panicked")))
    }

    /// The objects that have a value, sorted by key.
    pub(super) fn lookup<'a>(
        &'a self,
        value: &V,
    ) -> impl Iterator<Item = &'a Arc<Cached<K>>> + use<'a, K, V> {
        let start = (value.clone(), ObjectKey::from_joined(""));
        let value = value.clone();
        self.entries
            .range((Bound::Included(start), Bound::Unbounded))
            .take_while(move |((candidate, _), _)| *candidate == value)
            .map(|(_, held)| &held.0)
    }

    /// All values in the index, sorted.
    pub(super) fn all_values(&self) -> Vec<V> {
        let mut values: Vec<V> = Vec::new();
        for (value, _) in self.entries.keys() {
            if values.last() != Some(value) {
                values.push(value.clone());
            }
        }
        values
    }
}

impl<K: Send + Sync + 'static, V: IndexValue> AnyIndex<K> for IndexData<K, V> {
    fn change(
        &mut self,
        old: Option<&Arc<Cached<K>>>,
        new: Option<&Arc<Cached<K>>>,
    ) -> Result<(), IndexError> {
        // The function must return equal values for equal objects. If it failed for the old state, there are no entries of it.
        let before = old.map_or_else(Vec::new, |old| self.values(old).unwrap_or_default());
        let after = new.map_or(Ok(Vec::new()), |new| self.values(new));
        let kept = after.as_deref().unwrap_or_default();
        if let Some(old) = old {
            for value in before {
                if !kept.contains(&value) {
                    self.entries.remove(&(value, old.key().clone()));
                }
            }
        }
        if let Some(new) = new {
            for value in kept {
                let entry = (value.clone(), new.key().clone());
                self.entries.insert(entry, HeldObject(Arc::clone(new)));
            }
        }
        after.map(drop)
    }

    fn clone_box(&self) -> Box<dyn AnyIndex<K>> {
        Box::new(IndexData {
            function: Arc::clone(&self.function),
            entries: self.entries.clone(),
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
