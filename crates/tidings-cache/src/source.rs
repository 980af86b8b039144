//! The store as a lister-watcher, from which a reflector fills a cache.
//!
//! A value that is not an object of its key is set aside: the cache leaves it out, an error is logged and a metric counts it. Another
//! program wrote it, and the other objects must still be served.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use tidings_api::{
    EventType, ListMetadata, ListOptions, Object, ObjectKey, ResourceVersion, ServedObject, Status,
    WatchEvent,
};
use tidings_informer::{BoxFuture, EventStream, List, ListStream, Lister, SourceError, Watcher};
use tidings_storage::{Change, Error, Event, Range, Revision, Storage, WatchBatch, WatchStream};

use crate::cache::Cache;

/// Lists and watches the keys of one resource in a store.
pub(crate) struct StoreListerWatcher {
    pub(crate) store: Arc<dyn Storage>,
    pub(crate) prefix: Bytes,
    /// Knows the writes of this process, which need not be parsed.
    pub(crate) cache: Arc<Cache>,
    /// The first list reads the store at this revision or a later one.
    pub(crate) from: Revision,
    pub(crate) set_aside: Arc<SetAside>,
    /// True when the watch after the first list has delivered something: the cache has the history then.
    pub(crate) followed: Arc<AtomicBool>,
}

/// How many objects are read from the store at a time while a cache is filled.
const PAGE: usize = 500;
/// How often the first list is tried if the history is compacted while it is read.
const LIST_ATTEMPTS: usize = 5;
/// How many set-aside values are remembered and counted.
const SET_ASIDE_MAX: usize = 1000;

/// The values under the prefix of a resource that are not objects of their keys.
#[derive(Debug, Default)]
pub(crate) struct SetAside {
    prefix: Bytes,
    /// The revisions of the values, by key without the prefix.
    values: Mutex<BTreeMap<Bytes, Revision>>,
}

impl SetAside {
    pub(crate) fn new(prefix: Bytes) -> SetAside {
        SetAside {
            prefix,
            values: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Bytes, Revision>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many values are set aside.
    pub(crate) fn count(&self) -> usize {
        self.known().len()
    }

    fn clear(&self) {
        self.known().clear();
    }

    fn add(&self, key: &Bytes, revision: Revision, why: &str) {
        let mut known = self.known();
        if known.len() < SET_ASIDE_MAX || known.contains_key(key) {
            known.insert(Bytes::copy_from_slice(key), revision);
            let key = [&self.prefix[..], key].concat();
            let key = String::from_utf8_lossy(&key);
            tracing::error!(%key, %revision, why, "setting aside a value in the store that is not an object of its key");
        }
    }

    fn remove(&self, key: &Bytes) {
        let mut known = self.known();
        if !known.is_empty() {
            known.remove(key);
        }
    }

    /// Parses a value as the object of its key; a value that is not one is set aside.
    fn object(
        &self,
        key: &Bytes,
        value: &[u8],
        revision: Revision,
        event: EventType,
    ) -> Option<Object> {
        let why = match Object::stamped(value, ResourceVersion::new(revision.0), event) {
            Ok(object) if is_named(&object, key) => {
                self.remove(key);
                return Some(object);
            }
            Ok(_) => "its name or namespace is not that of its key".to_owned(),
            Err(error) => error.to_string(),
        };
        self.add(key, revision, &why);
        None
    }
}

/// True if an object has the name and namespace of its key.
fn is_named(object: &Object, key: &[u8]) -> bool {
    let (namespace, name) = match key.iter().position(|byte| *byte == b'/') {
        Some(slash) => (&key[..slash], &key[slash + 1..]),
        None => (&b""[..], key),
    };
    object.name().as_bytes() == name && object.namespace().as_bytes() == namespace
}

impl StoreListerWatcher {
    async fn read(&self, at: Revision) -> Result<List, Error> {
        let mut items = Vec::new();
        let mut start = None;
        loop {
            let range = Range {
                prefix: self.prefix.clone(),
                start,
                limit: PAGE,
                at: Some(at),
            };
            let page = self.store.range(range).await?;
            start = page
                .entries
                .last()
                .map(|last| [&last.key[..], b"\0"].concat().into());
            for entry in page.entries {
                let key = entry.key.slice(self.prefix.len()..);
                let aside = &self.set_aside;
                items.extend(aside.object(&key, &entry.value, entry.revision, EventType::Added));
            }
            if !page.more {
                let metadata = ListMetadata {
                    resource_version: at.to_string(),
                    ..ListMetadata::default()
                };
                return Ok(List { items, metadata });
            }
            tokio::task::yield_now().await; // a read of the embedded store never waits
        }
    }
}

impl Lister for StoreListerWatcher {
    /// A list at any version (`0`) reads the oldest revision that the store has: the watch after it then delivers the history.
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<ListStream, SourceError>> {
        Box::pin(async move {
            // If the first watch failed because history was compacted, the list starts at the history's new beginning.
            let first = options.resource_version == "0" || !self.followed.load(Ordering::Relaxed);
            let mut attempts = if first { LIST_ATTEMPTS } else { 1 };
            loop {
                attempts -= 1;
                self.set_aside.clear();
                let at = match first {
                    true => self
                        .store
                        .oldest()
                        .await
                        .map(|oldest| oldest.max(self.from)),
                    false => self.store.revision().await,
                };
                let list = match at {
                    Ok(at) => self.read(at).await,
                    Err(error) => Err(error),
                };
                match list {
                    // Another server has compacted the store meanwhile: begin where the history starts now.
                    Err(Error::Compacted { .. }) if attempts > 0 => {}
                    list => return list.map(List::into_stream).map_err(source_error),
                }
            }
        })
    }
}

impl Watcher for StoreListerWatcher {
    fn zero_is_a_version(&self) -> bool {
        true
    }

    fn watch(&self, options: ListOptions) -> BoxFuture<'_, Result<EventStream, SourceError>> {
        Box::pin(async move {
            let after: ResourceVersion = options.resource_version.parse().unwrap_or_default();
            let stream = self
                .store
                .watch(self.prefix.clone(), Revision(after.get()))
                .await;
            let events = StoreEvents {
                watch: stream.map_err(source_error)?,
                prefix: self.prefix.len(),
                cache: self.cache.clone(),
                set_aside: self.set_aside.clone(),
                followed: self.followed.clone(),
            };
            Ok(Box::pin(events) as EventStream)
        })
    }
}

fn source_error(error: Error) -> SourceError {
    match error {
        Error::Compacted { .. } | Error::WentBack { .. } => {
            Status::expired(error.to_string()).into()
        }
        Error::Future { requested, current } => {
            Status::too_large_resource_version(requested.0, current.0).into()
        }
        other => SourceError::transport(other),
    }
}

/// The stream of changes of the store, as watch events.
///
/// A deletion carries only the name of the object; its last state is in the cache.
struct StoreEvents {
    watch: WatchStream,
    /// The length of the prefix of the keys.
    prefix: usize,
    cache: Arc<Cache>,
    set_aside: Arc<SetAside>,
    followed: Arc<AtomicBool>,
}

impl Stream for StoreEvents {
    type Item = Result<Vec<WatchEvent>, SourceError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let batch = std::task::ready!(self.watch.as_mut().poll_next(context));
        if let Some(Ok(_)) = &batch {
            self.followed.store(true, Ordering::Relaxed);
        }
        let events = |batch| self.read(&batch);
        Poll::Ready(batch.map(|batch| batch.map(events).map_err(source_error)))
    }
}

