//! The answers of the core.

use tidings_api::{Object, ResourceVersion, Status};

use super::walk::ListItems;

/// The answer to a command.
#[derive(Debug)]
pub(crate) enum Answer {
    /// An object of the kind that was asked for.
    Object(ObjectOutcome, Object),
    /// A document of another kind, as JSON.
    Document(Vec<u8>),
    List(ListHead, ListItems),
    Status(Status),
}

/// What a request did to the object of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectOutcome {
    /// The object existed before; it may have changed.
    Existing,
    /// The request created the object.
    Created,
    /// The deletion is accepted; the object is removed later.
    Accepted,
}

/// The metadata of a list.
#[derive(Debug)]
pub(crate) struct ListHead {
    /// The revision of the list.
    pub(crate) revision: ResourceVersion,
    /// The token for the next page; empty on the last page.
    pub(crate) continue_token: String,
    /// How many objects follow this page, if known.
    pub(crate) remaining: Option<u64>,
}
