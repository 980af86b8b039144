//! A cluster: one API server, as the controllers of a process share it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tidings_informer::ReflectorOptions;
use tidings_informer::metrics::InformerMetrics;
use tidings_kube::{KubeInformerFactory, ObservedWrite, RequestObserver, RestClient};

use crate::gate::ServerGate;

/// One API server, shared by all controllers of a process: its client, one informer for each resource, and whether it answers.
///
/// Clones share the cluster. Every request of [`Cluster::client`] is observed: a server that does not answer pauses all controllers of
/// the cluster, and what is written is waited for before the next reconcile of the same object.
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<ClusterInner>,
}

struct ClusterInner {
    name: Arc<str>,
    client: RestClient,
    informers: KubeInformerFactory,
    gate: Arc<ServerGate>,
    writes: Arc<WriteObservers>,
    metrics: Option<InformerMetrics>,
}

impl Cluster {
    /// The cluster of a client.
    pub fn new(client: &RestClient) -> Cluster {
        Cluster::named("default", client)
    }

    /// The cluster of a client, with a name for logs.
    pub fn named(name: impl Into<Arc<str>>, client: &RestClient) -> Cluster {
        let name = name.into();
        let gate = ServerGate::new(Arc::clone(&name), client.clone());
        let writes = Arc::new(WriteObservers {
            gate: Arc::clone(&gate),
            observers: Mutex::default(),
        });
        Cluster {
            inner: Arc::new(ClusterInner {
                name,
                client: client.clone().observed_by(writes.clone()),
                informers: KubeInformerFactory::new(client.clone())
                    .reflector(retried_by(&gate, ReflectorOptions::default())),
                gate,
                writes,
                metrics: None,
            }),
        }
    }

    /// Sets how informers that are made later list and watch. Call it before controllers are made.
    #[must_use]
    pub fn reflector(self, options: ReflectorOptions) -> Cluster {
        let options = retried_by(&self.inner.gate, options);
        let informers = self.inner.informers.clone().reflector(options);
        self.with(informers, self.inner.metrics.clone())
    }

    /// Exports the metrics of informers and queues that are made later to Prometheus. Call it before controllers are made.
    #[must_use]
    pub fn with_metrics(self, metrics: InformerMetrics) -> Cluster {
        let informers = self.inner.informers.clone().with_metrics(metrics.clone());
        self.with(informers, Some(metrics))
    }

    fn with(&self, informers: KubeInformerFactory, metrics: Option<InformerMetrics>) -> Cluster {
        let inner = &self.inner;
        Cluster {
            inner: Arc::new(ClusterInner {
                name: Arc::clone(&inner.name),
                client: inner.client.clone(),
                informers,
                gate: Arc::clone(&inner.gate),
                writes: Arc::clone(&inner.writes),
                metrics,
            }),
        }
    }

    pub(crate) fn metrics(&self) -> Option<&InformerMetrics> {
        self.inner.metrics.as_ref()
    }

    /// The name, for logs.
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

    /// True while the server answers.
    pub fn is_reachable(&self) -> bool {
        !self.inner.gate.is_shut()
    }

    pub(crate) fn gate(&self) -> &Arc<ServerGate> {
        &self.inner.gate
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
    options.retry_now = Some(Arc::clone(&gate.reopened));
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

/// Hears of every write of a cluster's client.
pub(crate) trait WriteObserver: Send + Sync {
    fn wrote(&self, write: &ObservedWrite);
}

/// Passes what the client does on to the gate and to the controllers.
struct WriteObservers {
    gate: Arc<ServerGate>,
    observers: Mutex<Vec<Weak<dyn WriteObserver>>>,
}

impl WriteObservers {
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
        let observers: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        for observer in observers {
            observer.wrote(write);
        }
    }
}
