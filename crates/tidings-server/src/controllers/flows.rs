//! Creates the flow schemas and priority levels that every server has, keeps the fixed ones as they are, and tells schemas whether their level exists.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tidings_api::{Object, ObjectKey, Status};
use tidings_json::{Value, json};
use tidings_registry::{Draft, Subresource, default_flow_schemas, default_priority_levels};

use super::client;
use crate::core::{Core, FlowControl, Resource, clock};

/// How many objects are created at once: they share the syncs of the store.
const CREATE_AT_ONCE: usize = 32;
/// How often the objects are looked at after a failure.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// Objects with this annotation get the spec of this server.
const UPDATED: &str = "apf.kubernetes.io/autoupdate-spec";
/// What stays as it is.
const FIXED: [&str; 2] = ["exempt", "catch-all"];

/// Creates what is missing, and begins to limit requests.
pub(super) async fn create_defaults(core: &Core) {
    let Some(control) = core.flow_control() else {
        return;
    };
    settle_all(core, control, true).await;
    control.follow();
}

/// Follows the objects until the server stops.
pub(super) async fn run(core: Weak<Core>) {
    let Some(control) = core.upgrade().and_then(|core| core.flow_control().cloned()) else {
        return std::future::pending().await;
    };
    let (mut schemas, mut levels) = (
        control.schemas().cache().changes(),
        control.levels().cache().changes(),
    );
    loop {
        let is_settled = {
            let Some(core) = core.upgrade() else { return };
            control.follow();
            let is_settled = settle_all(&core, &control, false).await;
            tell_all(&core, &control).await && is_settled
        };
        let changed = tokio::select! {
            changed = schemas.changed() => changed.is_ok(),
            changed = levels.changed() => changed.is_ok(),
            () = tokio::time::sleep(RETRY_EVERY), if !is_settled => true,
        };
        if !changed {
            return; // the caches are gone, and the server with them
        }
    }
}

/// Brings the objects that every server has to their spec: at the start all, later those that are fixed. False if it has to be tried again.
async fn settle_all(core: &Core, control: &FlowControl, all: bool) -> bool {
    let levels = default_priority_levels().into_iter();
    let levels = levels.map(|level| (control.levels().clone(), level));
    let schemas = default_flow_schemas().into_iter();
    let schemas = schemas.map(|schema| (control.schemas().clone(), schema));
    let meant = levels.chain(schemas).filter(|(_, object)| {
        let name = object["metadata"]["name"].as_str();
        all || name.is_some_and(|name| FIXED.contains(&name))
    });
    let settled = stream::iter(meant).map(|(resource, object)| async move {
        let settled = settle(core, &resource, &object).await;
        if let Err(status) = &settled {
            let name = object["metadata"]["name"].as_str();
            tracing::warn!(name, %status, "cannot create a flow schema or priority level");
        }
        settled.is_ok()
    });
    let settled = settled.buffer_unordered(CREATE_AT_ONCE);
    settled
        .fold(true, |all, one| async move { all && one })
        .await
}

async fn settle(core: &Core, resource: &Arc<Resource>, wanted: &Value) -> Result<(), Status> {
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
    let key = ObjectKey::new("", name);
    let Some(existing) = resource.current(&key).await? else {
        return match client::create(core, resource, "", wanted).await {
            Err(status) if status.code == 409 => Ok(()), // another server was faster
            created => created,
        };
    };
    let draft = Draft::of(&resource.kind, &existing)?;
    let is_updated = draft
        .meta
        .annotations
        .get(UPDATED)
        .is_some_and(|updated| updated == "true");
    let is_fixed = FIXED.contains(&name);
    if !is_fixed && !is_updated {
        return Ok(());
    }
    if draft.members.get("spec") == Some(&wanted["spec"]) {
        return Ok(());
    }
    let spec = wanted["spec"].clone();
    let same = |existing: &Object| existing.key() == key;
    client::edit(core, resource, &key, same, None, |draft| {
        draft.members.insert("spec".into(), spec.clone());
    })
    .await
}

/// Writes into the status of every schema whether its priority level exists. False if it has to be tried again.
async fn tell_all(core: &Core, control: &FlowControl) -> bool {
    let schemas: Vec<Object> = {
        let (snapshot, _) = control.schemas().cache().tail();
        snapshot
            .state
            .iter()
            .map(|(_, schema)| schema.clone())
            .collect()
    };
    let mut is_settled = true;
    for schema in schemas {
        if let Err(status) = tell(core, control, &schema).await {
            tracing::warn!(%status, "cannot write the status of a flow schema");
            is_settled = false;
        }
    }
    is_settled
}

async fn tell(core: &Core, control: &FlowControl, schema: &Object) -> Result<(), Status> {
    let resource = control.schemas();
    let draft = Draft::of(&resource.kind, schema)?;
    let level = draft
        .text(&["spec", "priorityLevelConfiguration", "name"])
        .to_owned();
    let is_there = control.levels().get(&ObjectKey::new("", &level)).is_some();
    let named = format!(
        "This FlowSchema references the PriorityLevelConfiguration object named {}",
        tidings_go::quote(&level)
    );
    let (status, reason, message) = match is_there {
        true => ("False", "Found", format!("{named} and it exists")),
        false => (
            "True",
            "NotFound",
            format!("{named} but there is no such object"),
        ),
    };
    let conditions = draft
        .at(&["status", "conditions"])
        .and_then(Value::as_array);
    let conditions = conditions.cloned().unwrap_or_default();
    let known = conditions
        .iter()
        .find(|condition| condition["type"] == "Dangling");
    if known.is_some_and(|known| known["status"] == status && known["message"] == *message) {
        return Ok(());
    }
    let mut others: Vec<Value> = conditions
        .into_iter()
        .filter(|condition| condition["type"] != "Dangling")
        .collect();
    others.push(json!({
        "type": "Dangling", "status": status, "lastTransitionTime": clock::now(), "reason": reason, "message": message,
    }));
    let same = |existing: &Object| existing.uid() == schema.uid();
    let part = Some(Subresource::Status);
    let key = schema.key();
    let told = client::edit(core, resource, &key, same, part, |draft| {
        draft
            .members
            .insert("status".into(), json!({ "conditions": others.clone() }));
    });
    match told.await {
        Err(status) if status.code == 404 => Ok(()),
        told => told,
    }
}
