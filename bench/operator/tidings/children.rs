//! What a Website owns, in projected form: what controllers need of the metadata, and what is applied. A `spec` stays the text that the
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
    uid: Option<String>,
    deletion_timestamp: Option<Time>,
    owner_references: Option<Vec<OwnerReference>>,
}

/// Reads only the metadata that controllers need of a child. Its name, version and labels are known of every cached object.
fn lean<'de, D: Deserializer<'de>>(source: D) -> Result<ObjectMeta, D::Error> {
    let lean = LeanMeta::deserialize(source)?;
    Ok(ObjectMeta {
        uid: lean.uid,
        deletion_timestamp: lean.deletion_timestamp,
        owner_references: lean.owner_references,
        ..ObjectMeta::default()
    })
}
