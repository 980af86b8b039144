//! A store whose entries expire.

use std::collections::HashMap;
use std::time::Duration;

use tidings_api::ObjectKey;
use tokio::time::Instant;

use crate::sync::{Mutex, lock};

/// Objects by key, each for a limited time. Expired ones are invisible, and go when they are next looked at.
#[derive(Debug)]
pub struct ExpirationCache<T> {
    time_to_live: Duration,
    entries: Mutex<HashMap<ObjectKey, (Instant, T)>>,
}

impl<T: Clone> ExpirationCache<T> {
    /// Entries live this long; for ever if that is zero.
    pub fn new(time_to_live: Duration) -> ExpirationCache<T> {
        ExpirationCache {
            time_to_live,
            entries: Mutex::default(),
        }
    }

    /// Adds or replaces an entry, whose time begins now.
    pub fn put(&self, key: ObjectKey, value: T) {
        lock(&self.entries).insert(key, (Instant::now(), value));
    }

    /// Removes an entry.
    pub fn delete(&self, key: &ObjectKey) {
        lock(&self.entries).remove(key);
    }

    /// These are all entries.
    pub fn replace(&self, entries: impl IntoIterator<Item = (ObjectKey, T)>) {
        let now = Instant::now();
        let entries = entries.into_iter().map(|(key, value)| (key, (now, value)));
        *lock(&self.entries) = entries.collect();
    }

    fn is_fresh(&self, since: Instant) -> bool {
        self.time_to_live.is_zero() || since.elapsed() <= self.time_to_live
    }

    /// An entry that has not expired.
    pub fn get(&self, key: &ObjectKey) -> Option<T> {
        let mut entries = lock(&self.entries);
        let (since, value) = entries.get(key)?;
        if self.is_fresh(*since) {
            return Some(value.clone());
        }
        entries.remove(key);
        None
    }

    /// The entries that have not expired, in the order of their keys.
    pub fn list(&self) -> Vec<T> {
        let mut entries = lock(&self.entries);
        entries.retain(|_, (since, _)| self.is_fresh(*since));
        let mut fresh: Vec<_> = entries.iter().collect();
        fresh.sort_by(|left, right| left.0.cmp(right.0));
        fresh
            .into_iter()
            .map(|(_, (_, value))| value.clone())
            .collect()
    }
}
