//! The manager: runs several controllers under one leader election, with health, metrics and figures on one port.

use std::fmt;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;

use prometheus_client::registry::Registry;
use tidings_informer::BoxFuture;
use tidings_informer::leader::{BadElection, ElectionOptions, LeaderElector, StopSignal};
use tidings_informer::metrics::InformerMetrics;
use tidings_kube::{KubeLeaseLock, RestClient};
use tokio::net::TcpListener;

use crate::fleet::Fleet;
use crate::handle::ControllerHandle;
use crate::http;
use crate::identity::random_identity;
use crate::managed::ManagerState;
use crate::metrics::ControllerMetrics;
use crate::shards::ShardGroup;
use crate::signals::{either, signalled};

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
///
/// Other parts of a program live and die with its controllers, and are seen on the same port:
///
/// ```no_run
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// use prometheus_client::metrics::counter::Counter;
/// use tidings_controller::Manager;
///
/// # async fn run() -> Result<(), tidings_controller::ManagerError> {
/// let (is_connected, uploads) = (Arc::new(AtomicBool::new(false)), Counter::<u64>::default());
/// let (connected, counted) = (Arc::clone(&is_connected), uploads.clone());
/// Manager::new()
///     .listen(([0, 0, 0, 0], 8080))
///     .ready_check("storage", move || match connected.load(Ordering::SeqCst) {
///         true => Ok(()),
///         false => Err("no connection yet".to_owned()),
///     })
///     .registry(|registry| registry.register("uploads", "Files that were uploaded", counted))
///     .task("uploader", move |stop| {
///         let (is_connected, uploads) = (Arc::clone(&is_connected), uploads.clone());
///         async move {
///             is_connected.store(true, Ordering::SeqCst);
///             uploads.inc();
///             stop.wait().await;
///         }
///     })
///     .run()
///     .await
/// # }
/// ```
pub struct Manager {
    election: Option<(KubeLeaseLock, ElectionOptions)>,
    address: Option<SocketAddr>,
    /// Unset: at a signal.
    stop: Option<BoxFuture<'static, ()>>,
    state: ManagerState,
}

impl Default for Manager {
    fn default() -> Manager {
        Manager::new()
    }
}

impl Manager {
    /// A manager without controllers. It stops at SIGINT and SIGTERM; a second signal ends the process at once, with code 1.
    pub fn new() -> Manager {
        Manager {
            election: None,
            address: None,
            stop: None,
            state: ManagerState::new(),
        }
    }

    /// Adds a controller: a function that starts it, called once, or for each term of a leader.
    #[must_use]
    pub fn controller(
        mut self,
        start: impl Fn() -> ControllerHandle + Send + Sync + 'static,
    ) -> Manager {
        self.state.led.add_controller(start);
        self
    }

    /// Adds a controller that runs on every replica, also on one that does not lead: one that keeps something in this process up to
    /// date, for example. It must not write what others write too.
    #[must_use]
    pub fn on_every_replica(
        mut self,
        start: impl Fn() -> ControllerHandle + Send + Sync + 'static,
    ) -> Manager {
        self.state.everywhere.add_controller(start);
        self
    }

    /// Adds other work of the program: a function that is called with the controllers, once, or for each term of a leader. Its future
    /// runs as a task until `stop` is raised, and has thirty seconds to end then; if the lead is lost it is dropped at its next await.
    /// If it ends or panics before, `/healthz` answers 503.
    #[must_use]
    pub fn task<F: Future<Output = ()> + Send + 'static>(
        mut self,
        name: impl Into<Arc<str>>,
        work: impl Fn(StopSignal) -> F + Send + Sync + 'static,
    ) -> Manager {
        self.state.led.add_task(name.into(), work);
        self
    }

    /// Adds a check to `/healthz`: an error is answered with 503 and its text, and a kubelet restarts the container. The check is called
    /// for each request, and must return at once.
    #[must_use]
    pub fn health_check(
        mut self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Manager {
        let check = (name.into(), Box::new(check) as _);
        self.state.health_checks.push(check);
        self
    }

    /// Adds a check to `/readyz`, as [`Manager::health_check`] does to `/healthz`.
    #[must_use]
    pub fn ready_check(
        mut self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Manager {
        let check = (name.into(), Box::new(check) as _);
        self.state.ready_checks.push(check);
        self
    }

    /// Adds metrics of the program to `/metrics`: registers them with prometheus-client.
    #[must_use]
    pub fn registry(mut self, register: impl FnOnce(&mut Registry)) -> Manager {
        register(&mut self.state.registry);
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

    /// Stops when a future is ready, instead of at a signal. Of several, the first that is ready counts.
    #[must_use]
    pub fn stop_on(mut self, stop: impl Future<Output = ()> + Send + 'static) -> Manager {
        self.stop = Some(match self.stop {
            Some(earlier) => Box::pin(either(earlier, stop)),
            None => Box::pin(stop),
        });
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

    /// Runs until it is stopped. Then controllers, tasks and fleets are drained, all at the same time, and groups are left.
    ///
    /// # Errors
    /// If the port cannot be used, the election cannot run, or there is a group as well.
    pub async fn run(self) -> Result<(), ManagerError> {
        if self.election.is_some() && self.state.has_groups() {
            return Err(ManagerError::ElectionAndShards);
        }
        let elector = match self.election {
            Some((lock, options)) => Some(LeaderElector::new(Arc::new(lock), options)?),
            None => None,
        };
        let state = Arc::new(self.state);
        let server = match self.address {
            Some(address) => {
                let listener = TcpListener::bind(address).await;
                let listener =
                    listener.map_err(|source| ManagerError::Listen { address, source })?;
                Some(http::serve(listener, Arc::clone(&state)))
            }
            None => None,
        };
        let serve = async {
            match server {
                Some(server) => server.await,
                None => pending().await,
            }
        };
        let (stopper, stop) = StopSignal::new();
        let asked = self.stop.unwrap_or_else(|| Box::pin(signalled()));
        let asked = async {
            asked.await;
            stopper.raise();
        };
        let lead = async {
            match elector {
                Some(elector) => {
                    let work = |stop: StopSignal| {
                        let state = Arc::clone(&state);
                        async move { state.led.run(stop.wait()).await }
                    };
                    elector.run_until_stopped(work, stop.wait()).await;
                }
                None => state.led.run(stop.wait()).await,
            }
        };
        let stop_fleets = async {
            stop.wait().await;
            state.stop_fleets().await;
        };
        let run = async {
            let everywhere = state.everywhere.run(stop.wait());
            tokio::join!(asked, lead, everywhere, stop_fleets);
            state.finish().await;
        };
        tokio::select! {
            biased; // the port must not tell of a process whose controllers have not started
            () = run => Ok(()),
            () = serve => Ok(()),
        }
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager")
            .field(
                "work",
                &(self.state.led.len() + self.state.everywhere.len()),
            )
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
