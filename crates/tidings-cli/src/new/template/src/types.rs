//! The custom resource `TemplateKind`. When it changes, renew `deploy/crd.yaml`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a user asks for.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "template.group",
    version = "templateversion",
    kind = "TemplateKind",
    plural = "templatekinds",
    namespaced,
    status = "TemplateKindStatus",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct TemplateKindSpec {
    /// The text that the ConfigMap will have.
    pub message: String,
}

/// What has become of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateKindStatus {
    /// `Ready` is true when the ConfigMap has the message.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}
