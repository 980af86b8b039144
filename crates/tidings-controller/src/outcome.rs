//! What follows from the error of a reconcile.

use std::time::Duration;

/// What to do after a reconcile returned an error: [`Controller::error_policy`](crate::Controller::error_policy) chooses.
///
/// ```no_run
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use tidings_controller::{Action, Cached, Cluster, Context, Controller, ErrorPolicy};
/// use tidings_kube::SourceError;
///
/// async fn reconcile(map: Arc<Cached<ConfigMap>>, ctx: Context<()>) -> Result<Action, SourceError> {
///     ctx.apply_status(&map, &serde_json::json!({})).await?;
///     Ok(Action::AwaitChange)
/// }
///
/// # async fn run(cluster: Cluster) {
/// let policy = |error: &SourceError| match error.code() {
///     Some(403) => ErrorPolicy::Terminal, // a person has to give the permission
///     Some(422) => ErrorPolicy::GiveUp,   // until somebody changes the object
///     Some(429) => ErrorPolicy::RetryAfter(Duration::from_secs(30)),
///     _ => ErrorPolicy::Retry,
/// };
/// Controller::<ConfigMap>::new(&cluster).error_policy(policy).run(reconcile, ()).await;
/// # }
/// ```
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
