//! Pods and what makes them: what is checked of them, and what the server adds when they are created.

use tidings_api::{FieldError, FieldErrors, validate};
use tidings_json::{Map, Value, json};

use super::Kind;
use super::draft::Draft;

impl Draft {
    /// Where the spec of the Pods stands that this object is or makes.
    fn pod_spec(&self) -> Option<(&'static str, Option<&Value>)> {
        let spec = self.members.get("spec");
        let template = spec.map(|spec| &spec["template"]["spec"]);
        match (self.kind.group, self.kind.kind) {
            ("", "Pod") => Some(("spec", spec)),
            ("apps", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet")
            | ("", "ReplicationController")
            | ("batch", "Job") => Some(("spec.template.spec", template)),
            ("batch", "CronJob") => Some((
                "spec.jobTemplate.spec.template.spec",
                spec.map(|spec| &spec["jobTemplate"]["spec"]["template"]["spec"]),
            )),
            _ => None,
        }
    }

    /// What is wrong with an object that is a Pod, makes Pods, or leads to them.
    pub(super) fn check_workload(&self, errors: &mut FieldErrors) {
        let nothing = Value::Null;
        let spec = self.members.get("spec").unwrap_or(&nothing);
        if let ("", "Service") = (self.kind.group, self.kind.kind) {
            let headless = spec["clusterIP"] == "None" || spec["type"] == "ExternalName";
            if !headless && spec["ports"].as_array().is_none_or(Vec::is_empty) {
                errors.push(FieldError::required("spec.ports", ""));
            }
            return;
        }
        let Some((path, pods)) = self.pod_spec() else {
            return;
        };
        if self.kind.kind != "Pod" {
            if let Some(replicas) = spec["replicas"].as_i64().filter(|replicas| *replicas < 0) {
                let why = "must be greater than or equal to 0";
                errors.push(FieldError::invalid_value("spec.replicas", replicas, why));
            }
            if self.kind.group == "apps" {
                check_selector(spec, errors);
            }
        }
        let pods = pods.unwrap_or(&nothing);
        check_pod(path, pods, errors);
        // Pods of a Job end; those of the others are to run for ever.
        let path = format!("{path}.restartPolicy");
        match (self.kind.group, pods["restartPolicy"].as_str()) {
            ("batch", None | Some("Always")) => {
                let why = "valid values: \"OnFailure\", \"Never\"";
                errors.push(FieldError::required(path, why));
            }
            (_, Some(said @ ("OnFailure" | "Never"))) if runs_for_ever(self.kind) => {
                let said = tidings_api::go::quote(said);
                errors.push(FieldError::not_supported(path, said, &["Always"]));
            }
            _ => {}
        }
    }

    /// What the server adds to a new object, in its own name.
    pub(super) fn add_to_workload(&mut self) {
        match (self.kind.group, self.kind.kind) {
            ("batch", "Job") => self.select_own_pods(),
            ("", "Pod") => {
                let class = quality(self.members.get("spec").unwrap_or(&Value::Null));
                let status = self.members.entry("status").or_insert_with(|| json!({}));
                status["phase"] = "Pending".into();
                status["qosClass"] = class.into();
            }
            _ => {}
        }
    }

    /// The Pods of a Job are told from others by its uid.
    fn select_own_pods(&mut self) {
        let (uid, name) = (self.meta.uid.clone(), self.meta.name.clone());
        let labelled = self.meta.labels.is_empty();
        let Some(Value::Object(spec)) = self.members.get_mut("spec") else {
            return;
        };
        if spec.get("manualSelector") == Some(&Value::Bool(true)) {
            return;
        }
        let own = [
            ("batch.kubernetes.io/controller-uid", &uid),
            ("batch.kubernetes.io/job-name", &name),
            ("controller-uid", &uid),
            ("job-name", &name),
        ];
        let template = spec.entry("template").or_insert_with(|| json!({}));
        let labels = &mut template["metadata"]["labels"];
        if !labels.is_object() {
            *labels = json!({});
        }
        for (label, value) in own {
            labels[label] = value.as_str().into();
            if labelled {
                self.meta.labels.insert(label.to_owned(), value.clone());
            }
        }
        if let Some(labels) = labels.as_object_mut() {
            labels.sort_keys();
        }
        let selector = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
        spec.insert("selector".into(), selector);
    }
}

fn runs_for_ever(kind: &Kind) -> bool {
    kind.group == "apps" || kind.kind == "ReplicationController"
}

/// The selector of a workload finds the Pods of its template.
fn check_selector(spec: &Value, errors: &mut FieldErrors) {
    if spec["selector"].is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    }
    let labels = &spec["template"]["metadata"]["labels"];
    let empty = spec["selector"].as_object().is_none_or(Map::is_empty);
    if empty || !selects(&spec["selector"], labels) {
        let why = "`selector` does not match template `labels`";
        let path = "spec.template.metadata.labels";
        errors.push(FieldError::invalid_value(path, labels, why));
    }
}

