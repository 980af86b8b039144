//! The work queue: each key is queued once, and processed by one worker at a time.
//!
//! Producers [`add`](WorkQueue::add) keys; workers take them with [`get`](WorkQueue::get). A key that is added many times before
//! a worker takes it is taken once; a key that is added while a worker has it is taken once more when that worker is done. Keys
//! have a [`Priority`] and a flow (their namespace), can be delayed, and can be retried with a growing wait. [`mod@core`]
//! describes the order.
//!
//! ```
//! use tidings_informer::workqueue::WorkQueue;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let queue = WorkQueue::new();
//! queue.add("default/web".to_owned());
//! queue.add("default/web".to_owned());
//! queue.shut_down();
//!
//! let lease = queue.get().await.expect("the added key");
//! assert_eq!(*lease, "default/web");
//! queue.forget(&lease);
//! drop(lease); // done
//! assert!(queue.get().await.is_none());
//! # }
//! ```

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tidings_api::ObjectKey;

pub mod core;
pub mod metrics;

mod backoff;
mod bucket;
mod lane;
mod limit;
mod queue;

pub use backoff::Backoff;
pub use bucket::{TokenBucket, WaitError};
pub use limit::{
    ItemExponential, ItemFastSlow, MaxOf, RateLimiter, WithJitter, WithMaxWait, default_limiter,
};
pub use metrics::QueueMetrics;
pub use queue::{AddOptions, Lease, QueueOptions, WorkQueue};

/// Stands for "never" where a longer wait would overflow an `Instant`: thirty years.
pub(crate) const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 30);

/// Tables larger than this shrink when they are nearly empty, for example after the initial list of a large resource.
const TABLE_KEPT: usize = 1024;

/// A key that can be queued. Cloning must be cheap.
pub trait QueueKey: Clone + Eq + Hash + Send + 'static {
    /// The flow of this key. Flows take turns, so that a namespace with many keys does not delay the others.
    fn flow(&self) -> &str {
        ""
    }
}

/// A client-go key, `namespace/name`; a key without a slash has no namespace.
impl QueueKey for String {
    fn flow(&self) -> &str {
        namespace(self)
    }
}

/// As for [`String`].
impl QueueKey for &'static str {
    fn flow(&self) -> &str {
        namespace(self)
    }
}

impl QueueKey for ObjectKey {
    fn flow(&self) -> &str {
        self.namespace()
    }
}

impl QueueKey for u32 {}
impl QueueKey for u64 {}
impl QueueKey for usize {}

fn namespace(key: &str) -> &str {
    key.split_once('/').map_or("", |(namespace, _)| namespace)
}

/// How urgent an item is. Higher priorities go first, but items that have waited long rise: see [`mod@core`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Priority(i8);

impl Priority {
    /// Before keys of changed objects, for example because a user waits.
    pub const HIGH: Priority = Priority(2);
    /// Keys of changed objects.
    pub const NORMAL: Priority = Priority(0);
    /// Keys of the initial list and of resyncs, which are many and not urgent.
    pub const LOW: Priority = Priority(-2);

    /// A priority between or beyond the named ones.
    #[must_use]
    pub const fn new(priority: i8) -> Priority {
        Priority(priority)
    }

    /// The priority as a number; [`NORMAL`](Priority::NORMAL) is 0.
    #[must_use]
    pub const fn get(self) -> i8 {
        self.0
    }
}

/// Shrinks a large table that is nearly empty. Halving it at an eighth full keeps the amortized cost of a removal constant.
fn trim<K: Eq + Hash, V>(table: &mut HashMap<K, V>) {
    let capacity = table.capacity();
    if capacity > TABLE_KEPT && table.len() < capacity / 8 {
        table.shrink_to(capacity / 2);
    }
}