impl StoreEvents {
    fn read(&self, batch: &WatchBatch) -> Vec<WatchEvent> {
        let mut last = None;
        let changes = batch.events.iter().filter_map(|change| {
            let event = self.event(change)?;
            last = Some(change.revision);
            Some(event)
        });
        let mut events: Vec<_> = changes.collect();
        if last.is_none_or(|last| last < batch.revision) {
            events.push(WatchEvent::Bookmark {
                resource_version: batch.revision.to_string(),
                initial_events_end: false,
            });
        }
        events
    }

    /// A change as a watch event. A value that is not an object counts as a deletion, which the cache ignores if it never had the object.
    fn event(&self, event: &Event) -> Option<WatchEvent> {
        let key = event.key.slice(self.prefix.min(event.key.len())..);
        let text = std::str::from_utf8(&key).ok();
        let Change::Put(value) = &event.change else {
            self.set_aside.remove(&key);
            return deleted(text?, event.revision);
        };
        let kind = match event.created {
            true => EventType::Added,
            false => EventType::Modified,
        };
        let own = text.and_then(|text| {
            let revision = ResourceVersion::new(event.revision.0);
            let key = ObjectKey::from_joined(text);
            self.cache.recognise(&key, value, revision, kind)
        });
        let object = own.or_else(|| self.set_aside.object(&key, value, event.revision, kind));
        match object {
            Some(object) if event.created => Some(WatchEvent::Added(object)),
            Some(object) => Some(WatchEvent::Modified(object)),
            None => deleted(text?, event.revision),
        }
    }
}

/// The event for the deletion of the object with a key.
fn deleted(key: &str, revision: Revision) -> Option<WatchEvent> {
    let key = ObjectKey::parse(key).ok()?;
    let named = tidings_json::json!({
        "metadata": {"name": key.name(), "namespace": key.namespace()}
    });
    let named = named.to_string();
    let revision = ResourceVersion::new(revision.0);
    let named = Object::stamped(named.as_bytes(), revision, EventType::Deleted);
    named.ok().map(WatchEvent::Deleted)
}
