//! Lists and watches one shard of a resource. What a server that does not know shards sends of others is left out.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tidings_api::{ShardSelector, WatchEvent};

use crate::source::{EventStream, ListPart, ListStream, SourceError};

/// A stream without what is not in a shard.
struct ShardStream<T> {
    stream: Pin<Box<dyn Stream<Item = Result<T, SourceError>> + Send>>,
    shard: Arc<ShardSelector>,
    keep: fn(&ShardSelector, T) -> T,
}

impl<T> Stream for ShardStream<T> {
    type Item = Result<T, SourceError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = ready!(self.stream.as_mut().poll_next(context));
        let keep = |item| (self.keep)(&self.shard, item);
        Poll::Ready(item.map(|item| item.map(keep)))
    }
}

/// The objects of a list that are in a shard.
pub(super) fn shard_of_list(stream: ListStream, shard: Arc<ShardSelector>) -> ListStream {
    Box::pin(ShardStream {
        stream,
        shard,
        keep: |shard, part| match part {
            ListPart::Items(mut items) => {
                items.retain(|object| shard.matches(object));
                ListPart::Items(items)
            }
            other => other,
        },
    })
}

/// The events of a watch about objects in a shard.
pub(super) fn shard_of_events(stream: EventStream, shard: Arc<ShardSelector>) -> EventStream {
    Box::pin(ShardStream {
        stream,
        shard,
        keep: |shard, mut events| {
            events.retain(|event| match event {
                WatchEvent::Added(object)
                | WatchEvent::Modified(object)
                | WatchEvent::Deleted(object) => shard.matches(object),
                WatchEvent::Bookmark { .. } | WatchEvent::Error(_) => true,
            });
            events
        },
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tidings_api::{ListMetadata, ListOptions, Object, ShardField};

    use super::*;
    use crate::source::{List, ListWatch, Lister, Watcher, next};

    fn object(number: u64) -> Object {
        let json = format!(
            r#"{{"metadata":{{"name":"o{number}","uid":"{number}","resourceVersion":"{number}"}}}}"#
        );
        Object::parse(json).unwrap()
    }

    /// A server that does not know shards.
    fn server(asked: Arc<Mutex<Vec<String>>>) -> ListWatch {
        let watched = Arc::clone(&asked);
        ListWatch::new(
            Arc::new(move |options: ListOptions| {
                asked.lock().unwrap().push(options.shard_selector);
                let list = List {
                    items: (1..=20).map(object).collect(),
                    metadata: ListMetadata::default(),
                };
                Box::pin(async move { Ok(list.into_stream()) })
            }),
            Arc::new(move |options: ListOptions| {
                watched.lock().unwrap().push(options.shard_selector);
                let events = (21..=40).map(|number| match number % 3 {
                    0 => WatchEvent::Added(object(number)),
                    1 => WatchEvent::Modified(object(number)),
                    _ => WatchEvent::Deleted(object(number)),
                });
                let bookmark = WatchEvent::Bookmark {
                    resource_version: "40".into(),
                    initial_events_end: false,
                };
                let events = Ok(events.chain([bookmark]).collect());
                let stream: EventStream = Box::pin(futures_util::stream::iter([events]));
                Box::pin(async move { Ok(stream) })
            }),
        )
    }

    #[tokio::test]
    async fn what_a_server_sends_of_other_shards_is_left_out() {
        let (mut listed, mut told, mut bookmarks) = (Vec::new(), Vec::new(), 0);
        for index in 0..3 {
            let shard = ShardSelector::split(ShardField::Uid, index, 3);
            let asked = Arc::default();
            let source = server(Arc::clone(&asked)).shard(shard.clone());
            let mut list = source.list(ListOptions::default()).await.unwrap();
            while let Some(part) = next(&mut list).await {
                if let ListPart::Items(items) = part.unwrap() {
                    listed.extend(items.iter().map(|object| object.revision().get()));
                }
            }
            let mut watch = source.watch(ListOptions::default()).await.unwrap();
            let events = next(&mut watch).await.unwrap().unwrap();
            for event in &events {
                match event {
                    WatchEvent::Added(object)
                    | WatchEvent::Modified(object)
                    | WatchEvent::Deleted(object) => told.push(object.revision().get()),
                    WatchEvent::Bookmark { .. } => bookmarks += 1,
                    WatchEvent::Error(_) => unreachable!(),
                }
            }
            let asked = asked.lock().unwrap().clone();
            assert_eq!(asked, [shard.to_string(), shard.to_string()]);
        }
        listed.sort_unstable();
        told.sort_unstable();
        assert_eq!(listed, (1..=20).collect::<Vec<_>>());
        assert_eq!(told, (21..=40).collect::<Vec<_>>());
        assert_eq!(bookmarks, 3, "every shard gets those");
    }
}
