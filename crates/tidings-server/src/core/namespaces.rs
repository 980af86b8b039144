//! Nothing is created in a namespace that is not there, or is going.

use tidings_api::{Cause, ObjectKey, Status};
use tidings_registry::Kind;

use super::resource::Resource;

/// Refuses an object in a namespace that does not exist or is being deleted (W140, W175).
pub(super) async fn check_namespace(
    namespaces: &Resource,
    kind: &Kind,
    namespace: &str,
    name: &str,
) -> Result<(), Status> {
    let key = ObjectKey::new("", namespace);
    let mut found = namespaces.get(&key);
    if found.is_none() {
        namespaces.refresh().await?;
        found = namespaces.get(&key);
    }
    match found {
        None => Err(Status::not_found(
            namespaces.kind.group_resource(),
            namespace,
        )),
        Some(object) if object.is_terminating() => {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            let cause = Cause {
                reason: "NamespaceTerminating".into(),
                message: format!("namespace {namespace} is being terminated"),
                field: "metadata.namespace".into(),
            };
            Err(Status::forbidden(kind.group_resource(), name, &why).with_cause(cause))
        }
        Some(_) => Ok(()),
    }
}
