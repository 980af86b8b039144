//! What the operator does with a `Website`. Its twin of the same name in `../kube-rs` does the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tidings::client::resource_of;
use tidings::controller::{
    Action, Cached, Cluster, Context, Controller, Finalizing, NewCondition, set_condition,
};

use crate::Reconciles;
use crate::children::{PageDeployment, PageDeploymentStatus, PageMap, PageService};
use crate::types::Website;

/// The finalizer: the page is unpublished before its Website goes.
const FINALIZER: &str = "example.com/unpublish";

/// The controller of Websites.
pub(crate) fn websites(cluster: &Cluster) -> Controller<Website> {
    Controller::new(cluster)
        .owns::<PageMap>()
        .owns::<PageDeployment>()
        .owns::<PageService>()
}

/// Makes the cluster match a Website.
pub(crate) async fn reconcile(
    site: Arc<Cached<Website>>,
    ctx: Context<Reconciles>,
) -> anyhow::Result<Action> {
    ctx.state().fetch_add(1, Relaxed);
    ctx.finalizer(&site, FINALIZER, async |finalizing| match finalizing {
        Finalizing::Apply => publish(&site, &ctx).await,
        // What it owns goes with the Website.
        Finalizing::Cleanup => Ok(Action::AwaitChange),
    })
    .await
}

async fn publish(site: &Cached<Website>, ctx: &Context<Reconciles>) -> anyhow::Result<Action> {
    let is_new = ctx.owned::<PageMap>(site).is_empty();
    let (name, labels) = (site.name(), json!({"site": site.name()}));
    let named = || ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    let map = PageMap {
        metadata: named(),
        data: BTreeMap::from([("index.html".to_owned(), site.spec.page.clone())]),
    };
    let container = json!({"name": "web", "image": "nginx", "ports": [{"containerPort": 80}],
        "volumeMounts": [{"name": "page", "mountPath": "/usr/share/nginx/html"}]});
    let deployment = PageDeployment {
        metadata: ObjectMeta {
            labels: Some(BTreeMap::from([("site".to_owned(), name.to_owned())])),
            ..named()
        },
        spec: to_raw_value(&json!({
            "replicas": site.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "containers": [container],
                "volumes": [{"name": "page", "configMap": {"name": name}}]}}}))?,
        status: PageDeploymentStatus::default(),
    };
    let service = PageService {
        metadata: named(),
        spec: to_raw_value(&json!({"selector": labels, "ports": [{"port": 80}]}))?,
    };
    ctx.apply(site, &map).await?;
    ctx.apply(site, &deployment).await?;
    ctx.apply(site, &service).await?;

    let deployments = ctx.owned::<PageDeployment>(site);
    let ready = deployments
        .iter()
        .map(|deployment| deployment.status.ready_replicas);
    let mut status = site.status.clone().unwrap_or_default();
    status.ready_replicas = ready.sum();
    let told = format!(
        "{} of {} replicas are ready",
        status.ready_replicas, site.spec.replicas
    );
    let condition = match status.ready_replicas >= site.spec.replicas {
        true => NewCondition::is_true("Ready", "AllReplicas", told),
        false => NewCondition::is_false("Ready", "Starting", told),
    };
    set_condition(&mut status.conditions, condition.observed(site));
    ctx.apply_status(site, &status).await?;
    if is_new {
        let created = created_event(site, ctx.controller());
        let events = resource_of::<Event>();
        ctx.client()
            .create_object(&events, site.namespace(), &created)
            .await?;
    }
    Ok(Action::AwaitChange)
}

/// The Event that a Website was published. Its name is new each time, so that a second Event for one Website is seen.
fn created_event(site: &Cached<Website>, controller: &str) -> Value {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = jiff::Timestamp::now();
    let nanos = since.map_or(0, |since| since.as_nanos());
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": format!("{}.{nanos:x}", site.name()), "namespace": site.namespace()},
        "eventTime": format!("{now:.6}"),
        "action": "Publish", "reason": "Created", "type": "Normal", "note": "The page is published",
        "reportingController": controller, "reportingInstance": controller,
        "regarding": {"apiVersion": "example.com/v1", "kind": "Website", "name": site.name(),
            "namespace": site.namespace(), "uid": site.meta().uid},
    })
}
