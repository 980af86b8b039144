//! What the core answers.

use tidings_api::{Object, ResourceVersion, Status};

use super::walk::Items;

/// The answer to a command.
#[derive(Debug)]
pub(crate) enum Answer {
    /// An object of the kind that was asked for.
    Object(Created, Object),
    /// A document of another kind, as JSON.
    Document(Vec<u8>),
    List(ListHead, Items),
    Status(Status),
}

/// What a request did to bring its answer about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Created {
    /// The object was there, or has changed.
    No,
    /// The object is new.
    Yes,
    /// The object goes later.
    Later,
}

/// The metadata of a list.
#[derive(Debug)]
pub(crate) struct ListHead {
    /// The revision that the list is of.
    pub(crate) revision: ResourceVersion,
    /// Asks for the next page; empty at the end.
    pub(crate) continue_token: String,
    /// How many objects follow, if that is known.
    pub(crate) remaining: Option<u64>,
}
