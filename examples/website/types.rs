//! The custom resource `Website`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A page that is served by some replicas.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Website",
    namespaced,
    status = "WebsiteStatus"
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebsiteSpec {
    /// The text of the page.
    pub page: String,
    /// How many servers show it.
    pub replicas: i32,
}

/// What has become of a Website.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebsiteStatus {
    /// Servers that are ready.
    pub ready_replicas: i32,
    /// `Ready` is true when all servers are.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}
