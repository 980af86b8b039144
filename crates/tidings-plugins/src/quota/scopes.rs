//! Which objects a quota is about.

use tidings_json::Value;

use super::usage::Counting;
use crate::pod::{items, text};

/// One condition of a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QuotaScope {
    name: String,
    operator: String,
    values: Vec<String>,
}

impl QuotaScope {
    /// The conditions in the spec of a quota.
    pub(super) fn all(spec: &Value) -> Vec<QuotaScope> {
        let plain = items(spec, "scopes").iter().filter_map(Value::as_str);
        let plain = plain.map(|name| QuotaScope {
            name: name.to_owned(),
            operator: "Exists".to_owned(),
            values: Vec::new(),
        });
        let selected = items(&spec["scopeSelector"], "matchExpressions").iter();
        let selected = selected.map(|one| QuotaScope {
            name: text(one, "scopeName").to_owned(),
            operator: text(one, "operator").to_owned(),
            values: items(one, "values")
                .iter()
                .filter_map(|value| Some(value.as_str()?.to_owned()))
                .collect(),
        });
        plain.chain(selected).collect()
    }

    /// True if an object fulfils the condition.
    pub(super) fn holds(&self, counting: Counting, object: &Value) -> bool {
        match counting {
            Counting::Pods => self.holds_for_pod(object),
            Counting::Claims if self.name == "VolumeAttributesClass" => {
                let (spec, status) = (&object["spec"], &object["status"]);
                let classes = [
                    text(spec, "volumeAttributesClassName"),
                    text(status, "currentVolumeAttributesClassName"),
                    text(
                        &status["modifyVolumeStatus"],
                        "targetVolumeAttributesClassName",
                    ),
                ];
                self.selects(&classes)
            }
            _ => false,
        }
    }

    fn holds_for_pod(&self, pod: &Value) -> bool {
        let spec = &pod["spec"];
        let ends = spec["activeDeadlineSeconds"].as_i64();
        let ends = ends.is_some_and(|seconds| seconds >= 0);
        let is_best_effort = text(&pod["status"], "qosClass") == "BestEffort";
        match &*self.name {
            "Terminating" => ends,
            "NotTerminating" => !ends,
            "BestEffort" => is_best_effort,
            "NotBestEffort" => !is_best_effort,
            "PriorityClass" => self.selects(&[text(spec, "priorityClassName")]),
            "CrossNamespacePodAffinity" => looks_into_other_namespaces(&spec["affinity"]),
            _ => false,
        }
    }

    /// Compares names with the operator; empty ones are not there.
    fn selects(&self, names: &[&str]) -> bool {
        let mut there = names.iter().filter(|name| !name.is_empty());
        let is_listed = |name: &&&str| self.values.iter().any(|value| value == **name);
        match &*self.operator {
            "Exists" => there.next().is_some(),
            "DoesNotExist" => there.next().is_none(),
            "In" => there.any(|name| is_listed(&name)),
            "NotIn" => !there.any(|name| is_listed(&name)),
            _ => false,
        }
    }
}

fn looks_into_other_namespaces(affinity: &Value) -> bool {
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let affinity = &affinity[*kind];
        let required = items(affinity, "requiredDuringSchedulingIgnoredDuringExecution").iter();
        let preferred = items(affinity, "preferredDuringSchedulingIgnoredDuringExecution").iter();
        let mut terms = required.chain(preferred.map(|weighted| &weighted["podAffinityTerm"]));
        terms.any(|term| {
            !items(term, "namespaces").is_empty() || !term["namespaceSelector"].is_null()
        })
    })
}