/// Whether a selector, as objects have it, selects labels.
fn selects(selector: &Value, labels: &Value) -> bool {
    let equal = selector["matchLabels"].as_object();
    let equal = equal.into_iter().flatten();
    let terms = selector["matchExpressions"].as_array();
    let mut terms = terms.into_iter().flatten();
    equal
        .into_iter()
        .all(|(name, value)| labels.get(name) == Some(value))
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

fn check_pod(path: &str, spec: &Value, errors: &mut FieldErrors) {
    let containers = spec["containers"].as_array().map_or(&[][..], Vec::as_slice);
    if containers.is_empty() {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    let mut names: Vec<&str> = Vec::new();
    let inits = spec["initContainers"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    for (list, containers) in [("containers", containers), ("initContainers", inits)] {
        for (at, container) in containers.iter().enumerate() {
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
            let said = tidings_api::go::quote(said);
            errors.push(FieldError::not_supported(path, said, values));
        }
    };
    choice("restartPolicy", &["Always", "OnFailure", "Never"], errors);
    let policies = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    choice("dnsPolicy", policies, errors);
}

/// How well a Pod is served: by what it requests and what it is limited to.
fn quality(spec: &Value) -> &'static str {
    let of = |name: &str| spec[name].as_array().map_or(&[][..], Vec::as_slice).iter();
    let (mut any, mut all) = (false, true);
    for container in of("containers").chain(of("initContainers")) {
        let resources = &container["resources"];
        for resource in ["cpu", "memory"] {
            let amount = |kind: &str| {
                let amount = &resources[kind][resource];
                let zero = matches!(amount.as_str(), Some("0")) || amount.as_i64() == Some(0);
                (!amount.is_null() && !zero).then_some(amount)
            };
            let (request, limit) = (amount("requests"), amount("limits"));
            any |= request.is_some() || limit.is_some();
            all &= limit.is_some() && request.is_none_or(|request| Some(request) == limit);
        }
    }
    match (any, all) {
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
        (false, _) => "BestEffort",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_of_a_pod_follows_from_its_resources() {
        let full = json!({"cpu": "1", "memory": "1Gi"});
        for (resources, class) in [
            (json!({}), "BestEffort"),
            (json!({"limits": {"nvidia.com/gpu": 1}}), "BestEffort"),
            (json!({"requests": {"cpu": "1"}}), "Burstable"),
            (
                json!({"limits": full, "requests": {"cpu": "1"}}),
                "Guaranteed",
            ),
            (json!({"limits": full, "requests": full}), "Guaranteed"),
            (
                json!({"limits": full, "requests": {"cpu": "500m", "memory": "1Gi"}}),
                "Burstable",
            ),
        ] {
            let spec = json!({"containers": [{"resources": resources}]});
            assert_eq!(quality(&spec), class, "{resources}");
        }
    }

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
