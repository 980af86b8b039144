//! What a manager runs besides the controllers of a leader: tasks, checks, metrics, fleets, controllers on every replica.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use tidings_controller::{
    Action, Cached, Cluster, Context, Controller, ControllerHandle, Fleet, Manager,
};
use tidings_kube::{Scope, SourceError};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use crate::port::{free_address, get};
use crate::server::{Server, eventually};

const LONG: Duration = Duration::from_secs(20);

async fn look(
    _: Arc<Cached<ConfigMap>>,
    ctx: Context<Arc<AtomicU64>>,
) -> Result<Action, SourceError> {
    ctx.fetch_add(1, SeqCst);
    Ok(Action::AwaitChange)
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_and_metrics_of_the_program_are_on_the_port() {
    let address = free_address().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let (is_well, is_warm) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (well, warm) = (Arc::clone(&is_well), Arc::clone(&is_warm));
    let sold: Counter = Counter::default();
    let counted = sold.clone();
    let says = |holds: bool, why: &str| if holds { Ok(()) } else { Err(why.to_owned()) };
    let manager = Manager::new()
        .listen(address)
        .health_check("database", move || says(well.load(SeqCst), "no connection"))
        .ready_check("prices", move || says(warm.load(SeqCst), "not loaded yet"))
        .registry(|registry| registry.register("sold", "Things that were sold", counted));
    let running = tokio::spawn(manager.stop_on(async { drop(stopped.await) }).run());
    let fails = |text: &str| Some((503, format!("the check {text}\n")));
    eventually("the port answers", async || {
        get(address, "/healthz").await.is_some()
    })
    .await;
    let answers = async || {
        [
            get(address, "/healthz").await,
            get(address, "/readyz").await,
        ]
    };
    let ok = Some((200, "ok\n".to_owned()));
    let (health, readiness) = (
        fails("database fails: no connection"),
        fails("prices fails: not loaded yet"),
    );
    assert_eq!(answers().await, [health, readiness.clone()]);
    is_well.store(true, SeqCst);
    assert_eq!(answers().await, [ok.clone(), readiness]);
    is_warm.store(true, SeqCst);
    assert_eq!(answers().await, [ok.clone(), ok]);
    sold.inc_by(3);
    let (_, metrics) = get(address, "/metrics").await.unwrap();
    assert!(metrics.contains("sold_total 3\n"), "{metrics}");
    assert!(
        metrics.contains("controller_runtime_reconcile"),
        "{metrics}"
    );
    drop(stop);
    running.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_drained_with_the_controllers_and_one_that_ends_early_is_not_healthy() {
    let address = free_address().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let (may_end, drained) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let (end, seen) = (Arc::clone(&may_end), Arc::clone(&drained));
    let manager = Manager::new()
        .listen(address)
        .task("short", move |_| {
            let end = Arc::clone(&end);
            async move { end.notified().await }
        })
        .task("long", move |stop| {
            let seen = Arc::clone(&seen);
            async move {
                stop.wait().await;
                tokio::task::yield_now().await;
                seen.store(true, SeqCst);
            }
        });
    let running = tokio::spawn(manager.stop_on(async { drop(stopped.await) }).run());
    eventually("both run", async || {
        get(address, "/healthz").await == Some((200, "ok\n".to_owned()))
    })
    .await;
    may_end.notify_one();
    let ended = "the task short has ended\n".to_owned();
    eventually("the end of one is told", async || {
        get(address, "/healthz").await == Some((503, ended.clone()))
    })
    .await;
    assert!(!drained.load(SeqCst));
    drop(stop);
    running.await.unwrap().unwrap();
    assert!(drained.load(SeqCst), "the other one ended by itself");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_does_not_lead_runs_only_what_runs_on_every_replica() {
    let server = Server::start().await;
    server.create(json!({"metadata": {"name": "a"}})).await;
    let held = json!({"metadata": {"name": "operator"}, "spec": {"holderIdentity": "another",
        "leaseDurationSeconds": 3600, "renewTime": "2099-01-01T00:00:00.000000Z"}});
    let leases = tidings_kube::resource_of::<k8s_openapi::api::coordination::v1::Lease>();
    let user = server.user();
    user.create_object(&leases, "default", &held).await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let [led, everywhere, tasks] = [(); 3].map(|()| Arc::new(AtomicU64::new(0)));
    let start = |name: &'static str, count: &Arc<AtomicU64>| {
        let (cluster, count) = (server.cluster(), Arc::clone(count));
        move || -> ControllerHandle {
            Controller::<ConfigMap>::new(&cluster)
                .name(name)
                .scope(Scope::namespace("default"))
                .start(look, Arc::clone(&count))
        }
    };
    let started = Arc::clone(&tasks);
    let manager = Manager::new()
        .leader_election(&server.client(), "default", "operator")
        .controller(start("led", &led))
        .on_every_replica(start("everywhere", &everywhere))
        .task("led", move |stop| {
            started.fetch_add(1, SeqCst);
            stop.wait()
        })
        .stop_on(async { drop(stopped.await) });
    let running = tokio::spawn(manager.run());
    eventually("it reconciles", async || everywhere.load(SeqCst) == 1).await;
    assert_eq!((led.load(SeqCst), tasks.load(SeqCst)), (0, 0));
    drop(stop);
    timeout(LONG, running).await.unwrap().unwrap().unwrap();
}

/// A reconcile that ends when a fleet is being stopped.
async fn until_fleet_stops(
    _: Arc<Cached<ConfigMap>>,
    ctx: Context<(Fleet, Arc<AtomicU64>)>,
) -> Result<Action, SourceError> {
    let (fleet, steps) = &*ctx;
    steps.fetch_add(1, SeqCst);
    while fleet.cluster("east").is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    steps.fetch_add(1, SeqCst);
    Ok(Action::AwaitChange)
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_and_fleets_stop_at_the_same_time() {
    let server = Server::start().await;
    server.create(json!({"metadata": {"name": "a"}})).await;
    let fleet = Fleet::new();
    fleet
        .add(&Cluster::named("east", &server.client()))
        .unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let steps = Arc::new(AtomicU64::new(0));
    let (cluster, state) = (server.cluster(), (fleet.clone(), Arc::clone(&steps)));
    let start = move || {
        Controller::<ConfigMap>::new(&cluster)
            .scope(Scope::namespace("default"))
            .grace(LONG)
            .start(until_fleet_stops, state.clone())
    };
    let manager = Manager::new().fleet(&fleet).controller(start);
    let running = tokio::spawn(manager.stop_on(async { drop(stopped.await) }).run());
    eventually("it reconciles", async || steps.load(SeqCst) == 1).await;
    drop(stop);
    timeout(2 * LONG, running).await.unwrap().unwrap().unwrap();
    assert_eq!(
        steps.load(SeqCst),
        2,
        "the fleet stopped while the controller did"
    );
}
