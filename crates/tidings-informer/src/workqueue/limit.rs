//! Rate limiters: how long an item that failed waits before it is retried.
//!
//! Limiters read no clock: the caller passes `now`, which must not go back.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use super::bucket::TokenBucket;
use super::trim;

/// The least time that a failure is remembered. A limiter with a small maximum would otherwise forget an item while a slow worker
/// has it, and never back off.
const MEMORY_MIN: Duration = Duration::from_secs(300);

/// Expired items that one call removes at most. A call adds at most one item, so the expired ones get fewer.
const SWEEP_STEPS: usize = 4;

/// Decides how long an item waits before it is retried.
///
/// A queue calls its limiter under a lock: a limiter must neither block nor call its queue.
pub trait RateLimiter<T>: Send {
    /// Counts a failure of the item and returns how long it must wait.
    fn when(&mut self, item: &T, now: Instant) -> Duration;

    /// Forgets the failures of the item.
    fn forget(&mut self, item: &T, now: Instant);

    /// Failures of the item in a row.
    fn num_requeues(&self, item: &T, now: Instant) -> u32;
}

impl<T, L: RateLimiter<T> + ?Sized> RateLimiter<T> for Box<L> {
    fn when(&mut self, item: &T, now: Instant) -> Duration {
        (**self).when(item, now)
    }

    fn forget(&mut self, item: &T, now: Instant) {
        (**self).forget(item, now);
    }

    fn num_requeues(&self, item: &T, now: Instant) -> u32 {
        (**self).num_requeues(item, now)
    }
}

impl<T> RateLimiter<T> for TokenBucket {
    fn when(&mut self, _: &T, now: Instant) -> Duration {
        self.reserve(now)
    }

    fn forget(&mut self, _: &T, _: Instant) {}

    fn num_requeues(&self, _: &T, _: Instant) -> u32 {
        0
    }
}

/// The default limiter of queues: 5 ms doubling to 1000 s, for each item by itself.
///
/// client-go also allows only ten retries a second over all items. After an outage that makes a backlog of 10 000 items take a
/// quarter of an hour. Whoever wants such a limit combines it: `MaxOf::new(vec![Box::new(default_limiter()),
/// Box::new(TokenBucket::new(10.0, 100))])`.
#[must_use]
pub fn default_limiter<T: Clone + Eq + Hash + Send + 'static>() -> ItemExponential<T> {
    ItemExponential::new(Duration::from_millis(5), Duration::from_secs(1000))
}

/// Waits a base duration, doubled for each further failure in a row, up to a maximum.
///
/// An item that is never forgotten expires when it has not failed for twice the maximum (and at least five minutes).
#[derive(Debug)]
pub struct ItemExponential<T> {
    base: Duration,
    max: Duration,
    failures: FailureCounts<T>,
}

impl<T: Clone + Eq + Hash> ItemExponential<T> {
    /// A limiter with the wait after the first failure, and the longest wait.
    #[must_use]
    pub fn new(base: Duration, max: Duration) -> ItemExponential<T> {
        ItemExponential {
            base,
            max,
            failures: FailureCounts::new(max.saturating_mul(2).max(MEMORY_MIN)),
        }
    }

    /// Sets how long a failure is remembered.
    #[must_use]
    pub fn with_expiry(mut self, expiry: Duration) -> ItemExponential<T> {
        self.failures.expiry = expiry;
        self
    }

    /// The number of items with remembered failures.
    #[must_use]
    pub fn tracked(&self) -> usize {
        self.failures.counts.len()
    }
}

impl<T: Clone + Eq + Hash + Send> RateLimiter<T> for ItemExponential<T> {
    fn when(&mut self, item: &T, now: Instant) -> Duration {
        let earlier = self.failures.count_one(item, now);
        doubled(self.base, earlier).min(self.max)
    }

    fn forget(&mut self, item: &T, now: Instant) {
        self.failures.forget(item, now);
    }

    fn num_requeues(&self, item: &T, now: Instant) -> u32 {
        self.failures.count(item, now)
    }
}

/// `base` * 2^`times`, or `Duration::MAX` if that is larger.
pub(super) fn doubled(base: Duration, times: u32) -> Duration {
    let nanos = base.as_nanos().saturating_mul(1_u128 << times.min(64));
    if nanos > Duration::MAX.as_nanos() {
        return Duration::MAX;
    }
    Duration::from_nanos_u128(nanos)
}

/// A short wait for the first failures of an item, then a long one.
#[derive(Debug)]
pub struct ItemFastSlow<T> {
    fast: Duration,
    slow: Duration,
    fast_attempts_max: u32,
    failures: FailureCounts<T>,
}

impl<T: Clone + Eq + Hash> ItemFastSlow<T> {
    /// Waits `fast` for each of the first `fast_attempts_max` failures, `slow` afterwards.
    #[must_use]
    pub fn new(fast: Duration, slow: Duration, fast_attempts_max: u32) -> ItemFastSlow<T> {
        ItemFastSlow {
            fast,
            slow,
            fast_attempts_max,
            failures: FailureCounts::new(fast.max(slow).saturating_mul(2).max(MEMORY_MIN)),
        }
    }

    /// The number of items with remembered failures.
    #[must_use]
    pub fn tracked(&self) -> usize {
        self.failures.counts.len()
    }
}

impl<T: Clone + Eq + Hash + Send> RateLimiter<T> for ItemFastSlow<T> {
    fn when(&mut self, item: &T, now: Instant) -> Duration {
        if self.failures.count_one(item, now) < self.fast_attempts_max {
            self.fast
        } else {
            self.slow
        }
    }

    fn forget(&mut self, item: &T, now: Instant) {
        self.failures.forget(item, now);
    }

