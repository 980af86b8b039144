//! The types of watch events.

use serde::{Deserialize, Serialize};

/// What happened to an object, or to a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EventType {
    /// An object came into the selection.
    Added,
    /// An object of the selection changed.
    Modified,
    /// An object left the selection.
    Deleted,
    /// Everything up to a revision has been delivered.
    Bookmark,
    /// The watch cannot go on.
    Error,
}

impl EventType {
    /// The type with this name on the wire.
    pub fn from_name(name: &str) -> Option<EventType> {
        let all = [
            EventType::Added,
            EventType::Modified,
            EventType::Deleted,
            EventType::Bookmark,
            EventType::Error,
        ];
        all.into_iter().find(|known| known.as_str() == name)
    }

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
}
