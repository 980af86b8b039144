//! The errors of failed requests, and which of them allow a retry.

use std::io::ErrorKind;
use std::time::Duration;

use http::{Method, StatusCode};
use tidings_informer::SourceError;

/// A request without a response.
#[derive(Debug, thiserror::Error)]
#[error("{method} {path} failed")]
pub(crate) struct UnansweredRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    #[source]
    pub(crate) cause: Box<dyn std::error::Error + Send + Sync>,
}

/// The server sent nothing in time.
#[derive(Debug, thiserror::Error)]
#[error("the server sent nothing within {} seconds", .0.as_secs_f64())]
pub(crate) struct TimedOut(pub(crate) Duration);

/// A body that cannot be decompressed.
#[derive(Debug, thiserror::Error)]
#[error("the compressed body is damaged or incomplete")]
pub(crate) struct DamagedBody(#[source] pub(crate) std::io::Error);

/// The connection broke inside a body.
#[derive(Debug, thiserror::Error)]
#[error("the connection broke inside the body")]
pub(crate) struct BrokenBody(#[source] pub(crate) kube::Error);

/// The error of a retry, with that of the attempt before.
#[derive(Debug, thiserror::Error)]
#[error("tried again (error from a previous attempt: {previous})")]
struct RetriedRequest {
    previous: String,
    #[source]
    error: std::sync::Arc<dyn std::error::Error + Send + Sync>,
}

/// The last error, with the text of the one before unless they are equal (B126).
pub(crate) fn after(error: SourceError, previous: Option<&SourceError>) -> SourceError {
    let Some(previous) = previous.map(SourceError::story) else {
        return error;
    };
    if error.story() == previous {
        return error;
    }
    match error {
        SourceError::Status(mut status) => {
            status.message = format!("{status} - error from a previous attempt: {previous}");
            SourceError::Status(status)
        }
        SourceError::Transport(error) => SourceError::transport(RetriedRequest { previous, error }),
        other => other,
    }
}

/// True if a request with this status may be retried after `Retry-After`.
pub(crate) fn is_overload(code: StatusCode) -> bool {
    code == StatusCode::TOO_MANY_REQUESTS || code.is_server_error()
}

/// True if the connection was lost before the response. False for refused connections and failed handshakes.
pub(crate) fn is_lost_connection(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let lost = match error.downcast_ref::<std::io::Error>() {
            Some(error) => matches!(
                error.kind(),
                ErrorKind::ConnectionReset
                    | ErrorKind::ConnectionAborted
                    | ErrorKind::BrokenPipe
                    | ErrorKind::UnexpectedEof
            ),
            None => error
                .downcast_ref::<hyper::Error>()
                .is_some_and(hyper::Error::is_incomplete_message),
        };
        if lost {
            return true;
        }
        cause = error.source();
    }
    false
}
