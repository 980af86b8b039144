//! A bound on how often requests are sent.

use std::sync::Arc;

use tidings_informer::workqueue::TokenBucket;

/// A token bucket: so many requests a second, and some at once. Clones share the bucket.
#[derive(Clone, Debug)]
pub struct RateLimiter(Arc<TokenBucket>);

/// One request in about a quarter of an hour. Less is a mistake.
const QPS_LEAST: f64 = 0.001;

impl RateLimiter {
    /// At most `burst` requests at once and `qps` a second in the long run. Both are raised to what lets a request through.
    pub fn new(qps: f64, burst: u32) -> RateLimiter {
        RateLimiter(Arc::new(TokenBucket::new(qps.max(QPS_LEAST), burst.max(1))))
    }

    /// Waits for a token and takes it. Dropping the future takes none.
    pub async fn acquire(&self) {
        // Without a deadline there is nothing that could fail.
        let _ = self.0.wait(None).await;
    }
}
