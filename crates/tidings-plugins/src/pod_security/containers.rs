//! Containers with a fault, as messages name them.

use std::collections::BTreeSet;

use tidings_json::Value;

use crate::pod::{items, text};

use super::violation::{CheckedPod, Violation};

/// All containers, in the order of messages.
pub(super) fn containers(pod: CheckedPod<'_>) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(move |list| items(pod.spec, list))
}

/// The names of the containers with a fault.
pub(super) fn names<'p>(
    pod: CheckedPod<'p>,
    mut has_fault: impl FnMut(&'p Value) -> bool,
) -> Vec<&'p str> {
    let wrong = containers(pod).filter(|container| has_fault(container));
    wrong.map(|container| text(container, "name")).collect()
}

/// `"a", "b"`.
pub(super) fn quoted<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    let quoted = texts
        .into_iter()
        .map(|text| format!("\"{}\"", text.as_ref()));
    quoted.collect::<Vec<_>>().join(", ")
}

/// The word for one, or for several.
pub(super) fn word<'w>(count: usize, one: &'w str, several: &'w str) -> &'w str {
    if count == 1 { one } else { several }
}

/// `container "a"`, `containers "a", "b"`.
pub(super) fn named(names: &[&str]) -> String {
    let word = word(names.len(), "container", "containers");
    format!("{word} {}", quoted(names))
}

/// Who sets something wrong: `pod and container "a"`. `None` if nobody does.
pub(super) fn setters(pod: bool, names: &[&str]) -> Option<String> {
    match (pod, names) {
        (false, []) => None,
        (true, []) => Some("pod".to_owned()),
        (false, names) => Some(named(names)),
        (true, names) => Some(format!("pod and {}", named(names))),
    }
}

/// A violation by some containers; `None` if there are none.
pub(super) fn by_containers(
    names: &[&str],
    reason: &str,
    detail: impl FnOnce(&str) -> String,
) -> Option<Violation> {
    (!names.is_empty()).then(|| Violation {
        reason: reason.to_owned(),
        detail: detail(&named(names)),
    })
}

pub(super) fn violation(reason: &str, detail: String) -> Violation {
    Violation {
        reason: reason.to_owned(),
        detail,
    }
}

/// The texts of a list.
pub(super) fn texts<'v>(value: &'v Value, list: &str) -> impl Iterator<Item = &'v str> {
    items(value, list).iter().filter_map(Value::as_str)
}

/// Who sets a type in the security context that is not allowed: the Pod, containers, the types.
pub(super) fn wrong_types<'p>(
    pod: CheckedPod<'p>,
    member: &str,
    is_allowed: impl Fn(&str) -> bool,
) -> (bool, Vec<&'p str>, BTreeSet<String>) {
    let mut types = BTreeSet::new();
    let mut is_wrong = |of: &Value| {
        let profile = &of["securityContext"][member];
        let kind = text(profile, "type");
        let wrong = !profile.is_null() && !is_allowed(kind);
        if wrong {
            types.insert(kind.to_owned());
        }
        wrong
    };
    let by_pod = is_wrong(pod.spec);
    let by_containers = names(pod, is_wrong);
    (by_pod, by_containers, types)
}
