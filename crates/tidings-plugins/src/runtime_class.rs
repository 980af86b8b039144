//! `RuntimeClass`: Pods get the overhead, the node selector and the tolerations of their runtime class.

use tidings_api::Status;
use tidings_go::quote;
use tidings_json::{Map, Value};
use tidings_registry::{Draft, Kind};

use crate::plugin::Plugin;
use crate::pod::same_amounts;
use crate::write::{Known, PluginSaid, PluginWrite, is_kind, tree};

const OTHER_OVERHEAD: &str =
    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

pub(crate) struct RuntimeClass;

impl Plugin for RuntimeClass {
    fn concerns(&self, kind: &Kind) -> bool {
        is_kind(kind, "", "pods")
    }

    fn change(
        &self,
        write: &PluginWrite<'_>,
        draft: &mut Draft,
        _: Option<&Draft>,
    ) -> Result<bool, Status> {
        let Some(class) = class_of(write, draft)? else {
            return Ok(false);
        };
        let overhead = class["overhead"]["podFixed"].as_object();
        if let Some(overhead) = overhead {
            let given = draft.at(&["spec", "overhead"]).and_then(Value::as_object);
            if given.is_some_and(|given| !given.is_empty() && !same_amounts(given, overhead)) {
                return Err(write.forbidden(draft, OTHER_OVERHEAD));
            }
        }
        let scheduling = &class["scheduling"];
        let selector = selector(write, draft, scheduling)?;
        let Some(spec) = draft.members.get_mut("spec") else {
            return Ok(false);
        };
        if let Some(overhead) = overhead {
            spec["overhead"] = overhead.clone().into();
        }
        if let Some(selector) = selector {
            spec["nodeSelector"] = selector.into();
        }
        if let Some(more) = scheduling["tolerations"].as_array() {
            if spec["tolerations"].is_null() {
                spec["tolerations"] = Value::Array(Vec::new());
            }
            if let Some(tolerations) = spec["tolerations"].as_array_mut() {
                for toleration in more {
                    if !tolerations.contains(toleration) {
                        tolerations.push(toleration.clone());
                    }
                }
            }
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
        if !write.creates() {
            return Ok(());
        }
        let class = class_of(write, new)?.unwrap_or_default();
        let given = new.at(&["spec", "overhead"]).and_then(Value::as_object);
        let overhead = class["overhead"]["podFixed"].as_object();
        match (overhead, given) {
            (Some(overhead), Some(given)) if same_amounts(given, overhead) => Ok(()),
            (Some(_), _) => Err(write.forbidden(new, OTHER_OVERHEAD)),
            (None, Some(given)) if !given.is_empty() => {
                let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
                Err(write.forbidden(new, why))
            }
            (None, _) => Ok(()),
        }
    }
}

/// The class that a new Pod names.
fn class_of(write: &PluginWrite<'_>, draft: &Draft) -> Result<Option<Value>, Status> {
    let name = draft.text(&["spec", "runtimeClassName"]);
    if !write.creates() || name.is_empty() {
        return Ok(None);
    }
    match write.cluster.get(Known::RuntimeClasses, "", name) {
        Some(class) => Ok(Some(tree(&class))),
        None => {
            let why = format!("pod rejected: RuntimeClass {} not found", quote(name));
            Err(write.forbidden(draft, &why))
        }
    }
}

/// The node selector of the Pod with that of the class. `None` if the class has none.
fn selector(
    write: &PluginWrite<'_>,
    draft: &Draft,
    scheduling: &Value,
) -> Result<Option<Map>, Status> {
    let Some(wanted) = scheduling["nodeSelector"].as_object() else {
        return Ok(None);
    };
    let given = draft
        .at(&["spec", "nodeSelector"])
        .and_then(Value::as_object);
    let mut selector = given.cloned().unwrap_or_default();
    for (key, value) in wanted {
        let said = value.as_str().unwrap_or_default();
        if let Some(other) = selector.get(key).filter(|other| *other != value) {
            let other = other.as_str().unwrap_or_default();
            let why = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {said}; pod.spec.nodeSelector[{key}] = {other}"
            );
            return Err(write.forbidden(draft, &why));
        }
        selector.insert(key.clone(), value.clone());
    }
    selector.sort_keys();
    Ok(Some(selector))
}
