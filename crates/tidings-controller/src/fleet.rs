//! A fleet: clusters that come and go, with the same controllers in each.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidings_informer::RunSummary;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::cluster::Cluster;
use crate::handle::ControllerHandle;

/// Starts a controller in a cluster.
type StartInCluster = Arc<dyn Fn(&Cluster) -> ControllerHandle + Send + Sync>;

/// Why a fleet refuses a cluster or a controller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// A cluster of that name is in the fleet.
    #[error("the fleet has a cluster {0:?} already: remove it first, or choose another name")]
    NameTaken(String),
    /// A cluster of that name was removed, and its controllers have not ended yet: two controllers would reconcile the same keys.
    #[error(
        "the controllers of the cluster {0:?} have not ended yet: wait until its removal is done"
    )]
    Draining(String),
    /// The fleet was stopped.
    #[error("the fleet was stopped: nothing starts any more")]
    Stopped,
}

/// Clusters that come and go, each with the same controllers.
///
/// Each cluster has its own informers, queues and workers: one that is away pauses its own reconciles and no others. What a reconcile
/// gets carries the cluster: [`Context::cluster`](crate::Context::cluster), [`Context::cluster_key`](crate::Context::cluster_key).
/// Clones share the fleet; dropping the last one ends all its controllers at once. A function that starts controllers and holds a clone
/// keeps the fleet until [`Fleet::stop`].
///
/// ```no_run
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use tidings_controller::{Action, Cached, Cluster, Context, Controller, Fleet};
/// use tidings_kube::RestClient;
///
/// async fn reconcile(map: Arc<Cached<ConfigMap>>, ctx: Context<()>) -> Result<Action, std::fmt::Error> {
///     println!("{}", ctx.cluster_key());
///     Ok(Action::AwaitChange)
/// }
///
/// # async fn run(europe: RestClient, asia: RestClient) -> Result<(), tidings_controller::FleetError> {
/// let fleet = Fleet::new();
/// fleet.controller(|cluster| Controller::<ConfigMap>::new(cluster).start(reconcile, ()))?;
/// fleet.add(&Cluster::named("europe", &europe))?;
/// fleet.add(&Cluster::named("asia", &asia))?; // its controllers start now
/// fleet.remove("europe").await; // drains its controllers
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Fleet {
    inner: Arc<FleetInner>,
}

#[derive(Default)]
struct FleetInner {
    state: Mutex<FleetState>,
    /// A start has ended, or a cluster is gone.
    changed: Notify,
}

impl FleetInner {
    fn lock(&self) -> MutexGuard<'_, FleetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a condition holds. Cancel-safe.
    async fn until(&self, holds: impl Fn(&FleetState) -> bool) {
        loop {
            let changed = self.changed.notified();
            if holds(&self.lock()) {
                return;
            }
            changed.await;
        }
    }
}

#[derive(Default)]
struct FleetState {
    controllers: Vec<StartInCluster>,
    /// A cluster that is removed keeps its name until its controllers have ended.
    clusters: BTreeMap<String, FleetCluster>,
    has_stopped: bool,
}

/// A cluster of a fleet, and what runs in it.
struct FleetCluster {
    cluster: Cluster,
    running: Vec<ControllerHandle>,
    /// Calls of `add` and `controller` that start controllers in it now, without the lock.
    starting: usize,
    is_draining: bool,
}

/// The right to start controllers in a cluster, which does not go before it is given back.
struct StartTurn {
    fleet: Arc<FleetInner>,
    cluster: Cluster,
}

impl StartTurn {
    /// Calls the program's function. The lock is not held: the function may ask the fleet for other clusters.
    fn start(&self, start: &StartInCluster) {
        let controller = start(&self.cluster);
        let mut state = self.fleet.lock();
        if let Some(there) = state.clusters.get_mut(self.cluster.name()) {
            there.running.push(controller);
        }
    }
}

impl Drop for StartTurn {
    fn drop(&mut self) {
        if let Some(there) = self.fleet.lock().clusters.get_mut(self.cluster.name()) {
            there.starting -= 1;
        }
        self.fleet.changed.notify_waiters();
    }
}

/// A cluster whose controllers end. Its name is free when this is dropped.
struct DrainingCluster {
    fleet: Arc<FleetInner>,
    cluster: Cluster,
}

impl DrainingCluster {
    /// Drains the controllers at the same time, then stops the informers.
    async fn drain(self) -> Vec<(String, RunSummary)> {
        let name = self.cluster.name();
        let is_started = |state: &FleetState| {
            let there = state.clusters.get(name);
            there.is_none_or(|there| there.starting == 0)
        };
        self.fleet.until(is_started).await;
        let running = match self.fleet.lock().clusters.get_mut(name) {
            Some(there) => std::mem::take(&mut there.running),
            None => Vec::new(),
        };
        let mut controllers = JoinSet::new();
        for controller in running {
            let name = controller.name().to_owned();
            controllers.spawn(async move { (name, controller.stop().await) });
        }
        let summaries = controllers.join_all().await;
        self.cluster.informers().shut_down().await;
        summaries
    }
}

