//! Rules that Pods share with the kinds that create Pods from a template.

use tidings_api::{FieldError, FieldErrors, validate};
use tidings_go::quote;
use tidings_json::{Map, Value};

use crate::model::Draft;

/// The path of the Pod spec in an object.
pub(super) struct PodSpecPath {
    /// The path as error messages write it.
    path: &'static str,
    /// The member names that lead from the object's spec to the Pod spec.
    below_spec: &'static [&'static str],
}

/// The Pod spec of a Pod.
pub(super) const POD: PodSpecPath = PodSpecPath {
    path: "spec",
    below_spec: &[],
};
/// The Pod spec in a Pod template.
pub(super) const TEMPLATE: PodSpecPath = PodSpecPath {
    path: "spec.template.spec",
    below_spec: &["template", "spec"],
};
/// The Pod spec in the Pod template of a Job template.
pub(super) const JOB_TEMPLATE: PodSpecPath = PodSpecPath {
    path: "spec.jobTemplate.spec.template.spec",
    below_spec: &["jobTemplate", "spec", "template", "spec"],
};

/// The path of the containers in an object with a Pod template.
pub(super) const TEMPLATE_CONTAINERS: &[&str] = &["spec", "template", "spec", "containers"];

/// The values of `restartPolicy` that Pods of a kind may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestartPolicies {
    /// All of them.
    Any,
    /// Only `Always`: the containers run for ever.
    OnlyAlways,
    /// `OnFailure` and `Never`: the containers run to completion.
    NotAlways,
}

/// The `spec` member of a draft, if it is an object.
pub(super) fn spec_mut(draft: &mut Draft) -> Option<&mut Map> {
    draft.members.get_mut("spec").and_then(Value::as_object_mut)
}

/// The labels of the Pod template, if there are any.
pub(super) fn template_labels(draft: &Draft) -> Option<Map> {
    let labels = draft.at(&["spec", "template", "metadata", "labels"])?;
    let labels = labels.as_object().filter(|labels| !labels.is_empty());
    labels.cloned()
}

/// Copies the labels of the Pod template to an object that has no labels.
pub(super) fn label_as_template(draft: &mut Draft) {
    if !draft.meta.labels.is_empty() {
        return;
    }
    let labels = template_labels(draft).into_iter().flatten();
    let texts = labels.filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())));
    draft.meta.labels = texts.collect();
}

/// True if the specs differ in a member that is not in `free`.
pub(super) fn differs_beyond(new: &Draft, old: &Draft, free: &[&str]) -> bool {
    let (Some(new), Some(old)) = (new.members.get("spec"), old.members.get("spec")) else {
        return false;
    };
    let rest = |value: &Value| {
        let mut value = value.clone();
        if let Some(members) = value.as_object_mut() {
            members.retain(|name, _| !free.contains(&name.as_str()));
        }
        value
    };
    rest(new) != rest(old)
}

/// Refuses a negative number of replicas.
pub(super) fn check_replicas(draft: &Draft, errors: &mut FieldErrors) {
    let replicas = draft.at(&["spec", "replicas"]).and_then(Value::as_i64);
    if let Some(replicas) = replicas.filter(|replicas| *replicas < 0) {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid_value("spec.replicas", replicas, why));
    }
}

/// Refuses a selector that does not match the labels of the Pod template.
pub(super) fn check_selector(draft: &Draft, errors: &mut FieldErrors) {
    let null = Value::Null;
    let selector = draft.at(&["spec", "selector"]).unwrap_or(&null);
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    }
    let labels = draft.at(&["spec", "template", "metadata", "labels"]);
    let labels = labels.unwrap_or(&null);
    let empty = selector.as_object().is_none_or(Map::is_empty);
    if empty || !selects(selector, labels) {
        let why = "`selector` does not match template `labels`";
        let path = "spec.template.metadata.labels";
        errors.push(FieldError::invalid_value(path, labels, why));
    }
}

/// True if a selector with `matchLabels` and `matchExpressions` matches labels.
fn selects(selector: &Value, labels: &Value) -> bool {
    let equal = selector["matchLabels"].as_object();
    let mut equal = equal.into_iter().flatten();
    let terms = selector["matchExpressions"].as_array();
    let mut terms = terms.into_iter().flatten();
    equal.all(|(name, value)| labels.get(name) == Some(value))
        && terms.all(|term| {
            let label = labels.get(term["key"].as_str().unwrap_or_default());
            let listed = || {
                let values = term["values"].as_array();
                label.is_some_and(|label| values.is_some_and(|values| values.contains(label)))
            };
            match term["operator"].as_str().unwrap_or_default() {
                "In" => listed(),
                "NotIn" => !listed(),
                "Exists" => label.is_some(),
                "DoesNotExist" => label.is_none(),
                _ => false,
            }
        })
}

