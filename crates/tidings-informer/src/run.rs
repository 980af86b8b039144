//! Controllers of keys: events that queue keys, and a function that reconciles them.

use std::fmt::{Debug, Display};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tracing::{Instrument, debug_span, error, warn};

use crate::event::Event;
use crate::object::Cached;
use crate::predicate::Predicate;
use crate::share::{HandlerOptions, Registration, SharedInformer, Stopped};
use crate::source::BoxFuture;
use crate::work_loop::{KeyWork, RunOptions, WorkEnd, run_work};
use crate::workqueue::{AddOptions, Lease, Priority, QueueKey, WorkQueue};

impl<K: Send + Sync + 'static> SharedInformer<K> {
    /// Adds a handler that queues keys for each event: for an update the keys of both states, so that an owner that lost the
    /// object is reconciled too. Keys of the initial state and of resyncs get [`Priority::LOW`].
    ///
    /// # Errors
    /// If the informer has stopped.
    pub fn enqueue<T: QueueKey + Sync, I: IntoIterator<Item = T>>(
        &self,
        queue: &WorkQueue<T>,
        keys: impl Fn(&Cached<K>) -> I + Send + 'static,
        options: &HandlerOptions,
    ) -> Result<Registration<K>, Stopped> {
        self.enqueue_if(Predicate::all(), queue, keys, options)
    }

    /// Adds a handler that queues keys as [`SharedInformer::enqueue`] does, for the events that a predicate counts.
    ///
    /// # Errors
    /// If the informer has stopped.
    pub fn enqueue_if<T: QueueKey + Sync, I: IntoIterator<Item = T>>(
        &self,
        predicate: Predicate<K>,
        queue: &WorkQueue<T>,
        keys: impl Fn(&Cached<K>) -> I + Send + 'static,
        options: &HandlerOptions,
    ) -> Result<Registration<K>, Stopped> {
        let queue = queue.clone();
        let add = move |event: Event<K>| {
            if !predicate.counts(&event) {
                return std::future::ready(());
            }
            let priority = match &event {
                Event::Added { initial: true, .. } | Event::Resync { .. } => Priority::LOW,
                _ => Priority::NORMAL,
            };
            let old = match &event {
                Event::Updated { old, .. } => Some(old),
                _ => None,
            };
            // Each key once: a worker may take a key between two adds, and would reconcile it twice.
            let mut queued: Vec<T> = Vec::new();
            for object in old.into_iter().chain(event.object()) {
                for key in keys(object) {
                    if queued.contains(&key) {
                        continue;
                    }
                    let options = AddOptions {
                        priority,
                        ..AddOptions::default()
                    };
                    queue.add_with(key.clone(), options);
                    queued.push(key);
                }
            }
            std::future::ready(())
        };
        self.for_each(add, options)
    }
}

/// What happens after a successful reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Wait until the key is added again.
    AwaitChange,
    /// Reconcile the key again after this time, even without a change.
    RequeueAfter(Duration),
    /// Reconcile the key again at this time, even without a change.
    RequeueAt(SystemTime),
}

impl Action {
    /// How long to wait before the key is reconciled again; `None` waits for a change.
    pub fn wait(self, now: SystemTime) -> Option<Duration> {
        match self {
            Action::AwaitChange => None,
            Action::RequeueAfter(after) => Some(after),
            Action::RequeueAt(time) => Some(time.duration_since(now).unwrap_or_default()),
        }
    }
}

/// The counts of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RunSummary {
    /// Reconciles that ended by themselves, successful or not.
    pub reconciles: u64,
    /// Reconciles that returned an error.
    pub errors: u64,
    /// Reconciles that panicked.
    pub panics: u64,
    /// Reconciles that did not end within the grace and were aborted.
    pub abandoned: u64,
    /// Keys that were queued or delayed at the end and were not reconciled.
    pub left: u64,
}

/// Reconciles the keys of `queue` until `stop` is ready or the queue is shut down and drained.
///
/// A reconcile that fails or panics is retried after the backoff of its key; a success resets the backoff. Retries keep the
/// priority of the key. A key is never reconciled by two tasks at once.
///
/// When `stop` is ready, the queue is shut down and no further reconcile starts. Running ones have `options.grace` to end, then
/// they are aborted. Dropping the future aborts them at once.
pub async fn run_controller<T, E, R, F>(
    queue: WorkQueue<T>,
    options: RunOptions,
    reconcile: R,
    stop: impl Future<Output = ()>,
) -> RunSummary
where
    T: QueueKey + Debug,
    E: Display + 'static,
    R: Fn(T) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Action, E>> + Send + 'static,
{
    let mut work = FunctionWork {
        queue,
        reconcile: Arc::new(reconcile),
        summary: RunSummary::default(),
        undelivered: 0,
    };
    let abandoned = run_work(&mut work, options, stop).await;
    RunSummary {
        abandoned,
        // After the tasks have ended: a key that was added while it ran is queued when its task ends.
        left: work.queue.len() as u64 + work.undelivered,
        ..work.summary
    }
}

/// Reconciles keys with a function. The outcome is whether it succeeded.
struct FunctionWork<T: QueueKey, R> {
    queue: WorkQueue<T>,
    reconcile: Arc<R>,
    summary: RunSummary,
    /// Delayed keys that the stop took out of the queue.
    undelivered: u64,
}

impl<T, E, R, F> KeyWork<T, bool> for FunctionWork<T, R>
where
    T: QueueKey + Debug,
    E: Display + 'static,
    R: Fn(T) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Action, E>> + Send + 'static,
{
    fn next(&self) -> BoxFuture<'_, Option<Lease<T>>> {
        Box::pin(self.queue.get())
    }

    fn begin(&mut self, lease: Lease<T>) -> BoxFuture<'static, bool> {
        let span = debug_span!("reconcile", key = ?*lease);
        let work = reconcile_one(self.queue.clone(), lease, Arc::clone(&self.reconcile));
        Box::pin(work.instrument(span))
    }

    fn ended(&mut self, key: T, priority: Priority, ended: WorkEnd<bool>) {
        self.summary.reconciles += 1;
        match ended {
            WorkEnd::Returned(true) => {}
            WorkEnd::Returned(false) => self.summary.errors += 1,
            WorkEnd::Panicked => {
                self.summary.panics += 1;
                // Without the payload: it may quote the object. The panic hook has logged the location.
                error!(?key, "reconcile panicked, will retry");
                retry(&self.queue, key, priority);
            }
        }
    }

    fn stopping(&mut self) {
        self.undelivered = self.queue.shut_down().len() as u64;
    }
}

async fn reconcile_one<T, E, R, F>(queue: WorkQueue<T>, lease: Lease<T>, reconcile: Arc<R>) -> bool
where
    T: QueueKey + Debug,
    E: Display + 'static,
    R: Fn(T) -> F,
    F: Future<Output = Result<Action, E>>,
{
    match reconcile(T::clone(&lease)).await {
        Ok(action) => {
            queue.forget(&lease);
            if let Some(after) = action.wait(SystemTime::now()) {
                let options = AddOptions {
                    priority: lease.priority(),
                    after,
                    rate_limited: false,
                };
                queue.add_with(T::clone(&lease), options);
            }
            true
        }
        Err(error) => {
            warn!(key = ?*lease, %error, "reconcile failed, will retry");
            retry(&queue, T::clone(&lease), lease.priority());
            false
        }
    }
}

fn retry<T: QueueKey>(queue: &WorkQueue<T>, key: T, priority: Priority) {
    let options = AddOptions {
        priority,
        after: Duration::ZERO,
        rate_limited: true,
    };
    queue.add_with(key, options);
}
