//! Backoff by id, for callers that check whether an id is in backoff instead of waiting in a queue.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use super::limit::doubled;
use super::trim;

/// Says whether an entry has expired, from the time of the event, the time of the entry's last update, and the maximum wait.
type HasExpired = Box<dyn Fn(Instant, Instant, Duration) -> bool + Send>;

/// Doubles the wait of an id at each call of [`next`](Backoff::next) up to a maximum, and starts over when an id had no event for
/// twice the maximum. client-go's `flowcontrol.Backoff`.
///
/// Entries stay until they are reset or until [`gc`](Backoff::gc) removes expired ones: the owner calls it regularly.
pub struct Backoff<K> {
    initial: Duration,
    max: Duration,
    jitter_factor: f64,
    random: Box<dyn FnMut() -> f64 + Send>,
    has_expired: HasExpired,
    entries: HashMap<K, BackoffEntry>,
}

/// The current wait of an id.
#[derive(Debug, Clone, Copy)]
struct BackoffEntry {
    wait: Duration,
    updated: Instant,
}

impl<K> fmt::Debug for Backoff<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Backoff")
            .field("initial", &self.initial)
            .field("max", &self.max)
            .field("jitter_factor", &self.jitter_factor)
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}

impl<K: Eq + Hash> Backoff<K> {
    /// A backoff without jitter.
    #[must_use]
    pub fn new(initial: Duration, max: Duration) -> Backoff<K> {
        Backoff {
            initial,
            max,
            jitter_factor: 0.0,
            random: Box::new(fastrand::f64),
            has_expired: Box::new(|event, updated, max| {
                event.saturating_duration_since(updated) > max.saturating_mul(2)
            }),
            entries: HashMap::new(),
        }
    }

    /// Adds jitter: up to `factor` times the wait before each doubling, never beyond the maximum.
    #[must_use]
    pub fn with_jitter(mut self, factor: f64) -> Backoff<K> {
        self.jitter_factor = factor.max(0.0);
        self
    }

    /// Draws the jitter from `random`, which returns numbers in [0, 1).
    #[must_use]
    pub fn with_random(mut self, random: impl FnMut() -> f64 + Send + 'static) -> Backoff<K> {
        self.random = Box::new(random);
        self
    }

    /// Replaces the rule that an entry expires after twice the maximum. `has_expired` gets the time of the event, the time of the
    /// entry's last update, and the maximum.
    #[must_use]
    pub fn with_expiry(
        mut self,
        has_expired: impl Fn(Instant, Instant, Duration) -> bool + Send + 'static,
    ) -> Backoff<K> {
        self.has_expired = Box::new(has_expired);
        self
    }

    /// The wait of an id; zero if it has none.
    #[must_use]
    pub fn get(&self, id: &K) -> Duration {
        self.entries
            .get(id)
            .map_or(Duration::ZERO, |entry| entry.wait)
    }

    /// Increases the wait of an id because of an event at time `event`.
    pub fn next(&mut self, id: K, event: Instant, now: Instant) {
        let live = self
            .entries
            .get(&id)
            .filter(|entry| !self.is_old(entry, event))
            .copied();
        let (grown, from) = live.map_or((self.initial, self.initial), |entry| {
            (doubled(entry.wait, 1), entry.wait)
        });
        let wait = grown.saturating_add(self.jitter(from)).min(self.max);
        self.entries.insert(id, BackoffEntry { wait, updated: now });
    }

    /// Removes the wait of an id; its next wait is the initial one.
    pub fn reset(&mut self, id: &K) {
        self.entries.remove(id);
    }

    /// Whether less time than the id's wait has passed since `event`.
    #[must_use]
    pub fn is_in_backoff_since(&self, id: &K, event: Instant, now: Instant) -> bool {
        self.live(id, event)
            .is_some_and(|entry| now.saturating_duration_since(event) < entry.wait)
    }

    /// Whether `event` falls into the wait that began with the id's last update.
    #[must_use]
    pub fn is_in_backoff_since_update(&self, id: &K, event: Instant) -> bool {
        self.live(id, event)
            .is_some_and(|entry| event.saturating_duration_since(entry.updated) < entry.wait)
    }

    /// Removes expired entries.
    pub fn gc(&mut self, now: Instant) {
        let (has_expired, max) = (&self.has_expired, self.max);
        self.entries
            .retain(|_, entry| !has_expired(now, entry.updated, max));
        trim(&mut self.entries);
    }

    /// The number of ids with an entry.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no id has an entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn live(&self, id: &K, event: Instant) -> Option<&BackoffEntry> {
        self.entries
            .get(id)
            .filter(|entry| !self.is_old(entry, event))
    }

    fn is_old(&self, entry: &BackoffEntry, event: Instant) -> bool {
        (self.has_expired)(event, entry.updated, self.max)
    }

    fn jitter(&mut self, wait: Duration) -> Duration {
        if self.jitter_factor == 0.0 {
            return Duration::ZERO;
        }
        let factor = (self.random)() * self.jitter_factor;
        Duration::try_from_secs_f64(wait.as_secs_f64() * factor).unwrap_or(self.max)
    }
}
