//! Where objects come from.

use std::future::Future;
use std::pin::Pin;

use futures_core::Stream;
use tidings_api::{ListOptions, Object, ResourceVersion, Status, WatchEvent};

/// A boxed future: lister-watchers are used as trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A watch: batches of events in order. It ends cleanly, or with an error as its last item.
pub type EventStream = Pin<Box<dyn Stream<Item = Result<Vec<WatchEvent>, SourceError>> + Send>>;

/// The state of a resource at one version.
#[derive(Debug, Clone, Default)]
pub struct List {
    /// The objects.
    pub items: Vec<Object>,
    /// The version of which this is the state.
    pub resource_version: ResourceVersion,
}

/// Why a source fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The server refuses.
    #[error(transparent)]
    Status(Box<Status>),
    /// The server cannot be reached or understood.
    #[error("{0}")]
    Transport(String),
}

impl SourceError {
    /// The version that was asked for is of no use: it is too old, or the server has not reached it.
    pub fn version_is_unusable(&self) -> bool {
        match self {
            SourceError::Status(status) => {
                status.is_expired() || status.is_too_large_resource_version()
            }
            SourceError::Transport(_) => false,
        }
    }
}

impl From<Status> for SourceError {
    fn from(status: Status) -> SourceError {
        SourceError::Status(Box::new(status))
    }
}

/// Lists the objects of a resource and watches their changes: over HTTP, from a store, from memory, from a script in a test.
///
/// Both methods may be cancelled by dropping their futures; dropping the stream ends the watch.
pub trait ListerWatcher: Send + Sync + 'static {
    /// The state of the resource, as the options ask.
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<List, SourceError>>;

    /// The changes of the resource after the version that the options name.
    fn watch(&self, options: ListOptions) -> BoxFuture<'_, Result<EventStream, SourceError>>;
}
