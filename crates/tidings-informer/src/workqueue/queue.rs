//! The queue that producers and workers share: a lock around the core, and a wait that can be dropped at any time.
//!
//! No task runs behind it. Of the workers that wait in `get` one watches the clock for all; when it leaves, with an item or
//! because its future was dropped, it wakes another to take over. So the queue is gone when its last handle is.

use std::fmt;
use std::future::pending;
use std::ops::Deref;
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::core::{Added, Core};
use super::limit::{RateLimiter, default_limiter};
use super::metrics::{Counters, Metrics};
use super::{FAR, Priority, QueueKey};
use crate::sync::{Arc, Mutex, Weak, lock};

/// How a queue behaves.
pub struct QueueOptions<T> {
    /// How long an item waits to rise by one priority.
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

/// How an item is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AddOptions {
    /// Of several adds the highest counts.
    pub priority: Priority,
    /// Not before this has passed; nought is at once.
    pub after: Duration,
    /// Counts a failure of the item and waits as long as the limiter says, or `after` if that is longer.
    pub rate_limited: bool,
}

/// A queue of distinct items, each with one worker at a time. Clones are handles to the same queue.
pub struct WorkQueue<T: QueueKey> {
    shared: Arc<Shared<T>>,
}

/// A queue that may be gone: its figures go with it.
pub(crate) struct WeakQueue<T>(Weak<Shared<T>>);

impl<T: QueueKey> WeakQueue<T> {
    pub(crate) fn upgrade(&self) -> Option<WorkQueue<T>> {
        let shared = self.0.upgrade()?;
        Some(WorkQueue { shared })
    }
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// Apart from the state: a limiter may be anyone's code.
    limiter: Mutex<Box<dyn RateLimiter<T>>>,
    /// Wakes those who wait for an item, or for something to watch.
    items: Notify,
    /// Wakes the one who watches the clock: its time has come nearer.
    clock: Notify,
    /// Wakes those who wait for the drain.
    idle: Notify,
    counters: Counters,
}

struct State<T> {
    core: Core<T>,
    /// Whether one of those who wait watches the clock.
    watched: bool,
    /// How often `shut_down` was called; a drain ends when it grows.
    shut_downs: u64,
}

