//! What the operator does with a `Website`. Its twin of the same name in `../../tidings` does the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::finalizer::{self, Event as Finalizing, finalizer};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;

use crate::types::{Website, WebsiteStatus};

/// The finalizer: the page is unpublished before its Website goes.
const FINALIZER: &str = "example.com/unpublish";
const MANAGER: &str = "website";

/// What reconciles share.
pub struct Operator {
    client: Client,
    recorder: Recorder,
    /// How many reconciles have started. `kill -USR1` prints the number.
    pub reconciles: AtomicU64,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the finalizer: {0}")]
    Finalizer(#[source] Box<finalizer::Error<kube::Error>>),
}

impl Operator {
    pub fn new(client: Client) -> Operator {
        Operator {
            recorder: Recorder::new(client.clone(), MANAGER.into()),
            client,
            reconciles: AtomicU64::new(0),
        }
    }
}

/// Runs the controller of Websites.
pub async fn run(operator: Arc<Operator>, concurrency: u16) {
    let client = &operator.client;
    let (sites, maps) = (
        Api::<Website>::all(client.clone()),
        Api::<ConfigMap>::all(client.clone()),
    );
    let (deployments, services) = (
        Api::<Deployment>::all(client.clone()),
        Api::<Service>::all(client.clone()),
    );
    Controller::new(sites, watcher::Config::default())
        .owns(maps, watcher::Config::default())
        .owns(deployments, watcher::Config::default())
        .owns(services, watcher::Config::default())
        .with_config(Config::default().concurrency(concurrency))
        .run(reconcile, error_policy, Arc::clone(&operator))
        .for_each(|result| async move {
            if let Err(error) = result {
                tracing::warn!(%error, "reconcile failed");
            }
        })
        .await;
}

fn error_policy(_: Arc<Website>, _: &Error, _: Arc<Operator>) -> Action {
    Action::requeue(Duration::from_secs(1))
}

async fn reconcile(site: Arc<Website>, operator: Arc<Operator>) -> Result<Action, Error> {
    operator.reconciles.fetch_add(1, Relaxed);
    let namespace = site.namespace().unwrap_or_default();
    let sites: Api<Website> = Api::namespaced(operator.client.clone(), &namespace);
    finalizer(&sites, FINALIZER, site, |finalizing| async {
        match finalizing {
            Finalizing::Apply(site) => publish(&site, &sites, &operator, &namespace).await,
            // What it owns goes with the Website.
            Finalizing::Cleanup(_) => Ok(Action::await_change()),
        }
    })
    .await
    .map_err(|error| Error::Finalizer(Box::new(error)))
}

async fn publish(
    site: &Website,
    sites: &Api<Website>,
    operator: &Operator,
    namespace: &str,
) -> kube::Result<Action> {
    let client = &operator.client;
    let (name, labels) = (site.name_any(), json!({"site": site.name_any()}));
    let owners = json!([site.controller_owner_ref(&())]);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": owners},
        "data": {"index.html": site.spec.page}});
    let container = json!({"name": "web", "image": "nginx", "ports": [{"containerPort": 80}],
        "volumeMounts": [{"name": "page", "mountPath": "/usr/share/nginx/html"}]});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "labels": labels, "ownerReferences": owners}, "spec": {
        "replicas": site.spec.replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {
            "containers": [container],
            "volumes": [{"name": "page", "configMap": {"name": name}}]}}}});
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "ownerReferences": owners},
        "spec": {"selector": labels, "ports": [{"port": 80}], "clusterIP": "None"}});
    let params = PatchParams::apply(MANAGER).force();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    maps.patch(&name, &params, &Patch::Apply(&map)).await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deployment = deployments
        .patch(&name, &params, &Patch::Apply(&deployment))
        .await?;
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    services
        .patch(&name, &params, &Patch::Apply(&service))
        .await?;

    let ready = deployment.status.and_then(|status| status.ready_replicas);
    let status = status_of(site, ready.unwrap_or(0));
    if site.status.as_ref() != Some(&status) {
        let status = json!({"apiVersion": "example.com/v1", "kind": "Website",
            "metadata": {"name": name}, "status": status});
        let params = PatchParams::apply("website-status").force();
        sites
            .patch_status(&name, &params, &Patch::Apply(&status))
            .await?;
    }
    if site.status.is_none() {
        let created = Event {
            type_: EventType::Normal,
            reason: "Created".into(),
            note: Some("The page is published".into()),
            action: "Publish".into(),
            secondary: None,
        };
        operator
            .recorder
            .publish(&created, &site.object_ref(&()))
            .await?;
    }
    Ok(Action::await_change())
}

/// The status, with the time of the last transition kept where nothing changed.
fn status_of(site: &Website, ready: i32) -> WebsiteStatus {
    let (is_ready, reason) = match ready >= site.spec.replicas {
        true => ("True", "AllReplicas"),
        false => ("False", "Starting"),
    };
    let known = site.status.iter().flat_map(|status| &status.conditions);
    let known = known.into_iter().find(|known| known.type_ == "Ready");
    let transition = match known {
        Some(known) if known.status == is_ready => known.last_transition_time.clone(),
        _ => {
            let now = Timestamp::now();
            Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
        }
    };
    WebsiteStatus {
        ready_replicas: ready,
        conditions: vec![Condition {
            type_: "Ready".into(),
            status: is_ready.into(),
            reason: reason.into(),
            message: format!("{ready} of {} replicas are ready", site.spec.replicas),
            observed_generation: site.meta().generation,
            last_transition_time: transition,
        }],
    }
}
