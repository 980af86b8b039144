//! Creates the roles and bindings that every Kubernetes server has, and gives roles with an aggregation the rules of the roles that it selects.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use serde_json::Value;
use tidings_access::{DefaultObject, default_objects};
use tidings_api::{LabelSelector, Labels, Object, ObjectKey, Status};

use super::client;
use crate::core::{Core, DeleteOptions, RBAC, Resource};

/// How many objects are created at once: they share the syncs of the store.
const CREATE_AT_ONCE: usize = 32;
/// How often the roles are looked at after a failure.
const RETRY_EVERY: Duration = Duration::from_secs(1);

fn resource(core: &Core, plural: &str) -> Option<Arc<Resource>> {
    core.served().find(RBAC, "v1", plural)?.1
}

/// Creates what is missing of the default roles and bindings, and adds what is missing in those that are there, unless they say that they may not
/// be changed.
pub(super) async fn create_defaults(core: &Core) {
    let (roles, bindings): (Vec<_>, Vec<_>) = default_objects()
        .into_iter()
        .partition(|object| object.kind.ends_with("Role"));
    // Roles first, so that no binding names one that is missing.
    for part in [roles, bindings] {
        let settled = stream::iter(part).map(|object| settle(core, object));
        settled
            .buffer_unordered(CREATE_AT_ONCE)
            .for_each(|()| async {})
            .await;
    }
    aggregate(core).await;
}

async fn settle(core: &Core, object: DefaultObject) {
    if let Err(status) = try_settle(core, &object).await {
        let (kind, name) = (&object.kind, &object.name);
        tracing::warn!(%kind, name, %status, "cannot create a default role or binding");
    }
}

async fn try_settle(core: &Core, object: &DefaultObject) -> Result<(), Status> {
    let plural = format!("{}s", object.kind.to_ascii_lowercase());
    let Some(resource) = resource(core, &plural) else {
        return Ok(());
    };
    let key = ObjectKey::new(&object.namespace, &object.name);
    let json = object.to_json();
    let create = async || match client::create(core, &resource, &object.namespace, &json).await {
        Err(status) if status.code == 409 => Ok(()), // another server was faster
        created => created,
    };
    let Some(existing) = resource.get(&key) else {
        return create().await;
    };
    let existing: Value = serde_json::from_slice(existing.as_bytes()).map_err(Status::internal)?;
    if !DefaultObject::may_update(&existing) {
        return Ok(());
    }
    if object.grants_another(&existing) {
        client::delete(core, &resource, &key, DeleteOptions::default()).await?;
        return create().await;
    }
    match object.restored(&existing) {
        Some(restored) => client::replace(core, &resource, &key, &restored).await,
        None => Ok(()),
    }
}

/// Follows the roles until the server stops.
pub(super) async fn run(core: Weak<Core>) {
    let Some(mut changes) = core
        .upgrade()
        .and_then(|core| resource(&core, "clusterroles"))
        .map(|roles| roles.cache().changes())
    else {
        return std::future::pending().await;
    };
    loop {
        let is_settled = {
            let Some(core) = core.upgrade() else { return };
            aggregate(&core).await
        };
        let changed = match is_settled {
            true => changes.changed().await,
            false => {
                tokio::time::sleep(RETRY_EVERY).await;
                Ok(())
            }
        };
        if changed.is_err() {
            return; // the cache is gone, and the server with it
        }
    }
}

/// Gives all roles with an aggregation their rules. False if it has to be tried again.
async fn aggregate(core: &Core) -> bool {
    let Some(roles) = resource(core, "clusterroles") else {
        return true;
    };
    if roles.refresh().await.is_err() {
        return false;
    }
    // A role may be made of another one that is made of others: a pass may change what the next one reads.
    for _ in 0..PASSES_MAX {
        let changes = aggregated(&roles);
        if changes.is_empty() {
            return true;
        }
        for (key, mut metadata, rules) in changes {
            metadata["name"] = key.name().into();
            let body = serde_json::json!({
                "apiVersion": format!("{RBAC}/v1"),
                "kind": "ClusterRole",
                "metadata": metadata,
                "rules": rules,
            });
            match client::apply(core, &roles, &key, AGGREGATOR, &body).await {
                Ok(()) => {}
                Err(status) if status.code == 409 => {} // it has changed or is gone: the next pass sees that
                Err(status) => {
                    tracing::warn!(role = key.name(), %status, "cannot aggregate a role");
                    return false;
                }
            }
        }
        if roles.refresh().await.is_err() {
            return false;
        }
    }
    false
}

/// The field manager of aggregated rules: that of kube-controller-manager, which does the same.
const AGGREGATOR: &str = "clusterrole-aggregation-controller";
/// How often rules are passed on before other work gets its turn: default roles need two passes.
const PASSES_MAX: usize = 8;

/// A role as aggregation sees it.
struct SeenRole {
    key: ObjectKey,
    /// The uid and the version: a role that is deleted meanwhile is not made again.
    identity: Value,
    labels: Labels,
    rules: Vec<Value>,
    selectors: Vec<Value>,
}

fn seen(key: &ObjectKey, object: &Object) -> Option<SeenRole> {
    let json: Value = serde_json::from_slice(object.as_bytes()).ok()?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    Some(SeenRole {
        key: key.clone(),
        identity: serde_json::json!({
            "uid": object.uid(),
            "resourceVersion": object.resource_version(),
        }),
        labels: object.labels().clone(),
        rules: list(&json["rules"]),
        selectors: list(&json["aggregationRule"]["clusterRoleSelectors"]),
    })
}

/// The roles whose rules are not those of the roles that they select, with the rules that they should have.
fn aggregated(roles: &Resource) -> Vec<(ObjectKey, Value, Vec<Value>)> {
    let snapshot = roles.cache().snapshot();
    // Sorted by name, as the rules are put together.
    let mut all: Vec<SeenRole> = snapshot
        .state
        .iter()
        .filter_map(|(key, object)| seen(key, object))
        .collect();
    let mut changes = Vec::new();
    for at in 0..all.len() {
        let role = &all[at];
        if role.selectors.is_empty() {
            continue;
        }
        let mut rules: Vec<Value> = Vec::new();
        let selectors = role
            .selectors
            .iter()
            .filter(|selector| selector.is_object());
        for selector in
            selectors.filter_map(|selector| LabelSelector::of_json(&selector.clone().into()).ok())
        {
            let selected = all
                .iter()
                .filter(|other| other.key != role.key && selector.matches(&other.labels));
            for rule in selected.flat_map(|other| &other.rules) {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
        if rules != role.rules {
            changes.push((role.key.clone(), role.identity.clone(), rules.clone()));
            // Those that come later see it: two roles that select each other come to rest.
            all[at].rules = rules;
        }
    }
    changes
}
