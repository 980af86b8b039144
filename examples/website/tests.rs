//! The operator on an API server inside the test.

mod reconcile;
mod types;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::CustomResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tidings::RestClient;
use tidings::api::ObjectKey;
use tidings::controller::{Cached, Cluster, has_condition, install_definitions};
use tidings_server::{Api as Server, ApiOptions};
use tidings_storage::{Embedded, EmbeddedOptions};
use types::{Website, WebsiteSpec};

#[tokio::test(flavor = "multi_thread")]
async fn a_website_is_published_kept_up_to_date_and_unpublished() -> anyhow::Result<()> {
    let (long, home) = (Duration::from_secs(20), ObjectKey::new("default", "home"));
    let store = Arc::new(Embedded::ephemeral(EmbeddedOptions::default()));
    let server = Server::start(store, ApiOptions::default()).await?;
    let kube = kube::Client::new(server, "default");
    let client = RestClient::new(kube.clone());
    install_definitions(&client, "test", [Website::crd()], long).await?;
    let cluster = Cluster::new(&client);
    let controller = reconcile::websites(&cluster).start(reconcile::reconcile, ());

    let (page, replicas) = ("hello".to_owned(), 2);
    let site = Website::new("home", WebsiteSpec { page, replicas });
    let sites: Api<Website> = Api::default_namespaced(kube.clone());
    sites.create(&PostParams::default(), &site).await?;
    let page = |map: Option<&Cached<ConfigMap>>| map?.data.as_ref()?.get("index.html").cloned();
    let has = |text: &'static str| move |map: Option<&_>| page(map).as_deref() == Some(text);
    cluster.wait_until(&home, long, has("hello")).await?;

    // The Deployment gets ready, as a controller of Deployments would say.
    let is_there = |deployment: Option<&Cached<Deployment>>| deployment.is_some();
    cluster.wait_until(&home, long, is_there).await?;
    let deployments: Api<Deployment> = Api::default_namespaced(kube.clone());
    let ready = Patch::Merge(json!({"status": {"replicas": 2, "readyReplicas": 2}}));
    let params = PatchParams::default();
    deployments.patch_status("home", &params, &ready).await?;
    let is_ready = |site: Option<&Cached<Website>>| {
        let status = site.and_then(|site| site.status.as_ref());
        status.is_some_and(|status| has_condition(&status.conditions, "Ready"))
    };
    cluster.wait_until(&home, long, is_ready).await?;
    let news = Patch::Merge(json!({"spec": {"page": "news"}}));
    sites.patch("home", &params, &news).await?;
    cluster.wait_until(&home, long, has("news")).await?;

    sites.delete("home", &DeleteParams::default()).await?;
    let is_gone = |map: Option<&Cached<ConfigMap>>| map.is_none();
    cluster.wait_until(&home, long, is_gone).await?;
    let summary = controller.stop().await;
    assert_eq!((summary.errors, summary.panics), (0, 0));
    let events: Api<Event> = Api::default_namespaced(kube);
    let mut events = events.list(&ListParams::default()).await?.items;
    events.sort_by_key(|event| event.event_time.clone());
    let told = events.iter().map(|event| event.reason.as_deref());
    assert!(
        told.eq([Some("Created"), Some("Unpublished")]),
        "{events:?}"
    );
    Ok(())
}
