//! Finds built-in kinds for tests.

use std::sync::Arc;

use crate::model::Kind;

/// A built-in kind of version v1.
pub(crate) fn kind(group: &str, plural: &str) -> Arc<Kind> {
    kind_of(group, "v1", plural)
}

/// A built-in kind.
pub(crate) fn kind_of(group: &str, version: &str, plural: &str) -> Arc<Kind> {
    let found = crate::builtin().find(group, version, plural);
    found.expect(plural).clone()
}
