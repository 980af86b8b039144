//! What the operator does with a `Website`. Its twin of the same name in `../kube-rs` does the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;
use serde_json::value::to_raw_value;
use tidings::controller::{
    Action, Cached, Cluster, Context, Controller, Finalizing, NewCondition, NewEvent, set_condition,
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
    if site.status.is_none() {
        let created = NewEvent::normal("Created", "The page is published").action("Publish");
        ctx.event(site, created);
    }
    Ok(Action::AwaitChange)
}
