//! Turns errors of the store and of caches into the `Status` that clients get.

use tidings_api::{Reason, Status};
use tidings_cache::CacheError;
use tidings_storage::Error;

/// The `Status` for an error of the store.
pub(crate) fn store_failed(error: Error) -> Status {
    match error {
        Error::Overloaded => {
            Status::too_many_requests("too many writes are waiting, please try again later", 1)
        }
        Error::Closed => Status::failure(
            503,
            Reason::ServiceUnavailable,
            "the store is closed: the server is shutting down, or must be started again",
        ),
        error @ Error::Unavailable(_) => {
            let message = error.to_string();
            retry_soon(Status::failure(503, Reason::ServiceUnavailable, message))
        }
        error @ Error::Uncertain(_) => retry_soon(Status::timeout(&error.to_string())),
        Error::TooLarge { bytes, bytes_max } => {
            let most = bytes_max.map_or(String::new(), |most| {
                format!(", which takes {most} at most")
            });
            let message = format!(
                "Request entity too large: the object would take {bytes} bytes in the store{most}: make it smaller or split it"
            );
            Status::failure(413, Reason::RequestEntityTooLarge, message)
        }
        error => Status::internal(error),
    }
}

/// The `Status` for a request that a cache cannot serve yet.
pub(crate) fn cache_failed(error: CacheError) -> Status {
    match error {
        CacheError::Behind { wanted, reached } => {
            Status::too_large_resource_version(wanted.get(), reached.get())
        }
        CacheError::Store(error) => store_failed(error),
        _ => Status::too_many_requests("storage is (re)initializing", 1),
    }
}

/// Asks the client to retry after a second, when the store may be back.
fn retry_soon(mut status: Status) -> Status {
    let details = status.details.get_or_insert_default();
    details.retry_after_seconds = 1;
    status
}
