//! What the loop of a controller does with a key: waits until the caches are fresh, reconciles it, and decides when it comes again.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use tidings_api::ObjectKey;
use tidings_informer::workqueue::{AddOptions, Lease, Priority};
use tidings_informer::{
    Action, BoxFuture, KeyWork, RunOptions, RunSummary, Uid, WorkEnd, run_work,
};
use tokio::time::{Instant, timeout};
use tracing::{Instrument, Span, error, info_span, warn};

use crate::failure_log::FailureLog;
use crate::outcome::{ErrorPolicy, ReconcileFailure};
use crate::shards::{ActPermit, NoPermit};
use crate::shared::{Cause, ControllerShared};
use crate::stats::ControllerCounters;
use crate::times::FAR;

/// How a controller runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunnerOptions {
    pub(crate) concurrency: usize,
    /// How long running reconciles have to end after the stop.
    pub(crate) grace: Duration,
    pub(crate) timeout: Option<Duration>,
    /// How long a reconcile waits for own writes, and for what is in doubt or was handed over.
    pub(crate) stale_wait: Duration,
}

/// One attempt to reconcile a key.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) key: ObjectKey,
    /// 1 for the first attempt, then one more for each failure in a row.
    pub(crate) number: u32,
    pub(crate) cause: Cause,
    /// The only object of this key that this replica may reconcile; `None` if it may reconcile all.
    pub(crate) uid: Option<Uid>,
}

/// The code of the program, without its types.
pub(crate) type ReconcileFunc =
    dyn Fn(Attempt) -> BoxFuture<'static, Result<Action, ReconcileFailure>> + Send + Sync;

/// How a reconcile ended.
enum Ended {
    Succeeded,
    Failed(ReconcileFailure),
    /// It failed while the server did not answer.
    GivenBack,
    /// The server went away before it started, or another replica reconciles the key.
    NotStarted,
}

/// Runs reconciles until `stop` is ready or the queue is shut down and drained.
pub(crate) async fn run(
    shared: Arc<ControllerShared>,
    options: RunnerOptions,
    reconcile: Arc<ReconcileFunc>,
    stop: impl Future<Output = ()>,
) -> RunSummary {
    let mut work = ReconcileWork {
        shared,
        options,
        reconcile,
        log: FailureLog::default(),
        summary: RunSummary::default(),
        undelivered: 0,
    };
    let limits = RunOptions {
        concurrency: options.concurrency,
        grace: options.grace,
    };
    work.summary.abandoned = run_work(&mut work, limits, stop).await;
    // After the tasks have ended: a key that was added while it ran is queued when its task ends.
    work.summary.left = work.shared.queue.len() as u64 + work.undelivered;
    work.summary
}

/// The next key, once the server answers and the membership of a sharded group is fresh. Cancel-safe.
async fn next(shared: &ControllerShared) -> Option<Lease<ObjectKey>> {
    loop {
        shared.cluster.gate().opened().await;
        if let Some(shards) = &shared.shards {
            shards.permits().fresh().await;
        }
        let lease = shared.queue.get().await?;
        if !shared.cluster.gate().is_shut() || shared.queue.is_shutting_down() {
            return Some(lease);
        }
        // The server went away while the queue was empty.
        give_back(shared, &lease, lease.priority());
    }
}

fn give_back(shared: &ControllerShared, key: &ObjectKey, priority: Priority) {
    let options = AddOptions {
        priority,
        ..AddOptions::default()
    };
    shared.queue.add_with(key.clone(), options);
}

/// The reconciles of a controller.
struct ReconcileWork {
    shared: Arc<ControllerShared>,
    options: RunnerOptions,
    reconcile: Arc<ReconcileFunc>,
    log: FailureLog,
    summary: RunSummary,
    /// Delayed keys that the stop took out of the queue.
    undelivered: u64,
}

