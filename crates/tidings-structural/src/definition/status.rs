//! The status of a definition: which names it has, and its conditions.

use tidings_json::{Value, json};

use super::member::{get, list, text};
use super::spec::Spec;
use super::{approval, names, ratchet};

/// True if a condition of this kind is there and true.
pub fn has_condition(crd: &Value, kind: &str) -> bool {
    get(crd, "status")
        .and_then(|status| condition(status, kind))
        .is_some_and(|condition| text(condition, "status") == "True")
}

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    list(status, "conditions")
        .iter()
        .find(|condition| text(condition, "type") == kind)
}

/// Sets a condition in a status. Its time changes with its truth only. `now` is RFC 3339.
///
/// The ones of a definition that is being deleted are all of kind `Terminating` (W186):
///
/// | truth | reason | message |
/// |---|---|---|
/// | True | `InstanceDeletionPending` | `CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon` |
/// | True | `InstanceDeletionInProgress` | `CustomResource deletion is in progress` |
/// | True | `InstanceDeletionFailed` | `could not list instances: …`, `could not issue all deletes: …` |
/// | True | `InstanceDeletionCheck` | `could not confirm zero CustomResources remaining: …` |
/// | False | `InstanceDeletionCompleted` | `removed all instances` |
/// | False | `NeverEstablished` | `resource was never established` |
/// | False | `OverlappingBuiltInResource` | `instances overlap with built-in resources in storage` |
pub fn set_condition(
    status: &mut Value,
    kind: &str,
    truth: &str,
    reason: &str,
    message: &str,
    now: &str,
) {
    if !status.is_object() {
        *status = json!({});
    }
    if !status.get("conditions").is_some_and(Value::is_array) {
        status["conditions"] = json!([]);
    }
    let Some(Value::Array(conditions)) = status.get_mut("conditions") else {
        return;
    };
    let known = conditions
        .iter_mut()
        .find(|condition| text(condition, "type") == kind);
    let Some(known) = known else {
        conditions.push(json!({
            "type": kind,
            "status": truth,
            "lastTransitionTime": now,
            "reason": reason,
            "message": message,
        }));
        return;
    };
    if text(known, "status") != truth || text(known, "lastTransitionTime").is_empty() {
        known["lastTransitionTime"] = now.into();
    }
    known["status"] = truth.into();
    known["reason"] = reason.into();
    known["message"] = message.into();
}

/// The status that follows from the names of all definitions (W177). `others` are all other definitions, of any group; `now` is
/// RFC 3339. It equals the old one if nothing changes.
///
/// A definition that has no conflicts is established in the same step, and remains so whatever becomes of its names.
pub fn status_of(crd: &Value, others: &[&Value], now: &str) -> Value {
    let spec = Spec::of(crd);
    let mut status = get(crd, "status").cloned().unwrap_or_else(|| {
        let names = names::tidy(&Value::Null);
        json!({"conditions": null, "acceptedNames": names, "storedVersions": null})
    });
    name(&mut status, &spec, others, now);
    establish(&mut status, now);
    approve(&mut status, crd, &spec, now);
    judge_schemas(&mut status, &spec, now);
    status
}

fn name(status: &mut Value, spec: &Spec<'_>, others: &[&Value], now: &str) {
    let accepted = get(status, "acceptedNames").cloned().unwrap_or_default();
    if names::same(spec.names, &accepted) {
        return;
    }
    let of_group = others
        .iter()
        .filter(|other| get(other, "spec").is_some_and(|other| text(other, "group") == spec.group));
    let mut all: Vec<&Value> = of_group
        .filter_map(|other| get(other, "status"))
        .filter_map(|status| get(status, "acceptedNames"))
        .collect();
    all.push(&accepted);
    let outcome = names::accept(spec.names, &accepted, &all);
    let (truth, reason, message) = match &outcome.conflict {
        None => ("True", "NoConflicts", "no conflicts found"),
        Some((reason, message)) => ("False", *reason, message.as_str()),
    };
    let is_told = condition(status, "NamesAccepted").is_some_and(|known| {
        text(known, "status") == truth
            && text(known, "reason") == reason
            && text(known, "message") == message
    });
    if is_told && names::same(&accepted, &outcome.accepted) {
        return;
    }
    set_condition(status, "NamesAccepted", truth, reason, message, now);
    status["acceptedNames"] = outcome.accepted;
    if condition(status, "Established").is_none() {
        let message = "not all names are accepted";
        set_condition(status, "Established", "False", "NotAccepted", message, now);
    }
}

fn establish(status: &mut Value, now: &str) {
    let is_true =
        |kind| condition(status, kind).is_some_and(|condition| text(condition, "status") == "True");
    if is_true("NamesAccepted") && !is_true("Established") {
        let (reason, message) = (
            "InitialNamesAccepted",
            "the initial names have been accepted",
        );
        set_condition(status, "Established", "True", reason, message, now);
    }
}

fn approve(status: &mut Value, crd: &Value, spec: &Spec<'_>, now: &str) {
    if !approval::is_protected(spec.group) {
        return;
    }
    let (approval, message) = approval::of(crd);
    let truth = match approval {
        approval::Approval::Approved => "True",
        _ => "False",
    };
    let kind = "KubernetesAPIApprovalPolicyConformant";
    set_condition(status, kind, truth, approval.reason(), &message, now);
}

/// Only definitions that others have stored can have such schemas.
fn judge_schemas(status: &mut Value, spec: &Spec<'_>, now: &str) {
    let kind = "NonStructuralSchema";
    match ratchet::violations(spec) {
        Ok(found) if found.is_empty() => {
            if let Some(Value::Array(conditions)) = status.get_mut("conditions") {
                conditions.retain(|condition| text(condition, "type") != kind);
            }
        }
        Ok(found) => {
            let message = found.to_string();
            set_condition(status, kind, "True", "Violations", &message, now);
        }
        Err(why) => set_condition(status, kind, "Unknown", "StructuralError", &why, now),
    }
}
