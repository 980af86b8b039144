//! Priority and fairness: requests of users wait in fair queues, by the FlowSchemas and PriorityLevelConfigurations in the caches.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tidings_access::Attributes;
use tidings_flow::{
    Arrival, FairQueues, Flow, FlowClassifier, LevelConfig, LevelFigures, Refusal, Ticket,
};
use tidings_registry::FLOW_CONTROL;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::resource::Resource;
use super::served::ServedSet;

/// How many requests may run at once: as many as kube-apiserver lets by default, 400 that read and 200 that write.
const SEATS_MAX: u32 = 600;
/// How long a request may wait.
const WAIT_MAX: Duration = Duration::from_secs(15);
/// The priority level of requests that are not limited.
const EXEMPT: &str = "exempt";

/// Lets requests run, or wait.
pub(crate) struct FlowControl {
    schemas: Arc<Resource>,
    levels: Arc<Resource>,
    rules: RwLock<Arc<FlowRules>>,
    state: Mutex<FlowState>,
    counts: FlowCounts,
}

/// What the caches said when they were last read.
#[derive(Default)]
struct FlowRules {
    classifier: FlowClassifier,
    /// The uids of the levels.
    levels: HashMap<Arc<str>, Arc<str>>,
    exempt_schema: Arc<str>,
}

struct FlowState {
    queues: FairQueues,
    /// Whoever waits for a request to begin.
    waiting: HashMap<Ticket, oneshot::Sender<()>>,
}

#[derive(Default)]
struct FlowCounts {
    full: AtomicU64,
    no_seat: AtomicU64,
    timed_out: AtomicU64,
}

/// Requests that were refused, by reason, and what runs and waits in each priority level.
pub(crate) struct FlowFigures {
    pub(crate) refused: [(&'static str, u64); 3],
    pub(crate) levels: Vec<LevelFigures>,
}

/// The uids of a flow schema and a priority level, which stand in every response.
#[derive(Debug, Clone, Default)]
pub(crate) struct FlowIds {
    pub(crate) schema: Arc<str>,
    pub(crate) level: Arc<str>,
}

/// The right to run. Dropping it lets others run.
pub(crate) struct FlowPermit {
    control: Arc<FlowControl>,
    ticket: Ticket,
    since: Instant,
}

impl Drop for FlowPermit {
    fn drop(&mut self) {
        let took = self.since.elapsed();
        self.control.end(self.ticket, took);
    }
}

/// A request that waits. Dropping it gives it up.
struct WaitingRequest {
    control: Arc<FlowControl>,
    ticket: Option<Ticket>,
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.control.end(ticket, Duration::ZERO);
        }
    }
}

impl FlowControl {
    pub(super) fn new(served: &ServedSet) -> Option<FlowControl> {
        let resource = |plural: &str| served.find(FLOW_CONTROL, "v1", plural)?.1;
        Some(FlowControl {
            schemas: resource("flowschemas")?,
            levels: resource("prioritylevelconfigurations")?,
            rules: RwLock::default(),
            state: Mutex::new(FlowState {
                queues: FairQueues::new(Vec::new(), SEATS_MAX),
                waiting: HashMap::new(),
            }),
            counts: FlowCounts::default(),
        })
    }

    /// The resource of FlowSchemas.
    pub(crate) fn schemas(&self) -> &Arc<Resource> {
        &self.schemas
    }

    /// The resource of PriorityLevelConfigurations.
    pub(crate) fn levels(&self) -> &Arc<Resource> {
        &self.levels
    }

