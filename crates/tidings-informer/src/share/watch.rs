//! An informer as a watch: its events as `ADDED`, `MODIFIED` and `DELETED`.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use tidings_api::EventType;

use super::informer::{SharedInformer, Stopped};
use super::subscription::{FellBehind, HandlerOptions, Subscription};
use crate::event::Event;
use crate::object::Cached;

/// One event of an informer as a watch event.
#[non_exhaustive]
pub struct WatchItem<K> {
    /// Added, modified or deleted; never anything else.
    pub event_type: EventType,
    /// The object; its last known state if it was deleted.
    pub object: Arc<Cached<K>>,
    /// False if the object was deleted and its final state is not known; see [`Event::Deleted`].
    pub final_state_known: bool,
}

impl<K> WatchItem<K> {
    /// Converts an event; `None` for [`Event::Synced`], which has no watch event.
    pub fn from_event(event: Event<K>) -> Option<WatchItem<K>> {
        let (event_type, object, final_state_known) = match event {
            Event::Added { object, .. } => (EventType::Added, object, true),
            Event::Updated { new, .. } => (EventType::Modified, new, true),
            // As in client-go: an update with equal states.
            Event::Resync { object } => (EventType::Modified, object, true),
            Event::Deleted {
                last,
                final_state_known,
            } => (EventType::Deleted, last, final_state_known),
            Event::Synced => return None,
        };
        Some(WatchItem {
            event_type,
            object,
            final_state_known,
        })
    }
}

impl<K> Clone for WatchItem<K> {
    fn clone(&self) -> WatchItem<K> {
        WatchItem {
            event_type: self.event_type,
            object: Arc::clone(&self.object),
            final_state_known: self.final_state_known,
        }
    }
}

impl<K> fmt::Debug for WatchItem<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = if self.final_state_known {
            ""
        } else {
            ", final state unknown"
        };
        write!(f, "{:?}({:?}{unknown})", self.event_type, self.object)
    }
}

/// The events of an informer as a watch that begins with the initial state. The events of each object are in order.
///
/// client-go buffers these events without a bound. Here they come from a [`Subscription`] with its bounds, and nothing is
/// buffered. Ends when the informer stops. Dropping it ends the subscription, even while the informer waits for it.
#[derive(Debug)]
pub struct InformerWatch<K: Send + Sync + 'static>(Subscription<K>);

impl<K: Send + Sync + 'static> InformerWatch<K> {
    /// The next event; `None` when the informer has stopped. Cancel-safe.
    pub async fn next(&mut self) -> Option<WatchItem<K>> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// Whether the stream ended because its reader fell behind.
    ///
    /// # Errors
    /// If it fell behind.
    pub fn outcome(&self) -> Result<(), FellBehind> {
        self.0.outcome()
    }
}

impl<K: Send + Sync + 'static> From<Subscription<K>> for InformerWatch<K> {
    fn from(subscription: Subscription<K>) -> InformerWatch<K> {
        InformerWatch(subscription)
    }
}

impl<K: Send + Sync + 'static> Stream for InformerWatch<K> {
    type Item = WatchItem<K>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<WatchItem<K>>> {
        loop {
            return match Pin::new(&mut self.0).poll_next(context) {
                Poll::Ready(Some(event)) => match WatchItem::from_event(event) {
                    Some(item) => Poll::Ready(Some(item)),
                    None => continue,
                },
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            };
        }
    }
}

impl<K: Send + Sync + 'static> SharedInformer<K> {
    /// The current state and every later event as a watch.
    ///
    /// # Errors
    /// If the informer has stopped.
    pub fn as_watch(&self, options: &HandlerOptions) -> Result<InformerWatch<K>, Stopped> {
        self.subscribe(options).map(InformerWatch)
    }
}
