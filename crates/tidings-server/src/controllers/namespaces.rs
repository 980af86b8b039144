//! Creates the default namespaces, and deletes the content of terminating namespaces before it removes their finalizer (W174, W175).

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream::{self, TryStreamExt};
use tidings_api::{Object, ObjectKey, Status};
use tidings_json::{Value, json};
use tidings_registry::{Draft, NAMESPACE_FINALIZER, Selection, Subresource};

use super::client;
use crate::core::{Core, DeleteOptions, Resource, SnapshotWalk, clock};

/// The namespaces that every cluster has.
const ALWAYS: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
/// How often terminating namespaces are checked: another server may have marked one as being deleted, or a finalizer of an object in one
/// may be gone.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How many objects of a terminating namespace are deleted at once: they share the syncs of the store.
const DELETE_AT_ONCE: usize = 32;

/// Creates the default objects: four namespaces, and the service `kubernetes` that stands for this server.
pub(super) async fn create_defaults(core: &Core) {
    for name in ALWAYS {
        let namespace = json!({ "metadata": { "name": name } });
        create_if_absent(core, &core.namespaces, "", &namespace).await;
    }
    if let Err(status) = core.namespaces.refresh().await {
        tracing::warn!(%status, "the default namespaces are not in the cache yet");
    }
    let services = core.served().find("", "v1", "services");
    if let Some((_, Some(services))) = services {
        let labels = json!({ "component": "apiserver", "provider": "kubernetes" });
        let ports =
            json!([{ "name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443 }]);
        let service = json!({
            "metadata": { "name": "kubernetes", "labels": labels },
            // Headless: this server has no network in which the service could have an address.
            "spec": { "ports": ports, "clusterIP": "None", "type": "ClusterIP", "sessionAffinity": "None" },
        });
        create_if_absent(core, &services, "default", &service).await;
    }
}

/// Creates an object, unless the cache has it.
pub(super) async fn create_if_absent(
    core: &Core,
    resource: &Arc<Resource>,
    namespace: &str,
    object: &Value,
) {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if resource.get(&ObjectKey::new(namespace, name)).is_some() {
        return;
    }
    match client::create(core, resource, namespace, object).await {
        Ok(()) => {}
        Err(status) if status.code == 409 => {} // another server was faster
        Err(status) => {
            let kind = &resource.kind.kind;
            tracing::warn!(%kind, name, %status, "cannot create a default object");
        }
    }
}

/// Deletes the content of terminating namespaces until the server stops.
pub(super) async fn run(core: Weak<Core>) {
    loop {
        let namespaces = {
            let Some(core) = core.upgrade() else { return };
            let snapshot = core.namespaces.cache().snapshot();
            let terminating = snapshot.state.iter().map(|(_, namespace)| namespace);
            let terminating: Vec<Object> = terminating
                .filter(|namespace| namespace.is_terminating())
                .cloned()
                .collect();
            for namespace in terminating {
                if let Err(status) = delete_content(&core, &namespace).await {
                    tracing::warn!(namespace = %namespace.name(), %status, "cannot delete the content of a terminating namespace; will retry");
                }
            }
            Arc::clone(&core.namespaces)
        };
        let marked = tokio::time::timeout(LOOK_EVERY, namespaces.marked()).await;
        if marked.is_ok() {
            // The mark is in the store, and the cache may not have it yet. If it cannot be reached, the next look is in a second.
            let _ = namespaces.refresh().await;
        }
    }
}

/// Counts of the objects left in a namespace.
#[derive(Debug, Default)]
struct RemainingContent {
    /// How many objects are left, by resource.
    resources: BTreeMap<String, usize>,
    /// How many objects are held, by finalizer.
    finalizers: BTreeMap<String, usize>,
}

async fn delete_content(core: &Core, namespace: &Object) -> Result<(), Status> {
    let draft = Draft::of(&core.namespaces.kind, namespace)?;
    if !has_finalizer(&draft) {
        return Ok(()); // it is empty; finalizers of other controllers still hold it
    }
    let mut remaining = RemainingContent::default();
    for resource in core.served().resources() {
        if resource.kind.namespaced {
            match delete_all(core, resource, &namespace.name(), &mut remaining).await {
                // The definition of a custom resource was deleted meanwhile, and its objects with it.
                Err(status) if status.code == 404 => {}
                deleted => deleted?,
            }
        }
    }
    match remaining.resources.is_empty() {
        true => finalize(core, namespace).await,
        false => report_remaining(core, namespace, &draft, &remaining).await,
    }
}

fn has_finalizer(draft: &Draft) -> bool {
    let finalizers = draft.at(&["spec", "finalizers"]).and_then(Value::as_array);
    finalizers.is_some_and(|names| names.iter().any(|name| name == NAMESPACE_FINALIZER))
}

/// Deletes all objects of a resource in a namespace, and counts those that remain.
async fn delete_all(
    core: &Core,
    resource: &Arc<Resource>,
    namespace: &str,
    remaining: &mut RemainingContent,
) -> Result<(), Status> {
    resource.refresh().await?;
    let selection = Selection::new(&resource.kind, Some(namespace), None, "", "")?;
    let objects = || {
        let state = resource.cache().snapshot().state;
        let mut objects = Vec::new();
        SnapshotWalk::new(state, selection.key_prefix(), None).visit(|object| {
            objects.push(object.clone());
            true
        });
        objects
    };
    let found = objects();
    if found.is_empty() {
        return Ok(());
    }
    let meant = found.iter().filter(|object| !object.is_terminating());
    stream::iter(meant.map(Ok))
        .try_for_each_concurrent(DELETE_AT_ONCE, async |object| {
            let options = DeleteOptions::background();
            match client::delete(core, resource, &object.key(), options).await {
                Err(status) if status.code != 404 => Err(status),
                _ => Ok(()),
            }
        })
        .await?;
    resource.refresh().await?;
    let rest = objects();
    if !rest.is_empty() {
        let name = resource.kind.group_resource().to_string();
        remaining.resources.insert(name, rest.len());
    }
    for object in rest {
        for finalizer in Draft::of(&resource.kind, &object)?.meta.finalizers {
            *remaining.finalizers.entry(finalizer).or_default() += 1;
        }
    }
    Ok(())
}

/// Removes the finalizer of an empty namespace.
async fn finalize(core: &Core, namespace: &Object) -> Result<(), Status> {
    edit(core, namespace, Subresource::Finalize, |draft| {
        let spec = draft.members.get_mut("spec");
        let finalizers = spec.and_then(|spec| spec.get_mut("finalizers"));
        if let Some(names) = finalizers.and_then(Value::as_array_mut) {
            names.retain(|name| name != NAMESPACE_FINALIZER);
        }
    })
    .await
}

/// Changes a namespace, unless it was deleted and created again. Its managedFields do not change.
async fn edit(
    core: &Core,
    namespace: &Object,
    subresource: Subresource,
    change: impl Fn(&mut Draft) + Sync,
) -> Result<(), Status> {
    let same = |existing: &Object| existing.uid() == namespace.uid();
    let key = namespace.key();
    let untracked = |draft: &mut Draft| {
        draft.keeps_owners = true;
        change(draft);
    };
    match client::edit(
        core,
        &core.namespaces,
        &key,
        same,
        Some(subresource),
        untracked,
    )
    .await
    {
        Err(status) if status.code != 404 => Err(status),
        _ => Ok(()),
    }
}

/// Writes into the status of a namespace what remains in it.
async fn report_remaining(
    core: &Core,
    namespace: &Object,
    draft: &Draft,
    left: &RemainingContent,
) -> Result<(), Status> {
    let list = |counts: &BTreeMap<String, usize>, word: &str| {
        let parts = counts.iter();
        let parts = parts.map(|(name, count)| format!("{name}{word} {count} resource instances"));
        parts.collect::<Vec<_>>().join(", ")
    };
    let condition = |kind: &str, holds: bool, reason: &str, message: String| {
        json!({
            "type": kind,
            "status": if holds { "True" } else { "False" },
            "lastTransitionTime": clock::now(),
            "reason": reason,
            "message": message,
        })
    };
    let finalizers = if left.finalizers.is_empty() {
        (
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished".to_owned(),
        )
    } else {
        let held = list(&left.finalizers, " in");
        let message = format!("Some content in the namespace has finalizers remaining: {held}");
        ("SomeFinalizersRemain", message)
    };
    let remaining = format!(
        "Some resources are remaining: {}",
        list(&left.resources, " has")
    );
    let conditions = [
        condition(
            "NamespaceDeletionContentFailure",
            false,
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization".into(),
        ),
        condition(
            "NamespaceContentRemaining",
            true,
            "SomeResourcesRemain",
            remaining,
        ),
        condition(
            "NamespaceFinalizersRemaining",
            !left.finalizers.is_empty(),
            finalizers.0,
            finalizers.1,
        ),
    ];
    let statuses_and_messages = |conditions: &[Value]| -> Vec<(Value, Value)> {
        let parts = conditions.iter();
        parts
            .map(|condition| (condition["status"].clone(), condition["message"].clone()))
            .collect()
    };
    let known = draft
        .at(&["status", "conditions"])
        .and_then(Value::as_array);
    if known.is_some_and(|known| statuses_and_messages(known) == statuses_and_messages(&conditions))
    {
        return Ok(());
    }
    let status = json!({ "phase": "Terminating", "conditions": conditions });
    edit(core, namespace, Subresource::Status, |draft| {
        draft.members.insert("status".into(), status.clone());
    })
    .await
}
