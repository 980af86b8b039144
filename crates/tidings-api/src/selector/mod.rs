//! Label and field selectors, with upstream's grammar and error texts (W66, W67).

mod field;
mod label;

pub use field::{FieldSelector, FieldTerm};
pub use label::LabelSelector;

/// Why a selector cannot be parsed, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub(crate) String);
