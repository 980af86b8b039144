//! Watch events.

use crate::object::Object;
use crate::status::Status;

/// The annotation of the bookmark that ends the initial events of a watch-list.
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

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
