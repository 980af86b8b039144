//! How controllers write: with the commands of the core, under the field manager `tidings`.

use std::sync::Arc;

use tidings_api::{Object, ObjectKey, Status};
use tidings_json::Value;
use tidings_registry::{Draft, Subresource, WriteOptions};

use crate::core::{Call, Command, Core, DeleteOptions, Resource, Target, User};

/// The server's field manager in managedFields.
const MANAGER: &str = "tidings";

fn call(resource: &Arc<Resource>, key: &ObjectKey, subresource: Option<Subresource>) -> Call {
    let kind = resource.kind.clone();
    let namespace = Some(key.namespace().to_owned()).filter(|_| kind.namespaced);
    let name = Some(key.name().to_owned()).filter(|name| !name.is_empty());
    let target = Target::new(kind, Some(resource.clone()), namespace, name, subresource);
    Call::new(target, User::Admin, MANAGER.to_owned())
}

/// Creates an object.
pub(super) async fn create(
    core: &Core,
    resource: &Arc<Resource>,
    namespace: &str,
    object: &Value,
) -> Result<(), Status> {
    let mut call = call(resource, &ObjectKey::new(namespace, ""), None);
    let command = Command::Create {
        options: WriteOptions::default(),
        body: object.to_string().into(),
    };
    core.perform(&mut call, command).await.map(drop)
}

/// Changes an object if `is_meant` accepts the current one; 404 otherwise, for example if it was deleted and created again.
pub(super) async fn edit(
    core: &Core,
    resource: &Arc<Resource>,
    key: &ObjectKey,
    is_meant: impl Fn(&Object) -> bool + Sync,
    subresource: Option<Subresource>,
    edit: impl Fn(&mut Draft) + Sync,
) -> Result<(), Status> {
    tracing::trace!(target: "tidings::walk", "changes an object for a controller");
    let call = call(resource, key, subresource);
    let edited = |existing: &Object| {
        if !is_meant(existing) {
            return Err(call.target.not_found());
        }
        let mut draft = Draft::of(&resource.kind, existing)?;
        edit(&mut draft);
        Ok(draft)
    };
    core.edit(&call, &edited).await.map(drop)
}

/// Deletes an object, or marks it as being deleted.
pub(super) async fn delete(
    core: &Core,
    resource: &Arc<Resource>,
    key: &ObjectKey,
    options: DeleteOptions,
) -> Result<(), Status> {
    let mut call = call(resource, key, None);
    let deleted = core.perform(&mut call, Command::Delete(options)).await;
    deleted.map(drop)
}
