//! Watch events.

use serde::{Deserialize, Serialize};

use crate::object::Object;
use crate::status::Status;

/// The annotation of the bookmark that ends the initial events of a watch-list.
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EventType {
    /// An object came into the selection.
    Added,
    /// An object of the selection changed.
    Modified,
    /// An object left the selection.
    Deleted,
    /// Nothing happened up to a revision.
    Bookmark,
    /// The watch cannot go on.
    Error,
}

impl EventType {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
            EventType::Bookmark => "BOOKMARK",
            EventType::Error => "ERROR",
        }
    }

    /// The bytes of a JSON event before its object.
    pub const fn json_prefix(self) -> &'static [u8] {
        match self {
            EventType::Added => b"{\"type\":\"ADDED\",\"object\":",
            EventType::Modified => b"{\"type\":\"MODIFIED\",\"object\":",
            EventType::Deleted => b"{\"type\":\"DELETED\",\"object\":",
            EventType::Bookmark => b"{\"type\":\"BOOKMARK\",\"object\":",
            EventType::Error => b"{\"type\":\"ERROR\",\"object\":",
        }
    }
}

/// One event of a watch.
#[derive(Debug, Clone)]
pub enum WatchEvent {
    /// An object came into the selection.
    Added(Object),
    /// An object of the selection changed.
    Modified(Object),
    /// An object left the selection; its last state, with the revision at which it left.
    Deleted(Object),
    /// Everything up to the revision has been delivered.
    Bookmark {
        /// The revision.
        resource_version: String,
        /// This bookmark ends the initial events.
        initial_events_end: bool,
    },
    /// The watch cannot go on.
    Error(Box<Status>),
}
