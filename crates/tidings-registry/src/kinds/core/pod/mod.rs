//! `Pod` of the core group: entry, defaults and rules. Its table stands in `table`, the defaults of its volumes in `volume`.

mod summary;
mod table;
pub(in crate::kinds) mod volume;

use std::sync::Arc;

use tidings_api::{FieldError, FieldErrors};
use tidings_json::{Map, Value, json};

use crate::defaults::{TypeDefaults, defaults, is_empty, is_zero, member_text};
use crate::kinds::workload::{self, POD, RestartPolicies, items};
use crate::kinds::{names, selectable};
use crate::model::{
    Draft, Generation, Kind, Review, SelectableField, StatusKeeps, Strategy, Subresource,
};

const FIXED: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
/// `terminationGracePeriodSeconds` of a spec without it.
const GRACE_SECONDS: i64 = 30;

pub(super) fn kind() -> Kind {
    Kind {
        kind: "Pod".into(),
        plural: "pods".into(),
        printer: &table::PRINTER,
        short_names: names(["po"]),
        categories: names(["all"]),
        fields: vec![
            selectable("spec.nodeName", &[&["spec", "nodeName"]]),
            selectable("spec.host", &[&["spec", "nodeName"]]), // the old name of `spec.nodeName`
            selectable("spec.restartPolicy", &[&["spec", "restartPolicy"]]),
            selectable("spec.schedulerName", &[&["spec", "schedulerName"]]),
            selectable(
                "spec.serviceAccountName",
                &[&["spec", "serviceAccountName"]],
            ),
            SelectableField {
                absent: "false",
                ..selectable("spec.hostNetwork", &[&["spec", "hostNetwork"]])
            },
            selectable("status.phase", &[&["status", "phase"]]),
            selectable("status.podIP", &[&["status", "podIP"]]),
            selectable("status.podIPs", &[]), // upstream accepts the field, but its value is always empty
            selectable(
                "status.nominatedNodeName",
                &[&["status", "nominatedNodeName"]],
            ),
        ],
        generation: Generation::Counted,
        status: true,
        own_parts: &[Subresource::Binding, Subresource::Eviction],
        status_keeps: Some(StatusKeeps::OwnerReferences),
        returns_deleted: true,
        strategy: Arc::new(PodStrategy),
        ..super::plain()
    }
}

/// What is posted to the subresource `binding` of a Pod. It is not served by itself.
pub(crate) fn binding() -> Kind {
    Kind {
        kind: "Binding".into(),
        plural: "pods".into(),
        review: Some(Review::Binding),
        ..super::plain()
    }
}

/// What is posted to the subresource `eviction` of a Pod. It is not served by itself.
pub(crate) fn eviction() -> Kind {
    Kind {
        group: "policy".into(),
        kind: "Eviction".into(),
        plural: "pods".into(),
        go_package: "policy",
        review: Some(Review::Eviction),
        ..Kind::plain()
    }
}

