//! How controllers write: with the commands of the core, under the field manager `tidings`.

use std::sync::Arc;

use tidings_api::{Object, ObjectKey, Status};
use tidings_registry::{Draft, Subresource, WriteOptions};

use crate::core::{Call, Command, Core, DeleteOptions, Resource, Target, admin};

/// The server's field manager in managedFields.
const MANAGER: &str = "tidings";

fn call(resource: &Arc<Resource>, key: &ObjectKey, subresource: Option<Subresource>) -> Call {
    call_as(MANAGER, resource, key, subresource)
}

fn call_as(
    manager: &str,
    resource: &Arc<Resource>,
    key: &ObjectKey,
    subresource: Option<Subresource>,
) -> Call {
    let kind = resource.kind.clone();
    let namespace = Some(key.namespace().to_owned()).filter(|_| kind.namespaced);
    let name = Some(key.name().to_owned()).filter(|name| !name.is_empty());
    let target = Target::new(kind, Some(resource.clone()), namespace, name, subresource);
    Call::new(target, admin(), manager.to_owned())
}

/// Creates an object from its JSON.
pub(super) async fn create(
    core: &Core,
    resource: &Arc<Resource>,
    namespace: &str,
    object: &impl std::fmt::Display,
) -> Result<(), Status> {
    let mut call = call(resource, &ObjectKey::new(namespace, ""), None);
    let command = Command::Create {
        options: WriteOptions::default(),
        body: object.to_string().into(),
    };
    core.perform(&mut call, command).await.map(drop)
}

/// Replaces an object, if it has not changed since `object` was made of it.
pub(super) async fn replace(
    core: &Core,
    resource: &Arc<Resource>,
    key: &ObjectKey,
    object: &impl std::fmt::Display,
) -> Result<(), Status> {
    let mut call = call(resource, key, None);
    let command = Command::Update {
        options: WriteOptions::default(),
        body: object.to_string().into(),
    };
    core.perform(&mut call, command).await.map(drop)
}

/// Applies a configuration under the name of a field manager, taking over fields that others own.
pub(super) async fn apply(
    core: &Core,
    resource: &Arc<Resource>,
    key: &ObjectKey,
    manager: &str,
    configuration: &impl std::fmt::Display,
) -> Result<(), Status> {
    let mut call = call_as(manager, resource, key, None);
    let command = Command::Apply {
        options: WriteOptions::default(),
        force: true,
        body: configuration.to_string().into(),
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
    let call = core.counted(call(resource, key, subresource));
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
