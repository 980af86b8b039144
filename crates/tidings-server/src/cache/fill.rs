//! How a cache is filled: the writing end of it, for its reflector.

use std::collections::HashMap;
use std::sync::{Arc, RwLockWriteGuard};

use tidings_api::{EventType, Object, ObjectKey, ResourceVersion, WatchEvent};
use tidings_informer::{ReflectorStore, Version};

use super::log::{self, Event, State};
use super::{Cache, Inner};
use crate::custom::{Form, Reader};

/// The writing end of a cache.
#[derive(Debug)]
pub(crate) struct CacheStore {
    cache: Arc<Cache>,
    /// How objects of a custom resource are read.
    reader: Option<Arc<Reader>>,
    /// A state that is not complete yet, as it is stored.
    collected: State,
}

impl CacheStore {
    pub(crate) fn new(cache: Arc<Cache>, reader: Option<Arc<Reader>>) -> CacheStore {
        CacheStore {
            cache,
            reader,
            collected: State::new(),
        }
    }

    /// What is made of objects under the form of now, and the lock under which it still is that.
    fn formed<T>(&self, make: impl Fn(Option<&Form>) -> T) -> (T, RwLockWriteGuard<'_, Inner>) {
        loop {
            // It takes a while, so that nobody should wait for it.
            let form = self.reader.as_ref().map(|reader| reader.form());
            let made = make(form.as_ref());
            let inner = self.cache.inner_mut();
            let reader = self.reader.as_ref().zip(form.as_ref());
            if reader.is_none_or(|(reader, form)| reader.is_now(form)) {
                return (made, inner);
            }
        }
    }
}

/// Objects that are not read as they are stored, by their keys.
type Forms = HashMap<ObjectKey, Object>;

impl ReflectorStore for CacheStore {
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
        self.collected = State::new();
    }

    /// Objects are never compared with those before.
    fn distrust(&mut self) {
        self.discard();
    }

    fn replace(&mut self, version: &Version) {
        let state = std::mem::take(&mut self.collected);
        let revision = ResourceVersion::new(version.number().unwrap_or_default());
        {
            let (forms, mut inner) = self.formed(|form| -> Forms {
                let all = form.into_iter().flat_map(|form| {
                    let read = |(key, stored): (&ObjectKey, &Object)| {
                        Some((key.clone(), form.of(stored, EventType::Added)?))
                    };
                    state.iter().filter_map(read)
                });
                all.collect()
            });
            let originals = forms.keys().filter_map(|key| state.get_key_value(key));
            inner.originals = originals
                .map(|(key, stored)| (key.clone(), stored.clone()))
                .collect();
            let mut state = state;
            for (key, form) in forms {
                state.insert(key, form);
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
        self.cache.told.notify_one();
        self.cache.wake_all();
    }

    fn latest(&self, key: &ObjectKey) -> Option<u64> {
        self.cache.get(key).map(|object| object.revision().get())
    }

    fn apply(&mut self, events: Vec<WatchEvent>) {
        let mut changed = Vec::with_capacity(events.len());
        let reached = {
            let (mut forms, mut inner) = self.formed(|form| -> Vec<Option<Object>> {
                let of = |event: &WatchEvent| match (form, event) {
                    (Some(form), WatchEvent::Added(stored)) => form.of(stored, EventType::Added),
                    (Some(form), WatchEvent::Modified(stored)) => {
                        form.of(stored, EventType::Modified)
                    }
                    _ => None,
                };
                match form {
                    None => Vec::new(),
                    Some(_) => events.iter().map(of).collect(),
                }
            });
            let inner = &mut *inner;
            for (at, event) in events.into_iter().enumerate() {
                let (object, deleted) = match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                        let form = forms.get_mut(at).and_then(Option::take);
                        match form {
                            Some(form) => {
                                inner.originals.insert(object.key(), object);
                                (form, false)
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
                // What a lease ends goes in one revision.
                assert!(
                    revision >= inner.revision,
                    "{key}: revision {revision} is before {}",
                    inner.revision
                );
                let previous = inner.state.get(&key).cloned();
                // A deletion only names the object: its last state is the one that is here.
                let object = match (&previous, deleted) {
                    (Some(last), true) => last.restamped(revision, EventType::Deleted),
                    (None, true) => continue, // it was never here
                    (_, false) => object,
                };
                if deleted {
                    inner.originals.remove(&key);
                }
                let event = Event::new(object, previous, deleted);
                inner.log.make_room(&inner.state, inner.revision);
                log::apply(&mut inner.state, &event);
                inner.log.push(event);
                inner.revision = revision;
                changed.push(key);
            }
            inner.revision
        };
        self.cache.own.reached(reached);
        // Readers who wait for a revision find it; watches find the events.
        self.cache.reached.send_replace(Some(reached));
        if !changed.is_empty() {
            self.cache.told.notify_one();
            self.cache.wakers.wake(changed);
        }
    }
}