const CONTAINER: &[(&str, &str)] = &[
    ("terminationMessagePath", r#""/dev/termination-log""#),
    ("terminationMessagePolicy", r#""File""#),
];

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[
    defaults("core/v1.Container", CONTAINER).and(complete_pull_policy),
    defaults("core/v1.ContainerPort", &[("protocol", r#""TCP""#)]),
    defaults("core/v1.EphemeralContainer", CONTAINER).and(complete_pull_policy),
    defaults("core/v1.EphemeralContainerCommon", CONTAINER),
    defaults("core/v1.GRPCAction", &[("service", r#""""#)]),
    defaults(
        "core/v1.HTTPGetAction",
        &[("path", r#""/""#), ("scheme", r#""HTTP""#)],
    ),
    defaults("core/v1.ObjectFieldSelector", &[("apiVersion", r#""v1""#)]),
    defaults(
        "core/v1.PodSpec",
        &[
            ("restartPolicy", r#""Always""#),
            ("terminationGracePeriodSeconds", "30"),
            ("dnsPolicy", r#""ClusterFirst""#),
            ("securityContext", "{}"),
            ("schedulerName", r#""default-scheduler""#),
        ],
    )
    .and(complete_service_account),
    defaults(
        "core/v1.Probe",
        &[
            ("timeoutSeconds", "1"),
            ("periodSeconds", "10"),
            ("successThreshold", "1"),
            ("failureThreshold", "3"),
        ],
    ),
];

#[derive(Debug)]
struct PodStrategy;

impl Strategy for PodStrategy {
    fn complete(&self, draft: &mut Draft) -> bool {
        let spec = workload::spec_mut(draft);
        spec.map(complete_spec).is_some()
    }

    fn prepare_create(&self, draft: &mut Draft) {
        let class = quality_of_service(draft.members.get("spec").unwrap_or(&Value::Null));
        let status = draft.members.entry("status").or_insert_with(|| json!({}));
        status["phase"] = "Pending".into();
        status["qosClass"] = class.into();
        let gates = draft.at(&["spec", "schedulingGates"]);
        let is_gated = gates
            .and_then(Value::as_array)
            .is_some_and(|gates| !gates.is_empty());
        if is_gated {
            let condition = json!({
                "type": "PodScheduled",
                "status": "False",
                "lastTransitionTime": draft.meta.creation_timestamp,
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            });
            if let Some(status) = draft.members.get_mut("status") {
                status["conditions"] = json!([condition]);
            }
            draft.complete();
        }
    }

    fn check_fixed(&self, new: &Draft, old: &Draft, errors: &mut FieldErrors) {
        if let (Some(new), Some(old)) = (new.members.get("spec"), old.members.get("spec")) {
            check_spec_update(new, old, errors);
        }
    }

    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        _: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        workload::check_pods(new, &POD, RestartPolicies::Any, errors);
    }

    fn grace_seconds(&self, draft: &Draft, requested: Option<i64>) -> Option<i64> {
        let own = draft.at(&["spec", "terminationGracePeriodSeconds"]);
        let own = own.and_then(Value::as_i64).unwrap_or(GRACE_SECONDS);
        let runs_nowhere = draft.text(&["spec", "nodeName"]).is_empty();
        let over = matches!(draft.text(&["status", "phase"]), "Failed" | "Succeeded");
        Some(match requested.unwrap_or(own) {
            _ if runs_nowhere || over => 0,
            period if period < 0 => 1,
            period => period,
        })
    }

    fn row_conditions(&self, object: &Value) -> Vec<Value> {
        table::row_conditions(object)
    }
}

fn complete_pull_policy(container: &mut Map) {
    if is_empty(container.get("imagePullPolicy")) {
        let image = member_text(container, "image");
        let policy = if is_latest(image) {
            "Always"
        } else {
            "IfNotPresent"
        };
        container.insert("imagePullPolicy".into(), policy.into());
    }
}

/// True for an image without a tag and a digest, and for one with the tag `latest`.
fn is_latest(image: &str) -> bool {
    if image.is_empty() {
        return false;
    }
    let name = image.rsplit('/').next().unwrap_or_default();
    match name.split_once('@') {
        Some(_) => false,
        None => name.split_once(':').is_none_or(|(_, tag)| tag == "latest"),
    }
}

fn complete_spec(spec: &mut Map) {
    let links = spec.entry("enableServiceLinks").or_insert(Value::Null);
    if links.is_null() {
        *links = true.into();
    }
    let on_host = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            request_limits(container);
            let ports = container.get_mut("ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten().filter(|_| on_host) {
                if let Some(port) = port.as_object_mut()
                    && is_empty(port.get("hostPort"))
                    && let Some(number) = port.get("containerPort").cloned()
                {
                    port.insert("hostPort".into(), number);
                }
            }
        }
    }
}

/// Copies the limits of a container to its requests, for resources without a request.
fn request_limits(container: &mut Value) {
    let Some(limits) = container["resources"]["limits"].as_object().cloned() else {
        return;
    };
    let requests = &mut container["resources"]["requests"];
    if requests.is_null() {
        *requests = json!({});
    }
    if let Some(requests) = requests.as_object_mut() {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

/// `serviceAccount` is the old name of `serviceAccountName`: the value of one is copied to the other. If both are set,
/// `serviceAccountName` counts.
fn complete_service_account(spec: &mut Map) {
    const NAMES: [&str; 2] = ["serviceAccountName", "serviceAccount"];
    let said = NAMES.map(|name| spec.get(name).cloned());
    if let Some(account) = said.into_iter().flatten().find(|name| !is_zero(name)) {
        for name in NAMES {
            spec.insert(name.into(), account.clone());
        }
    }
}

/// Refuses changes of the spec, except those that the message `FIXED` lists and the removal of scheduling gates.
fn check_spec_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let lists = [
        ("containers", "containers"),
        ("initContainers", "init containers"),
    ];
    for (list, called) in lists {
        let names = |spec: &Value| -> Vec<Value> {
            let containers = items(spec, list).iter();
            containers
                .map(|container| container["name"].clone())
                .collect()
        };
        if items(new, list).len() != items(old, list).len() || names(new) != names(old) {
            let why = format!("pod updates may not add or remove {called}");
            errors.push(FieldError::forbidden(format!("spec.{list}"), why));
            return;
        }
    }
    let mut rest = new.clone();
    for (list, _) in lists {
        let olds = items(old, list);
        let news = rest.get_mut(list).and_then(Value::as_array_mut);
        for (new, old) in news.into_iter().flatten().zip(olds) {
            new["image"] = old["image"].clone();
        }
    }
    let put_back = |rest: &mut Value, name: &str| {
        if let Some(members) = rest.as_object_mut() {
            match old.get(name) {
                Some(value) => drop(members.insert(name.to_owned(), value.clone())),
                None => drop(members.remove(name)),
            }
        }
    };
    put_back(&mut rest, "activeDeadlineSeconds");
    let kept = |list: &str, of: &Value, among: &Value| {
        items(of, list)
            .iter()
            .all(|item| items(among, list).contains(item))
    };
    if kept("tolerations", old, new) {
        put_back(&mut rest, "tolerations");
    }
    if kept("schedulingGates", new, old) {
        put_back(&mut rest, "schedulingGates");
    }
    let grace = "terminationGracePeriodSeconds";
    if old[grace].as_i64().is_some_and(|seconds| seconds < 0) && new[grace] == 1 {
        put_back(&mut rest, grace);
    }
    if rest != *old {
        errors.push(FieldError::forbidden("spec", FIXED));
    }
}

/// `status.qosClass`, which follows from the requests and limits of the containers.
fn quality_of_service(spec: &Value) -> &'static str {
    let (mut any, mut all) = (false, true);
    let containers = items(spec, "containers").iter();
    for container in containers.chain(items(spec, "initContainers")) {
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
            assert_eq!(quality_of_service(&spec), class, "{resources}");
        }
    }

    #[test]
    fn images_without_a_tag_are_the_latest() {
        for (image, latest) in [
            ("nginx", true),
            ("nginx:latest", true),
            ("registry.example:5000/nginx", true),
            ("registry.example:5000/nginx:1", false),
            ("nginx:1.27", false),
            ("nginx@sha256:0000", false),
            ("", false),
        ] {
            assert_eq!(is_latest(image), latest, "{image}");
        }
    }
}
