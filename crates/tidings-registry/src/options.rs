//! The options of a write.

use tidings_api::Status;

use crate::model::Kind;
use crate::reading::OddField;

/// The options of a write request.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    /// The write is checked and answered, but not stored.
    pub dry_run: bool,
    /// How unknown and duplicate fields are treated.
    pub validation: FieldValidation,
}

/// How unknown fields, and fields that occur twice, are treated (W172).
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
    /// The warnings for the unknown and duplicate fields of a body (W173).
    ///
    /// # Errors
    /// If there are such fields and the validation is strict.
    pub fn odd_fields(self, kind: &Kind, odd: &[OddField]) -> Result<Vec<String>, Status> {
        let odd: Vec<String> = odd.iter().map(ToString::to_string).collect();
        match self {
            FieldValidation::Strict if !odd.is_empty() => {
                let odd = odd.join(", ");
                Err(kind.unhandled(format!("strict decoding error: {odd}")))
            }
            FieldValidation::Warn => Ok(odd),
            _ => Ok(Vec::new()),
        }
    }
}
