//! The gate: holds reconciles back while the server does not answer or is not ready. A thin shell around the breaker.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tidings_informer::RetrySignal;
use tidings_kube::RestClient;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::breaker::{Breaker, ProbeAnswer};

/// How long a probe may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// What is known of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerState {
    Answers,
    /// A request got no answer, and the first probe is on its way.
    Suspected,
    /// A probe got no answer, or the answer that the server is not ready.
    Dead,
}

/// Open while the server answers.
pub(crate) struct ServerGate {
    cluster: Arc<str>,
    /// For probes: not observed, and without retries.
    client: RestClient,
    breaker: Mutex<Breaker>,
    /// Changed under the lock of the breaker.
    state: watch::Sender<ServerState>,
    outages: AtomicU64,
    /// Told when the server is ready again: informers need not wait out their backoff.
    pub(crate) reopened: RetrySignal,
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
            state: watch::Sender::new(ServerState::Answers),
            outages: AtomicU64::new(0),
            reopened: RetrySignal::new(),
            probing: Mutex::default(),
            own: own.clone(),
        })
    }

    /// True while the server does not answer or is not ready.
    pub(crate) fn is_shut(&self) -> bool {
        *self.state.borrow() != ServerState::Answers
    }

    /// Waits until the server answers and is ready. Cancel-safe.
    pub(crate) async fn opened(&self) {
        let mut state = self.state.subscribe();
        // The sender lives as long as `self`.
        let _ = state.wait_for(|state| *state == ServerState::Answers).await;
    }

    /// Waits until a probe has found the server dead. Cancel-safe.
    pub(crate) async fn found_dead(&self) {
        let mut state = self.state.subscribe();
        let _ = state.wait_for(|state| *state == ServerState::Dead).await;
    }

    /// How often a probe found the server dead, once it is known whether it is. A reconcile that failed across an outage is not to
    /// blame; one that failed with a connection of its own is.
    pub(crate) async fn outages(&self) -> u64 {
        let mut state = self.state.subscribe();
        let _ = state
            .wait_for(|state| *state != ServerState::Suspected)
            .await;
        self.outages.load(SeqCst)
    }

    /// A request got no answer: shuts the gate until a probe is answered. Late answers to requests from before do not open it.
    ///
    /// A request may be dropped outside a runtime, when a program ends. Nobody could probe then, so the gate stays open.
    pub(crate) fn unanswered(&self) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let mut breaker = lock(&self.breaker);
        if !breaker.failed(Instant::now()) {
            return;
        }
        self.state.send_replace(ServerState::Suspected);
        drop(breaker);
        let probing = runtime.spawn(ServerGate::probe(self.own.clone()));
        *lock(&self.probing) = Some(probing);
    }

    /// Takes the answer of a probe. True if it opens the gate.
    fn probed(&self, answer: ProbeAnswer) -> bool {
        let mut breaker = lock(&self.breaker);
        if breaker.next_probe().is_none() {
            return true; // nothing is waited for
        }
        let away = breaker.probed(answer, Instant::now());
        let before = *self.state.borrow();
        let after = match away {
            Some(_) => ServerState::Answers,
            None => ServerState::Dead,
        };
        let is_news = before != after;
        if is_news && after == ServerState::Dead {
            self.outages.fetch_add(1, SeqCst);
        }
        self.state.send_replace(after);
        drop(breaker);
        let cluster = &*self.cluster;
        match away {
            Some(away) if before == ServerState::Dead => {
                self.reopened.retry_now();
                tracing::info!(cluster, ?away, "the server answers again, reconciles go on");
            }
            None if is_news => tracing::warn!(
                cluster,
                "the server does not answer or is not ready, reconciles wait until it is"
            ),
            _ => {}
        }
        away.is_some()
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
            if gate.probed(gate.ask().await) {
                return;
            }
        }
    }

    /// Asks the server whether it is ready. A kube-apiserver answers for seconds before it serves custom resources; whoever comes
    /// earlier is refused and backs off.
    async fn ask(&self) -> ProbeAnswer {
        let Ok(request) = Request::get("/readyz").body(Bytes::new()) else {
            return ProbeAnswer::Ready;
        };
        match self.client.request(request).await {
            Ok(_) => ProbeAnswer::Ready,
            Err(error) => match error.code() {
                // The last three are those of a proxy that has no server.
                None | Some(502..=504) => ProbeAnswer::None,
                Some(code) if code >= 500 => ProbeAnswer::NotReady,
                // Whoever may not ask, or asks a server without the path, learns that it answers.
                Some(_) => ProbeAnswer::Ready,
            },
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
            .field("state", &*self.state.borrow())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::Pending;
    use std::task::{Context, Poll};

    use http::Response;
    use kube::client::Body;

    use super::*;

    /// A server that never answers.
    #[derive(Clone)]
    struct Silent;

    impl tower_service::Service<Request<Body>> for Silent {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = Pending<Result<Response<Body>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            std::future::pending()
        }
    }

    #[test]
    fn a_request_that_is_dropped_outside_a_runtime_changes_nothing() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let gate = runtime.block_on(async {
            let client = RestClient::new(kube::Client::new(Silent, "default"));
            ServerGate::new("test".into(), client)
        });
        gate.unanswered();
        assert!(!gate.is_shut(), "nobody could open it");
        runtime.block_on(async {
            gate.unanswered();
            assert!(gate.is_shut());
        });
    }
}
