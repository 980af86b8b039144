#![doc = include_str!("../README.md")]

mod clock;
mod contract;
mod embedded;
#[cfg(feature = "etcd")]
mod etcd;
mod history;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub use contract::{
    BoxFuture, Change, DiskStats, EncryptionStats, Error, Event, Expected, HistoryHold, KeyValue,
    Range, RangeResult, RemoteStats, Revision, Stats, Storage, SyncTimes, Trouble, WatchBatch,
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
