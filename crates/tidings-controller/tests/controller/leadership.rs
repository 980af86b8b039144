//! Managers with leader election: terms that are lost, a second term, the order of the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use tidings_controller::{Action, Cached, Context, Controller, Manager, ManagerError};
use tidings_informer::leader::ElectionOptions;
use tidings_kube::{KubeLeaseLock, ObjectPath, PatchKind, Scope, SourceError, resource_of};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::port::{free_address, get};
use crate::server::{Server, eventually};

const LONG: Duration = Duration::from_secs(20);

/// What became of the reconciles of a manager.
#[derive(Clone, Default)]
struct Seen {
    begun: Arc<AtomicU64>,
    /// Ended by themselves.
    ended: Arc<AtomicU64>,
    /// Dropped before they ended.
    dropped: Arc<AtomicU64>,
    /// Told that the term is over.
    told: Arc<AtomicU64>,
    may_end: Arc<Notify>,
}

/// Counts a reconcile that is dropped.
struct Running(Seen, bool);

impl Drop for Running {
    fn drop(&mut self) {
        let Running(seen, has_ended) = self;
        let count = if *has_ended {
            &seen.ended
        } else {
            &seen.dropped
        };
        count.fetch_add(1, SeqCst);
    }
}

async fn wait(_: Arc<Cached<ConfigMap>>, ctx: Context<Seen>) -> Result<Action, SourceError> {
    let mut running = Running(ctx.clone(), false);
    ctx.begun.fetch_add(1, SeqCst);
    ctx.may_end.notified().await;
    running.1 = true;
    Ok(Action::AwaitChange)
}

/// Starts a manager whose reconciles wait, for much longer than the test, until they may end.
fn start(
    server: &Server,
    set_up: impl FnOnce(Manager) -> Manager,
) -> (
    Seen,
    oneshot::Sender<()>,
    JoinHandle<Result<(), ManagerError>>,
) {
    let seen = Seen::default();
    let (stop, stopped) = oneshot::channel::<()>();
    let (cluster, state, told) = (server.cluster(), seen.clone(), Arc::clone(&seen.told));
    let lock = KubeLeaseLock::new(&server.client(), "default", "operator", "this");
    let [lease, renew] = [3, 2].map(Duration::from_secs);
    let options = ElectionOptions::default().times(lease, renew, Duration::from_millis(100));
    let manager = Manager::new()
        .leader_election_with(lock, options.drain(10 * LONG))
        .controller(move || {
            Controller::<ConfigMap>::new(&cluster)
                .scope(Scope::namespace("default"))
                .grace(10 * LONG)
                .start(wait, state.clone())
        })
        .task("told", move |stop| {
            let told = Arc::clone(&told);
            async move {
                stop.wait().await;
                told.fetch_add(1, SeqCst);
            }
        })
        .stop_on(async { drop(stopped.await) });
    (seen, stop, tokio::spawn(set_up(manager).run()))
}

async fn lease(server: &Server) -> Value {
    server
        .get(&resource_of::<Lease>(), "operator")
        .await
        .unwrap()["spec"]
        .clone()
}

/// Makes somebody the holder of the Lease, as another replica does that thinks it has expired.
async fn take_over(server: &Server, holder: &str) {
    let resource = resource_of::<Lease>();
    let path = ObjectPath::new(&resource, "default", "operator");
    let spec = json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": 3600}});
    let user = server.user();
    let patched = user.patch_object(&path, PatchKind::Merge, &spec).await;
    patched.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lease_drops_running_reconciles_and_the_next_term_works() {
    let server = Server::start().await;
    server.create(json!({"metadata": {"name": "a"}})).await;
    let (seen, stop, running) = start(&server, |manager| manager);
    let counts = |seen: &Seen| [&seen.begun, &seen.ended, &seen.dropped].map(|n| n.load(SeqCst));
    eventually("it leads", async || counts(&seen) == [1, 0, 0]).await;

    take_over(&server, "another").await;
    eventually("its reconcile is dropped", async || {
        counts(&seen) == [1, 0, 1]
    })
    .await;
    assert_eq!(lease(&server).await["holderIdentity"], "another");
    server.create(json!({"metadata": {"name": "b"}})).await;

    // The other one gives it back. The informers of the first term have ended with it.
    take_over(&server, "").await;
    eventually("it leads again", async || counts(&seen) == [3, 0, 1]).await;
    for _ in 0..2 {
        seen.may_end.notify_one();
    }
    eventually("reconciles end", async || counts(&seen) == [3, 2, 1]).await;
    server.create(json!({"metadata": {"name": "c"}})).await;
    eventually("changes are seen", async || counts(&seen) == [4, 2, 1]).await;
    seen.may_end.notify_one();
    drop(stop);
    timeout(LONG, running).await.unwrap().unwrap().unwrap();
    assert_eq!(counts(&seen), [4, 3, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_is_given_back_when_running_reconciles_have_ended() {
    let server = Server::start().await;
    server.create(json!({"metadata": {"name": "a"}})).await;
    let (seen, stop, running) = start(&server, |manager| manager);
    eventually("it leads", async || seen.begun.load(SeqCst) == 1).await;
    drop(stop);
    eventually("it is told to stop", async || seen.told.load(SeqCst) == 1).await;
    let then = lease(&server).await;
    eventually("the lease is renewed meanwhile", async || {
        let now = lease(&server).await;
        assert_eq!(now["holderIdentity"], "this");
        now["renewTime"] != then["renewTime"]
    })
    .await;
    assert!(!running.is_finished());
    seen.may_end.notify_one();
    timeout(LONG, running).await.unwrap().unwrap().unwrap();
    assert_eq!(seen.ended.load(SeqCst), 1);
    let holder = &lease(&server).await["holderIdentity"];
    assert!(holder.is_null() || holder == "", "{holder}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_while_caches_load_ends_at_once() {
    let server = Server::start().await;
    *server.switch().poisoned.lock().unwrap() = Some("/configmaps");
    let address = free_address().await;
    let (seen, stop, running) = start(&server, |manager| manager.listen(address));
    eventually("it waits for its caches", async || {
        let answer = get(address, "/readyz").await;
        answer.is_some_and(|(code, text)| code == 503 && text.contains("v1/configmaps"))
    })
    .await;
    drop(stop);
    timeout(LONG, running).await.unwrap().unwrap().unwrap();
    assert_eq!(seen.begun.load(SeqCst), 0);
    let holder = &lease(&server).await["holderIdentity"];
    assert!(holder.is_null() || holder == "", "{holder}");
}
