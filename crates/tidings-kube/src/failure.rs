//! What becomes of requests that fail: errors that say what was attempted, and whether to attempt it again.

use std::io::ErrorKind;
use std::time::Duration;

use http::{Method, StatusCode};
use tidings_informer::SourceError;

/// A request that got no answer.
#[derive(Debug, thiserror::Error)]
#[error("{method} {path} failed")]
pub(crate) struct Unanswered {
    pub(crate) method: Method,
    pub(crate) path: String,
    #[source]
    pub(crate) cause: Box<dyn std::error::Error + Send + Sync>,
}

/// Nothing came in time.
#[derive(Debug, thiserror::Error)]
#[error("nothing came within {} seconds", .0.as_secs_f64())]
pub(crate) struct TimedOut(pub(crate) Duration);

/// A body that is not what its header says.
#[derive(Debug, thiserror::Error)]
#[error("the compressed body is damaged or breaks off")]
pub(crate) struct Damaged(#[source] pub(crate) std::io::Error);

/// A body that broke off.
#[derive(Debug, thiserror::Error)]
#[error("the body broke off")]
pub(crate) struct BrokenOff(#[source] pub(crate) kube::Error);

#[derive(Debug, thiserror::Error)]
#[error("tried again (error from a previous attempt: {previous})")]
struct Retried {
    previous: String,
    #[source]
    error: std::sync::Arc<dyn std::error::Error + Send + Sync>,
}

/// The last error, with the one before it unless they are the same (B126).
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
        SourceError::Transport(error) => SourceError::transport(Retried { previous, error }),
        other => other,
    }
}

/// True if a server that answers like this may be asked again when it says when.
pub(crate) fn is_overload(code: StatusCode) -> bool {
    code == StatusCode::TOO_MANY_REQUESTS || code.is_server_error()
}

/// True if the connection went away before the answer came. Refused connections and failed handshakes are not among these.
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