impl KeyWork<ObjectKey, Ended> for ReconcileWork {
    fn next(&self) -> BoxFuture<'_, Option<Lease<ObjectKey>>> {
        Box::pin(next(&self.shared))
    }

    fn begin(&mut self, lease: Lease<ObjectKey>) -> BoxFuture<'static, Ended> {
        let key = ObjectKey::clone(&lease);
        let attempt = Attempt {
            number: self.shared.next_attempt(&key),
            cause: self.shared.cause(&key),
            key,
            uid: None,
        };
        let span = info_span!(
            "reconcile",
            controller = &*self.shared.name,
            cluster = self.shared.cluster.name(),
            object = %attempt.key,
            attempt = attempt.number,
            cause = %attempt.cause,
            seconds = tracing::field::Empty,
        );
        let (shared, reconcile) = (Arc::clone(&self.shared), Arc::clone(&self.reconcile));
        let work = reconcile_one(shared, self.options, lease, attempt, reconcile);
        Box::pin(work.instrument(span))
    }

    fn running(&mut self, count: usize) {
        self.shared.counters.active.store(count as u64, Relaxed);
    }

    fn ended(&mut self, key: ObjectKey, priority: Priority, ended: WorkEnd<Ended>) {
        if matches!(ended, WorkEnd::Returned(Ended::NotStarted)) {
            return;
        }
        self.summary.reconciles += 1;
        match ended {
            WorkEnd::Returned(Ended::Succeeded | Ended::GivenBack | Ended::NotStarted) => {}
            WorkEnd::Returned(Ended::Failed(failure)) => {
                self.summary.errors += 1;
                self.log_failure(&key, &failure);
            }
            WorkEnd::Panicked => {
                self.summary.panics += 1;
                let counters = &self.shared.counters;
                ControllerCounters::count(&counters.panicked);
                ControllerCounters::count(&counters.failed);
                // Without the payload: it may quote the object. The panic hook has logged the location.
                error!(controller = &*self.shared.name, object = %key, "reconcile panicked, will retry");
                self.shared.count_failure(&key, true);
                retry(&self.shared, &key, priority);
            }
        }
    }

    fn due(&self) -> Option<Instant> {
        self.log.window_end()
    }

    fn on_time(&mut self) {
        let unlogged = self.log.ended(Instant::now());
        self.log_unlogged(unlogged);
    }

    fn stopping(&mut self) {
        self.undelivered = self.shared.queue.shut_down().len() as u64;
    }
}

impl ReconcileWork {
    fn log_failure(&mut self, key: &ObjectKey, failure: &ReconcileFailure) {
        let notice = self.log.failed(Instant::now());
        self.log_unlogged(notice.unlogged);
        let (controller, error) = (&*self.shared.name, &failure.text);
        match failure.policy {
            ErrorPolicy::Terminal => {
                error!(controller, object = %key, error, "reconcile failed for good: waiting for a change");
            }
            _ if !notice.single => {}
            ErrorPolicy::GiveUp => {
                warn!(controller, object = %key, error, "reconcile failed: waiting for a change");
            }
            _ => warn!(controller, object = %key, error, "reconcile failed, will retry"),
        }
    }

    fn log_unlogged(&self, unlogged: u64) {
        if unlogged > 0 {
            let controller = &*self.shared.name;
            warn!(
                controller,
                failures = unlogged,
                "more reconciles failed in ten seconds"
            );
        }
    }
}

async fn reconcile_one(
    shared: Arc<ControllerShared>,
    options: RunnerOptions,
    lease: Lease<ObjectKey>,
    mut attempt: Attempt,
    reconcile: Arc<ReconcileFunc>,
) -> Ended {
    let counters = &shared.counters;
    let key = ObjectKey::clone(&lease);
    // This reconcile decides when the key is due again.
    shared.queue.cancel_delay(&key);
    let gate = shared.cluster.gate();
    let deadline = Instant::now() + options.stale_wait.min(FAR);
    shared.resolve_doubts(deadline).await;
    let seen = shared.see_own_writes(&key, deadline).await;
    if gate.is_shut() {
        give_back(&shared, &key, lease.priority());
        return Ended::NotStarted;
    }
    if !seen {
        ControllerCounters::count(&counters.stale_starts);
        shared.forget_own_writes(&key);
        warn!("the cache did not get an own write in time, reconciling without it");
    }
    let permit = match permit(&shared, &key, deadline).await {
        // The server may have gone away while the caches were waited for.
        Ok(_) if gate.is_shut() => {
            give_back(&shared, &key, lease.priority());
            return Ended::NotStarted;
        }
        Ok(permit) => permit,
        Err(NoPermit::NotOwned) => {
            forget(&shared, &key);
            return Ended::NotStarted;
        }
        Err(NoPermit::Lapsed) => {
            give_back(&shared, &key, lease.priority());
            return Ended::NotStarted;
        }
    };
    attempt.uid = permit.as_ref().map(ActPermit::uid);
    let (start, outages) = (Instant::now(), gate.outages().await);
    let _running = shared
        .running
        .begin(&key, attempt.number, attempt.cause.to_string());
    let run = run_within(options.timeout, reconcile(attempt));
    let result = match &permit {
        Some(permit) => permit.within(run).await,
        None => Some(run.await),
    };
    let elapsed = start.elapsed();
    counters.duration.observe(elapsed);
    Span::current().record("seconds", elapsed.as_secs_f64());
    let Some(result) = result else {
        // The membership of this replica has lapsed: another one may have the key by now.
        ControllerCounters::count(&counters.given_back);
        give_back(&shared, &key, lease.priority());
        return Ended::GivenBack;
    };
    match result {
        Ok(action) => {
            forget(&shared, &key);
            match action.wait(SystemTime::now()) {
                Some(after) => {
                    ControllerCounters::count(&counters.requeued);
                    let options = AddOptions {
                        priority: lease.priority(),
                        after,
                        rate_limited: false,
                    };
                    shared.queue.add_with(key, options);
                }
                None => ControllerCounters::count(&counters.succeeded),
            }
            Ended::Succeeded
        }
        Err(_) if gate.outages().await != outages => {
            ControllerCounters::count(&counters.given_back);
            give_back(&shared, &key, lease.priority());
            Ended::GivenBack
        }
        Err(failure) => {
            ControllerCounters::count(&counters.failed);
            shared.count_failure(&key, true);
            if failure.is_timeout {
                ControllerCounters::count(&counters.timed_out);
            }
            match failure.policy {
                ErrorPolicy::Retry => retry(&shared, &key, lease.priority()),
                ErrorPolicy::RetryAfter(after) => {
                    let options = AddOptions {
                        priority: lease.priority(),
                        after,
                        rate_limited: false,
                    };
                    shared.queue.add_with(key.clone(), options);
                }
                // The next change begins anew.
                ErrorPolicy::GiveUp => forget(&shared, &key),
                ErrorPolicy::Terminal => {
                    ControllerCounters::count(&counters.terminal);
                    forget(&shared, &key);
                }
            }
            Ended::Failed(failure)
        }
    }
}

