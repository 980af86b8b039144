//! What the operator does with a `Website`: a ConfigMap with the page, a Deployment that serves it, a Service in front.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use serde_json::json;
use tidings::controller::{Action, Cached, Cluster, Context, Controller, Finalizing};
use tidings::controller::{NewCondition, NewEvent, set_condition};

use crate::types::Website;

/// The finalizer: the page is unpublished before its Website goes.
const FINALIZER: &str = "example.com/unpublish";

/// The controller of Websites.
pub(crate) fn websites(cluster: &Cluster) -> Controller<Website> {
    let controller = Controller::new(cluster).owns::<ConfigMap>();
    controller.owns::<Deployment>().owns::<Service>()
}

/// Makes the cluster match a Website.
pub(crate) async fn reconcile(
    site: Arc<Cached<Website>>,
    ctx: Context<()>,
) -> anyhow::Result<Action> {
    ctx.finalizer(&site, FINALIZER, async |finalizing| match finalizing {
        Finalizing::Apply => publish(&site, &ctx).await,
        // What it owns goes with the Website; here an operator would tell a registry of names, for example.
        Finalizing::Cleanup => {
            let unpublished = NewEvent::normal("Unpublished", "the page is not served any more");
            ctx.event(&site, unpublished.action("Unpublish"));
            Ok(Action::AwaitChange)
        }
    })
    .await
}

async fn publish(site: &Cached<Website>, ctx: &Context<()>) -> anyhow::Result<Action> {
    let (name, labels) = (site.name(), json!({"site": site.name()}));
    let container = json!({"name": "web", "image": "nginx", "ports": [{"containerPort": 80}],
        "volumeMounts": [{"name": "page", "mountPath": "/usr/share/nginx/html"}]});
    let volume = json!({"name": "page", "configMap": {"name": name}});
    let map = json!({"metadata": {"name": name}, "data": {"index.html": site.spec.page}});
    let deployment = json!({"metadata": {"name": name, "labels": labels}, "spec": {
        "replicas": site.spec.replicas, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {
            "containers": [container], "volumes": [volume]}}}});
    let spec = json!({"selector": labels, "ports": [{"port": 80}]});
    let service = json!({"metadata": {"name": name}, "spec": spec});
    let mut children = ctx.children(site);
    children.add_json::<ConfigMap>(map)?;
    children.add_json::<Deployment>(deployment)?;
    children.add_json::<Service>(service)?;
    children.apply().await?;

    let deployments = ctx.owned::<Deployment>(site).into_iter();
    let ready = deployments.filter_map(|deployment| deployment.status.as_ref()?.ready_replicas);
    let (ready, wanted) = (ready.sum(), site.spec.replicas);
    let mut status = site.status.clone().unwrap_or_default();
    status.ready_replicas = ready;
    let told = format!("{ready} of {wanted} replicas are ready");
    let condition = match ready >= wanted {
        true => NewCondition::is_true("Ready", "AllReplicas", told),
        false => NewCondition::is_false("Ready", "Starting", told),
    };
    set_condition(&mut status.conditions, condition.observed(site));
    ctx.apply_status(site, &status).await?;
    if site.status.is_none() {
        let created = NewEvent::normal("Created", "the page has a Deployment and a Service");
        ctx.event(site, created.action("Publish"));
    }
    Ok(Action::AwaitChange)
}
