//! A fleet: clusters that come and go, with the same controllers in each.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidings_informer::RunSummary;
use tokio::task::JoinSet;

use crate::cluster::Cluster;
use crate::handle::ControllerHandle;

/// Starts a controller in a cluster.
type StartInCluster = Arc<dyn Fn(&Cluster) -> ControllerHandle + Send + Sync>;

/// A cluster of that name is in the fleet already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the fleet has a cluster {0:?} already: remove it first, or choose another name")]
pub struct ClusterNameTaken(pub String);

/// Clusters that come and go, each with the same controllers.
///
/// Each cluster has its own informers, queues and workers: one that is away pauses its own reconciles and no others. What a reconcile
/// gets carries the cluster: [`Context::cluster`](crate::Context::cluster), [`Context::cluster_key`](crate::Context::cluster_key).
/// Clones share the fleet; dropping the last one ends all its controllers at once.
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
/// # async fn run(europe: RestClient, asia: RestClient) -> Result<(), tidings_controller::ClusterNameTaken> {
/// let fleet = Fleet::new();
/// fleet.controller(|cluster| Controller::<ConfigMap>::new(cluster).start(reconcile, ()));
/// fleet.add(&Cluster::named("europe", &europe))?;
/// fleet.add(&Cluster::named("asia", &asia))?; // its controllers start now
/// fleet.remove("europe").await; // drains its controllers
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Fleet {
    inner: Arc<Mutex<FleetState>>,
}

#[derive(Default)]
struct FleetState {
    controllers: Vec<StartInCluster>,
    clusters: BTreeMap<String, FleetCluster>,
    has_stopped: bool,
}

/// A cluster of a fleet, and what runs in it.
struct FleetCluster {
    cluster: Cluster,
    running: Vec<ControllerHandle>,
}

impl Fleet {
    /// A fleet without clusters and controllers.
    pub fn new() -> Fleet {
        Fleet::default()
    }

    fn lock(&self) -> MutexGuard<'_, FleetState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a controller: a function that starts it in a cluster. It is called for each cluster that is there and that comes.
    ///
    /// # Panics
    /// Outside a tokio runtime, if there are clusters.
    pub fn controller(&self, start: impl Fn(&Cluster) -> ControllerHandle + Send + Sync + 'static) {
        let start: StartInCluster = Arc::new(start);
        let mut state = self.lock();
        if state.has_stopped {
            return;
        }
        for there in state.clusters.values_mut() {
            there.running.push(start(&there.cluster));
        }
        state.controllers.push(start);
    }

    /// Adds a cluster by its name, and starts the controllers in it.
    ///
    /// # Errors
    /// If there is a cluster of that name.
    ///
    /// # Panics
    /// Outside a tokio runtime, if there are controllers.
    pub fn add(&self, cluster: &Cluster) -> Result<(), ClusterNameTaken> {
        let name = cluster.name().to_owned();
        let mut state = self.lock();
        if state.clusters.contains_key(&name) {
            return Err(ClusterNameTaken(name));
        }
        if state.has_stopped {
            return Ok(());
        }
        let controllers = state.controllers.iter();
        let there = FleetCluster {
            cluster: cluster.clone(),
            running: controllers.map(|start| start(cluster)).collect(),
        };
        state.clusters.insert(name, there);
        Ok(())
    }

    /// Removes a cluster: its controllers are drained, then its informers stop. Returns what each controller did, by its name; nothing if
    /// there is no such cluster.
    pub async fn remove(&self, name: &str) -> Vec<(String, RunSummary)> {
        let removed = self.lock().clusters.remove(name);
        match removed {
            Some(there) => drain(vec![there]).await,
            None => Vec::new(),
        }
    }

    /// Stops all controllers and drains them, in all clusters at the same time. Nothing starts any more.
    pub async fn stop(&self) -> Vec<(String, RunSummary)> {
        let clusters = {
            let mut state = self.lock();
            state.has_stopped = true;
            std::mem::take(&mut state.clusters)
        };
        drain(clusters.into_values().collect()).await
    }

    /// A cluster by its name.
    pub fn cluster(&self, name: &str) -> Option<Cluster> {
        let state = self.lock();
        state.clusters.get(name).map(|there| there.cluster.clone())
    }

    /// The names of the clusters, and whether each answers.
    pub fn clusters(&self) -> Vec<(String, bool)> {
        let state = self.lock();
        let clusters = state.clusters.iter();
        clusters
            .map(|(name, there)| (name.clone(), there.cluster.is_reachable()))
            .collect()
    }

    /// Calls a function for each running controller.
    pub(crate) fn for_each_running(&self, mut see: impl FnMut(&ControllerHandle)) {
        let state = self.lock();
        for there in state.clusters.values() {
            there.running.iter().for_each(&mut see);
        }
    }
}

/// Drains the controllers of clusters at the same time, then stops the informers.
async fn drain(clusters: Vec<FleetCluster>) -> Vec<(String, RunSummary)> {
    let mut stopping = JoinSet::new();
    for FleetCluster { cluster, running } in clusters {
        stopping.spawn(async move {
            let mut controllers = JoinSet::new();
            for controller in running {
                let name = controller.name().to_owned();
                controllers.spawn(async move { (name, controller.stop().await) });
            }
            let summaries = controllers.join_all().await;
            cluster.informers().shut_down().await;
            summaries
        });
    }
    stopping.join_all().await.into_iter().flatten().collect()
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet")
            .field("clusters", &self.clusters())
            .finish_non_exhaustive()
    }
}