    fn num_requeues(&self, item: &T, now: Instant) -> u32 {
        self.failures.count(item, now)
    }
}

/// The longest wait that any of several limiters asks for.
pub struct MaxOf<T> {
    limiters: Vec<Box<dyn RateLimiter<T>>>,
}

impl<T> MaxOf<T> {
    /// A limiter that asks all of `limiters` each time.
    #[must_use]
    pub fn new(limiters: Vec<Box<dyn RateLimiter<T>>>) -> MaxOf<T> {
        MaxOf { limiters }
    }
}

impl<T> RateLimiter<T> for MaxOf<T> {
    fn when(&mut self, item: &T, now: Instant) -> Duration {
        // Each limiter must count each failure.
        self.limiters
            .iter_mut()
            .map(|limiter| limiter.when(item, now))
            .max()
            .unwrap_or_default()
    }

    fn forget(&mut self, item: &T, now: Instant) {
        for limiter in &mut self.limiters {
            limiter.forget(item, now);
        }
    }

    fn num_requeues(&self, item: &T, now: Instant) -> u32 {
        self.limiters
            .iter()
            .map(|limiter| limiter.num_requeues(item, now))
            .max()
            .unwrap_or_default()
    }
}

/// Caps another limiter's wait.
#[derive(Debug)]
pub struct WithMaxWait<L> {
    inner: L,
    max: Duration,
}

impl<L> WithMaxWait<L> {
    /// A limiter that never waits longer than `max`.
    #[must_use]
    pub fn new(inner: L, max: Duration) -> WithMaxWait<L> {
        WithMaxWait { inner, max }
    }
}

impl<T, L: RateLimiter<T>> RateLimiter<T> for WithMaxWait<L> {
    fn when(&mut self, item: &T, now: Instant) -> Duration {
        self.inner.when(item, now).min(self.max)
    }

    fn forget(&mut self, item: &T, now: Instant) {
        self.inner.forget(item, now);
    }

    fn num_requeues(&self, item: &T, now: Instant) -> u32 {
        self.inner.num_requeues(item, now)
    }
}

/// Lengthens another limiter's wait at random by up to a part of it, so that items that failed together are not all retried at once.
#[derive(Debug)]
pub struct WithJitter<L> {
    inner: L,
    part: f64,
    random: fastrand::Rng,
}

impl<L> WithJitter<L> {
    /// A limiter that waits up to `part` longer: 0.2 is a fifth. Equal seeds draw equal waits.
    #[must_use]
    pub fn new(inner: L, part: f64, seed: Option<u64>) -> WithJitter<L> {
        WithJitter {
            inner,
            part: part.max(0.0),
            random: seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed),
        }
    }
}

impl<T, L: RateLimiter<T>> RateLimiter<T> for WithJitter<L> {
    fn when(&mut self, item: &T, now: Instant) -> Duration {
        let wait = self.inner.when(item, now);
        let longer = wait.as_secs_f64() * (1.0 + self.part * self.random.f64());
        Duration::try_from_secs_f64(longer).unwrap_or(wait)
    }

    fn forget(&mut self, item: &T, now: Instant) {
        self.inner.forget(item, now);
    }

    fn num_requeues(&self, item: &T, now: Instant) -> u32 {
        self.inner.num_requeues(item, now)
    }
}

/// Failures in a row by item. An item expires when it has not failed for `expiry`.
#[derive(Debug)]
struct FailureCounts<T> {
    expiry: Duration,
    counts: HashMap<T, FailureCount>,
    /// The items by their last failure, the oldest first: one entry for each item.
    order: BTreeMap<u64, T>,
    next: u64,
}

/// The failures of one item.
#[derive(Debug)]
struct FailureCount {
    count: u32,
    last: Instant,
    position: u64,
}

impl<T: Clone + Eq + Hash> FailureCounts<T> {
    fn new(expiry: Duration) -> FailureCounts<T> {
        FailureCounts {
            expiry,
            counts: HashMap::new(),
            order: BTreeMap::new(),
            next: 0,
        }
    }

    /// Counts a failure and returns how many came before it.
    fn count_one(&mut self, item: &T, now: Instant) -> u32 {
        self.sweep(now);
        let earlier = self.count(item, now);
        let position = self.next;
        self.next += 1;
        self.order.insert(position, item.clone());
        let failure = FailureCount {
            count: earlier.saturating_add(1),
            last: now,
            position,
        };
        if let Some(replaced) = self.counts.insert(item.clone(), failure) {
            self.order.remove(&replaced.position);
        }
        earlier
    }

    fn count(&self, item: &T, now: Instant) -> u32 {
        let live = self
            .counts
            .get(item)
            .filter(|failure| !self.has_expired(failure, now));
        live.map_or(0, |failure| failure.count)
    }

    fn forget(&mut self, item: &T, now: Instant) {
        if let Some(failure) = self.counts.remove(item) {
            self.order.remove(&failure.position);
            trim(&mut self.counts);
        }
        self.sweep(now);
    }

    fn sweep(&mut self, now: Instant) {
        for _ in 0..SWEEP_STEPS {
            let Some((position, item)) = self.order.first_key_value() else {
                return;
            };
            if self
                .counts
                .get(item)
                .is_some_and(|failure| !self.has_expired(failure, now))
            {
                return;
            }
            let position = *position;
            if let Some(item) = self.order.remove(&position) {
                self.counts.remove(&item);
                trim(&mut self.counts);
            }
        }
    }

    fn has_expired(&self, failure: &FailureCount, now: Instant) -> bool {
        now.saturating_duration_since(failure.last) > self.expiry
    }
}
