//! The work queue that producers and workers share: a lock around the core, and a cancel-safe wait for items.
//!
//! It has no task. One of the workers that wait in `get` also waits for the next delayed item; when it leaves, with an item or
//! because its future was dropped, it wakes another worker to take over. So the queue is freed with its last handle.

use std::fmt;
use std::future::pending;
use std::ops::Deref;
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::core::{AddResult, QueueCore};
use super::limit::{RateLimiter, default_limiter};
use super::metrics::{QueueCounters, QueueMetrics};
use super::{FAR, Priority, QueueKey};
use crate::sync::{Arc, Mutex, Weak, lock};

/// Options of a queue.
pub struct QueueOptions<T> {
    /// After each such time the lane of a waiting item rises by one priority.
    pub age_step: Duration,
    /// Decides the wait of [`WorkQueue::add_rate_limited`].
    pub limiter: Box<dyn RateLimiter<T>>,
}

impl<T: QueueKey> Default for QueueOptions<T> {
    fn default() -> QueueOptions<T> {
        QueueOptions {
            age_step: Duration::from_secs(5),
            limiter: Box::new(default_limiter()),
        }
    }
}

/// Options of an add.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AddOptions {
    /// The priority. Of several adds the highest counts.
    pub priority: Priority,
    /// How long to delay the item; zero adds it at once.
    pub after: Duration,
    /// Counts a failure of the item, and delays it as long as the limiter says, or by `after` if that is longer.
    pub rate_limited: bool,
}

/// A queue of distinct items, each processed by one worker at a time. Clones are handles to one queue.
pub struct WorkQueue<T: QueueKey> {
    shared: Arc<QueueShared<T>>,
}

/// A handle that does not keep the queue alive.
pub(crate) struct WeakQueue<T>(Weak<QueueShared<T>>);

impl<T: QueueKey> WeakQueue<T> {
    pub(crate) fn upgrade(&self) -> Option<WorkQueue<T>> {
        let shared = self.0.upgrade()?;
        Some(WorkQueue { shared })
    }
}

/// The state that all handles share.
struct QueueShared<T> {
    state: Mutex<QueueState<T>>,
    /// Has a lock of its own: a limiter may be code of the program.
    limiter: Mutex<Box<dyn RateLimiter<T>>>,
    /// Wakes workers: for an item, or to take over the wait for delayed items.
    items: Notify,
    /// Wakes the worker that waits for delayed items: the next one is due earlier.
    clock: Notify,
    /// Wakes calls of `shut_down_with_drain`.
    idle: Notify,
    counters: QueueCounters,
}

/// The state under the lock.
struct QueueState<T> {
    core: QueueCore<T>,
    /// Whether a worker waits for the next delayed item.
    watched: bool,
    /// How often `shut_down` was called. A drain that waits ends when this grows.
    shut_downs: u64,
}

/// What a worker in `get` does next.
enum GetStep<T: QueueKey> {
    Got(Lease<T>),
    Over,
    /// Wait; the time is when the next delayed item is due.
    Wait(Option<Instant>),
}

impl<T: QueueKey> WorkQueue<T> {
    pub(crate) fn downgrade(&self) -> WeakQueue<T> {
        WeakQueue(Arc::downgrade(&self.shared))
    }

    /// A queue with the default options.
    #[must_use]
    pub fn new() -> WorkQueue<T> {
        WorkQueue::with_options(QueueOptions::default())
    }

    /// A queue with these options.
    #[must_use]
    pub fn with_options(options: QueueOptions<T>) -> WorkQueue<T> {
        WorkQueue {
            shared: Arc::new(QueueShared {
                state: Mutex::new(QueueState {
                    core: QueueCore::new(options.age_step),
                    watched: false,
                    shut_downs: 0,
                }),
                limiter: Mutex::new(options.limiter),
                items: Notify::new(),
                clock: Notify::new(),
                idle: Notify::new(),
                counters: QueueCounters::default(),
            }),
        }
    }

    /// Adds an item. Ignored when the queue is shutting down.
    pub fn add(&self, item: T) {
        self.add_with(item, AddOptions::default());
    }

    /// Adds an item after a delay. Of several delays the one that ends first counts.
    pub fn add_after(&self, item: T, after: Duration) {
        let options = AddOptions {
            after,
            ..AddOptions::default()
        };
        self.add_with(item, options);
    }

    /// Counts a failure of the item, and adds it after the wait that the limiter asks for.
    pub fn add_rate_limited(&self, item: T) {
        let options = AddOptions {
            rate_limited: true,
            ..AddOptions::default()
        };
        self.add_with(item, options);
    }

