//! Records events and writes them: a thin shell around the correlator.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tidings_api::{Object, Reason, Status};
use tidings_informer::{Cached, SourceError};
use tidings_kube::{KubeObject, ObjectPath, PatchKind, RequestObserver, RestClient};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout_at};

use crate::cluster::Cluster;
use crate::events::correlator::{Correlator, EventWrite, WriteAnswer};
use crate::events::event::{
    EventParts, NewEvent, ObjectReference, Reporter, event_json, event_resource,
};
use crate::events::options::EventOptions;
use crate::failure_log::FailureLog;
use crate::gate::ServerGate;
use crate::stats::EventStats;

/// Events that are written at the same time.
const WRITES_AT_ONCE: usize = 4;
/// How long the write of an event may take until it is answered.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// The shortest time between two looks for series that have ended.
const TICK_LEAST: Duration = Duration::from_millis(10);
/// Of the time after which a series has ended: how often it is looked for those.
const TICKS_PER_SERIES: u32 = 6;

/// Records events about objects (`events.k8s.io/v1`). Clones share everything.
///
/// A task of its own writes them; nobody waits for it. Repeats of an event (same object, type, reason and action) become a series: one Event with a count. New
/// Events of one object are limited to 25 at once and then one in five minutes. While the server does not answer, events wait, a thousand at most. The task ends when the last
/// clone is dropped; [`EventRecorder::flush`] waits until everything is written.
///
/// A controller has one: [`Context::event`](crate::Context::event). The program needs the rights to create and patch `events` in the group `events.k8s.io`.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use tidings_controller::{Cached, Cluster, EventRecorder, NewEvent};
/// use tidings_kube::RestClient;
///
/// # async fn run(client: RestClient, map: &Cached<ConfigMap>) {
/// let events = EventRecorder::new(&Cluster::new(&client), "my-program");
/// events.record(map, NewEvent::warning("Empty", "the map has no data").action("Read"));
/// events.flush().await;
/// # }
/// ```
#[derive(Clone)]
pub struct EventRecorder(Arc<OwnedRecorder>);

/// The state of a recorder, and its task, which ends with it.
struct OwnedRecorder {
    state: Arc<RecorderState>,
    runtime: Option<Handle>,
    task: OnceLock<JoinHandle<()>>,
}

