//! What follows from the error of a reconcile.

use std::time::Duration;

/// What to do after a reconcile returned an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ErrorPolicy {
    /// Reconcile again after the backoff of the key, which grows with each failure in a row.
    #[default]
    Retry,
    /// Reconcile again after this time.
    RetryAfter(Duration),
    /// Do not retry until the object, or something that is mapped to it, changes.
    GiveUp,
    /// Do not retry until a change either, and count and log it as an error that a person has to look at.
    Terminal,
}

/// An error of a reconcile, as the runner sees it.
#[derive(Debug)]
pub(crate) struct ReconcileFailure {
    /// The error with its causes in one line.
    pub(crate) text: String,
    pub(crate) policy: ErrorPolicy,
    pub(crate) is_timeout: bool,
}

impl ReconcileFailure {
    /// A reconcile that took longer than it may.
    pub(crate) fn timed_out(longest: Duration) -> ReconcileFailure {
        ReconcileFailure {
            text: format!("it did not end within {longest:?}"),
            policy: ErrorPolicy::Retry,
            is_timeout: true,
        }
    }
}
