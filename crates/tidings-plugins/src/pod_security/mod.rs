//! `PodSecurity`: namespaces say by labels how strict they are about what Pods may do on their node.

mod baseline;
mod checks;
mod containers;
mod level;
mod restricted;
mod violation;

use std::collections::{BTreeMap, HashSet};

use tidings_admission::Operation;
use tidings_api::{GroupVersionKind, Object, Status};
use tidings_go::quote;
use tidings_json::Value;
use tidings_registry::{Draft, Kind, Subresource};

use crate::plugin::Plugin;
use crate::pod::{items, text};
use crate::write::{Known, PluginSaid, PluginWrite, is_kind, tree};
use checks::{details, reasons, violations};
use level::{Level, LevelVersion, Policy};
use violation::CheckedPod;

/// How many Pods are looked at when a namespace becomes stricter.
const PODS_MAX: usize = 3000;

pub(crate) struct PodSecurity;

/// The path to the template of Pods in kinds that have one.
fn template(kind: &Kind) -> Option<&'static [&'static str]> {
    match (&*kind.group, &*kind.plural) {
        ("", "podtemplates") => Some(&["template"]),
        ("", "replicationcontrollers")
        | ("apps", "replicasets" | "deployments" | "daemonsets" | "statefulsets")
        | ("batch", "jobs") => Some(&["spec", "template"]),
        ("batch", "cronjobs") => Some(&["spec", "jobTemplate", "spec", "template"]),
        _ => None,
    }
}

impl Plugin for PodSecurity {
    fn concerns(&self, kind: &Kind) -> bool {
        is_kind(kind, "", "pods") || is_kind(kind, "", "namespaces") || template(kind).is_some()
    }

    fn check(
        &self,
        write: &PluginWrite<'_>,
        new: &Draft,
        old: Option<&Draft>,
        said: &mut PluginSaid,
    ) -> Result<(), Status> {
        if !matches!(write.operation, Operation::Create | Operation::Update) {
            return Ok(());
        }
        match template(write.kind) {
            None if write.is_of("", "namespaces") => check_namespace(write, new, old, said),
            None => check_pod(write, new, old, said),
            Some(path) => {
                check_template(write, new, path, said);
                Ok(())
            }
        }
    }
}

fn check_namespace(
    write: &PluginWrite<'_>,
    new: &Draft,
    old: Option<&Draft>,
    said: &mut PluginSaid,
) -> Result<(), Status> {
    if write.subresource.is_some() {
        return Ok(());
    }
    let (policy, errors) = Policy::of(&new.meta.labels);
    let before = old.map(|old| Policy::of(&old.meta.labels));
    let texts = |errors: &tidings_api::FieldErrors| -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    };
    let known = before.as_ref().map(|(_, errors)| texts(errors));
    if !errors.is_empty() && known.is_none_or(|known| known != texts(&errors)) {
        let kind = GroupVersionKind {
            kind: "Namespace",
            ..write.kind.group_version_kind()
        };
        return Err(Status::invalid(kind, &new.meta.name, &errors));
    }
    let Some((before, _)) = before else {
        return Ok(());
    };
    let (enforce, before) = (policy.enforce, before.enforce);
    let relaxed = enforce.version == before.version && enforce.level <= before.level;
    if enforce != before && enforce.level != Level::Privileged && !relaxed {
        warn_of_pods(write, &new.meta.name, enforce, said);
    }
    Ok(())
}

/// Warns of the Pods that a stricter namespace would not accept any more.
fn warn_of_pods(
    write: &PluginWrite<'_>,
    namespace: &str,
    enforce: LevelVersion,
    said: &mut PluginSaid,
) {
    let mut pods = one_of_each_owner_first(write.cluster.list(Known::Pods, namespace));
    let all = pods.len();
    pods.truncate(PODS_MAX);
    if pods.len() < all {
        said.warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {} of {all} existing pods",
            pods.len()
        ));
    }
    // What is violated, the first Pod by name, and how many there are.
    let mut found: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for pod in pods {
        let json = tree(&pod);
        let annotations = pod.annotations().into_iter().collect();
        let checked = CheckedPod {
            annotations: &annotations,
            spec: &json["spec"],
        };
        let violated = violations(enforce, checked);
        if violated.is_empty() {
            continue;
        }
        let name = pod.name().into_owned();
        let (first, count) = found
            .entry(reasons(&violated))
            .or_insert_with(|| (name.clone(), 0));
        *count += 1;
        if name < *first {
            *first = name;
        }
    }
    if found.is_empty() {
        return;
    }
    said.warnings.push(format!(
        "existing pods in namespace {} violate the new PodSecurity enforce level {}",
        quote(namespace),
        quote(&enforce.to_string())
    ));
    let mut warnings: Vec<String> = found
        .into_iter()
        .map(|(why, (first, count))| match count {
            1 => format!("{first}: {why}"),
            2 => format!("{first} (and 1 other pod): {why}"),
            _ => format!("{first} (and {} other pods): {why}", count - 1),
        })
        .collect();
    warnings.sort_unstable();
    said.warnings.extend(warnings);
}

