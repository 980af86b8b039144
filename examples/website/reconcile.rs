//! What the operator does with a `Website`: a ConfigMap with the page, a Deployment that serves it, a Service in front.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tidings::controller::{
    Action, Cached, Cluster, Context, Controller, Finalizing, NewCondition, NewEvent, set_condition,
};

use crate::types::Website;

/// The finalizer: the page is unpublished before its Website goes.
pub(crate) const FINALIZER: &str = "example.com/unpublish";

/// The controller of Websites.
pub(crate) fn websites(cluster: &Cluster) -> Controller<Website> {
    Controller::new(cluster)
        .owns::<ConfigMap>()
        .owns::<Deployment>()
        .owns::<Service>()
}

/// Makes the cluster match a Website.
pub(crate) async fn reconcile(
    site: Arc<Cached<Website>>,
    ctx: Context<()>,
) -> anyhow::Result<Action> {
    ctx.finalizer(&site, FINALIZER, async |finalizing| match finalizing {
        Finalizing::Apply => publish(&site, &ctx).await,
        Finalizing::Cleanup => unpublish(&site, &ctx),
    })
    .await
}

async fn publish(site: &Cached<Website>, ctx: &Context<()>) -> anyhow::Result<Action> {
    let (name, labels) = (site.name(), json!({"site": site.name()}));
    let map: ConfigMap =
        of(json!({"metadata": {"name": name}, "data": {"index.html": site.spec.page}}))?;
    let container = json!({"name": "web", "image": "nginx", "ports": [{"containerPort": 80}],
        "volumeMounts": [{"name": "page", "mountPath": "/usr/share/nginx/html"}]});
    let deployment: Deployment = of(
        json!({"metadata": {"name": name, "labels": labels}, "spec": {
        "replicas": site.spec.replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {
            "containers": [container],
            "volumes": [{"name": "page", "configMap": {"name": name}}]}}}}),
    )?;
    let service: Service = of(
        json!({"metadata": {"name": name}, "spec": {"selector": labels, "ports": [{"port": 80}]}}),
    )?;
    ctx.apply(site, &map).await?;
    ctx.apply(site, &deployment).await?;
    ctx.apply(site, &service).await?;

    let deployments = ctx.owned::<Deployment>(site);
    let ready = deployments
        .iter()
        .filter_map(|deployment| deployment.status.as_ref()?.ready_replicas);
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
        let created = NewEvent::normal("Created", "the page has a Deployment and a Service");
        ctx.event(site, created.action("Publish"));
    }
    Ok(Action::AwaitChange)
}

/// What it owns goes with the Website; here an operator would tell a registry of names, for example.
fn unpublish(site: &Cached<Website>, ctx: &Context<()>) -> anyhow::Result<Action> {
    let unpublished = NewEvent::normal("Unpublished", "the page is not served any more");
    ctx.event(site, unpublished.action("Unpublish"));
    Ok(Action::AwaitChange)
}

fn of<T: DeserializeOwned>(object: Value) -> serde_json::Result<T> {
    serde_json::from_value(object)
}
