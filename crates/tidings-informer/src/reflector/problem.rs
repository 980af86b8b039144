//! The problems that a reflector reports.

use std::time::Duration;

use crate::source::SourceError;

/// A problem of a reflector or informer. A reflector goes on after each, except refusals with
/// [`OnRefusal::Stop`](super::OnRefusal) and panics.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A list or watch failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A watch ended within a second without events.
    #[error("very short watch: it ended within a second without events")]
    VeryShortWatch,
    /// The server sent nothing for this long, not even a bookmark: the connection counts as dead.
    #[error("the server sent nothing for {} seconds", .0.as_secs())]
    Silent(Duration),
    /// A watch ended before its initial events were complete.
    #[error("the watch ended before its initial events were complete")]
    InitialEventsBrokeOff,
    /// No initial events came for a minute, and no bookmark that ends them.
    #[error("the initial events stopped without the bookmark that ends them")]
    InitialEventsStalled,
    /// An event is older than the one before it, and the store does not have it.
    #[error("the events of the watch are out of order")]
    OutOfOrder,
    /// The server's current version is lower than one that it sent before: it was restored from a backup, or is another server.
    #[error("the server's version went back from {from} to {to}")]
    WentBack {
        /// The version of the store.
        from: Box<str>,
        /// The version of the server.
        to: Box<str>,
    },
    /// The source or the `Ord` of an index's values panicked, and the informer has stopped. A panic of an index function only
    /// leaves its object out of the index: [`Problem::NotIndexed`].
    #[error("the source or the order of an index panicked")]
    Panicked,
    /// An event was skipped because its object does not belong to the resource.
    #[error("skipped an event that carries a {0}")]
    WrongKind(String),
    /// An object could not be decoded. It is left out of the store until it changes.
    #[error("{key} is left out of the store")]
    Quarantined {
        /// Its key.
        key: String,
        /// The cause.
        #[source]
        error: crate::object::DecodeError,
    },
    /// An index function failed for an object. The object is in the store but not in that index.
    #[error("{key} is left out of the index {index}")]
    NotIndexed {
        /// The object's key.
        key: String,
        /// The name of the index.
        index: String,
        /// The cause.
        #[source]
        error: crate::store::IndexError,
    },
}

impl Problem {
    /// The error of the list or watch, for a [`Problem::Source`].
    pub fn source_error(&self) -> Option<&SourceError> {
        match self {
            Problem::Source(error) => Some(error),
            _ => None,
        }
    }

    /// The problem and its causes in one line.
    pub fn story(&self) -> String {
        match self {
            Problem::Source(error) => error.story(),
            other => crate::source::story(other),
        }
    }
}
