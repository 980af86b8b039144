//! A rate limiter for requests.

use std::sync::Arc;

use tidings_informer::workqueue::TokenBucket;

/// A token bucket: a number of requests a second, with bursts. Clones share the bucket.
#[derive(Clone, Debug)]
pub struct RequestLimiter(Arc<TokenBucket>);

/// The lowest rate, one request in about a quarter of an hour: a lower one is a mistake.
const QPS_LEAST: f64 = 0.001;

impl RequestLimiter {
    /// Allows bursts of `burst` requests, and `qps` a second on average. Values that would let no request through are raised.
    pub fn new(qps: f64, burst: u32) -> RequestLimiter {
        RequestLimiter(Arc::new(TokenBucket::new(qps.max(QPS_LEAST), burst.max(1))))
    }

    /// Waits for a token and takes it. Dropping the future takes none.
    pub async fn acquire(&self) {
        // Cannot fail without a deadline.
        let _ = self.0.wait(None).await;
    }
}
