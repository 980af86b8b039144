//! The conditions in the status of a definition.

use tidings_json::{Value, json};

use super::member::{get, list, text};

/// True if the condition of this type has the status `True`.
pub fn has_condition(crd: &Value, kind: &str) -> bool {
    get(crd, "status")
        .and_then(|status| condition(status, kind))
        .is_some_and(|condition| text(condition, "status") == "True")
}

pub(super) fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    list(status, "conditions")
        .iter()
        .find(|condition| text(condition, "type") == kind)
}

/// Sets a condition in a status. `lastTransitionTime` changes only if the condition's status changes. `now` is RFC 3339.
///
/// A definition that is being deleted has the condition `Terminating` (W186):
///
/// | status | reason | message |
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
