//! The controllers that a manager runs, and what its port shows of them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus_client::registry::Registry;
use tidings_informer::metrics::InformerMetrics;
use tokio::task::JoinSet;

use crate::handle::ControllerHandle;
use crate::metrics::ControllerMetrics;

/// Starts a controller, for each term of a leader.
pub(crate) type StartController = Box<dyn Fn() -> ControllerHandle + Send + Sync>;

/// What the port of a manager shows.
pub(crate) struct ManagerState {
    pub(crate) informers: InformerMetrics,
    pub(crate) controllers: ControllerMetrics,
    pub(crate) registry: Registry,
    running: Mutex<Vec<ControllerHandle>>,
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
        }
    }

    fn running(&self) -> MutexGuard<'_, Vec<ControllerHandle>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of controllers whose caches do not have their initial state. A process that does not lead has none.
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
        running.iter().map(ControllerHandle::figures).collect()
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
