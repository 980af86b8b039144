//! Managers: several controllers, leader election, and the port.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use tidings_controller::{Action, Cached, Context, Controller, Manager, ManagerError, ShardGroup};
use tidings_informer::leader::ElectionOptions;
use tidings_kube::{KubeLeaseLock, Scope, SourceError};
use tokio::sync::oneshot;

use crate::port::{free_address, get};
use crate::server::{Server, eventually};

type Count = Arc<AtomicU64>;

async fn count_maps(_: Arc<Cached<ConfigMap>>, ctx: Context<Count>) -> Result<Action, SourceError> {
    ctx.fetch_add(1, SeqCst);
    Ok(Action::AwaitChange)
}

async fn count_secrets(_: Arc<Cached<Secret>>, ctx: Context<Count>) -> Result<Action, SourceError> {
    ctx.fetch_add(1, SeqCst);
    Ok(Action::AwaitChange)
}

#[tokio::test(flavor = "multi_thread")]
async fn cr80_a_manager_runs_controllers_and_tells_of_them_on_its_port() {
    let server = Server::start().await;
    server.create(json!({"metadata": {"name": "a"}})).await;
    let address = free_address().await;
    let manager = Manager::new().listen(address);
    let cluster = server.cluster().with_metrics(manager.informer_metrics());
    let metrics = manager.controller_metrics();
    let (stop, stopped) = oneshot::channel::<()>();
    let (maps, secrets) = (Count::default(), Count::default());
    let (maps_seen, secrets_seen) = (Arc::clone(&maps), Arc::clone(&secrets));
    let (other, other_metrics) = (cluster.clone(), metrics.clone());
    let running = tokio::spawn(
        manager
            .controller(move || {
                Controller::<ConfigMap>::new(&cluster)
                    .scope(Scope::namespace("default"))
                    .with_metrics(&metrics)
                    .start(count_maps, Arc::clone(&maps_seen))
            })
            .controller(move || {
                Controller::<Secret>::new(&other)
                    .with_metrics(&other_metrics)
                    .start(count_secrets, Arc::clone(&secrets_seen))
            })
            .stop_on(async { drop(stopped.await) })
            .run(),
    );
    eventually("it is ready", async || {
        get(address, "/readyz").await == Some((200, "ok\n".to_owned()))
    })
    .await;
    eventually("the object is reconciled", async || maps.load(SeqCst) == 1).await;
    assert_eq!(
        get(address, "/healthz").await,
        Some((200, "ok\n".to_owned()))
    );
    let (_, metrics) = get(address, "/metrics").await.unwrap();
    for line in [
        r#"controller_runtime_reconcile_total{controller="configmap",result="success"} 1"#,
        r#"controller_runtime_reconcile_total{controller="secret",result="success"} 0"#,
        r#"controller_runtime_reconcile_time_seconds_count{controller="configmap"} 1"#,
        r#"controller_runtime_active_workers{controller="configmap"} 0"#,
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert!(metrics.contains("informer_lists_total"), "{metrics}");
    let (_, figures) = get(address, "/debug/controllers").await.unwrap();
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    assert_eq!(figures[0]["name"], "configmap");
    assert_eq!(figures[0]["succeeded"], 1);
    assert_eq!(
        figures[0]["caches"]
            .as_object()
            .unwrap()
            .values()
            .next()
            .unwrap(),
        "synced"
    );
    let (code, help) = get(address, "/").await.unwrap();
    assert_eq!((code, help.contains("/metrics")), (404, true));
    drop(stop);
    running.await.unwrap().unwrap();
    assert_eq!(get(address, "/healthz").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn cr69_only_the_leader_reconciles_and_another_takes_over() {
    let server = Server::start().await;
    let times = |seconds: [u64; 2], retry: u64| {
        let [lease, renew] = seconds.map(Duration::from_secs);
        ElectionOptions::default().times(lease, renew, Duration::from_millis(retry))
    };
    let start = |identity: &str| {
        let seen = Count::default();
        let (stop, stopped) = oneshot::channel::<()>();
        let lock = KubeLeaseLock::new(&server.client(), "default", "operator", identity);
        let (cluster, count) = (server.cluster(), Arc::clone(&seen));
        let manager = Manager::new()
            .leader_election_with(lock, times([3, 2], 200))
            .controller(move || {
                Controller::<ConfigMap>::new(&cluster)
                    .scope(Scope::namespace("default"))
                    .start(count_maps, Arc::clone(&count))
            })
            .stop_on(async { drop(stopped.await) });
        (seen, stop, tokio::spawn(manager.run()))
    };
    server.create(json!({"metadata": {"name": "a"}})).await;
    let (first_seen, first_stop, first) = start("first");
    eventually("the first leads", async || first_seen.load(SeqCst) == 1).await;
    let (second_seen, second_stop, second) = start("second");
    server.create(json!({"metadata": {"name": "b"}})).await;
    eventually("the first sees both", async || first_seen.load(SeqCst) == 2).await;
    assert_eq!(second_seen.load(SeqCst), 0, "the second does not lead");
    drop(first_stop);
    first.await.unwrap().unwrap();
    eventually("the second takes over", async || {
        second_seen.load(SeqCst) == 2
    })
    .await;
    drop(second_stop);
    second.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn cr79_a_port_that_is_in_use_is_named() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let error = Manager::new().listen(address).run().await.unwrap_err();
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[tokio::test]
async fn a_group_under_a_leader_election_is_refused_with_what_to_do() {
    let server = Server::start().await;
    let group = ShardGroup::join(&server.cluster(), "default", "maps").unwrap();
    let manager = Manager::new()
        .leader_election(&server.client(), "default", "leader")
        .shards(&group);
    let error = manager.run().await.unwrap_err();
    assert!(matches!(error, ManagerError::ElectionAndShards), "{error}");
    let text = error.to_string();
    assert!(text.contains("remove leader_election"), "{text}");
}
