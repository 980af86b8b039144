//! A controller with all its parts: attaches it to its informers, waits for their state, and runs it.

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};

use tidings_informer::RunSummary;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::WriteObserver;
use crate::runner::{self, ReconcileFunc, RunnerOptions};
use crate::running_names::NameClaim;
use crate::shared::ControllerShared;
use crate::signals::either;
use crate::times::FAR;
use crate::watch_source::{AttachFunc, AttachedHandler};

/// A controller with all its parts, before it runs.
pub(crate) struct PreparedController {
    pub(crate) shared: Arc<ControllerShared>,
    /// Held until the controller has ended.
    pub(crate) claim: NameClaim,
    pub(crate) attach: Vec<AttachFunc>,
    pub(crate) options: RunnerOptions,
    pub(crate) reconcile: Arc<ReconcileFunc>,
}

impl PreparedController {
    pub(crate) async fn run(self, stop: impl Future<Output = ()>) -> RunSummary {
        let (shared, _claim) = (self.shared, self.claim);
        let observer: Weak<dyn WriteObserver> = Arc::<ControllerShared>::downgrade(&shared);
        shared.cluster.observe_writes(observer);
        let mut attached = AttachedHandlers(Vec::new());
        for attach in self.attach {
            match attach(Arc::downgrade(&shared)) {
                Ok(handler) => attached.0.push(handler),
                Err(stopped) => {
                    tracing::error!(controller = &*shared.name, %stopped, "the controller cannot run");
                    return RunSummary::default();
                }
            }
        }
        for source in &shared.sources {
            source.start();
        }
        let (mut stop, mut cache_stopped) = (pin!(stop), pin!(cache_stopped(&shared)));
        tokio::select! {
            () = &mut stop => return RunSummary::default(),
            () = &mut cache_stopped => return RunSummary::default(),
            () = synced(&shared) => {}
        }
        // The initial objects of all resources are queued before the first reconcile: a key that several of them name is reconciled once.
        tokio::select! {
            () = &mut stop => return RunSummary::default(),
            () = &mut cache_stopped => return RunSummary::default(),
            () = attached.synced() => {}
        }
        if let Some(seat) = &shared.shards {
            seat.synced();
        }
        let (events, grace) = (shared.events.clone(), self.options.grace.min(FAR));
        let stopped = OnceLock::new();
        let stop = async {
            either(stop, cache_stopped).await;
            let _ = stopped.set(Instant::now());
        };
        let summary = tokio::select! {
            summary = runner::run(Arc::clone(&shared), self.options, self.reconcile, stop) => summary,
            () = shared.follow_shards() => RunSummary::default(), // it never ends
        };
        // What is left of the grace of the reconciles.
        let deadline = *stopped.get_or_init(Instant::now) + grace;
        events.finish_until(deadline).await;
        summary
    }
}

/// Waits until all caches of a controller have their initial state.
async fn synced(shared: &ControllerShared) {
    for source in &shared.sources {
        if source.wait_synced().await.is_err() {
            return pending().await; // it has stopped: `cache_stopped` tells
        }
    }
}

/// The handlers of a controller on its informers. Dropping it removes them: other controllers may go on with the informers.
struct AttachedHandlers(Vec<Box<dyn AttachedHandler>>);

impl AttachedHandlers {
    async fn synced(&self) {
        for handler in &self.0 {
            handler.synced().await;
        }
    }
}

impl Drop for AttachedHandlers {
    fn drop(&mut self) {
        for handler in &self.0 {
            handler.detach();
        }
    }
}

/// Waits until a cache of a controller has stopped, after a panic of its source or a refusal, and logs it. A controller cannot go on
/// without it.
async fn cache_stopped(shared: &Arc<ControllerShared>) {
    let mut stopped = JoinSet::new();
    for source in shared.sources.iter().cloned() {
        stopped.spawn(async move {
            source.stopped().await;
            source
        });
    }
    let Some(Ok(source)) = stopped.join_next().await else {
        return pending().await;
    };
    let (controller, cluster) = (&*shared.name, shared.cluster.name());
    let (cache, state) = (source.name(), source.state());
    tracing::error!(
        controller,
        cluster,
        cache,
        state,
        "a cache of the controller has stopped, the controller ends"
    );
}
