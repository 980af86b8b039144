//! A store whose entries expire.

use std::collections::HashMap;
use std::time::Duration;

use tidings_api::ObjectKey;
use tokio::time::Instant;

use crate::sync::{Mutex, lock};

/// Values by key, each for a limited time. Expired ones are invisible, and removed when they are next read.
#[derive(Debug)]
pub struct ExpirationCache<T> {
    time_to_live: Duration,
    entries: Mutex<HashMap<ObjectKey, (Instant, T)>>,
}

impl<T: Clone> ExpirationCache<T> {
    /// A cache whose entries expire after `time_to_live`; never if it is zero.
    pub fn new(time_to_live: Duration) -> ExpirationCache<T> {
        ExpirationCache {
            time_to_live,
            entries: Mutex::default(),
        }
    }

    /// Adds or replaces an entry; its time to live starts at this call.
    pub fn put(&self, key: ObjectKey, value: T) {
        lock(&self.entries).insert(key, (Instant::now(), value));
    }

    /// Removes an entry.
    pub fn delete(&self, key: &ObjectKey) {
        lock(&self.entries).remove(key);
    }

    /// Replaces all entries by these.
    pub fn replace(&self, entries: impl IntoIterator<Item = (ObjectKey, T)>) {
        let now = Instant::now();
        let entries = entries.into_iter().map(|(key, value)| (key, (now, value)));
        *lock(&self.entries) = entries.collect();
    }

    fn is_fresh(&self, since: Instant) -> bool {
        self.time_to_live.is_zero() || since.elapsed() <= self.time_to_live
    }

    /// The value of a key, if it has not expired.
    pub fn get(&self, key: &ObjectKey) -> Option<T> {
        let mut entries = lock(&self.entries);
        let (since, value) = entries.get(key)?;
        if self.is_fresh(*since) {
            return Some(value.clone());
        }
        entries.remove(key);
        None
    }

    /// The values that have not expired, sorted by key.
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
