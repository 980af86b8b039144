//! Warnings for finalizers without a domain. Those of built-in kinds are refused.

use tidings_api::Object;
use tidings_go::quote;
use tidings_json::find_member;

use crate::model::STANDARD_FINALIZERS;

/// The warnings for a new object.
pub(super) fn warnings(object: &Object) -> Vec<String> {
    let json = object.as_bytes();
    let Some(found) = find_member(json, &["metadata", "finalizers"]) else {
        return Vec::new();
    };
    let mut names: Vec<String> = serde_json::from_slice(found.of(json)).unwrap_or_default();
    names.retain(|name| !name.contains('/') && !STANDARD_FINALIZERS.contains(&name.as_str()));
    names.sort();
    names.iter().map(|name| warning(name)).collect()
}

fn warning(name: &str) -> String {
    let how = match name.contains('.') {
        true => "name including a path (/)",
        false => "name",
    };
    format!(
        "metadata.finalizers: {}: prefer a domain-qualified finalizer {how} to avoid accidental conflicts with other finalizer \
         writers",
        quote(name)
    )
}