impl Drop for OwnedRecorder {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

/// What a recorder shares with its task.
struct RecorderState {
    reporter: Reporter,
    client: RestClient,
    gate: Arc<ServerGate>,
    correlator: Mutex<Correlator>,
    tick_every: Duration,
    log: Mutex<FailureLog>,
    /// Something was recorded.
    recorded: Notify,
    /// A write was settled.
    settled: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EventRecorder {
    /// A recorder of events that a controller reports. The name is that of the program or controller: letters, digits, `-`, `_` and `.`, at most 63.
    /// The reporting instance is the name and that of the Pod (`POD_NAME`) or of the host.
    ///
    /// The first event starts its task, in the runtime in which the recorder was made, or else in that of the event.
    pub fn new(cluster: &Cluster, controller: &str) -> EventRecorder {
        EventRecorder::with_options(cluster, controller, EventOptions::default())
    }

    /// A recorder with other limits.
    pub fn with_options(
        cluster: &Cluster,
        controller: &str,
        options: EventOptions,
    ) -> EventRecorder {
        let (options, gate) = (options.capped(), Arc::clone(cluster.gate()));
        // No reconcile waits for these writes: only the gate hears of them, if they are not answered.
        let observer = Arc::new(AnswersOnly(Arc::clone(&gate)));
        let client = cluster.informers().client().clone().observed_by(observer);
        let state = RecorderState {
            reporter: Reporter::new(controller, &host()),
            client: client.timeout(WRITE_TIMEOUT),
            gate,
            tick_every: (options.finish_after / TICKS_PER_SERIES).max(TICK_LEAST),
            correlator: Mutex::new(Correlator::new(options)),
            log: Mutex::default(),
            recorded: Notify::new(),
            settled: Notify::new(),
        };
        EventRecorder(Arc::new(OwnedRecorder {
            state: Arc::new(state),
            runtime: Handle::try_current().ok(),
            task: OnceLock::new(),
        }))
    }

    /// Records an event about an object. Returns at once.
    pub fn record<K: KubeObject>(&self, object: &Cached<K>, event: NewEvent) {
        self.record_about(ObjectReference::of(object.value()), event);
    }

    /// Records an event about an object that a reference names, for example
    /// [`ObjectReference::dynamic`]`(&resource, object.value())`. Returns at once.
    pub fn record_about(&self, object: ObjectReference, event: NewEvent) {
        let state = &self.0.state;
        let event = EventParts::new(object, event, Timestamp::now());
        lock(&state.correlator).record(event, Instant::now());
        state.recorded.notify_one();
        let runtime = self.0.runtime.clone();
        if let Some(runtime) = runtime.or_else(|| Handle::try_current().ok()) {
            let start = || runtime.spawn(write_events(Arc::clone(state)));
            self.0.task.get_or_init(start);
        }
    }

    /// What became of the events so far.
    pub fn stats(&self) -> EventStats {
        lock(&self.0.state.correlator).stats()
    }

    /// Waits until every event is written, dropped or given up. The count of a series that goes on may be written later. While the server
    /// does not answer, this waits too. Cancel-safe.
    pub async fn flush(&self) {
        let state = &self.0.state;
        loop {
            let settled = state.settled.notified();
            if lock(&state.correlator).pending() == 0 {
                return;
            }
            settled.await;
        }
    }

    /// Writes all events, and the counts of all series. Cancel-safe.
    async fn finish(&self) {
        let state = &self.0.state;
        loop {
            let left = lock(&state.correlator).end_series(Instant::now());
            state.recorded.notify_one();
            self.flush().await;
            if left == 0 {
                return;
            }
        }
    }

    /// Writes all events and the counts of all series, until a deadline, and not while the server is away: whoever stops does not wait for
    /// it.
    pub(crate) async fn finish_until(&self, deadline: Instant) {
        let finished = async {
            tokio::select! {
                () = self.finish() => {}
                () = self.0.state.gate.found_dead() => {}
            }
        };
        let _ = timeout_at(deadline, finished).await;
        let pending = lock(&self.0.state.correlator).pending();
        if pending > 0 {
            let controller = self.0.state.reporter.controller();
            tracing::warn!(controller, pending, "events are not written at the end");
        }
    }
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let correlator = lock(&self.0.state.correlator);
        f.debug_struct("EventRecorder")
            .field("controller", &self.0.state.reporter.controller())
            .field("pending", &correlator.pending())
            .field("stats", &correlator.stats())
            .finish_non_exhaustive()
    }
}

/// Tells the gate of requests without an answer.
struct AnswersOnly(Arc<ServerGate>);

impl RequestObserver for AnswersOnly {
    fn unanswered(&self) {
        self.0.unanswered();
    }
}

/// The name of the Pod or of the host.
fn host() -> String {
    let names = ["POD_NAME", "HOSTNAME"].into_iter();
    let named = names.filter_map(|name| std::env::var(name).ok());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let mut found = named.chain(host).map(|name| name.trim().to_owned());
    let found = found.find(|name| !name.is_empty());
    found.unwrap_or_else(|| "process".to_owned())
}

/// Writes what the correlator queues, until the task is aborted.
async fn write_events(state: Arc<RecorderState>) {
    let mut writes: JoinSet<()> = JoinSet::new();
    let mut ticks = interval(state.tick_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_shut = state.gate.is_shut();
        while !is_shut && writes.len() < WRITES_AT_ONCE {
            let next = lock(&state.correlator).next_write(Instant::now());
            let Some(write) = next else { break };
            writes.spawn(write_one(Arc::clone(&state), write));
        }
        // A write that is due waits for another one to end, or for the server.
        let is_busy = is_shut || writes.len() >= WRITES_AT_ONCE;
        let due = lock(&state.correlator).next_due().filter(|_| !is_busy);
        tokio::select! {
            Some(_) = writes.join_next() => {}
            () = state.recorded.notified() => {}
            () = state.gate.opened(), if is_shut => {}
            () = until(due) => {}
            _ = ticks.tick() => lock(&state.correlator).tick(Instant::now()),
        }
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Sends a write and settles its answer.
async fn write_one(state: Arc<RecorderState>, write: EventWrite) {
    let outages = state.gate.outages().await;
    let result = send(&state, &write).await;
    let answer = match &result {
        Ok(_) => WriteAnswer::Written,
        Err(error) => match answer_of(error, write.is_patch) {
            WriteAnswer::Unanswered { .. } => WriteAnswer::Unanswered {
                outage: state.gate.outages().await != outages,
            },
            answer => answer,
        },
    };
    let random = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
    let kept = lock(&state.correlator).settle(&write, answer, Instant::now(), random);
    state.settled.notify_waiters();
    if let (false, Err(error)) = (kept, &result) {
        log_given_up(&state, &write, error);
    }
}

async fn send(state: &RecorderState, write: &EventWrite) -> Result<Object, SourceError> {
    let (resource, event) = (event_resource(), &write.event);
    let namespace = event.parts.namespace();
    match write.series.filter(|_| write.is_patch) {
        Some(series) => {
            let path = ObjectPath::new(&resource, namespace, &event.name);
            // As client-go does; a merge patch would do the same.
            let kind = PatchKind::Strategic;
            state
                .client
                .patch_object(&path, kind, &series.patch())
                .await
        }
        None => {
            let json = event_json(&event.name, &event.parts, &state.reporter, write.series);
            state
                .client
                .create_object(&resource, namespace, &json)
                .await
        }
    }
}

/// What an error means for a write. Errors that may pass count as no answer.
fn answer_of(error: &SourceError, is_patch: bool) -> WriteAnswer {
    let Some(status) = error.status() else {
        return WriteAnswer::Unanswered { outage: false };
    };
    match status.code {
        404 if is_patch => WriteAnswer::Missing,
        409 if !is_patch && status.reason == Some(Reason::AlreadyExists) => WriteAnswer::Exists,
        // Another write came in between; or the server is busy, or has trouble.
        409 | 429 | 500.. => WriteAnswer::Unanswered { outage: false },
        _ => WriteAnswer::Refused,
    }
}

/// Logs which fields the server refuses, never their values.
fn log_given_up(state: &RecorderState, write: &EventWrite, error: &SourceError) {
    let (status, event) = (error.status(), &write.event.parts);
    let (code, reason) = (error.code(), &event.reason);
    let controller = state.reporter.controller();
    let object = &event.regarding;
    let (kind, namespace, name) = (&object.kind, &object.namespace, &object.name);
    if status.is_some_and(is_of_no_interest) {
        tracing::debug!(
            controller,
            code,
            kind,
            namespace,
            name,
            reason,
            "an event is not written"
        );
        return;
    }
    let notice = lock(&state.log).failed(Instant::now());
    if notice.unlogged > 0 {
        let failures = notice.unlogged;
        tracing::warn!(
            controller,
            failures,
            "more events were not written in ten seconds"
        );
    }
    if notice.single {
        let details = status.and_then(|status| status.details.as_ref());
        let causes = details.into_iter().flat_map(|details| &details.causes);
        let fields: Vec<&str> = causes.map(|cause| &*cause.field).collect();
        let fields = fields.join(", ");
        tracing::warn!(
            controller,
            code,
            fields,
            kind,
            namespace,
            name,
            reason,
            "an event is given up"
        );
    }
}

/// True if the event exists, or its namespace is being deleted: both are common, and nobody can do anything.
fn is_of_no_interest(status: &Status) -> bool {
    let details = status.details.as_ref();
    let mut causes = details.into_iter().flat_map(|details| &details.causes);
    status.reason == Some(Reason::AlreadyExists)
        || causes.any(|cause| cause.reason == "NamespaceTerminating")
}

#[cfg(test)]
mod tests {
    use tidings_api::GroupResource;

    use super::*;

    #[test]
    fn errors_that_may_pass_are_tried_again() {
        const EVENTS: GroupResource<'_> = GroupResource {
            group: "events.k8s.io",
            resource: "events",
        };
        let passing = WriteAnswer::Unanswered { outage: false };
        let check = |status: Status, create, patch| {
            let error = SourceError::from(status.clone());
            let found = (answer_of(&error, false), answer_of(&error, true));
            assert_eq!(found, (create, patch), "{status:?}");
        };
        let refused = WriteAnswer::Refused;
        check(
            Status::not_found(EVENTS, "e"),
            refused,
            WriteAnswer::Missing,
        );
        let exists = Status::already_exists(EVENTS, "e", false);
        check(exists, WriteAnswer::Exists, passing);
        check(Status::conflict(EVENTS, "e", "why"), passing, passing);
        check(Status::too_many_requests("later", 1), passing, passing);
        check(Status::internal("trouble"), passing, passing);
        check(Status::forbidden(EVENTS, "e", "why"), refused, refused);
        let broken = SourceError::transport("reset");
        assert_eq!(answer_of(&broken, false), passing);
    }
}
