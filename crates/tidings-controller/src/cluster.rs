//! A cluster: one API server, as the controllers of a process share it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tidings_api::ObjectKey;
use tidings_informer::metrics::InformerMetrics;
use tidings_informer::{Cached, ReflectorOptions};
use tidings_kube::{
    KubeInformerFactory, KubeObject, ObservedWrite, RequestObserver, RestClient, Scope, resource_of,
};

use crate::applied::applied_hash;
use crate::gate::ServerGate;
use crate::running_names::{NameClaim, RunningNames};

/// The name of the only cluster of a program.
const DEFAULT_NAME: &str = "default";

/// One API server, shared by all controllers of a process: its client, one informer for each resource, and whether it answers.
///
/// Clones share the cluster. Every request of [`Cluster::client`] is observed: a server that does not answer pauses all controllers of
/// the cluster, and what is written is waited for before the next reconcile of the same object.
///
/// ```no_run
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use tidings_api::ObjectKey;
/// use tidings_controller::Cluster;
/// use tidings_informer::{InitialState, ReflectorOptions};
/// use tidings_kube::RestClient;
///
/// # async fn run(client: RestClient) -> Result<(), tidings_controller::NotYet> {
/// let mut options = ReflectorOptions::default();
/// options.initial_state = InitialState::Streamed;
/// let cluster = Cluster::named("europe", &client).reflector(options);
/// // Before controllers start: somebody else makes the settings.
/// let key = ObjectKey::new("default", "settings");
/// let longest = Duration::from_secs(60);
/// let settings = cluster.wait_until::<ConfigMap>(&key, longest, |map| map.is_some()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<ClusterInner>,
}

struct ClusterInner {
    name: Arc<str>,
    client: RestClient,
    informers: KubeInformerFactory,
    reflector: ReflectorOptions,
    gate: Arc<ServerGate>,
    writes: Arc<WriteObservers>,
    names: RunningNames,
    metrics: Option<InformerMetrics>,
}

impl Cluster {
    /// The cluster of a client. Its name is `default`.
    pub fn new(client: &RestClient) -> Cluster {
        Cluster::named(DEFAULT_NAME, client)
    }

    /// The cluster of a client, with a name for logs and metrics: one of several clusters.
    pub fn named(name: impl Into<Arc<str>>, client: &RestClient) -> Cluster {
        let name = name.into();
        let gate = ServerGate::new(Arc::clone(&name), client.clone());
        let writes = Arc::new(WriteObservers {
            gate: Arc::clone(&gate),
            observers: Mutex::default(),
        });
        let reflector = retried_by(&gate, ReflectorOptions::default());
        Cluster {
            inner: Arc::new(ClusterInner {
                name,
                client: client.clone().observed_by(writes.clone()),
                informers: KubeInformerFactory::new(client.clone())
                    .mark(applied_hash)
                    .reflector(reflector.clone()),
                reflector,
                gate,
                writes,
                names: RunningNames::default(),
                metrics: None,
            }),
        }
    }

    /// Sets how informers that are made later list and watch. Call it before controllers are made.
    ///
    /// [`ReflectorOptions::retry_now`] is replaced: informers of a cluster try again when its server answers a probe.
    #[must_use]
    pub fn reflector(self, options: ReflectorOptions) -> Cluster {
        let options = retried_by(&self.inner.gate, options);
        let informers = self.inner.informers.clone().reflector(options.clone());
        self.with(informers, options, self.inner.metrics.clone())
    }

    /// Exports the metrics of informers and queues that are made later to Prometheus. Call it before controllers are made. Clusters may
    /// share `metrics`: samples of a cluster with a name have a label `cluster`.
    #[must_use]
    pub fn with_metrics(self, metrics: InformerMetrics) -> Cluster {
        let metrics = match self.label() {
            Some(cluster) => metrics.of_cluster(cluster),
            None => metrics,
        };
        let informers = self.inner.informers.clone().with_metrics(metrics.clone());
        self.with(informers, self.inner.reflector.clone(), Some(metrics))
    }

    fn with(
        &self,
        informers: KubeInformerFactory,
        reflector: ReflectorOptions,
        metrics: Option<InformerMetrics>,
    ) -> Cluster {
        let inner = &self.inner;
        Cluster {
            inner: Arc::new(ClusterInner {
                name: Arc::clone(&inner.name),
                client: inner.client.clone(),
                informers,
                reflector,
                gate: Arc::clone(&inner.gate),
                writes: Arc::clone(&inner.writes),
                names: inner.names.clone(),
                metrics,
            }),
        }
    }

    /// How the informers list and watch.
    pub(crate) fn reflector_options(&self) -> &ReflectorOptions {
        &self.inner.reflector
    }

    pub(crate) fn metrics(&self) -> Option<&InformerMetrics> {
        self.inner.metrics.as_ref()
    }