enum Step<T: QueueKey> {
    Got(Lease<T>),
    Over,
    /// Until this time, for the one that watches the clock.
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
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    core: Core::new(options.age_step),
                    watched: false,
                    shut_downs: 0,
                }),
                limiter: Mutex::new(options.limiter),
                items: Notify::new(),
                clock: Notify::new(),
                idle: Notify::new(),
                counters: Counters::default(),
            }),
        }
    }

    /// Marks an item as in need of processing. Ignored when the queue is shutting down.
    pub fn add(&self, item: T) {
        self.add_with(item, AddOptions::default());
    }

    /// Adds an item once `after` has passed. Of two delays the one that ends earlier counts.
    pub fn add_after(&self, item: T, after: Duration) {
        let options = AddOptions {
            after,
            ..AddOptions::default()
        };
        self.add_with(item, options);
    }

    /// Counts a failure of the item and adds it once the limiter allows.
    pub fn add_rate_limited(&self, item: T) {
        let options = AddOptions {
            rate_limited: true,
            ..AddOptions::default()
        };
        self.add_with(item, options);
    }

    /// Adds an item in the way that `options` say.
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

        if added == Added::Refused {
            self.shared.counters.refused.fetch_add(1, Relaxed);
        } else if options.rate_limited || !after.is_zero() {
            self.shared.counters.retries.fetch_add(1, Relaxed);
        }
        if nearer && watched {
            self.shared.clock.notify_one();
        }
        if has_items || (nearer && !watched) {
            self.shared.items.notify_one();
        }
    }

    /// Ends an item's run of failures, so that its next retry is quick. It may stay queued or delayed.
    pub fn forget(&self, item: &T) {
        lock(&self.shared.limiter).forget(item, Instant::now());
    }

    /// How many failures the item has behind it.
    #[must_use]
    pub fn num_requeues(&self, item: &T) -> u32 {
        lock(&self.shared.limiter).num_requeues(item, Instant::now())
    }

    /// Takes the item whose turn it is, and waits for one if there is none. `None` when the queue is shut down and no item will
    /// come again.
    ///
    /// Any number of workers may wait. Dropping the future loses neither an item nor another worker's wake-up; keeping it without
    /// polling it may keep a wake-up from others.
    ///
    /// # Panics
    /// Outside a tokio runtime with a timer, if items are delayed.
    pub async fn get(&self) -> Option<Lease<T>> {
        let mut watch = None;
        loop {
            // Made before the look: it then also hears a shutdown that comes after the look and before the wait. An add in between
            // leaves a permit; of several adds the rest is found by who takes the first.
            let woken = pin!(self.shared.items.notified());
            let due = match self.step(&mut watch) {
                Step::Got(lease) => return Some(lease),
                Step::Over => return None,
                Step::Wait(due) => due,
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

    /// Takes the item whose turn it is, if there is one.
    #[must_use]
    pub fn try_get(&self) -> Option<Lease<T>> {
        self.take(&mut lock(&self.shared.state).core)
    }

    fn step(&self, watch: &mut Option<ClockWatch<T>>) -> Step<T> {
        let mut state = lock(&self.shared.state);
        if let Some(lease) = self.take(&mut state.core) {
            return Step::Got(lease);
        }
        if state.core.is_exhausted() {
            return Step::Over;
        }
        let due = state.core.next_ready();
        if due.is_some() && !state.watched {
            state.watched = true;
            *watch = Some(ClockWatch(Arc::clone(&self.shared)));
        }
        Step::Wait(due)
    }

    fn take(&self, core: &mut Core<T>) -> Option<Lease<T>> {
        let popped = core.pop(Instant::now())?;
        self.shared.counters.queue_duration.observe(popped.waited);
        if core.is_exhausted() {
            self.shared.items.notify_waiters();
        } else if !core.is_empty() {
            // Several items may have come with one wake-up: whoever leaves some behind wakes the next.
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

    /// How many items wait for a worker.
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

    /// Ignores adds from now on. Workers still get what is queued, then `None`. A drain that waits ends.
    ///
    /// Returns the delayed items that will not be handed out because their time has not come, each in one such answer.
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

    /// As [`shut_down`](WorkQueue::shut_down), then waits until workers are done with what was queued and in process. A later
    /// `shut_down` ends the wait. Without workers, what is queued is never done.
    ///
    /// If the future is dropped, the queue stays shut down, and the next call reports the delayed items.
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

    /// The queue's figures as they are now.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let now = Instant::now();
        let counters = &self.shared.counters;
        let mut state = lock(&self.shared.state);
        state.core.advance(now);
        let running = |started: Instant| now.saturating_duration_since(started).as_secs_f64();
        Metrics {
            depth: state.core.len(),
            delayed: state.core.delayed_len(),
            processing: state.core.processing_len(),
            adds_total: state.core.adds(),
            retries_total: counters.retries.load(Relaxed),
            refused_total: counters.refused.load(Relaxed),
            queue_duration: counters.queue_duration.snapshot(),
            work_duration: counters.work_duration.snapshot(),
            // Not `sum`, whose sum of nothing is -0.
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

/// A worker's hold on an item: no other worker gets it until this is dropped, also by a panic.
///
/// Dropping it means done, well or not: who wants another try adds the item again.
#[must_use = "dropping a lease ends the work on its item"]
pub struct Lease<T: QueueKey> {
    queue: WorkQueue<T>,
    item: T,
    priority: Priority,
}

impl<T: QueueKey> Lease<T> {
    /// The priority that the item was handed out with, for a retry at the same.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// The work is done.
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

/// The duty of the one worker that watches the clock, passed on when it goes.
struct ClockWatch<T: QueueKey>(Arc<Shared<T>>);

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
