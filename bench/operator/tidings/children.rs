//! What a Website owns, in projected form: what controllers need of the metadata, and what is applied. That stays the text that the server
//! sent, which takes less memory than structs.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidings::controller::lean_metadata;

/// A ConfigMap with the page.
#[derive(Debug, Clone, kube::Resource, Serialize, Deserialize)]
#[resource(inherit = "ConfigMap")]
pub(crate) struct PageMap {
    #[serde(deserialize_with = "lean_metadata")]
    pub metadata: ObjectMeta,
    pub data: Box<RawValue>,
}

/// A Service in front of the page.
#[derive(Debug, Clone, kube::Resource, Serialize, Deserialize)]
#[resource(inherit = "Service")]
pub(crate) struct PageService {
    #[serde(deserialize_with = "lean_metadata")]
    pub metadata: ObjectMeta,
    pub spec: Box<RawValue>,
}

/// A Deployment that serves the page.
#[derive(Debug, Clone, kube::Resource, Serialize, Deserialize)]
#[resource(inherit = "Deployment")]
pub(crate) struct PageDeployment {
    #[serde(deserialize_with = "lean_metadata")]
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
