//! Errors of a source: of lists and watches.

use std::sync::Arc;
use std::time::Duration;

use tidings_api::{Reason, SplitError, Status};

/// Why a list or watch failed. Never contains the body of a request or response.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The server answered with an error Status.
    #[error(transparent)]
    Status(Box<Status>),
    /// The connection could not be opened, or broke.
    #[error("the server cannot be reached")]
    Transport(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// The server's response cannot be parsed.
    #[error("the server's answer cannot be read")]
    Malformed(#[source] Arc<SplitError>),
    /// The server answered with something that was not asked for: a `Table` instead of a list of objects, for example.
    #[error("unexpected answer: the server sent {0}")]
    Unexpected(String),
}

impl SourceError {
    /// A [`SourceError::Transport`] with this cause.
    pub fn transport(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> SourceError {
        SourceError::Transport(Arc::from(error.into()))
    }

    /// The Status, if the server sent one.
    pub fn status(&self) -> Option<&Status> {
        match self {
            SourceError::Status(status) => Some(status),
            _ => None,
        }
    }

    /// The HTTP status code, if the server sent one.
    pub fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    /// True if the server no longer has the requested resource version (410).
    pub fn is_expired(&self) -> bool {
        self.status().is_some_and(Status::is_expired)
    }

    /// True if the server cannot serve the requested resource version: it is too old, or not reached yet.
    pub fn version_is_unusable(&self) -> bool {
        self.status()
            .is_some_and(|status| status.is_expired() || status.is_too_large_resource_version())
    }

    /// True if the server could not read a stored object. Later events of the watch are without that object (B61).
    pub(crate) fn state_is_unreadable(&self) -> bool {
        self.status()
            .is_some_and(|status| status.reason == Some(Reason::StorageReadError))
    }

    /// True for an internal error of the server.
    pub(crate) fn is_internal(&self) -> bool {
        self.status()
            .is_some_and(|status| status.reason == Some(Reason::InternalError))
    }

    /// True if the server rejects the request itself: sending it again cannot help.
    pub(crate) fn is_refusal_of_the_question(&self) -> bool {
        matches!(self.code(), Some(400 | 405 | 406 | 415 | 422 | 501))
    }

    /// True if the resource is forbidden or does not exist: 401, 403, 404.
    pub fn is_refusal(&self) -> bool {
        matches!(self.code(), Some(401 | 403 | 404))
    }

    /// How long the server asks the client to wait before it retries.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.status()?.retry_after_seconds();
        (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
    }

    /// The error and its causes in one line.
    pub fn story(&self) -> String {
        story(self)
    }
}

/// An error and its causes in one line, for logs.
pub fn story(error: &dyn std::error::Error) -> String {
    let mut story = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Some errors already end with the text of their cause.
        let text = error.to_string();
        if !story.ends_with(&text) {
            story.push_str(": ");
            story.push_str(&text);
        }
        cause = error.source();
    }
    story
}

impl From<Status> for SourceError {
    fn from(status: Status) -> SourceError {
        SourceError::Status(Box::new(status))
    }
}

impl From<SplitError> for SourceError {
    fn from(error: SplitError) -> SourceError {
        SourceError::Malformed(Arc::new(error))
    }
}