/// Runs a reconcile for at most some time.
async fn run_within(
    longest: Option<Duration>,
    run: BoxFuture<'static, Result<Action, ReconcileFailure>>,
) -> Result<Action, ReconcileFailure> {
    let Some(longest) = longest else {
        return run.await;
    };
    let run = timeout(longest, run).await;
    run.unwrap_or_else(|_| Err(ReconcileFailure::timed_out(longest)))
}

/// Lets this replica reconcile a key, once the caches have what the replica before it wrote. Without a group nobody else does. In a group
/// a key without an object gets no permit: if one is created now it may be another replica's, and its event queues the key again.
async fn permit(
    shared: &ControllerShared,
    key: &ObjectKey,
    deadline: Instant,
) -> Result<Option<ActPermit>, NoPermit> {
    let Some(shards) = &shared.shards else {
        return Ok(None);
    };
    let uid = shared.uid_of(key).ok_or(NoPermit::NotOwned)?;
    let permit = shards.permits().begin(uid)?;
    match permit.within(shared.see_handed_over(uid, deadline)).await {
        Some(()) => Ok(Some(permit)),
        None => Err(NoPermit::Lapsed),
    }
}

/// Forgets the failures of a key.
fn forget(shared: &ControllerShared, key: &ObjectKey) {
    shared.queue.forget(key);
    shared.count_failure(key, false);
}

/// Adds a key again after its backoff.
fn retry(shared: &ControllerShared, key: &ObjectKey, priority: Priority) {
    let options = AddOptions {
        priority,
        after: Duration::ZERO,
        rate_limited: true,
    };
    shared.queue.add_with(key.clone(), options);
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tidings_informer::WorkQueue;
    use tidings_kube::RestClient;

    use super::*;
    use crate::cluster::Cluster;
    use crate::shards::ShardGroup;

    /// A server that never answers.
    #[derive(Clone)]
    struct Silent;

    impl tower_service::Service<http::Request<kube::client::Body>> for Silent {
        type Response = http::Response<kube::client::Body>;
        type Error = Infallible;
        type Future = std::future::Pending<Result<Self::Response, Infallible>>;

        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), Infallible>> {
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: http::Request<kube::client::Body>) -> Self::Future {
            std::future::pending()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_group_a_key_without_an_object_gets_no_permit() {
        let client = RestClient::new(kube::Client::new(Silent, "default"));
        let cluster = Cluster::new(&client);
        let group = ShardGroup::join(&cluster, "default", "maps").unwrap();
        let key = ObjectKey::new("default", "gone");
        for (seat, is_permitted) in [(Some(group.seat()), false), (None, true)] {
            let (name, queue) = ("maps".into(), WorkQueue::new());
            let shared = ControllerShared::new(name, cluster.clone(), queue, Vec::new(), 0, seat);
            let permit = permit(&shared, &key, Instant::now()).await;
            assert_eq!(permit.is_ok(), is_permitted, "{permit:?}");
        }
    }
}
