//! Causes of a failure.

use serde::{Deserialize, Serialize};

/// One of the causes of a failure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// The reason, for programs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The message, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The field that is wrong.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}
