//! The writing end of a cache, which its reflector fills.

use std::collections::HashMap;
use std::sync::{Arc, RwLockWriteGuard};

use tidings_api::{EventType, Object, ObjectKey, ResourceVersion, ServedObject, WatchEvent};
use tidings_informer::{ReflectorStore, ServerVersion};

use crate::cache::{Cache, CacheState, CurrentReader};
use crate::log::{self, LoggedEvent};
use crate::objects::ObjectMap;

/// Fills a cache from a reflector.
#[derive(Debug)]
pub(crate) struct CacheFiller {
    cache: Arc<Cache>,
    /// The stored objects of a list that is not complete yet.
    collected: ObjectMap,
}

/// Objects that the reader translated, by key.
type ReadObjects = HashMap<ObjectKey, Object>;

impl CacheFiller {
    pub(crate) fn new(cache: Arc<Cache>) -> CacheFiller {
        CacheFiller {
            cache,
            collected: ObjectMap::new(),
        }
    }

    /// Runs `make` with the current reader, without the lock because `make` is slow. Returns its result together with the write lock, under
    /// which the reader is still the same one; if the reader was replaced meanwhile, `make` runs again.
    fn read_with<T>(
        &self,
        make: impl Fn(&CurrentReader) -> T,
    ) -> (T, RwLockWriteGuard<'_, CacheState>) {
        loop {
            let reader = self.cache.reader();
            let made = make(&reader);
            let state = self.cache.state_mut();
            if state.reader.is_same(&reader) {
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

    /// Only drops a partial list: a complete list replaces all objects and is never compared with the objects before it.
    fn distrust(&mut self) {
        self.discard();
    }

    fn replace(&mut self, version: &ServerVersion) {
        tracing::trace!(target: "tidings::walk", "puts a list into the cache");
        let listed = std::mem::take(&mut self.collected);
        let revision = ResourceVersion::new(version.number().unwrap_or_default());
        {
            let (seen, mut state) = self.read_with(|reader| -> ReadObjects {
                if !reader.translates() {
                    return ReadObjects::new();
                }
                let read = |(key, stored): (&ObjectKey, &Object)| {
                    Some((key.clone(), reader.read(stored, EventType::Added)?))
                };
                listed.iter().filter_map(read).collect()
            });
            let original = |key: &ObjectKey| Some((key.clone(), listed.get(key)?.clone()));
            state.originals = seen.keys().filter_map(original).collect();
            let mut objects = listed;
            for (key, object) in seen {
                objects.insert(key, object);
            }
            if revision < state.revision {
                state.lost = state.lost.max(state.revision);
            }
            state.log.restart(objects.clone(), revision);
            let front = state.log.front();
            state.scopes.restarted(front);
            state.objects = objects;
            state.revision = revision;
            state.oldest = revision;
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
        // The scopes with events for their watches.
        let (mut changed, mut scopes) = (false, Vec::new());
        let reached = {
            let (mut seen, mut state) = self.read_with(|reader| -> Vec<Option<Object>> {
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
            let state = &mut *state;
            for (at, event) in events.into_iter().enumerate() {
                let (object, deleted) = match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                        match seen.get_mut(at).and_then(Option::take) {
                            Some(seen) => {
                                state.originals.insert(object.key(), object);
                                (seen, false)
                            }
                            None => {
                                if !state.originals.is_empty() {
                                    state.originals.remove(&object.key());
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
                        state.revision = state.revision.max(revision);
                        continue;
                    }
                    WatchEvent::Error(_) => continue,
                };
                let key = object.key();
                let revision = object.revision();
                // When a lease of etcd expires, its keys are deleted in one revision.
                assert!(
                    revision >= state.revision,
                    "{key}: revision {revision} is before {}",
                    state.revision
                );
                let previous = state.objects.get(&key).cloned();
                // A deletion carries only the name of the object; its last state is in the cache.
                let object = match (&previous, deleted) {
                    (Some(last), true) => last.restamped(revision, EventType::Deleted),
                    (None, true) => continue, // the cache never had it
                    (_, false) => object,
                };
                if deleted {
                    state.originals.remove(&key);
                }
                let event = LoggedEvent::new(object, previous, deleted);
                state.log.make_room(&state.objects, state.revision);
                log::apply(&mut state.objects, &event);
                scopes.extend(state.scopes.list(state.log.end(), &event));
                let front = state.log.front();
                state.log.push(event);
                if state.log.front() != front {
                    state.scopes.dropped(state.log.front());
                }
                state.revision = revision;
                changed = true;
            }
            state.revision
        };
        self.cache.own.reached(reached);
        self.cache.reached.send_replace(Some(reached));
        if changed {
            scopes.sort_unstable();
            scopes.dedup();
            self.cache.changed.notify_one();
            self.cache.wakers.wake(scopes);
        }
    }
}
