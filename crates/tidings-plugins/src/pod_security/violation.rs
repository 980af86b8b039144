//! A Pod that is checked, and what is wrong with it.

use std::collections::BTreeMap;

use tidings_json::Value;

/// A Pod, or the template of one.
#[derive(Clone, Copy)]
pub(super) struct CheckedPod<'p> {
    pub(super) annotations: &'p BTreeMap<String, String>,
    pub(super) spec: &'p Value,
}

/// What a check does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) reason: String,
    pub(super) detail: String,
}
