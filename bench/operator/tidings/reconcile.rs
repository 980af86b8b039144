//! What the operator does with a `Website`. Its twin of the same name in `../kube-rs` does the same.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::json;
use tidings::controller::{
    Action, Cached, Cluster, Context, Controller, Finalizing, NewCondition, NewEvent, set_condition,
};

use crate::Reconciles;
use crate::children::{PageDeployment, PageMap, PageService};
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
    let map = json!({"metadata": {"name": name}, "data": {"index.html": site.spec.page}});
    let container = json!({"name": "web", "image": "nginx", "ports": [{"containerPort": 80}],
        "volumeMounts": [{"name": "page", "mountPath": "/usr/share/nginx/html"}]});
    let deployment = json!({"metadata": {"name": name, "labels": labels}, "spec": {
        "replicas": site.spec.replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {
            "containers": [container],
            "volumes": [{"name": "page", "configMap": {"name": name}}]}}}});
    let service = json!({"metadata": {"name": name},
        "spec": {"selector": labels, "ports": [{"port": 80}], "clusterIP": "None"}});
    ctx.apply_json::<PageMap>(site, map).await?;
    ctx.apply_json::<PageDeployment>(site, deployment).await?;
    ctx.apply_json::<PageService>(site, service).await?;

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
