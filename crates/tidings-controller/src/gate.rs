//! The gate: holds reconciles back while the server does not answer. A thin shell around the breaker.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tidings_kube::RestClient;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::breaker::Breaker;

/// How long a probe may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Open while the server answers.
pub(crate) struct ServerGate {
    cluster: Arc<str>,
    /// For probes: not observed, and without retries.
    client: RestClient,
    breaker: Mutex<Breaker>,
    /// True while the server does not answer.
    shut: watch::Sender<bool>,
    outages: AtomicU64,
    probing: Mutex<Option<JoinHandle<()>>>,
    own: Weak<ServerGate>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ServerGate {
    pub(crate) fn new(cluster: Arc<str>, client: RestClient) -> Arc<ServerGate> {
        Arc::new_cyclic(|own| ServerGate {
            cluster,
            client: client.retries(0).timeout(PROBE_TIMEOUT),
            breaker: Mutex::default(),
            shut: watch::Sender::new(false),
            outages: AtomicU64::new(0),
            probing: Mutex::default(),
            own: own.clone(),
        })
    }

    /// True while the server does not answer.
    pub(crate) fn is_shut(&self) -> bool {
        *self.shut.borrow()
    }

    /// Waits until the server answers. Cancel-safe.
    pub(crate) async fn opened(&self) {
        let mut shut = self.shut.subscribe();
        // The sender lives as long as `self`.
        let _ = shut.wait_for(|shut| !*shut).await;
    }

    /// How often the server stopped answering. A reconcile that failed across such a moment is not to blame.
    pub(crate) fn outages(&self) -> u64 {
        self.outages.load(SeqCst)
    }

    /// A request got no answer: shuts the gate until a probe is answered. Late answers to requests from before do not open it.
    pub(crate) fn unanswered(&self) {
        if !lock(&self.breaker).failed(Instant::now()) {
            return;
        }
        self.outages.fetch_add(1, SeqCst);
        self.shut.send_replace(true);
        let cluster = &*self.cluster;
        tracing::warn!(
            cluster,
            "the server does not answer, reconciles wait until it does"
        );
        let probing = tokio::spawn(ServerGate::probe(self.own.clone()));
        *lock(&self.probing) = Some(probing);
    }

    fn answered(&self) {
        let open_for = lock(&self.breaker).succeeded(Instant::now());
        if let Some(away) = open_for {
            let cluster = &*self.cluster;
            self.shut.send_replace(false);
            tracing::info!(cluster, ?away, "the server answers again, reconciles go on");
        }
    }

    async fn probe(gate: Weak<ServerGate>) {
        loop {
            let due = match gate.upgrade() {
                Some(gate) => lock(&gate.breaker).next_probe(),
                None => return,
            };
            let Some(due) = due else { return };
            sleep_until(due).await;
            let Some(gate) = gate.upgrade() else { return };
            if gate.server_answers().await {
                gate.answered();
            } else {
                lock(&gate.breaker).probe_failed(Instant::now());
            }
        }
    }

    async fn server_answers(&self) -> bool {
        let Ok(request) = Request::get("/version").body(Bytes::new()) else {
            return true;
        };
        match self.client.request(request).await {
            Ok(_) => true,
            // Any answer will do, unless it comes from a proxy that has no server.
            Err(error) => error
                .code()
                .is_some_and(|code| !(502..=504).contains(&code)),
        }
    }
}

impl Drop for ServerGate {
    fn drop(&mut self) {
        if let Some(probing) = lock(&self.probing).take() {
            probing.abort();
        }
    }
}

impl std::fmt::Debug for ServerGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerGate")
            .field("cluster", &self.cluster)
            .field("is_shut", &self.is_shut())
            .finish_non_exhaustive()
    }
}
