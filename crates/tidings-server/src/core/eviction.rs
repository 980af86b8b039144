//! POST to `pods/{name}/eviction`: deletes a Pod, if its disruption budget allows it.

use std::sync::Arc;

use bytes::Bytes;
use tidings_admission::Operation;
use tidings_api::{Cause, FieldError, GroupResource, LabelSelector, Object, ObjectKey, Status};
use tidings_json::{Map, Value, json};
use tidings_registry::{Draft, WriteOptions};

use super::admission::check_posted;
use super::answer::Answer;
use super::call::Call;
use super::clock;
use super::delete::{DeleteOptions, Preconditions, delete};
use super::resource::{ObjectWrite, Resource};
use super::rewrite::{rewrite, set_condition};
use super::state::Core;
use super::target::Target;

/// How many Pods may be on their way out of a budget.
const DISRUPTED_MAX: usize = 2000;
/// How often a write is tried again that another write was faster than.
const TRIES: usize = 20;
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
/// How long a client waits for a budget that is not settled.
const RETRY_SECONDS: u32 = 10;

pub(super) async fn evict(
    core: &Core,
    call: &mut Call,
    options: WriteOptions,
    body: &Bytes,
) -> Result<Answer, Status> {
    let (kind, key) = (call.target.kind.clone(), call.target.key.clone());
    let mut eviction = Draft::read(&kind, body)?;
    let odd = options.validation.odd_fields(&kind, &eviction.odd)?;
    call.warnings.extend(odd);
    eviction.settle_namespace(&kind, key.namespace())?;
    if eviction.meta.name != key.name() {
        let why = "name in URL does not match name in Eviction object";
        return Err(Status::bad_request(why));
    }
    let admitting = call.admitting(Operation::Create, &key, options);
    check_posted(admitting.as_ref(), &eviction).await?;
    let deletion = delete_options(&eviction, options)?;
    let pods = call.target.resource()?.clone();
    for _ in 0..TRIES {
        pods.refresh().await?;
        let Some(pod) = pods.get(&key) else {
            return Err(Status::not_found(pods.kind.group_resource(), key.name()));
        };
        deletion.check(&pods.kind, &pod)?;
        let mut deletion = deletion.clone();
        let given = deletion.preconditions.resource_version.is_some();
        let at = pod.resource_version().into_owned();
        match allowed(core, &pod, deletion.dry_run).await? {
            Allowed::Yes => {}
            // The Pod must not become one that counts meanwhile.
            Allowed::AsItIs if !given => deletion.preconditions.resource_version = Some(at),
            Allowed::AsItIs => {}
            Allowed::Later => continue,
        }
        match remove(core, call, &pod, deletion).await {
            Ok(()) => return Ok(Answer::done()),
            Err(status) if status.code == 409 && !given => {}
            Err(status) => return Err(status),
        }
    }
    let why = format!("couldn't evict the Pod {:?} due to conflicts", key.name());
    Err(Status::timeout(&why))
}

fn delete_options(eviction: &Draft, options: WriteOptions) -> Result<DeleteOptions, Status> {
    let null = Value::Null;
    let given = eviction.members.get("deleteOptions").unwrap_or(&null);
    if given["ignoreStoreReadErrorWithClusterBreakingPotential"] == Value::Bool(true) {
        let error = FieldError::invalid_value(
            "deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential",
            true,
            "can not be set for pod eviction, try after removing the option",
        );
        let kind = eviction.kind.group_version_kind();
        return Err(Status::invalid(kind, &eviction.meta.name, &error.into()));
    }
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let preconditions = &given["preconditions"];
    let dry_run = given["dryRun"].as_array();
    Ok(DeleteOptions {
        grace_period_seconds: given["gracePeriodSeconds"].as_i64(),
        preconditions: Preconditions {
            uid: text(&preconditions["uid"]),
            resource_version: text(&preconditions["resourceVersion"]),
        },
        orphan_dependents: given["orphanDependents"].as_bool(),
        propagation_policy: None,
        dry_run: options.dry_run || dry_run.is_some_and(|list| !list.is_empty()),
        from_cache: false,
    })
}

/// Whether a Pod may go.
enum Allowed {
    Yes,
    /// As long as it does not change.
    AsItIs,
    /// A write was faster: it is asked again.
    Later,
}

async fn allowed(core: &Core, pod: &Object, dry_run: bool) -> Result<Allowed, Status> {
    let json: Value = serde_json::from_slice(pod.as_bytes()).map_err(Status::internal)?;
    let phase = json["status"]["phase"].as_str().unwrap_or_default();
    if pod.is_terminating() || matches!(phase, "Succeeded" | "Failed") {
        return Ok(Allowed::Yes);
    }
    if phase == "Pending" {
        return Ok(Allowed::AsItIs);
    }
    let budgets = core.served().find("policy", "v1", "poddisruptionbudgets");
    let Some(budgets) = budgets.and_then(|(_, budgets)| budgets) else {
        return Ok(Allowed::Yes);
    };
    budgets.refresh().await?;
    let mut matching = budgets.list_in(&pod.namespace());
    matching.retain(|budget| selects(budget, pod));
    let budget = match matching.as_slice() {
        [] => return Ok(Allowed::Yes),
        [budget] => budget,
        _ => {
            let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            let mut status = Status::internal("");
            (status.message, status.reason, status.details) = (why.to_owned(), None, None);
            return Err(status);
        }
    };
    let draft = Draft::of(&budgets.kind, budget)?;
    if !is_ready(&json) {
        let count = |name: &str| draft.at(&["status", name]).and_then(Value::as_i64);
        let (healthy, wanted) = (count("currentHealthy"), count("desiredHealthy"));
        let has_enough = healthy >= wanted && wanted > Some(0);
        let policy = draft.text(&["spec", "unhealthyPodEvictionPolicy"]);
        if policy == "AlwaysAllow" || has_enough {
            return Ok(Allowed::AsItIs);
        }
    }
    take(&budgets, budget, draft, &pod.name(), dry_run).await
}

