#![doc = include_str!("../README.md")]

mod cache;
mod converted;
#[cfg(test)]
mod converted_histories;
mod cursor;
mod encodings;
mod fill;
mod log;
mod objects;
mod own_writes;
mod scopes;
#[cfg(test)]
mod selected_watches;
mod source;
mod store_cache;
mod wake;

pub use cache::{Cache, CacheStats, Snapshot, StoredReader, Unavailable};
pub use converted::{ConvertError, ConvertedCache, Converter};
pub use cursor::{Cursor, LogRead};
pub use encodings::{EncodedSegment, EncodingKey};
pub use log::{FellBehind, LogSegment, LoggedEvent};
pub use objects::ObjectMap;
pub use scopes::{Narrowing, ObjectTest, WatchScope};
pub use store_cache::{CacheError, CacheOptions, StoreCache};
