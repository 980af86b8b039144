//! A revisioned key-value store.
//!
//! Every change gets the next global revision. Writes are compare-and-swap on the revision at which a key was last modified.
//! Reads are at the current or an earlier revision; a watch delivers every change after a revision, in order. History is kept for
//! some time and then compacted.
//!
//! Keys and values are bytes without meaning to this crate. [`Storage`] is the contract, [`Embedded`] the engine on this machine,
//! and [`Etcd`] (feature `etcd`) the engine over an etcd cluster, which several servers can share.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use tidings_storage::{Embedded, EmbeddedOptions, Range, Storage, Write};
//!
//! let store = Embedded::ephemeral(EmbeddedOptions::default());
//! let created = store.write(Write::create("a", "1")).await?;
//! let updated = store.write(Write::update("a", created, "2")).await?;
//! assert!(store.write(Write::update("a", created, "3")).await.is_err(), "the key has moved on");
//! let at = |at| Range { prefix: "a".into(), at, ..Range::default() };
//! assert_eq!(store.range(at(None)).await?.entries[0].value, "2");
//! assert_eq!(store.range(at(Some(created))).await?.entries[0].value, "1");
//! assert!(updated > created);
//! # Ok::<(), tidings_storage::Error>(())
//! # }).unwrap();
//! ```

mod clock;
mod contract;
mod embedded;
#[cfg(feature = "etcd")]
mod etcd;
mod history;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub use contract::{
    BoxFuture, Change, DiskStats, Error, Event, Expected, HistoryHold, KeyValue, Range,
    RangeResult, RemoteStats, Revision, Stats, Storage, SyncTimes, Trouble, WatchBatch,
    WatchStream, Write,
};
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use embedded::fuzzing;
pub use embedded::{Embedded, EmbeddedOptions, OpenError, backup, check, disk};
#[cfg(feature = "etcd")]
pub use etcd::{Etcd, EtcdOpenError, EtcdOptions, EtcdTls};

/// The default maximum size of a key and its value together. etcd accepts requests of 1.5 MiB; 4 KiB of that are left for the
/// rest of the request.
pub const VALUE_BYTES_MAX: usize = (3 << 19) - (4 << 10);

/// A monotonic clock, which does not jump when the system time is set. It starts at zero at the first call.
fn monotonic_clock() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}
