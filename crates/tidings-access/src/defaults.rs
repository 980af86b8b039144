//! The roles and bindings that every server has: those of kube-apiserver, read from one (`tools/roles/write`).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::rule::PolicyRule;

const DEFAULTS: &str = include_str!("defaults.json");
/// The label of all of them.
const LABEL: (&str, &str) = ("kubernetes.io/bootstrapping", "rbac-defaults");
/// Missing rules are added again at every start, unless an object has this annotation with another value.
const UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// A role or binding that every server has.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DefaultObject {
    /// `ClusterRole`, `Role`, `ClusterRoleBinding` or `RoleBinding`.
    pub kind: String,
    /// The namespace; empty if it has none.
    pub namespace: String,
    /// The name.
    pub name: String,
    labels: BTreeMap<String, String>,
    aggregation_rule: Option<Value>,
    rules: Vec<PolicyRule>,
    role_ref: Option<Value>,
    subjects: Vec<Value>,
}

/// All of them: roles before bindings.
pub fn default_objects() -> Vec<DefaultObject> {
    // Cannot fail: a test reads it.
    serde_json::from_str(DEFAULTS).unwrap_or_default()
}

impl DefaultObject {
    /// The object as it is created.
    pub fn to_json(&self) -> Value {
        let mut labels = self.labels.clone();
        labels.insert(LABEL.0.into(), LABEL.1.into());
        let mut metadata = json!({
            "name": self.name,
            "labels": labels,
            "annotations": {UPDATE: "true"},
        });
        if !self.namespace.is_empty() {
            metadata["namespace"] = self.namespace.as_str().into();
        }
        let mut object = Map::new();
        object.insert("apiVersion".into(), "rbac.authorization.k8s.io/v1".into());
        object.insert("kind".into(), self.kind.as_str().into());
        object.insert("metadata".into(), metadata);
        if let Some(aggregation) = &self.aggregation_rule {
            object.insert("aggregationRule".into(), aggregation.clone());
        }
        match &self.role_ref {
            Some(role) => {
                object.insert("roleRef".into(), role.clone());
                object.insert("subjects".into(), self.subjects.clone().into());
            }
            None if self.aggregation_rule.is_none() => {
                object.insert("rules".into(), json!(self.rules));
            }
            None => {}
        }
        Value::Object(object)
    }

    /// True if the existing object may be changed.
    pub fn may_update(existing: &Value) -> bool {
        existing["metadata"]["annotations"][UPDATE] != "false"
    }

    /// What the object is to become, if it lacks rules, subjects, labels or the aggregation. `None` if it has everything.
    pub fn restored(&self, existing: &Value) -> Option<Value> {
        let wanted = self.to_json();
        let mut restored = existing.clone();
        for member in ["labels", "annotations"] {
            let wanted = wanted["metadata"][member].as_object();
            for (name, value) in wanted.into_iter().flatten() {
                // What somebody has set stays.
                if restored["metadata"][member].get(name).is_none() {
                    restored["metadata"][member][name] = value.clone();
                }
            }
        }
        let list = |member: &str| existing[member].as_array().cloned().unwrap_or_default();
        if self.role_ref.is_none() {
            let missing = missing_rules(&existing["rules"], &self.rules);
            if !missing.is_empty() {
                let mut rules = list("rules");
                rules.extend(missing.iter().map(|rule| json!(rule)));
                restored["rules"] = rules.into();
            }
            if existing.get("aggregationRule") != wanted.get("aggregationRule") {
                restored["aggregationRule"] = wanted["aggregationRule"].clone();
            }
        } else {
            let missing = missing_subjects(&existing["subjects"], &self.subjects);
            if !missing.is_empty() {
                let mut subjects = list("subjects");
                subjects.extend(missing);
                restored["subjects"] = subjects.into();
            }
        }
        (restored != *existing).then_some(restored)
    }

    /// True if an existing binding grants another role: it is deleted and created again.
    pub fn grants_another(&self, existing: &Value) -> bool {
        let role = self.role_ref.as_ref();
        role.is_some_and(|role| existing["roleRef"] != *role)
    }
}

/// The parts of the wanted rules that rules in JSON do not cover.
pub fn missing_rules(existing: &Value, wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    let existing = Vec::<PolicyRule>::deserialize(existing).unwrap_or_default();
    crate::covers::uncovered(&existing, wanted)
}

/// The wanted subjects that are not among subjects in JSON.
pub fn missing_subjects(existing: &Value, wanted: &[Value]) -> Vec<Value> {
    let existing = existing.as_array();
    let has = |subject: &&Value| existing.is_some_and(|known| known.contains(subject));
    wanted
        .iter()
        .filter(|subject| !has(subject))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_are_roles_and_bindings_of_all_four_kinds() {
        let all: Vec<DefaultObject> = serde_json::from_str(DEFAULTS).unwrap();
        let count = |kind: &str| all.iter().filter(|object| object.kind == kind).count();
        assert_eq!(count("ClusterRole"), 69);
        assert_eq!(count("ClusterRoleBinding"), 50);
        assert_eq!((count("Role"), count("RoleBinding")), (7, 7));
        for object in &all {
            let json = object.to_json();
            assert_eq!(object.restored(&json), None, "{json}");
            assert!(DefaultObject::may_update(&json));
        }
    }

    #[test]
    fn what_is_missing_comes_back_and_what_was_added_stays() {
        let all = default_objects();
        let find = |kind: &str, name: &str| {
            let found = all
                .iter()
                .find(|known| known.kind == kind && known.name == name);
            found.unwrap().clone()
        };
        let role = find("ClusterRole", "system:basic-user");
        let mut existing = role.to_json();
        let added = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        existing["rules"] = json!([added]);
        existing["metadata"]["labels"] = json!({"mine": "x"});
        let restored = role.restored(&existing).unwrap();
        assert_eq!(restored["rules"][0], added);
        assert!(missing_rules(&restored["rules"], &role.rules).is_empty());
        assert_eq!(restored["metadata"]["labels"]["mine"], "x");
        assert_eq!(restored["metadata"]["labels"][LABEL.0], LABEL.1);

        let binding = find("ClusterRoleBinding", "cluster-admin");
        let mut existing = binding.to_json();
        existing["subjects"] = json!([{"kind": "User", "name": "ann"}]);
        let restored = binding.restored(&existing).unwrap();
        assert_eq!(restored["subjects"].as_array().unwrap().len(), 2);
        existing["roleRef"]["name"] = "view".into();
        assert!(binding.grants_another(&existing));
        existing["metadata"]["annotations"][UPDATE] = "false".into();
        assert!(!DefaultObject::may_update(&existing));
    }
}
