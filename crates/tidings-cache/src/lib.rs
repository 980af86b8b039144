//! A watch cache over a revisioned store.
//!
//! A [`StoreCache`] follows the objects under one prefix of a [`Storage`](tidings_storage::Storage): it keeps their state in memory,
//! the state at every revision within the history, and a log of their changes. Reads take a [`Snapshot`], which is a clone of the
//! root of a persistent map. A watch is a [`Cursor`]: a position in the log, without a queue of its own, woken only by events that
//! its [`WatchScope`] can contain.
//!
//! The crate knows keys, revisions and bytes. It knows no kinds, no definitions, no HTTP, and not who reads. If stored bytes are
//! not what readers are to see, a [`StoredReader`] translates them.
//!
//! ```
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
//! use std::sync::Arc;
//! use tidings_api::{ObjectKey, UnstampedObject};
//! use tidings_cache::{CacheOptions, StoreCache, WatchScope};
//! use tidings_storage::{Embedded, EmbeddedOptions, Revision};
//!
//! let store = Arc::new(Embedded::ephemeral(EmbeddedOptions::default()));
//! let pods = StoreCache::open(store, "pods/", CacheOptions::default());
//! pods.fill(Revision(0)).await;
//! let (_, cursor) = pods.cache().follow(WatchScope::All);
//!
//! let json = br#"{"metadata":{"name":"a","namespace":"default"}}"#;
//! let pod = UnstampedObject::parse(json.to_vec()).unwrap();
//! let key = ObjectKey::new("default", "a");
//! let written = pods.put(&key, None, &pod).await?.expect("it did not exist");
//!
//! pods.refresh().await?;
//! assert_eq!(pods.cache().get(&key), Some(written));
//! let (segment, _, _) = pods.cache().read(&cursor).unwrap();
//! assert_eq!(segment.from(cursor.position()).count(), 1);
//! # Ok::<(), tidings_cache::CacheError>(())
//! # }).unwrap();
//! ```

mod cache;
mod encodings;
mod fill;
mod log;
mod own_writes;
mod source;
mod store_cache;
mod wake;

pub use cache::{Cache, CacheStats, Cursor, Snapshot, StoredReader, Unavailable};
pub use encodings::{EncodedSegment, EncodingKey};
pub use log::{FellBehind, LogSegment, LoggedEvent, ObjectMap};
pub use store_cache::{CacheError, CacheOptions, StoreCache};
pub use wake::WatchScope;
