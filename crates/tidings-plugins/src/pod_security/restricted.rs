//! The checks that the level `restricted` has besides those of `baseline`.

use std::collections::BTreeSet;

use tidings_json::Value;

use crate::pod::{items, text};

use super::baseline::{in_user_namespace, is_seccomp, seccomp};
use super::containers::{by_containers, named, names, quoted, setters, texts, violation, word};
use super::violation::{CheckedPod, Violation};

/// Windows has none of these settings.
fn is_windows(pod: CheckedPod<'_>) -> bool {
    text(&pod.spec["os"], "name") == "windows"
}

pub(super) fn privilege_escalation(pod: CheckedPod<'_>) -> Option<Violation> {
    let names = names(pod, |container| {
        container["securityContext"]["allowPrivilegeEscalation"] != Value::Bool(false)
    });
    by_containers(&names, "allowPrivilegeEscalation != false", |named| {
        format!("{named} must set securityContext.allowPrivilegeEscalation=false")
    })
}

pub(super) fn privilege_escalation_1_25(pod: CheckedPod<'_>) -> Option<Violation> {
    privilege_escalation(pod).filter(|_| !is_windows(pod))
}

pub(super) fn capabilities_dropped(pod: CheckedPod<'_>) -> Option<Violation> {
    let capabilities = |container: &Value, list: &str| -> BTreeSet<String> {
        let all = texts(&container["securityContext"]["capabilities"], list);
        all.map(ToOwned::to_owned).collect()
    };
    let keeping = names(pod, |container| {
        !capabilities(container, "drop").contains("ALL")
    });
    let mut added = BTreeSet::new();
    let adding = names(pod, |container| {
        let mut own = capabilities(container, "add");
        own.remove("NET_BIND_SERVICE");
        added.extend(own.iter().cloned());
        !own.is_empty()
    });
    let mut details = Vec::new();
    if !keeping.is_empty() {
        let who = named(&keeping);
        details.push(format!(
            "{who} must set securityContext.capabilities.drop=[\"ALL\"]"
        ));
    }
    if !adding.is_empty() {
        let (who, added) = (named(&adding), quoted(&added));
        details.push(format!(
            "{who} must not include {added} in securityContext.capabilities.add"
        ));
    }
    (!details.is_empty()).then(|| violation("unrestricted capabilities", details.join("; ")))
}

pub(super) fn capabilities_dropped_1_25(pod: CheckedPod<'_>) -> Option<Violation> {
    capabilities_dropped(pod).filter(|_| !is_windows(pod))
}

/// The types of volumes that may be used.
const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
/// Those that may not, as messages call them.
const RESTRICTED_VOLUMES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

pub(super) fn volume_types(pod: CheckedPod<'_>) -> Option<Violation> {
    let has = |volume: &Value, kind: &str| !volume[kind].is_null();
    let volumes = items(pod.spec, "volumes").iter();
    let wrong: Vec<&Value> = volumes
        .filter(|volume| !VOLUMES.iter().any(|kind| has(volume, kind)))
        .collect();
    if wrong.is_empty() {
        return None;
    }
    let kind = |volume: &&Value| {
        let mut known = RESTRICTED_VOLUMES.iter();
        known
            .find(|kind| has(volume, kind))
            .map_or("unknown", |kind| *kind)
    };
    let kinds: BTreeSet<&str> = wrong.iter().map(kind).collect();
    let names: Vec<&str> = wrong.iter().map(|volume| text(volume, "name")).collect();
    let detail = format!(
        "{} {} {} {} {}",
        word(names.len(), "volume", "volumes"),
        quoted(&names),
        word(names.len(), "uses", "use"),
        word(
            kinds.len(),
            "restricted volume type",
            "restricted volume types"
        ),
        quoted(&kinds)
    );
    Some(violation("restricted volume types", detail))
}

pub(super) fn not_root(pod: CheckedPod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let says = |of: &Value| of["securityContext"]["runAsNonRoot"].as_bool();
    let denying = names(pod, |container| says(container) == Some(false));
    if let Some(who) = setters(says(pod.spec) == Some(false), &denying) {
        let detail = format!("{who} must not set securityContext.runAsNonRoot=false");
        return Some(violation(REASON, detail));
    }
    if says(pod.spec) == Some(true) {
        return None;
    }
    let silent = names(pod, |container| says(container).is_none());
    by_containers(&silent, REASON, |named| {
        format!("pod or {named} must set securityContext.runAsNonRoot=true")
    })
}

pub(super) fn not_root_1_35(pod: CheckedPod<'_>) -> Option<Violation> {
    not_root(pod).filter(|_| !in_user_namespace(pod))
}

pub(super) fn root_user(pod: CheckedPod<'_>) -> Option<Violation> {
    let is_root = |of: &Value| of["securityContext"]["runAsUser"].as_i64() == Some(0);
    let who = setters(is_root(pod.spec), &names(pod, is_root))?;
    Some(violation(
        "runAsUser=0",
        format!("{who} must not set runAsUser=0"),
    ))
}

pub(super) fn root_user_1_35(pod: CheckedPod<'_>) -> Option<Violation> {
    root_user(pod).filter(|_| !in_user_namespace(pod))
}

pub(super) fn seccomp_set(pod: CheckedPod<'_>) -> Option<Violation> {
    if let Some(wrong) = seccomp(pod) {
        return Some(wrong);
    }
    let profile = |of: &Value| of["securityContext"]["seccompProfile"].clone();
    if is_seccomp(text(&profile(pod.spec), "type")) {
        return None;
    }
    let silent = names(pod, |container| profile(container).is_null());
    by_containers(&silent, "seccompProfile", |named| {
        format!(
            "pod or {named} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""
        )
    })
}

pub(super) fn seccomp_set_1_25(pod: CheckedPod<'_>) -> Option<Violation> {
    seccomp_set(pod).filter(|_| !is_windows(pod))
}
