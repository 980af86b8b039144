//! A top-level member of a built-in kind.

use tidings_json::Value;
use tidings_schema::Field;

/// A top-level member of an object besides kind, apiVersion and metadata.
#[derive(Debug)]
pub struct Member {
    /// The name in JSON.
    pub name: &'static str,
    /// The field of the kind's Go type.
    pub(crate) field: &'static Field,
    /// The JSON that is written for an absent member, with defaults; empty if an absent member is left out.
    pub(crate) absent: String,
    /// The value in an object in which nothing is set; `None` if the member is left out.
    pub(crate) unset: Option<Value>,
}