    /// Adds an item with options.
    pub fn add_with(&self, item: T, options: AddOptions) {
        let now = Instant::now();
        let mut after = options.after;
        if options.rate_limited {
            after = after.max(lock(&self.shared.limiter).when(&item, now));
        }
        let ready = now + after.min(FAR);

        let mut state = lock(&self.shared.state);
        let due_before = state.core.next_ready();
        let added = state.core.add_at(item, options.priority, ready, now);
        let has_items = !state.core.is_empty();
        let nearer = state
            .core
            .next_ready()
            .is_some_and(|due| due_before.is_none_or(|before| due < before));
        let watched = state.watched;
        drop(state);

        if added == AddResult::Refused {
            self.shared.counters.refused.fetch_add(1, Relaxed);
        } else if options.rate_limited {
            self.shared.counters.retries.fetch_add(1, Relaxed);
        }
        if nearer && watched {
            self.shared.clock.notify_one();
        }
        if has_items || (nearer && !watched) {
            self.shared.items.notify_one();
        }
    }

    /// Removes the delay of an item that was added with one: it is not added at that time any more. A controller calls this when
    /// it begins to reconcile a key, because the result says when the key is due again, and for objects that are gone. True if
    /// the item was delayed.
    pub fn cancel_delay(&self, item: &T) -> bool {
        lock(&self.shared.state).core.cancel_delay(item)
    }

    /// Forgets the failures of an item, so that its next retry is quick. Does not remove it from the queue.
    pub fn forget(&self, item: &T) {
        lock(&self.shared.limiter).forget(item, Instant::now());
    }

    /// Failures of the item in a row.
    #[must_use]
    pub fn num_requeues(&self, item: &T) -> u32 {
        lock(&self.shared.limiter).num_requeues(item, Instant::now())
    }