/// Refuses a Pod spec with invalid containers, or with a restart policy that the kind does not allow.
pub(super) fn check_pods(
    draft: &Draft,
    at: &PodSpecPath,
    restarts: RestartPolicies,
    errors: &mut FieldErrors,
) {
    let null = Value::Null;
    let spec = draft.members.get("spec").unwrap_or(&null);
    let pods = at.below_spec.iter().fold(spec, |value, name| &value[*name]);
    check_pod(at.path, pods, errors);
    let path = format!("{}.restartPolicy", at.path);
    match (restarts, pods["restartPolicy"].as_str()) {
        (RestartPolicies::NotAlways, None | Some("Always")) => {
            let why = "valid values: \"OnFailure\", \"Never\"";
            errors.push(FieldError::required(path, why));
        }
        (RestartPolicies::OnlyAlways, Some(said @ ("OnFailure" | "Never"))) => {
            errors.push(FieldError::not_supported(path, quote(said), &["Always"]));
        }
        _ => {}
    }
}

/// The elements of the list member `list` of a spec; empty if there is none.
pub(super) fn items<'a>(spec: &'a Value, list: &str) -> &'a [Value] {
    spec[list].as_array().map_or(&[], Vec::as_slice)
}

fn check_pod(path: &str, spec: &Value, errors: &mut FieldErrors) {
    if items(spec, "containers").is_empty() {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    let mut names: Vec<&str> = Vec::new();
    for list in ["containers", "initContainers"] {
        for (at, container) in items(spec, list).iter().enumerate() {
            let path = format!("{path}.{list}[{at}]");
            let name = container["name"].as_str().unwrap_or_default();
            if name.is_empty() {
                errors.push(FieldError::required(format!("{path}.name"), ""));
            } else if let Some(why) = validate::dns1123_label(name).into_iter().next() {
                errors.push(FieldError::invalid(format!("{path}.name"), name, why));
            } else if names.contains(&name) {
                errors.push(FieldError::duplicate(format!("{path}.name"), name));
            } else {
                names.push(name);
            }
            if container["image"].as_str().unwrap_or_default().is_empty() {
                errors.push(FieldError::required(format!("{path}.image"), ""));
            }
        }
    }
    let choice = |name: &str, values: &'static [&'static str], errors: &mut FieldErrors| {
        let said = spec[name].as_str().unwrap_or_default();
        if !said.is_empty() && !values.contains(&said) {
            let path = format!("{path}.{name}");
            errors.push(FieldError::not_supported(path, quote(said), values));
        }
    };
    choice("restartPolicy", &["Always", "OnFailure", "Never"], errors);
    let policies = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    choice("dnsPolicy", policies, errors);
}

/// Fills in the defaults of `rollingUpdate`, if the strategy is a rolling update.
pub(super) fn complete_rolling_update(strategy: &mut Map, defaults: &[(&str, Value)]) {
    if strategy.get("type").and_then(Value::as_str) != Some("RollingUpdate") {
        return;
    }
    let rolling = strategy
        .entry("rollingUpdate")
        .or_insert_with(|| Map::new().into());
    if rolling.is_null() {
        *rolling = Map::new().into();
    }
    let Some(rolling) = rolling.as_object_mut() else {
        return;
    };
    for (name, default) in defaults {
        let entry = rolling.entry(*name).or_insert(Value::Null);
        if entry.is_null() {
            *entry = default.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use tidings_json::json;

    use super::*;

    #[test]
    fn selectors_of_objects() {
        let labels = json!({"a": "b"});
        let term = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
        for (selector, selected) in [
            (json!({"matchLabels": {"a": "b"}}), true),
            (json!({"matchLabels": {"a": "c"}}), false),
            (term("In", json!(["b", "c"])), true),
            (term("NotIn", json!(["b"])), false),
            (term("Exists", Value::Null), true),
            (term("DoesNotExist", Value::Null), false),
        ] {
            assert_eq!(selects(&selector, &labels), selected, "{selector}");
        }
    }
}
