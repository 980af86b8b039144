//! The status of a definition: its accepted names and its conditions.

use tidings_json::{Value, json};

use super::conditions::{condition, set_condition};
use super::member::{get, text};
use super::spec::DefinitionSpec;
use super::{approval, conversion, names, ratchet};

/// Computes the status of a definition from the names of all definitions (W177). `others` are all other definitions, of any
/// group; `now` is RFC 3339. The result equals the old status if nothing changes.
///
/// A definition without name conflicts is established in the same step, and stays established also if its names conflict later.
pub fn status_of(crd: &Value, others: &[&Value], now: &str) -> Value {
    let spec = DefinitionSpec::of(crd);
    let mut status = get(crd, "status").cloned().unwrap_or_else(|| {
        let names = names::tidy(&Value::Null);
        json!({"conditions": null, "acceptedNames": names, "storedVersions": null})
    });
    name(&mut status, &spec, others, now);
    establish(&mut status, &spec, now);
    approve(&mut status, crd, &spec, now);
    judge_schemas(&mut status, &spec, now);
    status
}

/// Sets the accepted names and the condition `NamesAccepted`.
fn name(status: &mut Value, spec: &DefinitionSpec<'_>, others: &[&Value], now: &str) {
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

/// Sets the condition `Established` once all names are accepted.
fn establish(status: &mut Value, spec: &DefinitionSpec<'_>, now: &str) {
    let is_true =
        |kind| condition(status, kind).is_some_and(|condition| text(condition, "status") == "True");
    if is_true("NamesAccepted") && !is_true("Established") {
        let (truth, reason, message) = match conversion::has_ca_bundle(spec.conversion) {
            true => (
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted",
            ),
            false => (
                "False",
                "InvalidCABundle",
                "The conversion webhook CABundle is invalid",
            ),
        };
        set_condition(status, "Established", truth, reason, message, now);
    }
}

/// Sets the condition `KubernetesAPIApprovalPolicyConformant` of a protected group.
fn approve(status: &mut Value, crd: &Value, spec: &DefinitionSpec<'_>, now: &str) {
    if !approval::is_protected(spec.group) {
        return;
    }
    let (approval, message) = approval::of(crd);
    let truth = match approval {
        approval::ApprovalState::Approved => "True",
        _ => "False",
    };
    let kind = "KubernetesAPIApprovalPolicyConformant";
    set_condition(status, kind, truth, approval.reason(), &message, now);
}

/// Sets or removes the condition `NonStructuralSchema`. Only a definition that another server has stored can get it.
fn judge_schemas(status: &mut Value, spec: &DefinitionSpec<'_>, now: &str) {
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