    /// Takes the next item, and waits for one if the queue is empty. Returns `None` when the queue is shut down and no item will
    /// come.
    ///
    /// Any number of workers may wait. Dropping the future loses neither an item nor a wake-up of another worker. A future that
    /// is kept but not polled can hold back a wake-up.
    ///
    /// # Panics
    /// Outside a tokio runtime with a timer, if items are delayed.
    pub async fn get(&self) -> Option<Lease<T>> {
        let mut watch = None;
        loop {
            // Created before the check of the queue, so that it also gets a `notify_waiters` between the check and the wait. An
            // add in between leaves a permit; of several adds, the worker that takes the first wakes the next worker.
            let woken = pin!(self.shared.items.notified());
            let due = match self.step(&mut watch) {
                GetStep::Got(lease) => return Some(lease),
                GetStep::Over => return None,
                GetStep::Wait(due) => due,
            };
            if watch.is_none() {
                woken.await;
                continue;
            }
            let timer = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = woken => {}
                () = self.shared.clock.notified() => {}
                () = timer => {}
            }
        }
    }

    /// Takes the next item, if there is one.
    #[must_use]
    pub fn try_get(&self) -> Option<Lease<T>> {
        self.take(&mut lock(&self.shared.state).core)
    }

    fn step(&self, watch: &mut Option<ClockWatch<T>>) -> GetStep<T> {
        let mut state = lock(&self.shared.state);
        if let Some(lease) = self.take(&mut state.core) {
            return GetStep::Got(lease);
        }
        if state.core.is_exhausted() {
            return GetStep::Over;
        }
        let due = state.core.next_ready();
        if due.is_some() && !state.watched {
            state.watched = true;
            *watch = Some(ClockWatch(Arc::clone(&self.shared)));
        }
        GetStep::Wait(due)
    }

    fn take(&self, core: &mut QueueCore<T>) -> Option<Lease<T>> {
        let popped = core.pop(Instant::now())?;
        self.shared.counters.queue_duration.observe(popped.waited);
        if core.is_exhausted() {
            self.shared.items.notify_waiters();
        } else if !core.is_empty() {
            // Several adds may have caused one wake-up: a worker that leaves items wakes the next worker.
            self.shared.items.notify_one();
        }
        Some(Lease {
            queue: self.clone(),
            item: popped.item,
            priority: popped.priority,
        })
    }

    fn finish(&self, item: &T) {
        let mut state = lock(&self.shared.state);
        let Some(finished) = state.core.done(item, Instant::now()) else {
            return;
        };
        let shutting_down = state.core.is_shutting_down();
        let idle = state.core.is_idle();
        drop(state);

        self.shared.counters.work_duration.observe(finished.worked);
        if finished.requeued {
            self.shared.items.notify_one();
        }
        if shutting_down && idle {
            self.shared.idle.notify_waiters();
        }
    }

    /// The number of items that wait for a worker.
    #[must_use]
    pub fn len(&self) -> usize {
        let mut state = lock(&self.shared.state);
        state.core.advance(Instant::now());
        state.core.len()
    }

    /// Whether no item waits for a worker.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether adds are ignored.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        lock(&self.shared.state).core.is_shutting_down()
    }

    /// Shuts the queue down: it ignores further adds, and workers get the queued items and then `None`. Ends a drain that waits.
    ///
    /// Returns the delayed items that are not due and will not be delivered. Each is returned by one call only.
    pub fn shut_down(&self) -> Vec<T> {
        let mut state = lock(&self.shared.state);
        state.core.shut_down(Instant::now());
        state.shut_downs += 1;
        let undelivered = state.core.take_undelivered();
        drop(state);
        self.shared.items.notify_waiters();
        self.shared.idle.notify_waiters();
        undelivered
    }

    /// Shuts the queue down as [`shut_down`](WorkQueue::shut_down) does, and waits until workers are done with all items. A later
    /// `shut_down` ends the wait. Without workers it waits forever if items are queued.
    ///
    /// If the future is dropped, the queue stays shut down, and the next call returns the delayed items.
    pub async fn shut_down_with_drain(&self) -> Vec<T> {
        let shut_downs = {
            let mut state = lock(&self.shared.state);
            state.core.shut_down(Instant::now());
            state.shut_downs
        };
        self.shared.items.notify_waiters();
        loop {
            let idle = pin!(self.shared.idle.notified());
            {
                let mut state = lock(&self.shared.state);
                if state.core.is_idle() || state.shut_downs != shut_downs {
                    return state.core.take_undelivered();
                }
            }
            idle.await;
        }
    }

    /// The current metrics of the queue.
    #[must_use]
    pub fn metrics(&self) -> QueueMetrics {
        let now = Instant::now();
        let counters = &self.shared.counters;
        let mut state = lock(&self.shared.state);
        state.core.advance(now);
        let running = |started: Instant| now.saturating_duration_since(started).as_secs_f64();
        QueueMetrics {
            depth: state.core.len(),
            delayed: state.core.delayed_len(),
            processing: state.core.processing_len(),
            adds_total: state.core.adds(),
            retries_total: counters.retries.load(Relaxed),
            refused_total: counters.refused.load(Relaxed),
            queue_duration: counters.queue_duration.snapshot(),
            work_duration: counters.work_duration.snapshot(),
            // Not `sum`, which returns -0 for an empty iterator.
            unfinished_work_seconds: state
                .core
                .started()
                .map(running)
                .fold(0.0, |sum, next| sum + next),
            longest_running_processor_seconds: state
                .core
                .started()
                .map(running)
                .fold(0.0, f64::max),
        }
    }
}

impl<T: QueueKey> Clone for WorkQueue<T> {
    fn clone(&self) -> WorkQueue<T> {
        WorkQueue {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T: QueueKey> Default for WorkQueue<T> {
    fn default() -> WorkQueue<T> {
        WorkQueue::new()
    }
}

impl<T: QueueKey> fmt::Debug for WorkQueue<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("WorkQueue")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// A worker's hold on an item: no other worker gets the item until the lease is dropped, even by a panic.
///
/// Dropping it ends the work, successful or not. To retry, add the item again.
#[must_use = "dropping a lease ends the work on its item"]
pub struct Lease<T: QueueKey> {
    queue: WorkQueue<T>,
    item: T,
    priority: Priority,
}

impl<T: QueueKey> Lease<T> {
    /// The priority that the item was queued with, for a retry at that priority.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Ends the work on the item, as dropping the lease does.
    pub fn done(self) {}
}

impl<T: QueueKey> Deref for Lease<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.item
    }
}

impl<T: QueueKey + fmt::Debug> fmt::Debug for Lease<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Lease").field(&self.item).finish()
    }
}

impl<T: QueueKey> Drop for Lease<T> {
    fn drop(&mut self) {
        self.queue.finish(&self.item);
    }
}

/// Held by the worker that waits for the next delayed item. When it is dropped, another worker takes over.
struct ClockWatch<T: QueueKey>(Arc<QueueShared<T>>);

impl<T: QueueKey> Drop for ClockWatch<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.watched = false;
        let needed = state.core.next_ready().is_some();
        drop(state);
        if needed {
            self.0.items.notify_one();
        }
    }
}
