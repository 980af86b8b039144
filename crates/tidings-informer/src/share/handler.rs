//! Handlers: tasks that walk the log for a user's code.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;

use super::event::Event;
use super::log::{Lag, Log, Seat};
use super::subscription::{Control, Subscription};
use crate::object::Cached;

/// A handler that panicked rests for so long.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// Handles events one after the other, by their type. What is not overridden does nothing.
pub trait ResourceEventHandler<K>: Send + 'static {
    /// An object came; `initial` if it was there from the start.
    fn on_add(&mut self, object: &Arc<Cached<K>>, initial: bool) {
        let _ = (object, initial);
    }

    /// An object changed.
    fn on_update(&mut self, old: &Arc<Cached<K>>, new: &Arc<Cached<K>>) {
        let _ = (old, new);
    }

    /// An object went; `last` is its last state, the final one if that is known.
    fn on_delete(&mut self, last: &Arc<Cached<K>>, final_state_known: bool) {
        let _ = (last, final_state_known);
    }

    /// Look at an object again. As in client-go, this is an update to what it is.
    fn on_resync(&mut self, object: &Arc<Cached<K>>) {
        self.on_update(object, object);
    }

    /// Every object of the initial state was delivered.
    fn on_synced(&mut self) {}

    /// Takes an event apart.
    fn handle(&mut self, event: &Event<K>) {
        match event {
            Event::Added { object, initial } => self.on_add(object, *initial),
            Event::Updated { old, new } => self.on_update(old, new),
            Event::Deleted {
                last,
                final_state_known,
            } => self.on_delete(last, *final_state_known),
            Event::Resync { object } => self.on_resync(object),
            Event::Synced => self.on_synced(),
        }
    }
}

/// Passes on the objects that a filter lets through: one that comes to pass is added, one that ceases to is deleted.
pub struct FilteringResourceEventHandler<F, H> {
    /// Lets an object through.
    pub filter: F,
    /// Gets what passes.
    pub handler: H,
}

impl<K, F, H> ResourceEventHandler<K> for FilteringResourceEventHandler<F, H>
where
    F: Fn(&Cached<K>) -> bool + Send + 'static,
    H: ResourceEventHandler<K>,
{
    fn on_add(&mut self, object: &Arc<Cached<K>>, initial: bool) {
        if (self.filter)(object) {
            self.handler.on_add(object, initial);
        }
    }

    fn on_update(&mut self, old: &Arc<Cached<K>>, new: &Arc<Cached<K>>) {
        match ((self.filter)(old), (self.filter)(new)) {
            (true, true) => self.handler.on_update(old, new),
            (false, true) => self.handler.on_add(new, false),
            (true, false) => self.handler.on_delete(old, true),
            (false, false) => {}
        }
    }

    fn on_delete(&mut self, last: &Arc<Cached<K>>, final_state_known: bool) {
        if (self.filter)(last) {
            self.handler.on_delete(last, final_state_known);
        }
    }

    fn on_resync(&mut self, object: &Arc<Cached<K>>) {
        if (self.filter)(object) {
            self.handler.on_resync(object);
        }
    }

    fn on_synced(&mut self) {
        self.handler.on_synced();
    }
}

impl<F, H> std::fmt::Debug for FilteringResourceEventHandler<F, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FilteringResourceEventHandler")
    }
}

/// What becomes of the events that a handler has not been given yet when it is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pending {
    /// It is given them first.
    Deliver,
    /// They are dropped; the call that runs is not interrupted.
    Drop,
}

/// A handler that was added to an informer. Dropping this changes nothing: the handler goes with the informer.
pub struct Registration<K> {
    pub(super) name: Arc<str>,
    log: Log<K>,
    seat: Seat,
    control: Arc<Control>,
    synced: watch::Receiver<bool>,
    ended: watch::Receiver<bool>,
    pub(super) task: tokio::task::Id,
}

impl<K> Clone for Registration<K> {
    fn clone(&self) -> Registration<K> {
        Registration {
            name: Arc::clone(&self.name),
            log: self.log.clone(),
            seat: self.seat,
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

    /// True when the handler has been given the whole initial state and every call has returned, or panicked.
    pub fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits for [`Registration::has_synced`]. False if the handler ended before.
    pub async fn synced(&self) -> bool {
        let mut synced = self.synced.clone();
        // The sender lives as long as the handler.
        synced.wait_for(|synced| *synced).await.is_ok()
    }

    /// How far the handler is behind.
    pub fn lag(&self) -> Lag {
        self.log.lag(self.seat).and(self.control.lag())
    }

    /// Removes the handler without waiting: nothing pending is delivered, a running call ends in its own time. May be called
    /// any number of times.
    pub fn remove(&self) {
        self.control.abort();
        self.log.wake(self.seat);
    }

    /// Removes the handler and waits until its last call has returned. Called by the handler itself it does not wait, as that
    /// would be for ever.
    pub async fn shut_down(&self, pending: Pending) {
        match pending {
            Pending::Drop => self.remove(),
            Pending::Deliver => self.log.stop_at_end(self.seat),
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

/// An async function of events.
pub(super) type AsyncHandler<K> =
    Box<dyn FnMut(Event<K>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

pub(super) enum Callback<K> {
    Sync(Box<dyn ResourceEventHandler<K>>),
    Async(AsyncHandler<K>),
}

/// Gives a handler its events until they end.
pub(super) fn spawn<K: Send + Sync + 'static>(
    log: Log<K>,
    name: Arc<str>,
    mut subscription: Subscription<K>,
    mut callback: Callback<K>,
) -> (Registration<K>, tokio::task::JoinHandle<()>) {
    let (synced_sender, synced) = watch::channel(false);
    let (ended_sender, ended) = watch::channel(false);
    let (control, seat) = subscription.control();
    let task_name = Arc::clone(&name);
    let task = tokio::spawn(async move {
        let _ended = SetOnDrop(ended_sender);
        while let Some(event) = subscription.next().await {
            let is_synced = matches!(event, Event::Synced);
            let outcome = match &mut callback {
                Callback::Sync(handler) => {
                    catch_unwind(AssertUnwindSafe(|| handler.handle(&event)))
                }
                Callback::Async(handler) => call(handler, event).await,
            };
            if is_synced {
                synced_sender.send_replace(true);
            }
            if let Err(panic) = outcome {
                let message = message(panic.as_ref());
                tracing::error!(
                    handler = &*task_name,
                    panic = message,
                    "a handler panicked; it goes on"
                );
                tokio::time::sleep(AFTER_PANIC).await;
            }
            // Events may be ready for a long time: let others have the thread.
            tokio::task::coop::consume_budget().await;
        }
        if let Err(error) = subscription.outcome() {
            tracing::warn!(handler = &*task_name, %error, "a handler has ended");
        }
    });
    let registration = Registration {
        name,
        log,
        seat,
        control,
        synced,
        ended,
        task: task.id(),
    };
    (registration, task)
}

struct SetOnDrop(watch::Sender<bool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

/// Calls an async function; a panic, before or while it runs, is its outcome.
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

/// What a panic said; panics are the program's own words, not an object's.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without words")
}
