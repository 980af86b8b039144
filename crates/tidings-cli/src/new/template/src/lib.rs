//! The operator of TemplateKind objects: its resource, its controller, and the manifests that are derived from them.

pub mod controller;
pub mod types;

use kube::CustomResourceExt;
use tidings::RestClient;
use tidings::controller::{Cluster, manifest};

use crate::types::TemplateKind;

/// The name of the operator, and of its Lease, its ServiceAccount and its roles.
pub const NAME: &str = "template-name";
/// The namespace in which the operator runs. `deploy/deployment.yaml` has it too.
pub const NAMESPACE: &str = "default";

/// What `deploy/rbac.yaml` has to be: the permissions that the controller needs, derived from what it watches and writes.
pub fn rbac() -> anyhow::Result<String> {
    // No request is sent, so that any address will do.
    let nowhere = kube::Config::new("http://localhost".parse()?);
    let cluster = Cluster::new(&RestClient::from_config(nowhere)?);
    let permissions = controller::controller(&cluster).permissions();
    let permissions = permissions.leader_election(NAMESPACE);
    Ok(permissions.manifest(NAME, NAMESPACE))
}

/// What `deploy/crd.yaml` has to be: the definition of the custom resource, derived from its type.
pub fn crd() -> anyhow::Result<String> {
    Ok(manifest([TemplateKind::crd()])?)
}
