//! A bound on how often requests are sent.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// A token bucket: so many requests a second, and some at once. Clones share the bucket.
///
/// Those who wait are served in the order in which they came. Who gives up takes no token with him.
#[derive(Clone)]
pub struct RateLimiter(Arc<Bucket>);

struct Bucket {
    interval: Duration,
    burst: u32,
    /// When the bucket would be full again: one time instead of a count of tokens and the time of counting. Whoever is next
    /// holds the lock while he waits, which makes the queue.
    full_at: Mutex<Instant>,
}

/// One request in about a quarter of an hour. Less is a mistake.
const QPS_LEAST: f64 = 0.001;

impl RateLimiter {
    /// At most `burst` requests at once and `qps` a second in the long run. Both are raised to what lets a request through.
    pub fn new(qps: f64, burst: u32) -> RateLimiter {
        RateLimiter(Arc::new(Bucket {
            interval: Duration::from_secs_f64(qps.max(QPS_LEAST).recip()),
            burst: burst.max(1),
            full_at: Mutex::new(Instant::now()),
        }))
    }

    /// Waits for a token and takes it. Dropping the future takes none.
    pub async fn acquire(&self) {
        let Bucket {
            interval,
            burst,
            full_at,
        } = &*self.0;
        let mut full_at = full_at.lock().await;
        let now = Instant::now();
        let full_after = (*full_at).max(now) + *interval;
        // Dropped here, the bucket is as it was.
        let token_at = full_after.checked_sub(interval.saturating_mul(*burst));
        sleep_until(token_at.unwrap_or(now)).await;
        *full_at = full_after;
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter")
            .field("interval", &self.0.interval)
            .field("burst", &self.0.burst)
            .finish_non_exhaustive()
    }
}
