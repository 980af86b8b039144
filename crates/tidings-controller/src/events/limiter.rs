//! The rate limit of Events: a token bucket for each object. Pure: the caller gives the time.

use std::time::Duration;

use tokio::time::Instant;

use crate::events::event::{EventParts, ObjectReference};
use crate::events::lru::Lru;

/// What has a bucket of its own: an object and a type, so that many normal events do not hide a warning.
type BucketKey = (&'static str, ObjectReference);

/// Limits the Events about each object.
#[derive(Debug)]
pub(crate) struct EventLimiter {
    /// Bound: `buckets_max`.
    buckets: Lru<BucketKey, TokenBucket>,
    buckets_max: usize,
    burst: f64,
    refill: Duration,
}

#[derive(Debug)]
struct TokenBucket {
    tokens: f64,
    since: Instant,
}

impl EventLimiter {
    pub(crate) fn new(buckets_max: usize, burst: u32, refill: Duration) -> EventLimiter {
        EventLimiter {
            buckets: Lru::new(),
            buckets_max: buckets_max.max(1),
            burst: f64::from(burst),
            refill,
        }
    }

    /// Takes a token for a new Event. False if there is none.
    pub(crate) fn allows(&mut self, event: &EventParts, now: Instant) -> bool {
        let key = (event.kind, event.regarding.without_version());
        if self.buckets.get_mut(&key).is_none() {
            if self.buckets.len() >= self.buckets_max {
                self.buckets.pop_oldest();
            }
            let bucket = TokenBucket {
                tokens: self.burst,
                since: now,
            };
            self.buckets.insert(key.clone(), bucket);
        }
        let Some(bucket) = self.buckets.peek_mut(&key) else {
            return true;
        };
        let waited = now.saturating_duration_since(bucket.since);
        if !self.refill.is_zero() {
            let refilled = waited.as_secs_f64() / self.refill.as_secs_f64();
            bucket.tokens = (bucket.tokens + refilled).min(self.burst);
        } else {
            bucket.tokens = self.burst;
        }
        bucket.since = now;
        let allowed = bucket.tokens >= 1.0;
        if allowed {
            bucket.tokens -= 1.0;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::event::NewEvent;

    fn event(name: &str, new: NewEvent) -> EventParts {
        let regarding = ObjectReference::new("v1", "ConfigMap", "ns", name);
        EventParts::new(regarding, new, jiff::Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn each_object_and_type_has_a_burst_that_comes_back_slowly() {
        let mut limiter = EventLimiter::new(100, 3, Duration::from_secs(300));
        let start = Instant::now();
        let mut allowed = |name: &str, new: NewEvent, seconds: u64| {
            let event = event(name, new);
            let now = start + Duration::from_secs(seconds);
            (0..10).filter(|_| limiter.allows(&event, now)).count()
        };
        let normal = || NewEvent::normal("R", "");
        assert_eq!(allowed("a", normal(), 0), 3);
        assert_eq!(allowed("a", NewEvent::normal("Other", ""), 0), 0);
        assert_eq!(allowed("a", NewEvent::warning("R", ""), 0), 3);
        assert_eq!(allowed("b", normal(), 0), 3);
        assert_eq!(allowed("a", normal(), 299), 0);
        assert_eq!(allowed("a", normal(), 301), 1);
        assert_eq!(allowed("a", normal(), 10_000), 3, "no more than the burst");
    }

    #[test]
    fn of_too_many_objects_the_first_is_forgotten() {
        let mut limiter = EventLimiter::new(2, 1, Duration::from_secs(300));
        let now = Instant::now();
        let mut allows = |name| limiter.allows(&event(name, NewEvent::normal("R", "")), now);
        assert_eq!([allows("a"), allows("b"), allows("a")], [true, true, false]);
        assert!(allows("c"), "b makes room: a was used later");
        assert_eq!([allows("a"), allows("b")], [false, true]);
    }
}
