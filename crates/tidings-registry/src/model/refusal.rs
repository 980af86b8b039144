//! Refusals of bodies, in upstream's words.

use std::fmt::Display;

use tidings_api::Status;
use tidings_go::quote;

use super::Kind;

/// A body that cannot be read at all.
pub fn unrecognized(expected: &str, why: impl Display) -> Status {
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {expected}): {why}"
    ))
}

/// A body that says it is a `kind` of an API version, and cannot be read as the expected kind.
pub fn unhandled(kind: &str, api_version: &str, expected: &str, why: impl Display) -> Status {
    // Without the group.
    let version = api_version.rsplit('/').next().unwrap_or_default();
    Status::bad_request(format!(
        "{kind} in version {} cannot be handled as a {expected}: {why}",
        quote(version)
    ))
}

impl Kind {
    /// An object of this kind in which something is wrong.
    pub(crate) fn unhandled(&self, why: impl Display) -> Status {
        unhandled(&self.kind, &self.version, &self.kind, why)
    }
}
