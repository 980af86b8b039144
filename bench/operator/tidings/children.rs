//! What a Website owns, in projected form: metadata without `managedFields`, and what is applied. A `spec` stays the text that the
//! server sent, which takes less memory than structs.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// A ConfigMap with the page.
#[derive(Debug, Clone, kube::Resource, Serialize, Deserialize)]
#[resource(inherit = "ConfigMap")]
pub(crate) struct PageMap {
    #[serde(deserialize_with = "lean")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub data: BTreeMap<String, String>,
}

/// A Service in front of the page.
#[derive(Debug, Clone, kube::Resource, Serialize, Deserialize)]
#[resource(inherit = "Service")]
pub(crate) struct PageService {
    #[serde(deserialize_with = "lean")]
    pub metadata: ObjectMeta,
    pub spec: Box<RawValue>,
}

/// A Deployment that serves the page.
#[derive(Debug, Clone, kube::Resource, Serialize, Deserialize)]
#[resource(inherit = "Deployment")]
pub(crate) struct PageDeployment {
    #[serde(deserialize_with = "lean")]
    pub metadata: ObjectMeta,
    pub spec: Box<RawValue>,
    #[serde(default, skip_serializing)]
    pub status: PageDeploymentStatus,
}

/// What the Website's status tells of its Deployment.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PageDeploymentStatus {
    pub ready_replicas: i32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeanMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

/// Reads only the metadata that controllers need: `managedFields` are larger than everything else.
fn lean<'de, D: Deserializer<'de>>(source: D) -> Result<ObjectMeta, D::Error> {
    let lean = LeanMeta::deserialize(source)?;
    Ok(ObjectMeta {
        name: lean.name,
        namespace: lean.namespace,
        uid: lean.uid,
        resource_version: lean.resource_version,
        deletion_timestamp: lean.deletion_timestamp,
        labels: lean.labels,
        owner_references: lean.owner_references,
        ..ObjectMeta::default()
    })
}
