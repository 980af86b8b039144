#![doc = include_str!("../README.md")]

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