/// The Pods in the order in which they are looked at: of those with one controller the first, then the others.
fn one_of_each_owner_first(pods: Vec<Object>) -> Vec<Object> {
    let mut seen = HashSet::new();
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for pod in pods {
        let json = tree(&pod);
        let mut owners = items(&json["metadata"], "ownerReferences").iter();
        let owner = owners.find(|owner| owner["controller"] == Value::Bool(true));
        let is_first = owner.is_none_or(|owner| seen.insert(text(owner, "uid").to_owned()));
        match is_first {
            true => first.push(pod),
            false => others.push(pod),
        }
    }
    first.append(&mut others);
    first
}

fn policy_of(write: &PluginWrite<'_>) -> Option<(Policy, tidings_api::FieldErrors)> {
    let namespace = write.cluster.get(Known::Namespaces, "", write.namespace)?;
    let labels = namespace.labels().iter();
    let labels = labels
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    Some(Policy::of(&labels))
}

fn check_pod(
    write: &PluginWrite<'_>,
    new: &Draft,
    old: Option<&Draft>,
    said: &mut PluginSaid,
) -> Result<(), Status> {
    if write.subresource == Some(Subresource::Status) {
        return Ok(());
    }
    let Some((policy, errors)) = policy_of(write) else {
        return Ok(());
    };
    if errors.is_empty() && policy.is_privileged() {
        said.notes.push((ENFORCED, policy.enforce.to_string()));
        return Ok(());
    }
    let null = Value::Null;
    let spec = new.members.get("spec").unwrap_or(&null);
    if let Some(old) = old
        && !is_significant(spec, old.members.get("spec").unwrap_or(&null))
    {
        return Ok(());
    }
    note_errors(&errors, said);
    said.notes.push((ENFORCED, policy.enforce.to_string()));
    let pod = CheckedPod {
        annotations: &new.meta.annotations,
        spec,
    };
    let violated = violations(policy.enforce, pod);
    let refused = (!violated.is_empty()).then(|| {
        let why = format!(
            "violates PodSecurity {}: {}",
            quote(&policy.enforce.to_string()),
            details(&violated)
        );
        write.forbidden(new, &why)
    });
    tell(policy, pod, refused.is_none(), said);
    refused.map_or(Ok(()), Err)
}

/// Templates are not refused: only what runs is.
fn check_template(write: &PluginWrite<'_>, new: &Draft, path: &[&str], said: &mut PluginSaid) {
    if write.subresource.is_some() {
        return;
    }
    let Some((policy, errors)) = policy_of(write) else {
        return;
    };
    let is_silent = [policy.warn, policy.audit]
        .iter()
        .all(|mode| mode.level == Level::Privileged);
    if errors.is_empty() && is_silent {
        return;
    }
    let Some(template) = new.at(path).filter(|template| !template.is_null()) else {
        return;
    };
    note_errors(&errors, said);
    let annotations = template["metadata"]["annotations"].as_object();
    let annotations: BTreeMap<String, String> = annotations
        .into_iter()
        .flat_map(tidings_json::Map::iter)
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect();
    let pod = CheckedPod {
        annotations: &annotations,
        spec: &template["spec"],
    };
    tell(policy, pod, true, said);
}

const ENFORCED: &str = "pod-security.kubernetes.io/enforce-policy";
const VIOLATED: &str = "pod-security.kubernetes.io/audit-violations";
const FAILED: &str = "pod-security.kubernetes.io/error";

fn note_errors(errors: &tidings_api::FieldErrors, said: &mut PluginSaid) {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let text = match texts.as_slice() {
        [] => return,
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    said.notes
        .push((FAILED, format!("Failed to parse policy: {text}")));
}

/// Tells the audit log and the client what violates the levels that they are to be told of.
fn tell(policy: Policy, pod: CheckedPod<'_>, warns: bool, said: &mut PluginSaid) {
    let would = |level: LevelVersion| {
        let violated = violations(level, pod);
        (!violated.is_empty()).then(|| {
            let level = quote(&level.to_string());
            format!("would violate PodSecurity {level}: {}", details(&violated))
        })
    };
    said.notes
        .extend(would(policy.audit).map(|text| (VIOLATED, text)));
    if warns {
        said.warnings.extend(would(policy.warn));
    }
}

/// True if other images or containers run after an update.
fn is_significant(new: &Value, old: &Value) -> bool {
    let image = |container: &Value| text(container, "image").to_owned();
    let images =
        |spec: &Value, list: &str| -> Vec<String> { items(spec, list).iter().map(image).collect() };
    let changed = |list: &str| images(new, list) != images(old, list);
    let ephemeral = "ephemeralContainers";
    let is_new = |container: &Value| {
        let mut known = items(old, ephemeral).iter();
        let known = known.find(|known| text(known, "name") == text(container, "name"));
        known.is_none_or(|known| image(known) != image(container))
    };
    changed("containers") || changed("initContainers") || items(new, ephemeral).iter().any(is_new)
}
