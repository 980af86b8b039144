//! What goes wrong between a reflector and its source.

use std::time::Duration;

use crate::source::SourceError;

/// What went wrong. None of these stops a reflector unless it was told to stop on refusals.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The source failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A watch ended within a second and brought nothing.
    #[error("very short watch: it ended within a second and brought nothing")]
    VeryShortWatch,
    /// Nothing came for this long, not even a bookmark: the connection is taken for dead.
    #[error("nothing came for {} seconds", .0.as_secs())]
    Silent(Duration),
    /// A watch ended before its initial events did.
    #[error("the watch ended before its initial events did")]
    InitialEventsBrokeOff,
    /// Initial events stopped coming, and their end did not come either.
    #[error("the end of the initial events does not come")]
    InitialEventsStalled,
    /// An event came that is older than what came before it, of an object that is not known to be newer.
    #[error("the events of the watch are out of order")]
    OutOfOrder,
    /// The server's newest version is before one that it sent earlier: it was restored from a backup, or is another server.
    #[error("the server's version went back from {from} to {to}")]
    WentBack {
        /// What the store had reached.
        from: Box<str>,
        /// What the server has now.
        to: Box<str>,
    },
    /// The source panicked, or the comparison of an index's values did. The informer has stopped. An index function that
    /// panics leaves its object out of the index and stops nothing: [`Problem::NotIndexed`].
    #[error("the source or the order of an index panicked")]
    Panicked,
    /// Something that is not an object of the resource was skipped.
    #[error("skipped an event that carries a {0}")]
    WrongKind(String),
    /// An object could not be taken into the store. It is left out until it changes.
    #[error("{key} is left out of the store")]
    Quarantined {
        /// Its key, or what is known of it.
        key: String,
        /// Why.
        #[source]
        error: crate::object::DecodeError,
    },
    /// An index function failed for an object. The object is in the store, and not in that index.
    #[error("{key} is left out of the index {index}")]
    NotIndexed {
        /// The object's key.
        key: String,
        /// The name of the index.
        index: String,
        /// Why.
        #[source]
        error: crate::store::IndexError,
    },
}

impl Problem {
    /// The error of the source, if it is one.
    pub fn source_error(&self) -> Option<&SourceError> {
        match self {
            Problem::Source(error) => Some(error),
            _ => None,
        }
    }

    /// The problem and what caused it, in one line.
    pub fn story(&self) -> String {
        match self {
            Problem::Source(error) => error.story(),
            other => crate::source::story(other),
        }
    }
}
