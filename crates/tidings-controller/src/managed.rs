//! The controllers that a manager runs, and what its port shows of them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus_client::registry::Registry;
use tidings_informer::metrics::InformerMetrics;
use tokio::task::JoinSet;

use crate::fleet::Fleet;
use crate::handle::ControllerHandle;
use crate::metrics::ControllerMetrics;
use crate::shards::ShardGroup;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a controller, for each term of a leader.
pub(crate) type StartController = Box<dyn Fn() -> ControllerHandle + Send + Sync>;

/// What the port of a manager shows.
pub(crate) struct ManagerState {
    pub(crate) informers: InformerMetrics,
    pub(crate) controllers: ControllerMetrics,
    pub(crate) registry: Registry,
    running: Mutex<Vec<ControllerHandle>>,
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
            running: Mutex::default(),
            fleets: Mutex::default(),
            groups: Mutex::default(),
        }
    }

    fn running(&self) -> MutexGuard<'_, Vec<ControllerHandle>> {
        lock(&self.running)
    }

    /// The names of controllers whose caches do not have their initial state. A process that does not lead has none. Those of fleets
    /// do not count: a cluster that is away must not make the process unready for the others.
    pub(crate) fn not_synced(&self) -> Vec<String> {
        let running = self.running();
        let waiting = running.iter().filter(|controller| !controller.has_synced());
        waiting
            .map(|controller| controller.name().to_owned())
            .collect()
    }

    /// The names of controllers that have ended although nobody stopped them.
    pub(crate) fn ended(&self) -> Vec<String> {
        let running = self.running();
        let ended = running.iter().filter(|controller| controller.is_finished());
        ended
            .map(|controller| controller.name().to_owned())
            .collect()
    }

    /// The figures of the running controllers, as JSON.
    pub(crate) fn figures(&self) -> serde_json::Value {
        let running = self.running();
        let mut figures: Vec<_> = running.iter().map(ControllerHandle::figures).collect();
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

    /// Stops fleets and leaves groups, after the controllers have ended.
    pub(crate) async fn finish(&self) {
        let fleets = lock(&self.fleets).clone();
        for fleet in fleets {
            fleet.stop().await;
        }
        let groups = lock(&self.groups).clone();
        for group in groups {
            group.leave().await;
        }
    }

    pub(crate) fn start(&self, controllers: &[StartController]) {
        self.running()
            .extend(controllers.iter().map(|start| start()));
    }

    /// Stops the controllers. They all drain at the same time; dropping the future ends them at once.
    pub(crate) async fn stop(&self) {
        let mut stopping: JoinSet<_> = self
            .running()
            .drain(..)
            .map(ControllerHandle::stop)
            .collect();
        while stopping.join_next().await.is_some() {}
    }

    /// Ends the controllers at once.
    pub(crate) fn end(&self) {
        self.running().clear();
    }
}
