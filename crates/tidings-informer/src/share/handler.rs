//! Handlers: tasks that read the log and call the program's functions.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;

use super::log::{EventLog, SubscriberId};
use super::subscription::{Subscription, SubscriptionControl};
use crate::event::Event;
use crate::event_handler::ResourceEventHandler;
use crate::stats::Lag;

/// The pause after a handler panicked.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// What happens to undelivered events when a handler is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pending {
    /// They are delivered before the handler ends.
    Deliver,
    /// They are dropped. A running call is not interrupted.
    Drop,
}

/// A handler that was added to an informer. Dropping the registration does not remove the handler.
pub struct Registration<K> {
    pub(super) name: Arc<str>,
    log: EventLog<K>,
    subscriber_id: SubscriberId,
    control: Arc<SubscriptionControl>,
    synced: watch::Receiver<bool>,
    ended: watch::Receiver<bool>,
    pub(super) task: tokio::task::Id,
}

impl<K> Clone for Registration<K> {
    fn clone(&self) -> Registration<K> {
        Registration {
            name: Arc::clone(&self.name),
            log: self.log.clone(),
            subscriber_id: self.subscriber_id,
            control: Arc::clone(&self.control),
            synced: self.synced.clone(),
            ended: self.ended.clone(),
            task: self.task,
        }
    }
}

impl<K: Send + Sync + 'static> Registration<K> {
    /// The name of the handler.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True when the handler was called for the complete initial state, and every such call has returned or panicked.
    pub fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits for [`Registration::has_synced`]. Returns false if the handler ended before.
    pub async fn synced(&self) -> bool {
        let mut synced = self.synced.clone();
        // The sender is dropped when the handler ends.
        synced.wait_for(|synced| *synced).await.is_ok()
    }

    /// How far the handler is behind the store.
    pub fn lag(&self) -> Lag {
        self.log.lag(self.subscriber_id).and(self.control.lag())
    }

    /// Removes the handler without waiting: pending events are dropped, a running call is not interrupted. May be called any
    /// number of times.
    pub fn remove(&self) {
        self.control.abort();
        self.log.wake(self.subscriber_id);
    }

    /// Removes the handler and waits until its last call has returned. Does not wait if the handler itself calls it, which would
    /// be a deadlock.
    pub async fn shut_down(&self, pending: Pending) {
        match pending {
            Pending::Drop => self.remove(),
            Pending::Deliver => self.log.stop_at_end(self.subscriber_id),
        }
        if tokio::task::try_id() == Some(self.task) {
            return;
        }
        let mut ended = self.ended.clone();
        let _ = ended.wait_for(|ended| *ended).await;
    }
}

impl<K> std::fmt::Debug for Registration<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration")
            .field("name", &self.name)
            .field("synced", &*self.synced.borrow())
            .finish_non_exhaustive()
    }
}

/// An async function that handles events.
pub(super) type AsyncHandler<K> =
    Box<dyn FnMut(Event<K>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// The function that a handler calls.
pub(super) enum HandlerCallback<K> {
    Sync(Box<dyn ResourceEventHandler<K>>),
    Async(AsyncHandler<K>),
}

/// Spawns the task that calls a handler with its events until they end.
pub(super) fn spawn<K: Send + Sync + 'static>(
    log: EventLog<K>,
    name: Arc<str>,
    mut subscription: Subscription<K>,
    mut callback: HandlerCallback<K>,
) -> (Registration<K>, tokio::task::JoinHandle<()>) {
    let (synced_sender, synced) = watch::channel(false);
    let (ended_sender, ended) = watch::channel(false);
    let (control, subscriber_id) = subscription.control();
    let task_name = Arc::clone(&name);
    let task = tokio::spawn(async move {
        let _ended = SetOnDrop(ended_sender);
        while let Some(event) = subscription.next().await {
            let is_synced = matches!(event, Event::Synced);
            let outcome = match &mut callback {
                HandlerCallback::Sync(handler) => {
                    catch_unwind(AssertUnwindSafe(|| handler.handle(&event)))
                }
                HandlerCallback::Async(handler) => call(handler, event).await,
            };
            if is_synced {
                synced_sender.send_replace(true);
            }
            if let Err(panic) = outcome {
                let message = message(panic.as_ref());
                tracing::error!(
                    handler = &*task_name,
                    panic = message,
                    "a handler panicked; it continues with the next event"
                );
                tokio::time::sleep(AFTER_PANIC).await;
            }
            // Events may be ready without a pause: yield to other tasks.
            tokio::task::coop::consume_budget().await;
        }
        if let Err(error) = subscription.outcome() {
            tracing::warn!(handler = &*task_name, %error, "a handler has ended");
        }
    });
    let registration = Registration {
        name,
        log,
        subscriber_id,
        control,
        synced,
        ended,
        task: task.id(),
    };
    (registration, task)
}

/// Sends true when it is dropped.
struct SetOnDrop(watch::Sender<bool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

/// Calls an async function and catches its panics.
async fn call<K>(
    handler: &mut AsyncHandler<K>,
    event: Event<K>,
) -> Result<(), Box<dyn Any + Send>> {
    let future = catch_unwind(AssertUnwindSafe(|| handler(event)))?;
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(Ok(())),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

/// The message of a panic. It is logged: it is the text of the program and not content of an object.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}
