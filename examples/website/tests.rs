//! The operator on an API server inside the test.

#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod reconcile;
mod types;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{CustomResourceExt, ResourceExt};
use tidings::RestClient;
use tidings::controller::{Cluster, has_condition, install_definitions};
use tidings_server::{Api as Server, ApiOptions};
use tidings_storage::{Embedded, EmbeddedOptions};
use types::{Website, WebsiteSpec};

/// Waits until a condition holds; fails after twenty seconds.
async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waited = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), waited).await;
    assert!(waited.is_ok(), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_website_is_published_kept_up_to_date_and_unpublished() -> anyhow::Result<()> {
    let store = Arc::new(Embedded::ephemeral(EmbeddedOptions::default()));
    let server = Server::start(store, ApiOptions::default()).await?;
    let kube = kube::Client::new(server, "default");
    let client = RestClient::new(kube.clone());
    install_definitions(&client, "test", [Website::crd()], Duration::from_secs(10)).await?;
    let controller = reconcile::websites(&Cluster::new(&client)).start(reconcile::reconcile, ());

    let sites: Api<Website> = Api::default_namespaced(kube.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(kube.clone());
    let services: Api<Service> = Api::default_namespaced(kube.clone());
    let deployments: Api<Deployment> = Api::default_namespaced(kube.clone());
    let events: Api<Event> = Api::default_namespaced(kube);
    let spec = WebsiteSpec {
        page: "hello".to_owned(),
        replicas: 2,
    };
    sites
        .create(&PostParams::default(), &Website::new("home", spec))
        .await?;
    eventually("its children are made", async || {
        services
            .get_opt("home")
            .await
            .is_ok_and(|service| service.is_some())
    })
    .await;
    let page = async |maps: &Api<ConfigMap>| {
        let map = maps.get("home").await.ok()?;
        map.data?.get("index.html").cloned()
    };
    assert_eq!(page(&maps).await.as_deref(), Some("hello"));

    // The Deployment gets ready, as a controller of Deployments would say.
    let ready = serde_json::json!({"status": {"replicas": 2, "readyReplicas": 2}});
    let params = PatchParams::default();
    deployments
        .patch_status("home", &params, &Patch::Merge(&ready))
        .await?;
    eventually("the status follows", async || {
        let site = sites.get("home").await.unwrap();
        site.status.is_some_and(|status| {
            status.ready_replicas == 2 && has_condition(&status.conditions, "Ready")
        })
    })
    .await;

    let change = serde_json::json!({"spec": {"page": "news"}});
    sites.patch("home", &params, &Patch::Merge(&change)).await?;
    eventually("the page follows", async || {
        page(&maps).await.as_deref() == Some("news")
    })
    .await;

    assert_eq!(
        sites.get("home").await?.finalizers(),
        [reconcile::FINALIZER]
    );
    sites.delete("home", &Default::default()).await?;
    eventually("it is gone, with what it owned", async || {
        sites.get_opt("home").await.unwrap().is_none()
            && maps.get_opt("home").await.unwrap().is_none()
    })
    .await;
    let summary = controller.stop().await;
    let mut events: Vec<_> = events.list(&Default::default()).await?.items;
    events.sort_by_key(|event| event.event_time.clone());
    let told: Vec<_> = events
        .iter()
        .map(|event| (event.reason.as_deref(), event.series.as_ref()))
        .collect();
    assert_eq!(
        told,
        [(Some("Created"), None), (Some("Unpublished"), None)],
        "each happened once"
    );
    assert_eq!((summary.errors, summary.panics), (0, 0));
    Ok(())
}