    /// The name, as a label of metrics, where the program gave one.
    pub(crate) fn label(&self) -> Option<&str> {
        Some(self.name()).filter(|name| *name != DEFAULT_NAME)
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The client of controllers. Use it for every write, and its [`kube`](RestClient::kube) client for `kube::Api`: what goes through
    /// another client is not waited for.
    pub fn client(&self) -> &RestClient {
        &self.inner.client
    }

    /// The informers that the controllers of this cluster share.
    pub fn informers(&self) -> &KubeInformerFactory {
        &self.inner.informers
    }

    /// Waits until an object is as it should be, or gone: `condition` gets its state whenever it changes, and `None` while there is no such
    /// object. For tests, and for what a program needs before it starts; a reconcile should return and be called again instead.
    ///
    /// # Errors
    /// If that takes longer than `longest`, with what the cache was doing.
    pub async fn wait_until<K: KubeObject>(
        &self,
        key: &ObjectKey,
        longest: Duration,
        condition: impl Fn(Option<&Cached<K>>) -> bool,
    ) -> Result<Option<Arc<Cached<K>>>, NotYet> {
        let fields = format!("metadata.name={}", key.name());
        let scope = Scope::namespace(key.namespace()).fields(fields);
        let informer = self.informers().informer::<K>(&scope);
        informer.start();
        let holds = informer.wait_until(|store| {
            informer.has_synced() && condition(store.get_by_key(key.as_str()).as_deref())
        });
        match tokio::time::timeout(longest, holds).await {
            Ok(Ok(())) => Ok(informer.store().get_by_key(key.as_str())),
            _ => Err(NotYet {
                kind: resource_of::<K>().kind,
                key: key.clone(),
                longest,
                state: informer.state().to_string(),
            }),
        }
    }

    /// True while the server answers.
    pub fn is_reachable(&self) -> bool {
        !self.inner.gate.is_shut()
    }

    pub(crate) fn is_same(&self, other: &Cluster) -> bool {
        Arc::ptr_eq(&self.inner.gate, &other.inner.gate)
    }

    pub(crate) fn gate(&self) -> &Arc<ServerGate> {
        &self.inner.gate
    }

    /// Notes that a controller of a name runs, and logs an error if another one does.
    pub(crate) fn claim_name(&self, name: &Arc<str>) -> NameClaim {
        let claim = self.inner.names.claim(name);
        if claim.is_contested() {
            let (controller, cluster) = (&**name, self.name());
            tracing::error!(
                controller,
                cluster,
                "another controller of this name runs in the cluster: they share a field manager, and only one of them has metrics; call `.name(…)` on one"
            );
        }
        claim
    }

    /// Tells an observer of every write, as long as it lives.
    pub(crate) fn observe_writes(&self, observer: Weak<dyn WriteObserver>) {
        let mut observers = self.inner.writes.lock();
        observers.retain(|observer| observer.strong_count() > 0);
        observers.push(observer);
    }
}

/// Informers reconnect when a probe finds the server back: reconciles wait until the caches have own writes.
fn retried_by(gate: &ServerGate, mut options: ReflectorOptions) -> ReflectorOptions {
    options.retry_now = Some(gate.reopened.clone());
    options
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("name", &self.inner.name)
            .field("is_reachable", &self.is_reachable())
            .finish_non_exhaustive()
    }
}

/// An object is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {key} is not as it should be after {longest:?}; its cache: {state}")]
#[non_exhaustive]
pub struct NotYet {
    /// The kind of the object.
    pub kind: String,
    /// Its key.
    pub key: ObjectKey,
    /// How long was waited.
    pub longest: Duration,
    /// What the cache was doing.
    pub state: String,
}

/// The key of an object in one of several clusters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterKey {
    /// The name of the cluster.
    pub cluster: String,
    /// The key of the object.
    pub object: ObjectKey,
}

impl fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cluster, self.object)
    }
}

/// Hears of every write of a cluster's client.
pub(crate) trait WriteObserver: Send + Sync {
    fn wrote(&self, write: &ObservedWrite);
    /// Nobody knows whether a write was done.
    fn in_doubt(&self, write: &ObservedWrite);
}

/// Passes what the client does on to the gate and to the controllers.
struct WriteObservers {
    gate: Arc<ServerGate>,
    observers: Mutex<Vec<Weak<dyn WriteObserver>>>,
}

impl WriteObservers {
    fn observers(&self) -> Vec<Arc<dyn WriteObserver>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Weak<dyn WriteObserver>>> {
        self.observers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestObserver for WriteObservers {
    fn unanswered(&self) {
        self.gate.unanswered();
    }

    fn wrote(&self, write: &ObservedWrite) {
        for observer in self.observers() {
            observer.wrote(write);
        }
    }

    fn in_doubt(&self, write: &ObservedWrite) {
        for observer in self.observers() {
            observer.in_doubt(write);
        }
    }
}
