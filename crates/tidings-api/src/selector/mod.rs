//! Selectors of labels, fields and shards, with upstream's grammar and error texts (W66, W67).

mod field;
mod label;
mod shard;

pub use field::{FieldSelector, FieldTerm};
pub use label::LabelSelector;
pub use shard::{ShardField, ShardSelector, fnv1a};

/// Why a selector cannot be parsed, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub(crate) String);
