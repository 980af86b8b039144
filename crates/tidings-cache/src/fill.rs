//! The writing end of a cache, which its reflector fills.

use std::collections::HashMap;
use std::sync::{Arc, RwLockWriteGuard};

use tidings_api::{EventType, Object, ObjectKey, ResourceVersion, WatchEvent};
use tidings_informer::{ReflectorStore, ServerVersion};

use crate::cache::{Cache, CacheState, CurrentReader};
use crate::log::{self, LoggedEvent, ObjectMap};

/// Fills a cache from a reflector.
#[derive(Debug)]
pub(crate) struct CacheFiller {
    cache: Arc<Cache>,
    /// A list that is not complete yet, as it is stored.
    collected: ObjectMap,
}

/// Objects whose readers see something else than what is stored, by key.
type ReadObjects = HashMap<ObjectKey, Object>;

impl CacheFiller {
    pub(crate) fn new(cache: Arc<Cache>) -> CacheFiller {
        CacheFiller {
            cache,
            collected: ObjectMap::new(),
        }
    }

    /// What `make` makes of objects with the current reader, and the lock under which that still is the current reader. `make`
    /// takes a while and runs without the lock.
    fn read_with<T>(
        &self,
        make: impl Fn(&CurrentReader) -> T,
    ) -> (T, RwLockWriteGuard<'_, CacheState>) {
        loop {
            let reader = self.cache.reader();
            let made = make(&reader);
            let state = self.cache.state_mut();
            if state.reader.is(&reader) {
                return (made, state);
            }
        }
    }
}

impl ReflectorStore for CacheFiller {
    fn collect(&mut self, part: Vec<WatchEvent>) {
        for event in part {
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    self.collected.insert(object.key(), object);
                }
                WatchEvent::Deleted(object) => {
                    self.collected.remove(&object.key());
                }
                WatchEvent::Bookmark { .. } | WatchEvent::Error(_) => {}
            }
        }
    }

    fn discard(&mut self) {
        self.collected = ObjectMap::new();
    }

    /// A list replaces the state as a whole; it is never compared with the state before.
    fn distrust(&mut self) {
        self.discard();
    }

    fn replace(&mut self, version: &ServerVersion) {
        tracing::trace!(target: "tidings::walk", "puts the first list into the cache");
        let state = std::mem::take(&mut self.collected);
        let revision = ResourceVersion::new(version.number().unwrap_or_default());
        {
            let (seen, mut inner) = self.read_with(|reader| -> ReadObjects {
                if !reader.translates() {
                    return ReadObjects::new();
                }
                let read = |(key, stored): (&ObjectKey, &Object)| {
                    Some((key.clone(), reader.read(stored, EventType::Added)?))
                };
                state.iter().filter_map(read).collect()
            });
            let originals = seen.keys().filter_map(|key| state.get_key_value(key));
            inner.originals = originals
                .map(|(key, stored)| (key.clone(), stored.clone()))
                .collect();
            let mut state = state;
            for (key, object) in seen {
                state.insert(key, object);
            }
            if revision < inner.revision {
                inner.lost = inner.lost.max(inner.revision);
            }
            inner.log.restart(state.clone(), revision);
            inner.state = state;
            inner.revision = revision;
            inner.oldest = revision;
        }
        self.cache.own.forget();
        self.cache.reached.send_replace(Some(revision));
        self.cache.changed.notify_one();
        self.cache.wake_all();
    }

    fn latest(&self, key: &ObjectKey) -> Option<u64> {
        self.cache.get(key).map(|object| object.revision().get())
    }

    fn apply(&mut self, events: Vec<WatchEvent>) {
        tracing::trace!(target: "tidings::walk", "puts changes of the store into the cache");
        let mut changed = Vec::with_capacity(events.len());
        let reached = {
            let (mut seen, mut inner) = self.read_with(|reader| -> Vec<Option<Object>> {
                if !reader.translates() {
                    return Vec::new();
                }
                let read = |event: &WatchEvent| match event {
                    WatchEvent::Added(stored) => reader.read(stored, EventType::Added),
                    WatchEvent::Modified(stored) => reader.read(stored, EventType::Modified),
                    _ => None,
                };
                events.iter().map(read).collect()
            });
            let inner = &mut *inner;
            for (at, event) in events.into_iter().enumerate() {
                let (object, deleted) = match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                        match seen.get_mut(at).and_then(Option::take) {
                            Some(seen) => {
                                inner.originals.insert(object.key(), object);
                                (seen, false)
                            }
                            None => {
                                if !inner.originals.is_empty() {
                                    inner.originals.remove(&object.key());
                                }
                                (object, false)
                            }
                        }
                    }
                    WatchEvent::Deleted(object) => (object, true),
                    WatchEvent::Bookmark {
                        resource_version, ..
                    } => {
                        let revision = resource_version.parse().unwrap_or_default();
                        inner.revision = inner.revision.max(revision);
                        continue;
                    }
                    WatchEvent::Error(_) => continue,
                };
                let key = object.key();
                let revision = object.revision();
                // Several deletions share a revision if a lease of etcd ended.
                assert!(
                    revision >= inner.revision,
                    "{key}: revision {revision} is before {}",
                    inner.revision
                );
                let previous = inner.state.get(&key).cloned();
                // A deletion only names the object; the cache has its last state.
                let object = match (&previous, deleted) {
                    (Some(last), true) => last.restamped(revision, EventType::Deleted),
                    (None, true) => continue, // the cache never had it
                    (_, false) => object,
                };
                if deleted {
                    inner.originals.remove(&key);
                }
                let event = LoggedEvent::new(object, previous, deleted);
                inner.log.make_room(&inner.state, inner.revision);
                log::apply(&mut inner.state, &event);
                inner.log.push(event);
                inner.revision = revision;
                changed.push(key);
            }
            inner.revision
        };
        self.cache.own.reached(reached);
        self.cache.reached.send_replace(Some(reached));
        if !changed.is_empty() {
            self.cache.changed.notify_one();
            self.cache.wakers.wake(changed);
        }
    }
}
