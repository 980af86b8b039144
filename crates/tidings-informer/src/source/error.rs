//! Why a source fails.

use std::sync::Arc;
use std::time::Duration;

use tidings_api::{Reason, SplitError, Status};

/// Why a source fails. It never carries a body.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The server refuses.
    #[error(transparent)]
    Status(Box<Status>),
    /// The server cannot be reached, or the connection broke.
    #[error("the server cannot be reached")]
    Transport(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// What the server sent cannot be understood.
    #[error("the server's answer cannot be read")]
    Malformed(#[source] Arc<SplitError>),
    /// A list of another kind than asked for, such as a `Table`.
    #[error("expected a list of objects, the server sent {0}")]
    Unexpected(String),
}

impl SourceError {
    /// The server cannot be reached, for this reason.
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

    /// The version that was asked for is gone.
    pub fn is_expired(&self) -> bool {
        self.status().is_some_and(Status::is_expired)
    }

    /// The version that was asked for is of no use: it is too old, or the server has not reached it.
    pub fn version_is_unusable(&self) -> bool {
        self.status()
            .is_some_and(|status| status.is_expired() || status.is_too_large_resource_version())
    }

    /// The server could not read an object of the state from its store. What it sends afterwards is without that object (B61).
    pub(crate) fn state_is_unreadable(&self) -> bool {
        self.status()
            .is_some_and(|status| status.reason == Some(Reason::StorageReadError))
    }

    /// The server failed in a way that it cannot explain.
    pub(crate) fn is_internal(&self) -> bool {
        self.status()
            .is_some_and(|status| status.reason == Some(Reason::InternalError))
    }

    /// The server understood the question and will not answer it as it stands: asking again changes nothing.
    pub(crate) fn is_refusal_of_the_question(&self) -> bool {
        matches!(self.code(), Some(400 | 405 | 406 | 415 | 422 | 501))
    }

    /// Nobody may have this, or it does not exist: 401, 403, 404.
    pub fn is_refusal(&self) -> bool {
        matches!(self.code(), Some(401 | 403 | 404))
    }

    /// How long the server asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.status()?.retry_after_seconds();
        (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
    }

    /// The whole story in one line: the error and what caused it.
    pub fn story(&self) -> String {
        story(self)
    }
}

/// An error and what caused it, in one line.
pub(crate) fn story(error: &dyn std::error::Error) -> String {
    let mut story = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Some errors say what their causes say.
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
