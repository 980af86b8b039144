//! The loop of a controller: takes keys from the queue and reconciles a bounded number of them at a time.
//!
//! Each reconcile is a task of its own, so that a panic affects only its key. The task holds the lease of its key: no other task gets
//! the key before it has ended.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use tidings_api::ObjectKey;
use tidings_informer::workqueue::{AddOptions, Lease, Priority};
use tidings_informer::{Action, BoxFuture, RunSummary, Uid};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{Instrument, error, info_span, warn};

use crate::failure_log::FailureLog;
use crate::outcome::{ErrorPolicy, ReconcileFailure};
use crate::shards::{ActPermit, NoPermit};
use crate::shared::{Cause, ControllerShared, FAR};
use crate::stats::ControllerCounters;

/// How long the loop waits for aborted reconciles to end: a reconcile that never yields cannot be aborted.
const ABORT_WAIT_MAX: Duration = Duration::from_secs(1);

/// How a controller runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunnerOptions {
    pub(crate) concurrency: usize,
    /// How long running reconciles have to end after the stop.
    pub(crate) grace: Duration,
    pub(crate) timeout: Option<Duration>,
    /// How long a reconcile waits for own writes.
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
    Failed(ObjectKey, ReconcileFailure),
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
    let mut running = RunningReconciles {
        shared: Arc::clone(&shared),
        options,
        tasks: JoinSet::new(),
        keys: HashMap::new(),
        log: FailureLog::default(),
        summary: RunSummary::default(),
    };
    let mut stop = pin!(stop);
    let mut drained = false;
    loop {
        if drained && running.tasks.is_empty() {
            return running.summary;
        }
        let has_room = running.tasks.len() < options.concurrency.max(1);
        let window_end = running.log.window_end();
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(ended) = running.tasks.join_next_with_id() => running.settle(ended),
            lease = next(&shared), if has_room && !drained => match lease {
                Some(lease) => running.start(lease, &reconcile),
                None => drained = true,
            },
            () = until(window_end) => running.log_window(),
        }
    }
    running.stop().await
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
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

/// The reconciles that are running.
struct RunningReconciles {
    shared: Arc<ControllerShared>,
    options: RunnerOptions,
    tasks: JoinSet<Ended>,
    /// The key and priority of each task, needed to retry a task that panicked.
    keys: HashMap<Id, (ObjectKey, Priority)>,
    log: FailureLog,
    summary: RunSummary,
}

impl RunningReconciles {
    fn start(&mut self, lease: Lease<ObjectKey>, reconcile: &Arc<ReconcileFunc>) {
        let (key, priority) = (ObjectKey::clone(&lease), lease.priority());
        let attempt = Attempt {
            number: self.shared.next_attempt(&key),
            cause: self.shared.cause(&key),
            key: key.clone(),
            uid: None,
        };
        let span = info_span!(
            "reconcile",
            controller = &*self.shared.name,
            cluster = self.shared.cluster.name(),
            object = %key,
            attempt = attempt.number,
            cause = %attempt.cause,
        );
        let (shared, reconcile) = (Arc::clone(&self.shared), Arc::clone(reconcile));
        let task = reconcile_one(shared, self.options, lease, attempt, reconcile);
        let task = self.tasks.spawn(task.instrument(span));
        self.keys.insert(task.id(), (key, priority));
        self.shared
            .counters
            .active
            .store(self.tasks.len() as u64, Relaxed);
    }

    fn settle(&mut self, ended: Result<(Id, Ended), JoinError>) {
        let counters = &self.shared.counters;
        counters.active.store(self.tasks.len() as u64, Relaxed);
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let key = self.keys.remove(&id);
        if matches!(ended, Ok((_, Ended::NotStarted))) {
            return;
        }
        self.summary.reconciles += 1;
        match ended {
            Ok((_, Ended::Succeeded | Ended::GivenBack | Ended::NotStarted)) => {}
            Ok((_, Ended::Failed(key, failure))) => {
                self.summary.errors += 1;
                self.log_failure(&key, &failure);
            }
            Err(_) => {
                self.summary.panics += 1;
                ControllerCounters::count(&counters.panicked);
                ControllerCounters::count(&counters.failed);
                if let Some((key, priority)) = key {
                    // Without the payload: it may quote the object. The panic hook has logged the location.
                    error!(controller = &*self.shared.name, object = %key, "reconcile panicked, will retry");
                    self.shared.count_failure(&key, true);
                    retry(&self.shared, &key, priority);
                }
            }
        }
    }

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

    fn log_window(&mut self) {
        let unlogged = self.log.ended(Instant::now());
        self.log_unlogged(unlogged);
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

    async fn stop(mut self) -> RunSummary {
        let undelivered = self.shared.queue.shut_down();
        let deadline = Instant::now() + self.options.grace.min(FAR);
        while let Ok(Some(ended)) = timeout_at(deadline, self.tasks.join_next_with_id()).await {
            self.settle(ended);
        }
        if !self.tasks.is_empty() {
            self.abort().await;
        }
        // After the tasks have ended: a key that was added while it ran is queued when its task ends.
        self.summary.left = (self.shared.queue.len() + undelivered.len()) as u64;
        self.summary
    }

    async fn abort(&mut self) {
        let (controller, running) = (&*self.shared.name, self.tasks.len());
        warn!(
            controller,
            running, "reconciles did not end within the grace, aborting them"
        );
        self.tasks.abort_all();
        let deadline = Instant::now() + ABORT_WAIT_MAX;
        while let Ok(Some(ended)) = timeout_at(deadline, self.tasks.join_next_with_id()).await {
            match ended {
                Err(error) if error.is_cancelled() => self.summary.abandoned += 1,
                ended => self.settle(ended),
            }
        }
        self.summary.abandoned += self.tasks.len() as u64;
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
    shared.resolve_doubts(options.stale_wait).await;
    let seen = shared.see_own_writes(&key, options.stale_wait).await;
    if gate.is_shut() {
        give_back(&shared, &key, lease.priority());
        return Ended::NotStarted;
    }
    if !seen {
        ControllerCounters::count(&counters.stale_starts);
        shared.forget_own_writes(&key);
        warn!("the cache did not get an own write in time, reconciling without it");
    }
    let permit = match permit(&shared, &key, options.stale_wait).await {
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
    let run = run_within(options.timeout, reconcile(attempt));
    let result = match &permit {
        Some(permit) => permit.within(run).await,
        None => Some(run.await),
    };
    counters.duration.observe(start.elapsed());
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
            Ended::Failed(key, failure)
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
    longest: Duration,
) -> Result<Option<ActPermit>, NoPermit> {
    let Some(shards) = &shared.shards else {
        return Ok(None);
    };
    let uid = shared.uid_of(key).ok_or(NoPermit::NotOwned)?;
    let permit = shards.permits().begin(uid)?;
    match permit.within(shared.see_handed_over(uid, longest)).await {
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
            let permit = permit(&shared, &key, Duration::ZERO).await;
            assert_eq!(permit.is_ok(), is_permitted, "{permit:?}");
        }
    }
}