    fn state(&self) -> MutexGuard<'_, FlowState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rules(&self) -> Arc<FlowRules> {
        let rules = self.rules.read();
        rules.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the caches again.
    pub(crate) fn follow(&self) {
        let (levels, _) = self.levels.cache().tail();
        let (schemas, _) = self.schemas.cache().tail();
        let uids: HashMap<Arc<str>, Arc<str>> = levels
            .state
            .iter()
            .map(|(key, level)| (key.name().into(), level.uid().as_ref().into()))
            .collect();
        let configs = levels.state.iter();
        let configs = configs.filter_map(|(_, level)| LevelConfig::read(level.as_bytes()));
        let configs: Vec<LevelConfig> = configs.collect();
        let written = schemas.state.iter().map(|(_, schema)| schema.as_bytes());
        let classifier = FlowClassifier::new(written, |level| uids.contains_key(level));
        let exempt = schemas.state.iter().find(|(key, _)| key.name() == EXEMPT);
        let rules = FlowRules {
            classifier,
            exempt_schema: exempt
                .map_or_else(Arc::default, |(_, schema)| schema.uid().as_ref().into()),
            levels: uids,
        };
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
        let mut state = self.state();
        let begun = state.queues.configure(configs);
        state.wake(begun);
    }

    /// The flow of a request. `None` before the schemas are there.
    pub(crate) fn flow(&self, asked: &Attributes<'_>) -> Option<Flow> {
        self.rules().classifier.flow(asked)
    }

    /// What stands in the response to a request of a flow; of one that is not limited if none is given.
    pub(crate) fn ids(&self, flow: Option<&Flow>) -> FlowIds {
        let rules = self.rules();
        let level = flow.map_or(EXEMPT, |flow| &*flow.level);
        FlowIds {
            schema: flow
                .map_or(&rules.exempt_schema, |flow| &flow.schema_uid)
                .clone(),
            level: rules.levels.get(level).cloned().unwrap_or_default(),
        }
    }

    /// Waits until a request may run. `None` if it may not: too many wait, or it waits too long.
    pub(crate) async fn admit(self: &Arc<Self>, flow: &Flow) -> Option<FlowPermit> {
        let (ticket, begins) = {
            let mut state = self.state();
            match state.queues.arrive(&flow.level, flow.hash, 1) {
                Arrival::Runs(ticket) => return Some(self.permit(ticket)),
                Arrival::Waits(ticket) => {
                    let (sender, begins) = oneshot::channel();
                    state.waiting.insert(ticket, sender);
                    (ticket, begins)
                }
                Arrival::Refused(why) => {
                    let count = match why {
                        Refusal::NoSeat => &self.counts.no_seat,
                        Refusal::QueueFull => &self.counts.full,
                    };
                    count.fetch_add(1, Ordering::Relaxed);
                    return None;
                }
            }
        };
        let mut waiting = WaitingRequest {
            control: self.clone(),
            ticket: Some(ticket),
        };
        match tokio::time::timeout(WAIT_MAX, begins).await {
            Ok(Ok(())) => {
                waiting.ticket = None;
                Some(self.permit(ticket))
            }
            _ => {
                self.counts.timed_out.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    fn permit(self: &Arc<Self>, ticket: Ticket) -> FlowPermit {
        FlowPermit {
            control: self.clone(),
            ticket,
            since: Instant::now(),
        }
    }

    fn end(&self, ticket: Ticket, took: Duration) {
        let mut state = self.state();
        state.waiting.remove(&ticket);
        let begun = state.queues.cancel(ticket, took);
        state.wake(begun);
    }

    /// Figures for metrics.
    pub(crate) fn figures(&self) -> FlowFigures {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        FlowFigures {
            refused: [
                ("queue-full", count(&self.counts.full)),
                ("concurrency-limit", count(&self.counts.no_seat)),
                ("time-out", count(&self.counts.timed_out)),
            ],
            levels: self.state().queues.figures(),
        }
    }
}

impl FlowState {
    fn wake(&mut self, begun: Vec<Ticket>) {
        for ticket in begun {
            if let Some(sender) = self.waiting.remove(&ticket) {
                // Whoever waited may have gone: the permit that nobody takes is given back when the request is dropped.
                let _ = sender.send(());
            }
        }
    }
}
