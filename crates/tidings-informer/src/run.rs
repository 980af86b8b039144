//! The loop of a controller: takes keys from a work queue and reconciles a bounded number of them at a time.
//!
//! Each reconcile is a task of its own, so that a panic affects only its key. The task holds the lease: no other worker gets the
//! key until the task has ended, even if it was aborted.

use std::collections::HashMap;
use std::fmt::{Debug, Display};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument, debug_span, error, warn};

use crate::event::Event;
use crate::object::Cached;
use crate::predicate::Predicate;
use crate::share::{HandlerOptions, Registration, SharedInformer, Stopped};
use crate::workqueue::{AddOptions, FAR, Lease, Priority, QueueKey, WorkQueue};

/// How long the loop waits for aborted reconciles to end: a reconcile that never yields cannot be aborted.
const ABORT_WAIT_MAX: Duration = Duration::from_secs(1);

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

/// Options of [`run_controller`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunOptions {
    /// How many reconciles run at once; zero counts as one.
    pub concurrency: usize,
    /// How long running reconciles have to end after the stop.
    pub grace: Duration,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions {
            concurrency: 8,
            grace: Duration::from_secs(30),
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
    let reconcile = Arc::new(reconcile);
    let mut running = RunningReconciles::new(queue.clone());
    let mut stop = pin!(stop);
    let mut drained = false;
    loop {
        if drained && running.tasks.is_empty() {
            return running.summary;
        }
        let has_room = running.tasks.len() < options.concurrency.max(1);
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(ended) = running.tasks.join_next_with_id() => running.settle(&ended),
            lease = queue.get(), if has_room && !drained => match lease {
                Some(lease) => running.start(lease, Arc::clone(&reconcile)),
                None => drained = true,
            },
        }
    }
    running.stop(options.grace).await
}

/// The reconciles that are running.
struct RunningReconciles<T: QueueKey> {
    queue: WorkQueue<T>,
    /// Each returns whether it succeeded.
    tasks: JoinSet<bool>,
    /// The key and priority of each task, needed to retry a task that panicked.
    keys: HashMap<Id, (T, Priority)>,
    summary: RunSummary,
}

impl<T: QueueKey + Debug> RunningReconciles<T> {
    fn new(queue: WorkQueue<T>) -> RunningReconciles<T> {
        RunningReconciles {
            queue,
            tasks: JoinSet::new(),
            keys: HashMap::new(),
            summary: RunSummary::default(),
        }
    }

    fn start<E, R, F>(&mut self, lease: Lease<T>, reconcile: Arc<R>)
    where
        E: Display + 'static,
        R: Fn(T) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Action, E>> + Send + 'static,
    {
        let (key, priority) = (T::clone(&lease), lease.priority());
        let span = debug_span!("reconcile", ?key);
        let task = reconcile_one(self.queue.clone(), lease, reconcile).instrument(span);
        let task = self.tasks.spawn(task);
        self.keys.insert(task.id(), (key, priority));
    }

    fn settle(&mut self, ended: &Result<(Id, bool), JoinError>) {
        let id = ended
            .as_ref()
            .map_or_else(|error| error.id(), |(id, _)| *id);
        let key = self.keys.remove(&id);
        self.summary.reconciles += 1;
        match ended {
            Ok((_, true)) => {}
            Ok((_, false)) => self.summary.errors += 1,
            Err(_) => {
                self.summary.panics += 1;
                if let Some((key, priority)) = key {
                    // Without the payload: it may quote the object. The panic hook has logged the location.
                    error!(?key, "reconcile panicked, will retry");
                    retry(&self.queue, key, priority);
                }
            }
        }
    }

    async fn stop(mut self, grace: Duration) -> RunSummary {
        let undelivered = self.queue.shut_down();
        let deadline = Instant::now() + grace.min(FAR);
        while let Ok(Some(ended)) = timeout_at(deadline, self.tasks.join_next_with_id()).await {
            self.settle(&ended);
        }
        if !self.tasks.is_empty() {
            self.abort().await;
        }
        // After the tasks have ended: a key that was added while it ran is queued when its task ends.
        self.summary.left = (self.queue.len() + undelivered.len()) as u64;
        self.summary
    }

    async fn abort(&mut self) {
        let running = self.tasks.len();
        warn!(
            running,
            "reconciles did not end within the grace, aborting them"
        );
        self.tasks.abort_all();
        let deadline = Instant::now() + ABORT_WAIT_MAX;
        while let Ok(Some(ended)) = timeout_at(deadline, self.tasks.join_next_with_id()).await {
            if ended.as_ref().is_err_and(JoinError::is_cancelled) {
                self.summary.abandoned += 1;
            } else {
                self.settle(&ended);
            }
        }
        self.summary.abandoned += self.tasks.len() as u64;
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
