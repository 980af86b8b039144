//! The operator on an API server inside the test.

mod reconcile;
mod types;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap, events::v1::Event};
use kube::{Api, CustomResourceExt, api::Patch};
use serde_json::json;
use tidings::controller::{Cached, Cluster, has_condition, install_definitions};
use tidings::{RestClient, api::ObjectKey};
use tidings_storage::Embedded;
use types::{Website, WebsiteSpec};

#[tokio::test(flavor = "multi_thread")]
async fn a_website_is_published_kept_up_to_date_and_unpublished() -> anyhow::Result<()> {
    let (long, home) = (Duration::from_secs(20), ObjectKey::new("default", "home"));
    let store = Arc::new(Embedded::ephemeral(Default::default()));
    let server = tidings_server::Api::start(store, Default::default()).await?;
    let kube = kube::Client::new(server, "default");
    let client = RestClient::new(kube.clone());
    install_definitions(&client, "test", [Website::crd()], long).await?;
    let cluster = Cluster::new(&client);
    let controller = reconcile::websites(&cluster).start(reconcile::reconcile, ());

    let sites: Api<Website> = Api::default_namespaced(kube.clone());
    let (page, replicas) = ("hello".to_owned(), 2);
    let site = Website::new("home", WebsiteSpec { page, replicas });
    sites.create(&Default::default(), &site).await?;
    let page = |map: Option<&Cached<ConfigMap>>| map?.data.as_ref()?.get("index.html").cloned();
    let has = |text: Option<&'static str>| move |map: Option<&_>| page(map).as_deref() == text;
    cluster.wait_until(&home, long, has(Some("hello"))).await?;

    // The Deployment gets ready, as a controller of Deployments would say.
    let is_there = |deployment: Option<&Cached<Deployment>>| deployment.is_some();
    cluster.wait_until(&home, long, is_there).await?;
    let deployments: Api<Deployment> = Api::default_namespaced(kube.clone());
    let ready = Patch::Merge(json!({"status": {"replicas": 2, "readyReplicas": 2}}));
    let params = Default::default();
    deployments.patch_status("home", &params, &ready).await?;
    let ready = |site: Option<&Cached<Website>>| {
        Some(has_condition(&site?.status.as_ref()?.conditions, "Ready"))
    };
    let is_ready = move |site: Option<&_>| ready(site) == Some(true);
    cluster.wait_until(&home, long, is_ready).await?;
    let news = Patch::Merge(json!({"spec": {"page": "news"}}));
    sites.patch("home", &params, &news).await?;
    cluster.wait_until(&home, long, has(Some("news"))).await?;

    sites.delete("home", &Default::default()).await?;
    cluster.wait_until(&home, long, has(None)).await?;
    let summary = controller.stop().await;
    assert_eq!((summary.errors, summary.panics), (0, 0));
    let events: Api<Event> = Api::default_namespaced(kube);
    let events = events.list(&Default::default()).await?.into_iter();
    let mut told: Vec<_> = events.filter_map(|event| event.reason).collect();
    told.sort();
    assert_eq!(told, ["Created", "Unpublished"]);
    Ok(())
}
