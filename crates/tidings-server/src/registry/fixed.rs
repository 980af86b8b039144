//! What an update may not change.

use tidings_api::{FieldError, FieldErrors};
use tidings_json::Value;

use super::draft::Draft;

/// How the change of a field is refused.
#[derive(Clone, Copy)]
enum How {
    /// With its value.
    Immutable,
    /// The same, in other words.
    Invalid(&'static str),
    Forbidden(&'static str),
}

/// Fields that stay as they were created: the group, the kind, the way to the field.
static FIXED: &[(&str, &str, &[&str], How)] = &[
    ("apps", "Deployment", &["spec", "selector"], How::Immutable),
    ("apps", "DaemonSet", &["spec", "selector"], How::Immutable),
    ("apps", "ReplicaSet", &["spec", "selector"], How::Immutable),
    ("batch", "Job", &["spec", "selector"], How::Immutable),
    ("batch", "Job", &["spec", "completionMode"], How::Immutable),
    (
        "networking.k8s.io",
        "IngressClass",
        &["spec", "controller"],
        How::Immutable,
    ),
    (
        "rbac.authorization.k8s.io",
        "ClusterRoleBinding",
        &["roleRef"],
        How::Invalid("cannot change roleRef"),
    ),
    (
        "rbac.authorization.k8s.io",
        "RoleBinding",
        &["roleRef"],
        How::Invalid("cannot change roleRef"),
    ),
    (
        "scheduling.k8s.io",
        "PriorityClass",
        &["value"],
        How::Forbidden("may not be changed in an update."),
    ),
    (
        "scheduling.k8s.io",
        "PriorityClass",
        &["preemptionPolicy"],
        How::Immutable,
    ),
    (
        "storage.k8s.io",
        "StorageClass",
        &["parameters"],
        How::Immutable,
    ),
    (
        "storage.k8s.io",
        "StorageClass",
        &["provisioner"],
        How::Immutable,
    ),
    (
        "storage.k8s.io",
        "StorageClass",
        &["reclaimPolicy"],
        How::Immutable,
    ),
    (
        "storage.k8s.io",
        "StorageClass",
        &["volumeBindingMode"],
        How::Immutable,
    ),
    (
        "storage.k8s.io",
        "CSIDriver",
        &["spec", "attachRequired"],
        How::Immutable,
    ),
    (
        "storage.k8s.io",
        "CSIDriver",
        &["spec", "volumeLifecycleModes"],
        How::Immutable,
    ),
];

/// What a Pod's spec may change to.
const POD: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
const STATEFUL_SET: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
const STATEFUL_SET_FREE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];
const CLAIM: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

impl Draft {
    fn at(&self, path: &[&str]) -> Option<&Value> {
        let (first, rest) = path.split_first()?;
        let value = self.members.get(first)?;
        rest.iter().try_fold(value, |value, name| value.get(name))
    }

    /// Refuses changes of fields that stay as they were created.
    pub(super) fn check_fixed(&self, old: &Draft, errors: &mut FieldErrors) {
        let (group, kind) = (self.kind.group, self.kind.kind);
        let own = FIXED
            .iter()
            .filter(|(of_group, of_kind, ..)| (*of_group, *of_kind) == (group, kind));
        for (_, _, path, how) in own {
            let value = self.at(path);
            if value == old.at(path) {
                continue;
            }
            let (path, value) = (path.join("."), value.unwrap_or(&Value::Null));
            errors.push(match how {
                How::Immutable => FieldError::invalid_value(path, value, "field is immutable"),
                How::Invalid(why) => FieldError::invalid_value(path, value, *why),
                How::Forbidden(why) => FieldError::forbidden(path, *why),
            });
        }
        let (Some(new), Some(old)) = (self.members.get("spec"), old.members.get("spec")) else {
            return;
        };
        match (group, kind) {
            ("", "Pod") => pod(new, old, errors),
            ("", "PersistentVolumeClaim") => {
                let unbound = ["resources", "volumeAttributesClassName"];
                if differs_beyond(new, old, &unbound) {
                    errors.push(FieldError::forbidden("spec", CLAIM));
                }
            }
            ("apps", "StatefulSet") if differs_beyond(new, old, &STATEFUL_SET_FREE) => {
                errors.push(FieldError::forbidden("spec", STATEFUL_SET));
            }
            ("batch", "Job") => job(new, old, errors),
            _ => {}
        }
    }
}

/// True if two objects differ in other members than these.
fn differs_beyond(new: &Value, old: &Value, free: &[&str]) -> bool {
    let rest = |value: &Value| {
        let mut value = value.clone();
        if let Some(members) = value.as_object_mut() {
            members.retain(|name, _| !free.contains(&name.as_str()));
        }
        value
    };
    rest(new) != rest(old)
}

fn job(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let mut fixed = |name: &str| {
        if new.get(name) != old.get(name) {
            let value = new.get(name).unwrap_or(&Value::Null);
            let path = format!("spec.{name}");
            errors.push(FieldError::invalid_value(path, value, "field is immutable"));
        }
    };
    // An indexed job can be made larger or smaller, as long as both numbers say so.
    let indexed = new["completionMode"] == "Indexed" && new["completions"] == new["parallelism"];
    if !indexed {
        fixed("completions");
    }
    // What has not begun can be scheduled otherwise.
    if old["suspend"] != true {
        fixed("template");
    }
}

fn items<'a>(spec: &'a Value, list: &str) -> &'a [Value] {
    spec[list].as_array().map_or(&[], Vec::as_slice)
}

fn pod(new: &Value, old: &Value, errors: &mut FieldErrors) {
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
        errors.push(FieldError::forbidden("spec", POD));
    }
}
