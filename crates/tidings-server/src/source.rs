//! The store as a lister-watcher: how the caches are filled.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use tidings_api::{
    EventType, ListMetadata, ListOptions, Object, ObjectKey, ResourceVersion, Status, WatchEvent,
};
use tidings_informer::{BoxFuture, EventStream, List, ListStream, Lister, SourceError, Watcher};
use tidings_storage::{
    Change, Error, Event, Previous, Range, Revision, Storage, WatchBatch, WatchStream,
};

use crate::cache::Cache;

/// Lists and watches the keys of one resource in a store.
pub(crate) struct StoreListerWatcher {
    pub(crate) store: Arc<dyn Storage>,
    pub(crate) prefix: Bytes,
    /// Knows what this server has written.
    pub(crate) cache: Arc<Cache>,
}

/// How many objects are read from the store at once while a cache is filled.
const PAGE: usize = 500;

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
                items.push(stamped(&entry.value, entry.revision, EventType::Added)?);
            }
            if !page.more {
                let metadata = ListMetadata {
                    resource_version: at.to_string(),
                    ..ListMetadata::default()
                };
                return Ok(List { items, metadata });
            }
            tokio::task::yield_now().await; // reading is not waiting: let others have the thread
        }
    }
}

fn stamped(value: &[u8], revision: Revision, event: EventType) -> Result<Object, Error> {
    Object::stamped(value, ResourceVersion::new(revision.0), event).map_err(|error| {
        Error::Failed(format!(
            "the value of revision {revision} is not an object: {error}"
        ))
    })
}

impl Lister for StoreListerWatcher {
    /// Any version means the oldest that the store has: the watch from there brings the history too.
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<ListStream, SourceError>> {
        Box::pin(async move {
            let at = match options.resource_version.as_str() {
                "0" => self.store.oldest().await,
                _ => self.store.revision().await,
            };
            let list = match at {
                Ok(at) => self.read(at).await,
                Err(error) => Err(error),
            };
            list.map(List::into_stream).map_err(source_error)
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
                .watch(self.prefix.clone(), Revision(after.get()), Previous::Never)
                .await;
            let events = Events {
                watch: stream.map_err(source_error)?,
                prefix: self.prefix.len(),
                cache: self.cache.clone(),
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

/// The changes of the store as watch events.
///
/// A deletion says which object is gone and no more: the cache has its last state.
struct Events {
    watch: WatchStream,
    /// How long the prefix of keys is.
    prefix: usize,
    cache: Arc<Cache>,
}

impl Stream for Events {
    type Item = Result<Vec<WatchEvent>, SourceError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let batch = std::task::ready!(self.watch.as_mut().poll_next(context));
        let events = |batch| self.read(&batch);
        Poll::Ready(batch.map(|batch| batch.and_then(events).map_err(source_error)))
    }
}

impl Events {
    fn read(&self, batch: &WatchBatch) -> Result<Vec<WatchEvent>, Error> {
        let last = batch.events.last().map(|event| event.revision);
        let events = batch.events.iter().map(|event| self.event(event));
        let mut events = events.collect::<Result<Vec<_>, _>>()?;
        if last.is_none_or(|last| last < batch.revision) {
            events.push(WatchEvent::Bookmark {
                resource_version: batch.revision.to_string(),
                initial_events_end: false,
            });
        }
        Ok(events)
    }

    fn event(&self, event: &Event) -> Result<WatchEvent, Error> {
        let key = String::from_utf8_lossy(event.key.get(self.prefix..).unwrap_or_default());
        let key = ObjectKey::from_joined(&key);
        let put = |value: &[u8], as_event| {
            let revision = ResourceVersion::new(event.revision.0);
            match self.cache.recognise(&key, value, revision, as_event) {
                Some(own) => Ok(own),
                None => stamped(value, event.revision, as_event),
            }
        };
        match &event.change {
            Change::Put(value) if event.created => {
                put(value, EventType::Added).map(WatchEvent::Added)
            }
            Change::Put(value) => put(value, EventType::Modified).map(WatchEvent::Modified),
            Change::Delete => {
                let named = tidings_json::json!({
                    "metadata": {"name": key.name(), "namespace": key.namespace()}
                });
                let named = named.to_string();
                stamped(named.as_bytes(), event.revision, EventType::Deleted)
                    .map(WatchEvent::Deleted)
            }
        }
    }
}
