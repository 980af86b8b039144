//! One controller over many clusters: they come and go, and one that is away degrades alone.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::json;
use tidings_api::ObjectKey;
use tidings_controller::{
    Action, Cached, Cluster, Context, Controller, ControllerMetrics, Fleet, FleetError, Watches,
};
use tidings_informer::metrics::InformerMetrics;
use tidings_kube::{Scope, SourceError};

use crate::server::{Server, eventually, secrets};

type Seen = Arc<Mutex<BTreeMap<String, usize>>>;

async fn mirror(map: Arc<Cached<ConfigMap>>, ctx: Context<Seen>) -> Result<Action, SourceError> {
    let mut secret = Secret::default();
    secret.metadata.name = Some(map.name().to_owned());
    ctx.apply(&map, &secret).await?;
    *ctx.lock()
        .unwrap()
        .entry(ctx.cluster_key().to_string())
        .or_default() += 1;
    Ok(Action::AwaitChange)
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_come_and_go_and_one_that_is_away_degrades_alone() {
    let (east, west) = (Server::start().await, Server::start().await);
    for server in [&east, &west] {
        server.create(json!({"metadata": {"name": "a"}})).await;
    }
    let (fleet, seen, metrics) = (Fleet::new(), Seen::default(), ControllerMetrics::new());
    let informers = InformerMetrics::new();
    let cluster = |name: &'static str, server: &Server| {
        Cluster::named(name, &server.client()).with_metrics(informers.clone())
    };
    fleet.add(&cluster("east", &east)).unwrap();
    let (state, figures) = (Arc::clone(&seen), metrics.clone());
    let start = move |cluster: &Cluster| {
        Controller::<ConfigMap>::new(cluster)
            .scope(Scope::namespace("default"))
            .owns::<Secret>()
            .with_metrics(&figures)
            .start(mirror, Arc::clone(&state))
    };
    fleet.controller(start).unwrap();
    let has = |key: &str| seen.lock().unwrap().contains_key(key);
    eventually("the first cluster is reconciled", async || {
        has("east: default/a")
    })
    .await;
    fleet.add(&cluster("west", &west)).unwrap();
    eventually("the second one too", async || has("west: default/a")).await;
    let taken = fleet.add(&cluster("west", &west)).unwrap_err();
    assert_eq!(taken, FleetError::NameTaken("west".to_owned()));

    // One is away: its keys wait, those of the other do not.
    east.switch().cut();
    let unreachable = fleet.cluster("east").unwrap();
    unreachable
        .client()
        .create_object(&secrets(), "default", &json!({}))
        .await
        .unwrap_err();
    for server in [&east, &west] {
        server.create(json!({"metadata": {"name": "b"}})).await;
    }
    eventually("the other goes on", async || {
        west.get(&secrets(), "b").await.is_some()
    })
    .await;
    let answers = |name: &str| fleet.clusters().contains(&(name.to_owned(), true));
    assert!(!answers("east") && answers("west"));
    assert!(east.get(&secrets(), "b").await.is_none());
    east.switch().mend();
    eventually("it catches up", async || {
        east.get(&secrets(), "b").await.is_some()
    })
    .await;

    // Samples of equal names are told apart by the cluster.
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics.clone()));
    registry.register_collector(Box::new(informers.clone()));
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for cluster in ["east", "west"] {
        for sample in [
            r#"controller_runtime_active_workers{controller="configmap",cluster="#,
            r#"informer_objects{name="v1/configmaps in default",cluster="#,
            r#"workqueue_depth{name="configmap",cluster="#,
        ] {
            let sample = format!("{sample}\"{cluster}\"}} ");
            assert!(text.contains(&sample), "{sample} in {text}");
        }
    }

    // A cluster that is removed is left alone, also by its informers.
    let summaries = fleet.remove("west").await;
    assert_eq!(summaries.len(), 1);
    assert!(summaries[0].1.reconciles >= 2, "{summaries:?}");
    let writes = west.switch().writes.load(SeqCst);
    west.create(json!({"metadata": {"name": "c"}})).await;
    east.create(json!({"metadata": {"name": "c"}})).await;
    eventually("the other goes on", async || {
        east.get(&secrets(), "c").await.is_some()
    })
    .await;
    assert_eq!(west.switch().writes.load(SeqCst), writes);
    assert!(fleet.cluster("west").is_none());
    fleet.stop().await;
    assert_eq!(fleet.clusters(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn cr85_objects_of_another_cluster_are_mapped() {
    let (hub, spoke) = (Server::start().await, Server::start().await);
    hub.create(json!({"metadata": {"name": "a"}})).await;
    let seen = Seen::default();
    let remote = Cluster::named("spoke", &spoke.client());
    let there = remote.clone();
    let reconcile = move |map: Arc<Cached<ConfigMap>>, ctx: Context<Seen>| {
        let remote = ctx.store_in::<Secret>(&there).get("default", map.name());
        // Objects of the other cluster are not in the caches of this one.
        let local = ctx.store::<Secret>().get("default", map.name());
        let text = format!("{} {} {}", map.name(), remote.is_some(), local.is_some());
        *ctx.lock().unwrap().entry(text).or_default() += 1;
        std::future::ready(Ok::<_, SourceError>(Action::AwaitChange))
    };
    let controller = Controller::<ConfigMap>::new(&Cluster::named("hub", &hub.client()))
        .scope(Scope::namespace("default"))
        .owns::<Secret>()
        .watches_in::<Secret, _>(&remote, Watches::all(), |secret: &Cached<Secret>| {
            [ObjectKey::new("default", secret.name())]
        })
        .start(reconcile, Arc::clone(&seen));
    let has = |key: &str| seen.lock().unwrap().contains_key(key);
    eventually("it is reconciled", async || has("a false false")).await;
    let secret = json!({"metadata": {"name": "a"}});
    spoke
        .user()
        .create_object(&secrets(), "default", &secret)
        .await
        .unwrap();
    eventually("the other cluster's object is seen", async || {
        has("a true false")
    })
    .await;
    controller.stop().await;
}
