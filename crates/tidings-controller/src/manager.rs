//! The manager: runs several controllers under one leader election, with health, metrics and figures on one port.

use std::fmt;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;

use tidings_informer::BoxFuture;
use tidings_informer::leader::{BadElection, ElectionOptions, LeaderElector, StopSignal};
use tidings_informer::metrics::InformerMetrics;
use tidings_kube::{KubeLeaseLock, RestClient};
use tokio::net::TcpListener;

use crate::fleet::Fleet;
use crate::handle::ControllerHandle;
use crate::http;
use crate::identity::random_identity;
use crate::managed::{ManagerState, StartController};
use crate::metrics::ControllerMetrics;
use crate::shards::ShardGroup;
use crate::signals::signalled;

/// Why a manager did not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// The port cannot be used.
    #[error(
        "cannot listen on {address} for health and metrics: choose another address, or stop what uses it"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The options of the election contradict each other.
    #[error("the leader election cannot run")]
    Election(#[from] BadElection),
    /// Only one replica would work, although all share the keys.
    #[error(
        "leader_election and shards exclude each other: remove leader_election, so that all replicas work, or the group, so that one does"
    )]
    ElectionAndShards,
}

/// Runs controllers until it is stopped: all at once, or while this process leads.
///
/// ```no_run
/// # async fn run(client: tidings_kube::RestClient) -> Result<(), tidings_controller::ManagerError> {
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use tidings_controller::{Action, Cluster, Controller, Manager};
///
/// let manager = Manager::new().listen(([127, 0, 0, 1], 8080)).leader_election(&client, "default", "my-operator");
/// let cluster = Cluster::new(&client).with_metrics(manager.informer_metrics());
/// let metrics = manager.controller_metrics();
/// manager
///     .controller(move || {
///         let reconcile = async |_, _| Ok::<_, std::fmt::Error>(Action::AwaitChange);
///         Controller::<ConfigMap>::new(&cluster).with_metrics(&metrics).start(reconcile, ())
///     })
///     .run()
///     .await
/// # }
/// ```
pub struct Manager {
    controllers: Vec<StartController>,
    election: Option<(KubeLeaseLock, ElectionOptions)>,
    address: Option<SocketAddr>,
    stop: BoxFuture<'static, ()>,
    state: Arc<ManagerState>,
}

impl Default for Manager {
    fn default() -> Manager {
        Manager::new()
    }
}

impl Manager {
    /// A manager without controllers. It stops at SIGINT and SIGTERM.
    pub fn new() -> Manager {
        Manager {
            controllers: Vec::new(),
            election: None,
            address: None,
            stop: Box::pin(signalled()),
            state: Arc::new(ManagerState::new()),
        }
    }

    /// Adds a controller: a function that starts it, called once, or for each term of a leader.
    #[must_use]
    pub fn controller(
        mut self,
        start: impl Fn() -> ControllerHandle + Send + Sync + 'static,
    ) -> Manager {
        self.controllers.push(Box::new(start));
        self
    }

    /// Stops the controllers of a fleet with the others, and shows them on the port. They run as soon as their clusters are in the fleet,
    /// also in a process that does not lead: share their keys by a [`ShardGroup`] instead.
    #[must_use]
    pub fn fleet(self, fleet: &Fleet) -> Manager {
        self.state.add_fleet(fleet);
        self
    }

    /// Leaves a group when the controllers have ended, and shows its members on the port. Not together with a leader election: the
    /// replicas that do not lead would get keys and not reconcile them.
    #[must_use]
    pub fn shards(self, group: &ShardGroup) -> Manager {
        self.state.add_group(group);
        self
    }

    /// Runs the controllers only while this process holds a Lease. Its identity is the name of the host (in a cluster, of the Pod)
    /// and a random number.
    #[must_use]
    pub fn leader_election(self, client: &RestClient, namespace: &str, name: &str) -> Manager {
        let lock = KubeLeaseLock::new(client, namespace, name, random_identity(None));
        self.leader_election_with(lock, ElectionOptions::default())
    }

    /// Runs the controllers only while this process holds a lock.
    #[must_use]
    pub fn leader_election_with(
        mut self,
        lock: KubeLeaseLock,
        options: ElectionOptions,
    ) -> Manager {
        self.election = Some((lock, options));
        self
    }

    /// Serves `/healthz`, `/readyz`, `/metrics`, `/debug/controllers` and `/debug/shards` over HTTP. Whoever can reach the address can read them.
    #[must_use]
    pub fn listen(mut self, address: impl Into<SocketAddr>) -> Manager {
        self.address = Some(address.into());
        self
    }

    /// Stops when a future is ready, instead of at a signal.
    #[must_use]
    pub fn stop_on(mut self, stop: impl Future<Output = ()> + Send + 'static) -> Manager {
        self.stop = Box::pin(stop);
        self
    }

    /// The metrics of informers that `/metrics` shows: give them to [`Cluster::with_metrics`](crate::Cluster::with_metrics).
    pub fn informer_metrics(&self) -> InformerMetrics {
        self.state.informers.clone()
    }

    /// The metrics of controllers that `/metrics` shows: give them to [`Controller::with_metrics`](crate::Controller::with_metrics).
    pub fn controller_metrics(&self) -> ControllerMetrics {
        self.state.controllers.clone()
    }

    /// Runs until it is stopped, then drains the controllers.
    ///
    /// # Errors
    /// If the port cannot be used, the election cannot run, or there is a group as well.
    pub async fn run(self) -> Result<(), ManagerError> {
        if self.election.is_some() && self.state.has_groups() {
            return Err(ManagerError::ElectionAndShards);
        }
        let server = match self.address {
            Some(address) => {
                let listener = TcpListener::bind(address).await;
                let listener =
                    listener.map_err(|source| ManagerError::Listen { address, source })?;
                Some(http::serve(listener, Arc::clone(&self.state)))
            }
            None => None,
        };
        let serve = async {
            match server {
                Some(server) => server.await,
                None => pending().await,
            }
        };
        let (state, controllers) = (self.state, Arc::new(self.controllers));
        let lead = async {
            match self.election {
                Some((lock, options)) => {
                    let elector = LeaderElector::new(Arc::new(lock), options)?;
                    let work = |stop: StopSignal| {
                        lead(Arc::clone(&state), Arc::clone(&controllers), stop.wait())
                    };
                    elector.run_until_stopped(work, self.stop).await;
                }
                None => lead(Arc::clone(&state), Arc::clone(&controllers), self.stop).await,
            }
            state.finish().await;
            Ok(())
        };
        tokio::select! {
            led = lead => led,
            () = serve => Ok(()),
        }
    }
}

/// Runs the controllers until `stop` is ready.
async fn lead(
    state: Arc<ManagerState>,
    controllers: Arc<Vec<StartController>>,
    stop: impl Future<Output = ()>,
) {
    // The work of a leader that is lost is aborted: its controllers must not outlive it.
    let term = LeaderTerm(state);
    term.0.start(&controllers);
    stop.await;
    term.0.stop().await;
}

/// Ends the controllers of a term when it is dropped.
struct LeaderTerm(Arc<ManagerState>);

impl Drop for LeaderTerm {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager")
            .field("controllers", &self.controllers.len())
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
