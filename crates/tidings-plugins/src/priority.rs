//! `Priority`: Pods get the number of their priority class, and only one class is the default.

use tidings_api::Status;
use tidings_json::{Value, json};
use tidings_registry::{Draft, Kind};

use crate::plugin::Plugin;
use crate::write::{ClusterView, Known, PluginSaid, PluginWrite, is_kind, tree};

const GROUP: &str = "scheduling.k8s.io";

pub(crate) struct Priority;

/// The priority classes that a server creates at its start: name, value, description.
pub fn system_classes() -> [(&'static str, i64, &'static str); 2] {
    [
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
    ]
}

impl Plugin for Priority {
    fn concerns(&self, kind: &Kind) -> bool {
        is_kind(kind, "", "pods") || is_kind(kind, GROUP, "priorityclasses")
    }

    fn change(
        &self,
        write: &PluginWrite<'_>,
        draft: &mut Draft,
        old: Option<&Draft>,
    ) -> Result<bool, Status> {
        if !write.is_of("", "pods") {
            return Ok(false);
        }
        if write.updates() {
            return Ok(old.is_some_and(|old| keep(draft, old)));
        }
        if !write.creates() {
            return Ok(false);
        }
        let (class, policy) = match draft.text(&["spec", "priorityClassName"]) {
            "" => match default_class(write.cluster) {
                Some(class) => (class.clone(), class["preemptionPolicy"].clone()),
                None => (Value::Null, "PreemptLowerPriority".into()),
            },
            name => {
                let Some(class) = write.cluster.get(Known::PriorityClasses, "", name) else {
                    let why = format!("no PriorityClass with name {name} was found");
                    return Err(write.forbidden(draft, &why));
                };
                let class = tree(&class);
                (class.clone(), class["preemptionPolicy"].clone())
            }
        };
        let priority = class["value"].as_i64().unwrap_or(0);
        if let Some(given) = draft.at(&["spec", "priority"]).and_then(Value::as_i64)
            && given != priority
        {
            let why = format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
            );
            return Err(write.forbidden(draft, &why));
        }
        if let (Some(policy), given) = (policy.as_str(), draft.text(&["spec", "preemptionPolicy"]))
            && !given.is_empty()
            && given != policy
        {
            let why = format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
            );
            return Err(write.forbidden(draft, &why));
        }
        let Some(spec) = draft.members.get_mut("spec") else {
            return Ok(false);
        };
        if let Some(name) = class["metadata"]["name"].as_str() {
            spec["priorityClassName"] = name.into();
        }
        spec["priority"] = priority.into();
        if !policy.is_null() {
            spec["preemptionPolicy"] = policy;
        }
        Ok(true)
    }

    fn check(
        &self,
        write: &PluginWrite<'_>,
        new: &Draft,
        _: Option<&Draft>,
        _: &mut PluginSaid,
    ) -> Result<(), Status> {
        let is_default = new.at(&["globalDefault"]) == Some(&Value::Bool(true));
        if !write.is_of(GROUP, "priorityclasses") || !is_default {
            return Ok(());
        }
        let Some(other) = default_class(write.cluster) else {
            return Ok(());
        };
        let name = other["metadata"]["name"].as_str().unwrap_or_default();
        if write.creates() || name != new.meta.name {
            let why = format!(
                "PriorityClass {name} is already marked as default. Only one default can exist"
            );
            return Err(write.forbidden(new, &why));
        }
        Ok(())
    }
}

/// An update that leaves out what was filled in when the Pod was created keeps it.
fn keep(draft: &mut Draft, old: &Draft) -> bool {
    let mut changed = false;
    for name in ["priority", "preemptionPolicy"] {
        let known = old.at(&["spec", name]).filter(|known| !known.is_null());
        let Some(spec) = draft.members.get_mut("spec") else {
            continue;
        };
        if let (Some(known), true) = (known, spec[name].is_null()) {
            spec[name] = known.clone();
            changed = true;
        }
    }
    changed
}

/// The class of Pods that name none: if several say that they are, the one with the lowest value.
fn default_class(cluster: &dyn ClusterView) -> Option<Value> {
    let classes = cluster.list(Known::PriorityClasses, "");
    let classes = classes.iter().map(tree);
    let defaults = classes.filter(|class| class["globalDefault"] == json!(true));
    defaults.min_by_key(|class| class["value"].as_i64().unwrap_or(0))
}
