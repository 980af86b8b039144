//! What the levels of pod security check, in which versions.

use super::baseline::{
    app_armor, capabilities_added, host_namespaces, host_path_volumes, host_ports, host_process,
    privileged, probe_hosts, proc_mount, proc_mount_outside_user_namespace, se_linux,
    se_linux_1_31, seccomp, seccomp_annotations, sysctls, sysctls_1_27, sysctls_1_29, sysctls_1_32,
};
use super::level::{Level, LevelVersion};
use super::restricted::{
    capabilities_dropped, capabilities_dropped_1_25, not_root, not_root_1_35, privilege_escalation,
    privilege_escalation_1_25, root_user, root_user_1_35, seccomp_set, seccomp_set_1_25,
    volume_types,
};
use super::violation::{CheckedPod, Violation};

type CheckPod = fn(CheckedPod<'_>) -> Option<Violation>;

/// One thing that is checked.
struct Check {
    id: &'static str,
    /// How it is checked, from a minor version on.
    versions: &'static [(u32, CheckPod)],
    /// The check of the lower level that it replaces.
    replaces: &'static str,
}

const fn check(id: &'static str, versions: &'static [(u32, CheckPod)]) -> Check {
    Check {
        id,
        versions,
        replaces: "",
    }
}

impl Check {
    const fn instead_of(self, replaces: &'static str) -> Check {
        Check { replaces, ..self }
    }

    fn in_version(&self, minor: u32) -> Option<CheckPod> {
        let known = self.versions.iter().rev();
        let mut known = known.filter(|(from, _)| *from <= minor);
        known.next().map(|(_, check)| *check)
    }
}

/// Sorted by name, which is the order of messages.
const BASELINE: &[Check] = &[
    check("appArmorProfile", &[(0, app_armor)]),
    check("capabilities_baseline", &[(0, capabilities_added)]),
    check("hostNamespaces", &[(0, host_namespaces)]),
    check("hostPathVolumes", &[(0, host_path_volumes)]),
    check("hostPorts", &[(0, host_ports)]),
    check("hostProbesAndHostLifecycle", &[(34, probe_hosts)]),
    check("privileged", &[(0, privileged)]),
    check(
        "procMount",
        &[(0, proc_mount), (35, proc_mount_outside_user_namespace)],
    ),
    check("seLinuxOptions", &[(0, se_linux), (31, se_linux_1_31)]),
    check(
        "seccompProfile_baseline",
        &[(0, seccomp_annotations), (19, seccomp)],
    ),
    check(
        "sysctls",
        &[
            (0, sysctls),
            (27, sysctls_1_27),
            (29, sysctls_1_29),
            (32, sysctls_1_32),
        ],
    ),
    check("windowsHostProcess", &[(0, host_process)]),
];

/// Sorted by name.
const RESTRICTED: &[Check] = &[
    check(
        "allowPrivilegeEscalation",
        &[(8, privilege_escalation), (25, privilege_escalation_1_25)],
    ),
    check(
        "capabilities_restricted",
        &[(22, capabilities_dropped), (25, capabilities_dropped_1_25)],
    )
    .instead_of("capabilities_baseline"),
    check("procMount_restricted", &[(35, proc_mount)]).instead_of("procMount"),
    check("restrictedVolumes", &[(0, volume_types)]).instead_of("hostPathVolumes"),
    check("runAsNonRoot", &[(0, not_root), (35, not_root_1_35)]),
    check("runAsUser", &[(23, root_user), (35, root_user_1_35)]),
    check(
        "seccompProfile_restricted",
        &[(19, seccomp_set), (25, seccomp_set_1_25)],
    )
    .instead_of("seccompProfile_baseline"),
];

/// What a Pod violates, in the order of messages.
pub(super) fn violations(wanted: LevelVersion, pod: CheckedPod<'_>) -> Vec<Violation> {
    let minor = wanted.version.minor();
    let restricted: Vec<(&Check, CheckPod)> = RESTRICTED
        .iter()
        .filter(|_| wanted.level == Level::Restricted)
        .filter_map(|check| Some((check, check.in_version(minor)?)))
        .collect();
    let is_replaced = |id: &str| restricted.iter().any(|(check, _)| check.replaces == id);
    let baseline = BASELINE
        .iter()
        .filter(|_| wanted.level != Level::Privileged)
        .filter(|check| !is_replaced(check.id))
        .filter_map(|check| check.in_version(minor));
    let all = baseline.chain(restricted.iter().map(|(_, check)| *check));
    all.filter_map(|check| check(pod)).collect()
}

/// The reasons alone.
pub(super) fn reasons(violations: &[Violation]) -> String {
    let reasons: Vec<&str> = violations
        .iter()
        .map(|violation| &*violation.reason)
        .collect();
    reasons.join(", ")
}

/// The reasons with their details.
pub(super) fn details(violations: &[Violation]) -> String {
    let each = violations.iter().map(|violation| {
        let Violation { reason, detail } = violation;
        match &**detail {
            "" => reason.clone(),
            detail => format!("{reason} ({detail})"),
        }
    });
    each.collect::<Vec<_>>().join(", ")
}
