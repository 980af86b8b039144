//! The handle of a running controller.

use std::sync::Arc;

use tidings_informer::RunSummary;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::running_names::NameClaim;
use crate::shared::ControllerShared;
use crate::stats::ControllerStats;

/// A running controller. Dropping the handle ends it and its reconciles at once.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use tidings_controller::{Action, Cluster, Controller};
///
/// # async fn run(cluster: Cluster) {
/// let reconcile = async |_, _| Ok::<_, std::fmt::Error>(Action::AwaitChange);
/// let handle = Controller::<ConfigMap>::new(&cluster).start(reconcile, ());
/// println!("{}: {} failures so far", handle.name(), handle.stats().failed);
/// let summary = handle.stop().await; // running reconciles have their grace
/// println!("{} reconciles", summary.reconciles);
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping the handle ends the controller"]
pub struct ControllerHandle {
    shared: Arc<ControllerShared>,
    /// The name is free when the handle is dropped: the task ends at its next await only.
    _claim: NameClaim,
    stopper: watch::Sender<bool>,
    task: JoinHandle<RunSummary>,
}

impl ControllerHandle {
    pub(crate) fn new(
        shared: Arc<ControllerShared>,
        claim: NameClaim,
        stopper: watch::Sender<bool>,
        task: JoinHandle<RunSummary>,
    ) -> ControllerHandle {
        ControllerHandle {
            shared,
            _claim: claim,
            stopper,
            task,
        }
    }

    /// The name of the controller.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The figures of the controller.
    pub fn stats(&self) -> ControllerStats {
        self.shared.stats()
    }

    /// True if all caches have their initial state.
    pub fn has_synced(&self) -> bool {
        self.shared.sources.iter().all(|source| source.has_synced())
    }

    /// The cluster of the controller.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.shared.cluster
    }

    /// The caches without their initial state, and what they are doing.
    pub(crate) fn waits_for(&self) -> Vec<String> {
        let sources = self.shared.sources.iter();
        let waiting = sources.filter(|source| !source.has_synced());
        waiting
            .map(|source| format!("{} ({})", source.name(), source.state()))
            .collect()
    }

    /// The figures and what the controller waits for, as JSON.
    pub(crate) fn figures(&self) -> serde_json::Value {
        let (stats, queue) = (self.stats(), self.shared.queue.metrics());
        let sources = self.shared.sources.iter();
        let caches: serde_json::Map<_, _> = sources
            .map(|source| (source.name().to_owned(), source.state().into()))
            .collect();
        let failing = self.shared.failing().into_iter();
        let failing = failing.map(|(key, count)| (key.as_str().to_owned(), count.into()));
        serde_json::json!({
            "name": self.name(),
            "cluster": self.shared.cluster.name(),
            "reachable": self.shared.cluster.is_reachable(),
            "caches": caches,
            "queued": queue.depth,
            "delayed": queue.delayed,
            "running": queue.processing,
            "longest_running_seconds": queue.longest_running_processor_seconds,
            "reconciles": self.shared.running.figures(),
            "failing": failing.collect::<serde_json::Map<_, _>>(),
            "own_writes": self.shared.own_writes(),
            "succeeded": stats.succeeded,
            "requeued": stats.requeued,
            "failed": stats.failed,
            "given_back": stats.given_back,
            "events": {
                "created": stats.events.created,
                "series": stats.events.series,
                "dropped": stats.events.dropped,
                "limited": stats.events.limited,
                "failed": stats.events.failed,
            },
        })
    }

    /// True if nothing waits to be reconciled, nothing is being reconciled, and all caches have their initial state. Delayed keys do not
    /// count.
    pub fn is_idle(&self) -> bool {
        let figures = self.shared.queue.metrics();
        self.has_synced() && figures.depth == 0 && figures.processing == 0
    }

    /// True if the controller has ended.
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Stops the controller and waits until running reconciles have ended or their grace is over.
    pub async fn stop(mut self) -> RunSummary {
        self.stopper.send_replace(true);
        (&mut self.task).await.unwrap_or_default()
    }

    /// Waits until the controller has ended.
    pub async fn join(mut self) -> RunSummary {
        (&mut self.task).await.unwrap_or_default()
    }
}

impl Drop for ControllerHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}