impl Drop for DrainingCluster {
    fn drop(&mut self) {
        let gone = self.fleet.lock().clusters.remove(self.cluster.name());
        drop(gone);
        self.fleet.changed.notify_waiters();
    }
}

impl Fleet {
    /// A fleet without clusters and controllers.
    pub fn new() -> Fleet {
        Fleet::default()
    }

    fn turn(&self, there: &mut FleetCluster) -> StartTurn {
        there.starting += 1;
        StartTurn {
            fleet: Arc::clone(&self.inner),
            cluster: there.cluster.clone(),
        }
    }

    /// Adds a controller: a function that starts it in a cluster. It is called for each cluster that is there and that comes. It may use
    /// the fleet: [`Fleet::cluster`] for example.
    ///
    /// # Errors
    /// If the fleet was stopped.
    ///
    /// # Panics
    /// Outside a tokio runtime, if there are clusters.
    pub fn controller(
        &self,
        start: impl Fn(&Cluster) -> ControllerHandle + Send + Sync + 'static,
    ) -> Result<(), FleetError> {
        let start: StartInCluster = Arc::new(start);
        let turns: Vec<StartTurn> = {
            let mut state = self.inner.lock();
            if state.has_stopped {
                return Err(FleetError::Stopped);
            }
            state.controllers.push(Arc::clone(&start));
            let there = state.clusters.values_mut();
            there
                .filter(|there| !there.is_draining)
                .map(|there| self.turn(there))
                .collect()
        };
        for turn in turns {
            turn.start(&start);
        }
        Ok(())
    }

    /// Adds a cluster by its name, and starts the controllers in it.
    ///
    /// # Errors
    /// If there is a cluster of that name, also one whose removal is not done, or if the fleet was stopped.
    ///
    /// # Panics
    /// Outside a tokio runtime, if there are controllers.
    pub fn add(&self, cluster: &Cluster) -> Result<(), FleetError> {
        let name = cluster.name().to_owned();
        let (turn, controllers) = {
            let mut state = self.inner.lock();
            if state.has_stopped {
                return Err(FleetError::Stopped);
            }
            match state.clusters.get(&name) {
                Some(there) if there.is_draining => return Err(FleetError::Draining(name)),
                Some(_) => return Err(FleetError::NameTaken(name)),
                None => {}
            }
            let mut there = FleetCluster {
                cluster: cluster.clone(),
                running: Vec::new(),
                starting: 0,
                is_draining: false,
            };
            let turn = self.turn(&mut there);
            state.clusters.insert(name, there);
            (turn, state.controllers.clone())
        };
        for start in &controllers {
            turn.start(start);
        }
        Ok(())
    }

    /// Removes a cluster: its controllers are drained, then its informers stop. Returns what each controller did, by its name; nothing if
    /// there is no such cluster, or another call is removing it. The name can be used again when this is done.
    ///
    /// Dropping the future ends the controllers of the cluster at once.
    pub async fn remove(&self, name: &str) -> Vec<(String, RunSummary)> {
        self.drain(|known| known == name).await
    }

    /// Stops all controllers and drains them, in all clusters at the same time. Nothing starts any more. Waits for removals too.
    pub async fn stop(&self) -> Vec<(String, RunSummary)> {
        let controllers = {
            let mut state = self.inner.lock();
            state.has_stopped = true;
            std::mem::take(&mut state.controllers)
        };
        // They may hold clones of the fleet, which would keep it for ever.
        drop(controllers);
        let summaries = self.drain(|_| true).await;
        self.inner.until(|state| state.clusters.is_empty()).await;
        summaries
    }

    /// Drains clusters at the same time.
    async fn drain(&self, is_meant: impl Fn(&str) -> bool) -> Vec<(String, RunSummary)> {
        let mut draining = JoinSet::new();
        {
            let mut state = self.inner.lock();
            for (name, there) in &mut state.clusters {
                if there.is_draining || !is_meant(name) {
                    continue;
                }
                there.is_draining = true;
                let cluster = DrainingCluster {
                    fleet: Arc::clone(&self.inner),
                    cluster: there.cluster.clone(),
                };
                draining.spawn(cluster.drain());
            }
        }
        let summaries = draining.join_all().await;
        summaries.into_iter().flatten().collect()
    }

    /// A cluster by its name, unless it is being removed.
    pub fn cluster(&self, name: &str) -> Option<Cluster> {
        let state = self.inner.lock();
        let there = state.clusters.get(name);
        let there = there.filter(|there| !there.is_draining);
        there.map(|there| there.cluster.clone())
    }

    /// The names of the clusters, and whether each answers.
    pub fn clusters(&self) -> Vec<(String, bool)> {
        let state = self.inner.lock();
        let clusters = state.clusters.iter();
        clusters
            .filter(|(_, there)| !there.is_draining)
            .map(|(name, there)| (name.clone(), there.cluster.is_reachable()))
            .collect()
    }

    /// Calls a function for each running controller.
    pub(crate) fn for_each_running(&self, mut see: impl FnMut(&ControllerHandle)) {
        let state = self.inner.lock();
        for there in state.clusters.values() {
            there.running.iter().for_each(&mut see);
        }
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet")
            .field("clusters", &self.clusters())
            .finish_non_exhaustive()
    }
}
