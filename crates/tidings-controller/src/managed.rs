//! What a manager runs, and what its port shows of it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus_client::registry::Registry;
use tidings_informer::metrics::InformerMetrics;
use tokio::task::JoinSet;

use crate::fleet::Fleet;
use crate::metrics::ControllerMetrics;
use crate::shards::ShardGroup;
use crate::work::WorkSet;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says whether a part of the program is well, and if not, why.
pub(crate) type CheckFunc = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A check of the program, with its name.
pub(crate) type NamedCheck = (String, CheckFunc);

/// What a manager runs and what its port shows.
pub(crate) struct ManagerState {
    pub(crate) informers: InformerMetrics,
    pub(crate) controllers: ControllerMetrics,
    pub(crate) registry: Registry,
    /// What runs while this process leads, or always without an election.
    pub(crate) led: WorkSet,
    /// What runs in a process that does not lead too.
    pub(crate) everywhere: WorkSet,
    pub(crate) health_checks: Vec<NamedCheck>,
    pub(crate) ready_checks: Vec<NamedCheck>,
    fleets: Mutex<Vec<Fleet>>,
    groups: Mutex<Vec<ShardGroup>>,
}

impl ManagerState {
    pub(crate) fn new() -> ManagerState {
        let (informers, controllers) = (InformerMetrics::new(), ControllerMetrics::new());
        let mut registry = Registry::default();
        registry.register_collector(Box::new(informers.clone()));
        registry.register_collector(Box::new(controllers.clone()));
        ManagerState {
            informers,
            controllers,
            registry,
            led: WorkSet::default(),
            everywhere: WorkSet::default(),
            health_checks: Vec::new(),
            ready_checks: Vec::new(),
            fleets: Mutex::default(),
            groups: Mutex::default(),
        }
    }

    /// Why the process is not ready: the caches that controllers wait for, and what the program's checks say. A process that does not
    /// lead waits for the caches of controllers that run everywhere only. Those of fleets do not count: a cluster that is away must not
    /// make the process unready for the others.
    pub(crate) fn not_ready(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        for work in [&self.led, &self.everywhere] {
            work.for_each_controller(|controller| {
                let (name, caches) = (controller.name(), controller.waits_for());
                if !caches.is_empty() {
                    let caches = caches.join("; ");
                    reasons.push(format!(
                        "the controller {name} waits for its caches: {caches}"
                    ));
                }
            });
        }
        reasons.extend(failures(&self.ready_checks));
        reasons
    }

    /// Why the process should be restarted: controllers and tasks that have ended although nobody stopped them, and what the program's
    /// checks say.
    pub(crate) fn not_healthy(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        for work in [&self.led, &self.everywhere] {
            work.for_each_controller(|controller| {
                if controller.is_finished() {
                    reasons.push(format!("the controller {} has ended", controller.name()));
                }
            });
            let ended = work.ended_tasks().into_iter();
            reasons.extend(ended.map(|name| format!("the task {name} has ended")));
        }
        for fleet in &*lock(&self.fleets) {
            fleet.for_each_running(|controller| {
                if controller.is_finished() {
                    let (name, cluster) = (controller.name(), controller.cluster().name());
                    reasons.push(format!(
                        "the controller {name} of the cluster {cluster} has ended"
                    ));
                }
            });
        }
        reasons.extend(failures(&self.health_checks));
        reasons
    }

    /// The figures of the running controllers, as JSON.
    pub(crate) fn figures(&self) -> serde_json::Value {
        let mut figures = Vec::new();
        for work in [&self.led, &self.everywhere] {
            work.for_each_controller(|controller| figures.push(controller.figures()));
        }
        for fleet in &*lock(&self.fleets) {
            fleet.for_each_running(|controller| figures.push(controller.figures()));
        }
        figures.into()
    }

    /// Who owns what in the groups of this process, as JSON.
    pub(crate) fn shards(&self) -> serde_json::Value {
        let groups = lock(&self.groups);
        let status = groups.iter().map(|group| {
            let status = group.status();
            serde_json::json!({
                "group": group.name(),
                "member": status.member,
                "epoch": status.epoch,
                "members": status.members,
                "waits_for": status.waits_for,
                "is_fresh": status.is_fresh,
                "problem": status.problem,
            })
        });
        status.collect()
    }

    pub(crate) fn add_fleet(&self, fleet: &Fleet) {
        lock(&self.fleets).push(fleet.clone());
    }

    pub(crate) fn add_group(&self, group: &ShardGroup) {
        lock(&self.groups).push(group.clone());
    }

    pub(crate) fn has_groups(&self) -> bool {
        !lock(&self.groups).is_empty()
    }

    /// Stops the fleets, all at the same time.
    pub(crate) async fn stop_fleets(&self) {
        let fleets = lock(&self.fleets).clone();
        let mut stopping = JoinSet::new();
        for fleet in fleets {
            stopping.spawn(async move { fleet.stop().await });
        }
        while stopping.join_next().await.is_some() {}
    }

    /// Leaves groups, after all controllers have ended.
    pub(crate) async fn finish(&self) {
        let groups = lock(&self.groups).clone();
        for group in groups {
            group.leave().await;
        }
    }
}

/// What the checks that fail say.
fn failures(checks: &[NamedCheck]) -> impl Iterator<Item = String> {
    checks.iter().filter_map(|(name, check)| {
        let why = check().err()?;
        Some(format!("the check {name} fails: {why}"))
    })
}
