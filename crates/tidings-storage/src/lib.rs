//! A revisioned key-value store.
//!
//! Every change gets the next number of one global revision. Writes are compare-and-swap on the revision at which a key was
//! last modified. Reads are of the current or of an earlier revision; a watch delivers every change after a revision, in
//! order. History is kept for a while and then compacted.
//!
//! The crate knows keys and values as bytes: what they mean is its caller's business. [`Storage`] is the contract,
//! [`Embedded`] the engine that keeps everything on this machine, [`Etcd`] (with the feature `etcd`) the one that keeps it in an
//! etcd cluster, where any number of servers share it.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use tidings_storage::{Embedded, EmbeddedOptions, Storage, Write};
//!
//! let store = Embedded::ephemeral(EmbeddedOptions::default());
//! let created = store.write(Write::create("a", "1")).await?;
//! let updated = store.write(Write::update("a", created, "2")).await?;
//! assert!(store.write(Write::update("a", created, "3")).await.is_err(), "the key has moved on");
//! assert_eq!(store.get("a".into(), None).await?.unwrap().value, "2");
//! assert_eq!(store.get("a".into(), Some(created)).await?.unwrap().value, "1");
//! assert!(updated > created);
//! # Ok::<(), tidings_storage::Error>(())
//! # }).unwrap();
//! ```

mod contract;
mod embedded;
#[cfg(feature = "etcd")]
mod etcd;
mod history;

pub use contract::{
    BoxFuture, Change, Error, Event, Expected, KeyValue, Previous, Range, RangeResult, RemoteStats,
    Revision, Stats, Storage, WatchBatch, WatchStream, Write,
};
pub use embedded::{Embedded, EmbeddedOptions, OpenError};
#[cfg(feature = "etcd")]
pub use etcd::{Etcd, EtcdOptions, EtcdTls, OpenError as EtcdOpenError};

fn wall_clock_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}
