//! The options of a write.

use tidings_api::Status;
use tidings_go::quote;

use crate::kind::Kind;

/// What a write asks for besides the object.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    /// Nothing is stored.
    pub dry_run: bool,
    /// What happens to fields that do not exist.
    pub validation: FieldValidation,
}

/// What happens to fields that do not exist, and to fields that occur twice (W172).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are dropped.
    Ignore,
    /// They are dropped, and the client is warned.
    #[default]
    Warn,
    /// The request is refused.
    Strict,
}

impl FieldValidation {
    /// The warnings for odd fields of a body (W173).
    ///
    /// # Errors
    /// If they are to be refused.
    pub fn odd_fields(self, kind: &Kind, odd: &[String]) -> Result<Vec<String>, Status> {
        match self {
            FieldValidation::Strict if !odd.is_empty() => Err(Status::bad_request(format!(
                "{} in version {} cannot be handled as a {}: strict decoding error: {}",
                kind.kind,
                quote(&kind.version),
                kind.kind,
                odd.join(", ")
            ))),
            FieldValidation::Warn => Ok(odd.to_vec()),
            _ => Ok(Vec::new()),
        }
    }
}
