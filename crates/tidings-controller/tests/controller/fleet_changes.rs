//! Fleets that change while controllers start and end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use tidings_controller::{
    Action, Cached, Cluster, Context, Controller, ControllerHandle, Fleet, FleetError,
};
use tidings_kube::{Scope, SourceError};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

use crate::server::{Server, eventually};

const LONG: Duration = Duration::from_secs(20);

async fn look(_: Arc<Cached<ConfigMap>>, _: Context<()>) -> Result<Action, SourceError> {
    Ok(Action::AwaitChange)
}

fn started(cluster: &Cluster) -> ControllerHandle {
    Controller::<ConfigMap>::new(cluster)
        .scope(Scope::namespace("default"))
        .start(look, ())
}

/// Calls a function in a thread of its own: one that never returns fails the test instead of blocking it.
fn in_thread<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> oneshot::Receiver<T> {
    let (done, returned) = oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        let _inside = runtime.enter();
        let _ = done.send(call());
    });
    returned
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_starts_controllers_may_use_the_fleet() {
    let server = Server::start().await;
    let (hub, spoke) = (
        Cluster::named("hub", &server.client()),
        Cluster::named("spoke", &server.client()),
    );
    let fleet = Fleet::new();
    fleet.add(&hub).unwrap();
    let (inner, hubs) = (fleet.clone(), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&hubs);
    let start = move |cluster: &Cluster| {
        seen.fetch_add(usize::from(inner.cluster("hub").is_some()), SeqCst);
        started(cluster)
    };
    let there = fleet.clone();
    let added = in_thread(move || there.controller(start));
    assert_eq!(timeout(LONG, added).await.unwrap().unwrap(), Ok(()));
    let there = fleet.clone();
    let added = in_thread(move || there.add(&spoke));
    assert_eq!(timeout(LONG, added).await.unwrap().unwrap(), Ok(()));
    assert_eq!(hubs.load(SeqCst), 2, "one for each cluster");
    assert_eq!(fleet.stop().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_free_when_the_controllers_of_its_cluster_have_ended() {
    let server = Server::start().await;
    server.create(json!({"metadata": {"name": "a"}})).await;
    let cluster = Cluster::named("east", &server.client());
    let (fleet, running) = (Fleet::new(), Arc::new(AtomicUsize::new(0)));
    let go_on = Arc::new(Notify::new());
    let (count, may_end) = (Arc::clone(&running), Arc::clone(&go_on));
    let start = move |cluster: &Cluster| {
        let (count, may_end) = (Arc::clone(&count), Arc::clone(&may_end));
        let reconcile = move |_: Arc<Cached<ConfigMap>>, _: Context<()>| {
            let (count, may_end) = (Arc::clone(&count), Arc::clone(&may_end));
            async move {
                count.fetch_add(1, SeqCst);
                may_end.notified().await;
                count.fetch_sub(1, SeqCst);
                Ok::<_, SourceError>(Action::AwaitChange)
            }
        };
        Controller::<ConfigMap>::new(cluster)
            .scope(Scope::namespace("default"))
            .start(reconcile, ())
    };
    fleet.controller(start).unwrap();
    fleet.add(&cluster).unwrap();
    eventually("it reconciles", async || running.load(SeqCst) == 1).await;
    let removing = fleet.clone();
    let removal = tokio::spawn(async move { removing.remove("east").await });
    eventually("it is removed", async || fleet.cluster("east").is_none()).await;
    let again = Cluster::named("east", &server.client());
    let refused = fleet.add(&again).unwrap_err();
    assert_eq!(refused, FleetError::Draining("east".to_owned()));
    assert!(refused.to_string().contains("not ended"), "{refused}");
    assert_eq!(fleet.remove("east").await, [], "another call removes it");
    go_on.notify_one();
    assert_eq!(timeout(LONG, removal).await.unwrap().unwrap().len(), 1);
    fleet.add(&again).unwrap();
    eventually("it reconciles again", async || running.load(SeqCst) == 1).await;
    go_on.notify_one();
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_waits_for_controllers_that_are_being_started() {
    let server = Server::start().await;
    let cluster = Cluster::named("east", &server.client());
    let fleet = Fleet::new();
    let (entered, mut entries) = mpsc::unbounded_channel();
    let (leave, may_leave) = std::sync::mpsc::channel::<()>();
    let may_leave = std::sync::Mutex::new(may_leave);
    let start = move |cluster: &Cluster| {
        entered.send(()).unwrap();
        may_leave.lock().unwrap().recv_timeout(LONG).unwrap();
        started(cluster)
    };
    fleet.controller(start).unwrap();
    let there = fleet.clone();
    let added = in_thread(move || there.add(&cluster));
    timeout(LONG, entries.recv()).await.unwrap();
    let removing = fleet.clone();
    let removal = tokio::spawn(async move { removing.remove("east").await });
    eventually("it is removed", async || fleet.cluster("east").is_none()).await;
    assert!(!removal.is_finished());
    leave.send(()).unwrap();
    assert_eq!(timeout(LONG, added).await.unwrap().unwrap(), Ok(()));
    let ended = timeout(LONG, removal).await.unwrap().unwrap();
    assert_eq!(ended.len(), 1, "the controller that came late ended too");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_fleet_refuses_clusters_and_controllers() {
    let server = Server::start().await;
    let fleet = Fleet::new();
    fleet.controller(started).unwrap();
    fleet.stop().await;
    let refused = fleet.add(&Cluster::named("east", &server.client()));
    assert_eq!(refused, Err(FleetError::Stopped));
    assert_eq!(fleet.controller(started), Err(FleetError::Stopped));
    assert_eq!(fleet.clusters(), []);
}
