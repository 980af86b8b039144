//! A queue of keys for workers: each key once, with one worker at a time.
//!
//! Producers [`add`](WorkQueue::add) keys; workers take them with [`get`](WorkQueue::get). A key added many times before a worker
//! takes it is handed out once; a key added while a worker has it is handed out once more when that worker is done. Keys have a
//! [`Priority`] and a flow (their namespace), can be delayed, and can be retried with a growing wait. The rules of order are in
//! [`mod@core`].
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
//! let lease = queue.get().await.expect("what was added is handed out");
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
pub use limit::{ItemExponential, ItemFastSlow, MaxOf, RateLimiter, WithMaxWait, default_limiter};
pub use metrics::Metrics;
pub use queue::{AddOptions, Lease, QueueOptions, WorkQueue};

/// Stands for "never" where a longer wait could not be added to a clock: thirty years.
pub(crate) const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 30);

/// Tables larger than this give memory back when they are nearly empty, as after the initial list of a large resource.
const TABLE_KEPT: usize = 1024;

/// Something that can be queued: cheap to clone, and equal to another if it names the same thing.
pub trait QueueKey: Clone + Eq + Hash + Send + 'static {
    /// Whose item this is. Flows take turns, so that a namespace with many items does not hold up the others.
    fn flow(&self) -> &str {
        ""
    }
}

/// `namespace/name`, as client-go's keys are; a key without a slash has no namespace.
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

/// How urgent an item is. Higher goes first, but waiting makes up for rank: see [`mod@core`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Priority(i8);

impl Priority {
    /// Ahead of what changes bring, as for a user who waits.
    pub const HIGH: Priority = Priority(2);
    /// What changes bring.
    pub const NORMAL: Priority = Priority(0);
    /// The initial list and resyncs, which come in floods and can wait.
    pub const LOW: Priority = Priority(-2);

    /// A priority between or beyond the named ones.
    #[must_use]
    pub const fn new(priority: i8) -> Priority {
        Priority(priority)
    }

    /// As a number; [`NORMAL`](Priority::NORMAL) is 0.
    #[must_use]
    pub const fn get(self) -> i8 {
        self.0
    }
}

/// Halving at an eighth full keeps the cost constant for each removal.
fn trim<K: Eq + Hash, V>(table: &mut HashMap<K, V>) {
    let capacity = table.capacity();
    if capacity > TABLE_KEPT && table.len() < capacity / 8 {
        table.shrink_to(capacity / 2);
    }
}