fn selects(budget: &Object, pod: &Object) -> bool {
    let json: Value = serde_json::from_slice(budget.as_bytes()).unwrap_or_default();
    let selector = &json["spec"]["selector"];
    if selector.is_null() {
        return false;
    }
    LabelSelector::of_json(selector).is_ok_and(|selector| selector.matches(pod.labels()))
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn too_many(cause: String, retry_seconds: u32) -> Status {
    let status = Status::too_many_requests(REFUSED, retry_seconds);
    status.with_cause(Cause {
        reason: "DisruptionBudget".into(),
        message: cause,
        ..Cause::default()
    })
}

/// Takes one disruption from a budget.
async fn take(
    budgets: &Arc<Resource>,
    budget: &Object,
    mut draft: Draft,
    pod: &str,
    dry_run: bool,
) -> Result<Allowed, Status> {
    let name = draft.meta.name.clone();
    let number = |path: &[&str]| draft.at(path).and_then(Value::as_i64).unwrap_or(0);
    if number(&["status", "observedGeneration"]) < draft.meta.generation.unwrap_or(0) {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(too_many(why, RETRY_SECONDS));
    }
    let left = number(&["status", "disruptionsAllowed"]);
    let forbidden = |why: &str| {
        let resource = GroupResource {
            group: "policy",
            resource: "poddisruptionbudget",
        };
        Err(Status::forbidden(resource, &name, why))
    };
    if left < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    let disrupted = draft
        .at(&["status", "disruptedPods"])
        .and_then(Value::as_object);
    if disrupted.is_some_and(|disrupted| disrupted.len() > DISRUPTED_MAX) {
        return forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        );
    }
    if left == 0 {
        return Err(too_many(why_not(&draft), 0));
    }
    if dry_run {
        return Ok(Allowed::Yes);
    }
    let now = clock::now();
    let generation = draft.meta.generation;
    if let Some(status) = draft.members.get_mut("status") {
        status["disruptionsAllowed"] = (left - 1).into();
        if status["disruptedPods"].is_null() {
            status["disruptedPods"] = Value::Object(Map::new());
        }
        status["disruptedPods"][pod] = now.as_str().into();
    }
    if left == 1 {
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "observedGeneration": generation, "reason": "InsufficientPods", "message": "",
        });
        set_condition(&mut draft, condition, &now);
    }
    draft.complete();
    let written = draft.write()?;
    let update = ObjectWrite::Update(budget.revision(), &written);
    let key = ObjectKey::new(&draft.meta.namespace, &name);
    let written = budgets.commit(&budgets.kind, &key, update).await?;
    Ok(written.map_or(Allowed::Later, |_| Allowed::Yes))
}

fn why_not(budget: &Draft) -> String {
    let name = &budget.meta.name;
    let count = |member: &str| {
        let count = budget.at(&["status", member]).and_then(Value::as_i64);
        count.unwrap_or(0)
    };
    let (healthy, wanted) = (count("currentHealthy"), count("desiredHealthy"));
    let conditions = budget
        .at(&["status", "conditions"])
        .and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    let said = conditions.find(|condition| {
        condition["type"] == "DisruptionAllowed"
            && condition["status"] == "False"
            && condition["message"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
    });
    let part = |member: &str| {
        let text = said.and_then(|said| said[member].as_str());
        text.unwrap_or_default()
    };
    let (reason, message) = (part("reason"), part("message"));
    match said {
        Some(_) if reason == "SyncFailed" => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
        ),
        _ if healthy <= wanted => format!(
            "The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
        ),
        Some(_) => format!(
            "The disruption budget {name} does not allow evicting pods currently ({reason}): {message}"
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

/// Says in the Pod why it goes, and deletes it. Nobody is asked about either.
async fn remove(
    core: &Core,
    call: &Call,
    pod: &Object,
    mut options: DeleteOptions,
) -> Result<(), Status> {
    let (pods, key) = (call.target.resource()?, pod.key());
    if !options.dry_run {
        let said = |existing: &Object| {
            options.check(&pods.kind, existing)?;
            let mut draft = Draft::of(&pods.kind, existing)?;
            let condition = json!({
                "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
            });
            set_condition(&mut draft, condition, &clock::now());
            Ok(Some(draft))
        };
        let changed = rewrite(pods, &key, &said).await?;
        let version = &mut options.preconditions.resource_version;
        if let (Some(changed), true) = (changed, version.is_some()) {
            *version = Some(changed.resource_version().into_owned());
        }
    }
    let target = Target::new(
        pods.kind.clone(),
        Some(pods.clone()),
        Some(key.namespace().to_owned()),
        Some(key.name().to_owned()),
        None,
    );
    let deletion = Call::new(target, call.user.clone(), call.manager.clone());
    let mut deletion = core.counted(deletion);
    delete(&mut deletion, &options).await.map(drop)
}
