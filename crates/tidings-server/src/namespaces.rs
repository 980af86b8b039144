//! The life of namespaces: those that are always there, and the deleter that empties one and lets it go (W174, W175).

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::HeaderMap;
use tidings_api::{Object, ObjectKey, Status};
use tidings_json::{Value, json};
use tidings_storage::{Revision, Write};

use crate::api::Inner;
use crate::clock;
use crate::registry::draft::Draft;
use crate::registry::{self, Kind};
use crate::request::{Query, Target};
use crate::respond::list::Walk;
use crate::selection::Selection;
use crate::verbs::Ask;
use crate::verbs::create;
use crate::verbs::delete::{DeleteOptions, delete_one};

/// Present from the start.
const ALWAYS: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
/// What holds a namespace until it is empty.
const FINALIZER: &str = "kubernetes";
/// How often terminating namespaces are looked at: another server may have been told to delete one, and what a finalizer held
/// may be gone.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Makes what is always there: four namespaces, and the service that stands for this server.
pub(crate) async fn make_defaults(api: &Inner) {
    let kind = registry::namespaces();
    for name in ALWAYS {
        make(api, kind, None, json!({ "metadata": { "name": name } })).await;
    }
    if let Err(status) = api.refresh(kind).await {
        tracing::warn!(%status, "the namespaces are not in the cache yet");
    }
    if let Some(services) = registry::find("", "v1", "services") {
        let labels = json!({ "component": "apiserver", "provider": "kubernetes" });
        let ports =
            json!([{ "name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443 }]);
        let service = json!({
            "metadata": { "name": "kubernetes", "labels": labels },
            // There is no network here that an address could be of.
            "spec": { "ports": ports, "clusterIP": "None", "type": "ClusterIP", "sessionAffinity": "None" },
        });
        make(api, services, Some("default"), service).await;
    }
}

async fn make(api: &Inner, kind: &'static Kind, namespace: Option<&str>, object: Value) {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let key = ObjectKey::new(namespace.unwrap_or_default(), name);
    if api.cache(kind).get(&key).is_some() {
        return;
    }
    let target = Target {
        kind,
        namespace: namespace.map(ToOwned::to_owned),
        name: None,
        subresource: None,
        forced_watch: false,
    };
    let (query, mut headers) = (Query::default(), HeaderMap::new());
    let agent = http::HeaderValue::from_static("tidings");
    headers.insert(http::header::USER_AGENT, agent);
    let mut ask = Ask::new(&target, &query, &headers);
    ask.body = object.to_string().into();
    match create::create(api, &mut ask).await {
        Ok(_) => {}
        Err(status) if status.code == 409 => {} // another server was faster
        Err(status) => {
            tracing::warn!(kind = kind.kind, name, %status, "what should always be there cannot be made");
        }
    }
}

/// Empties terminating namespaces until the server is gone.
pub(crate) async fn run(api: Weak<Inner>, told: Arc<tokio::sync::Notify>) {
    loop {
        {
            let Some(api) = api.upgrade() else { return };
            let snapshot = api.cache(registry::namespaces()).snapshot();
            let terminating = snapshot.state.iter().map(|(_, namespace)| namespace);
            let terminating: Vec<Object> = terminating
                .filter(|namespace| namespace.is_terminating())
                .cloned()
                .collect();
            for namespace in terminating {
                if let Err(status) = empty(&api, &namespace).await {
                    tracing::warn!(namespace = %namespace.name(), %status, "a namespace cannot be emptied; it is tried again");
                }
            }
        }
        let _ = tokio::time::timeout(LOOK_EVERY, told.notified()).await;
    }
}

/// What is left in a namespace.
#[derive(Debug, Default)]
struct Left {
    /// How many of each resource.
    resources: BTreeMap<String, usize>,
    /// How many objects each finalizer holds.
    finalizers: BTreeMap<String, usize>,
}

async fn empty(api: &Inner, namespace: &Object) -> Result<(), Status> {
    let kind = registry::namespaces();
    let draft = Draft::of(kind, namespace)?;
    if !has_finalizer(&draft) {
        return Ok(()); // it is empty; what holds it is not ours to remove
    }
    let mut left = Left::default();
    for resource in api.served().resources() {
        let kind = resource.kind;
        if !kind.namespaced {
            continue;
        }
        match delete_all(api, kind, &namespace.name(), &mut left).await {
            // It was taken away meanwhile, and all objects with it.
            Err(_) if api.served().resource(kind).is_none() => {}
            other => other?,
        }
    }
    if left.resources.is_empty() {
        finalize(api, namespace, draft).await
    } else {
        report(api, namespace, draft, &left).await
    }
}

fn has_finalizer(draft: &Draft) -> bool {
    let finalizers = draft
        .members
        .get("spec")
        .and_then(|spec| spec.get("finalizers"));
    let finalizers = finalizers.and_then(Value::as_array);
    finalizers.is_some_and(|names| names.iter().any(|name| name == FINALIZER))
}

/// Deletes all objects of a kind in a namespace, and notes what stays.
async fn delete_all(
    api: &Inner,
    kind: &'static Kind,
    namespace: &str,
    left: &mut Left,
) -> Result<(), Status> {
    api.refresh(kind).await?;
    let selection = Selection::new(kind, Some(namespace), None, "", "")?;
    let objects = |selection: &Selection| {
        let mut walk = Walk::new(api.cache(kind).snapshot().state, selection.clone(), None);
        let mut objects = Vec::new();
        walk.visit(|object| {
            objects.push(object.clone());
            true
        });
        objects
    };
    let found = objects(&selection);
    if found.is_empty() {
        return Ok(());
    }
    for object in found.iter().filter(|object| !object.is_terminating()) {
        match delete_one(api, kind, &object.key(), &DeleteOptions::background()).await {
            Err(status) if status.code != 404 => return Err(status),
            _ => {}
        }
    }
    api.refresh(kind).await?;
    let rest = objects(&selection);
    if !rest.is_empty() {
        left.resources
            .insert(kind.group_resource().to_string(), rest.len());
    }
    for object in rest {
        for finalizer in Draft::of(kind, &object)?.meta.finalizers {
            *left.finalizers.entry(finalizer).or_default() += 1;
        }
    }
    Ok(())
}

/// The namespace is empty: nothing of ours holds it any longer.
async fn finalize(api: &Inner, namespace: &Object, mut draft: Draft) -> Result<(), Status> {
    let spec = draft.members.get_mut("spec");
    let finalizers = spec.and_then(|spec| spec.get_mut("finalizers"));
    if let Some(names) = finalizers.and_then(Value::as_array_mut) {
        names.retain(|name| name != FINALIZER);
    }
    let goes = draft.meta.may_go() && draft.namespace_is_empty();
    let at = Revision(namespace.revision().get());
    let key = api.store_key(registry::namespaces(), &namespace.key())?;
    let write = if goes {
        Write::delete(key, at)
    } else {
        Write::update(key, at, draft.to_bytes()?)
    };
    settle(api, write).await
}

/// Tells in the namespace's status why it is still there.
async fn report(
    api: &Inner,
    namespace: &Object,
    mut draft: Draft,
    left: &Left,
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
    let said = |conditions: &[Value]| -> Vec<(Value, Value)> {
        let parts = conditions.iter();
        parts
            .map(|condition| (condition["status"].clone(), condition["message"].clone()))
            .collect()
    };
    let status = draft.members.entry("status").or_insert_with(|| json!({}));
    let known = status["conditions"].as_array().cloned().unwrap_or_default();
    if said(&known) == said(&conditions) {
        return Ok(());
    }
    *status = json!({ "phase": "Terminating", "conditions": conditions });
    let at = Revision(namespace.revision().get());
    let key = api.store_key(registry::namespaces(), &namespace.key())?;
    settle(api, Write::update(key, at, draft.to_bytes()?)).await
}

/// A write that somebody else forestalled is made with the next look.
async fn settle(api: &Inner, write: Write) -> Result<(), Status> {
    match api.store.write(write).await {
        Ok(_) | Err(tidings_storage::Error::Conflict { .. }) => Ok(()),
        Err(error) => Err(api.store_failed(error)),
    }
}
