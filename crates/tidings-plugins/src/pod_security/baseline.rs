//! The checks of the level `baseline`.

use std::collections::BTreeSet;

use tidings_go::quote;
use tidings_json::Value;

use crate::pod::{items, text};

use super::containers::{
    by_containers, containers, names, quoted, setters, texts, violation, word, wrong_types,
};
use super::violation::{CheckedPod, Violation};

const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

pub(super) fn app_armor(pod: CheckedPod<'_>) -> Option<Violation> {
    const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
    let allowed = |kind: &str| matches!(kind, "RuntimeDefault" | "Localhost");
    let (by_pod, by_containers, types) = wrong_types(pod, "appArmorProfile", allowed);
    let annotated = |value: &str| {
        value.is_empty() || value == "runtime/default" || value.starts_with("localhost/")
    };
    let annotations: Vec<String> = pod
        .annotations
        .iter()
        .filter(|(key, value)| key.starts_with(PREFIX) && !annotated(value))
        .map(|(key, value)| format!("{key}={}", quote(value)))
        .collect();
    let mut who: Vec<String> = setters(by_pod, &by_containers).into_iter().collect();
    if !annotations.is_empty() {
        who.push(word(annotations.len(), "annotation", "annotations").to_owned());
    }
    if who.is_empty() {
        return None;
    }
    let values: Vec<String> = types.into_iter().chain(annotations).collect();
    let reason = word(
        values.len(),
        "forbidden AppArmor profile",
        "forbidden AppArmor profiles",
    );
    let detail = format!(
        "{} must not set AppArmor profile type to {}",
        who.join(" and "),
        quoted(&values)
    );
    Some(violation(reason, detail))
}

pub(super) fn capabilities_added(pod: CheckedPod<'_>) -> Option<Violation> {
    let mut added = BTreeSet::new();
    let names = names(pod, |container| {
        let all = texts(&container["securityContext"]["capabilities"], "add");
        let wrong: Vec<&str> = all.filter(|name| !CAPABILITIES.contains(name)).collect();
        added.extend(wrong.iter().copied());
        !wrong.is_empty()
    });
    by_containers(&names, "non-default capabilities", |named| {
        let added = quoted(&added);
        format!("{named} must not include {added} in securityContext.capabilities.add")
    })
}

pub(super) fn host_namespaces(pod: CheckedPod<'_>) -> Option<Violation> {
    let shared: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|name| pod.spec[*name] == Value::Bool(true))
        .map(|name| format!("{name}=true"))
        .collect();
    (!shared.is_empty()).then(|| violation("host namespaces", shared.join(", ")))
}

pub(super) fn host_path_volumes(pod: CheckedPod<'_>) -> Option<Violation> {
    let volumes = items(pod.spec, "volumes").iter();
    let volumes = volumes.filter(|volume| !volume["hostPath"].is_null());
    let names: Vec<&str> = volumes.map(|volume| text(volume, "name")).collect();
    (!names.is_empty()).then(|| {
        let word = word(names.len(), "volume", "volumes");
        violation("hostPath volumes", format!("{word} {}", quoted(&names)))
    })
}

pub(super) fn host_ports(pod: CheckedPod<'_>) -> Option<Violation> {
    let mut ports = BTreeSet::new();
    let names = names(pod, |container| {
        let used = items(container, "ports").iter();
        let used = used.filter_map(|port| port["hostPort"].as_i64());
        let used: Vec<String> = used
            .filter(|port| *port != 0)
            .map(|port| port.to_string())
            .collect();
        let any = !used.is_empty();
        ports.extend(used);
        any
    });
    by_containers(&names, "hostPort", |named| {
        let uses = word(names.len(), "uses", "use");
        let called = word(ports.len(), "hostPort", "hostPorts");
        let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
        format!("{named} {uses} {called} {}", ports.join(", "))
    })
}

pub(super) fn probe_hosts(pod: CheckedPod<'_>) -> Option<Violation> {
    let mut hosts = BTreeSet::new();
    let wrong: BTreeSet<&str> = names(pod, |container| {
        let lifecycle = &container["lifecycle"];
        let handlers = [
            &container["livenessProbe"],
            &container["readinessProbe"],
            &container["startupProbe"],
            &lifecycle["postStart"],
            &lifecycle["preStop"],
        ];
        let named = handlers
            .into_iter()
            .flat_map(|handler| [&handler["httpGet"], &handler["tcpSocket"]])
            .map(|action| text(action, "host"))
            .filter(|host| !host.is_empty());
        let named: Vec<&str> = named.collect();
        hosts.extend(named.iter().copied());
        !named.is_empty()
    })
    .into_iter()
    .collect();
    let names: Vec<&str> = wrong.into_iter().collect();
    by_containers(&names, "probe or lifecycle host", |named| {
        let uses = word(names.len(), "uses", "use");
        let called = word(
            hosts.len(),
            "probe or lifecycle host",
            "probe or lifecycle hosts",
        );
        format!("{named} {uses} {called} {}", quoted(&hosts))
    })
}

pub(super) fn privileged(pod: CheckedPod<'_>) -> Option<Violation> {
    let names = names(pod, |container| {
        container["securityContext"]["privileged"] == Value::Bool(true)
    });
    by_containers(&names, "privileged", |named| {
        format!("{named} must not set securityContext.privileged=true")
    })
}

pub(super) fn proc_mount(pod: CheckedPod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let names = names(pod, |container| {
        let mount = container["securityContext"]["procMount"].as_str();
        let wrong = mount.filter(|mount| *mount != "Default");
        types.extend(wrong);
        wrong.is_some()
    });
    by_containers(&names, "procMount", |named| {
        let types = quoted(&types);
        format!("{named} must not set securityContext.procMount to {types}")
    })
}

pub(super) fn proc_mount_outside_user_namespace(pod: CheckedPod<'_>) -> Option<Violation> {
    proc_mount(pod).filter(|_| !in_user_namespace(pod))
}

/// Root in such a Pod is nobody on the node.
pub(super) fn in_user_namespace(pod: CheckedPod<'_>) -> bool {
    pod.spec["hostUsers"] == Value::Bool(false)
}

pub(super) fn se_linux(pod: CheckedPod<'_>) -> Option<Violation> {
    se_linux_options(
        pod,
        &["", "container_t", "container_init_t", "container_kvm_t"],
    )
}

pub(super) fn se_linux_1_31(pod: CheckedPod<'_>) -> Option<Violation> {
    let types = [
        "",
        "container_t",
        "container_init_t",
        "container_kvm_t",
        "container_engine_t",
    ];
    se_linux_options(pod, &types)
}

fn se_linux_options(pod: CheckedPod<'_>, allowed: &[&str]) -> Option<Violation> {
    let (mut types, mut user, mut role) = (BTreeSet::new(), false, false);
    let mut is_wrong = |of: &Value| {
        let options = &of["securityContext"]["seLinuxOptions"];
        if options.is_null() {
            return false;
        }
        let kind = text(options, "type");
        let wrong_type = !allowed.contains(&kind);
        if wrong_type {
            types.insert(kind.to_owned());
        }
        let sets = |member: &str| !text(options, member).is_empty();
        user |= sets("user");
        role |= sets("role");
        wrong_type || sets("user") || sets("role")
    };
    let by_pod = is_wrong(pod.spec);
    let by_containers = names(pod, is_wrong);
    let who = setters(by_pod, &by_containers)?;
    let mut what = Vec::new();
    if !types.is_empty() {
        what.push(format!(
            "{} {}",
            word(types.len(), "type", "types"),
            quoted(&types)
        ));
    }
    if user {
        what.push("user may not be set".to_owned());
    }
    if role {
        what.push("role may not be set".to_owned());
    }
    let what = what.join("; ");
    let detail = format!("{who} set forbidden securityContext.seLinuxOptions: {what}");
    Some(violation("seLinuxOptions", detail))
}

/// Before there was a field for it, the profile stood in annotations.
pub(super) fn seccomp_annotations(pod: CheckedPod<'_>) -> Option<Violation> {
    let of_pod = "seccomp.security.alpha.kubernetes.io/pod".to_owned();
    let of_containers = containers(pod).map(|container| {
        let name = text(container, "name");
        format!("container.seccomp.security.alpha.kubernetes.io/{name}")
    });
    let allowed = |value: &str| {
        matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/")
    };
    let wrong: BTreeSet<String> = std::iter::once(of_pod)
        .chain(of_containers)
        .filter_map(|key| {
            let value = pod.annotations.get(&key)?;
            (!allowed(value)).then(|| format!("{key}={}", quote(value)))
        })
        .collect();
    (!wrong.is_empty()).then(|| {
        let word = word(wrong.len(), "annotation", "annotations");
        let list: Vec<&str> = wrong.iter().map(String::as_str).collect();
        violation(
            "seccompProfile",
            format!("forbidden {word} {}", list.join(", ")),
        )
    })
}

pub(super) fn seccomp(pod: CheckedPod<'_>) -> Option<Violation> {
    let (by_pod, by_containers, types) = wrong_types(pod, "seccompProfile", is_seccomp);
    let who = setters(by_pod, &by_containers)?;
    let types = quoted(&types);
    let detail = format!("{who} must not set securityContext.seccompProfile.type to {types}");
    Some(violation("seccompProfile", detail))
}

pub(super) fn is_seccomp(kind: &str) -> bool {
    matches!(kind, "RuntimeDefault" | "Localhost")
}

const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    // From 1.27 on.
    "net.ipv4.ip_local_reserved_ports",
    // From 1.29 on.
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    // From 1.32 on.
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

pub(super) fn sysctls(pod: CheckedPod<'_>) -> Option<Violation> {
    sysctls_but(pod, &SYSCTLS[..5])
}

pub(super) fn sysctls_1_27(pod: CheckedPod<'_>) -> Option<Violation> {
    sysctls_but(pod, &SYSCTLS[..6])
}

pub(super) fn sysctls_1_29(pod: CheckedPod<'_>) -> Option<Violation> {
    sysctls_but(pod, &SYSCTLS[..10])
}

pub(super) fn sysctls_1_32(pod: CheckedPod<'_>) -> Option<Violation> {
    sysctls_but(pod, &SYSCTLS)
}

fn sysctls_but(pod: CheckedPod<'_>, allowed: &[&str]) -> Option<Violation> {
    let set = items(&pod.spec["securityContext"], "sysctls").iter();
    let names = set.map(|sysctl| text(sysctl, "name"));
    let wrong: Vec<&str> = names.filter(|name| !allowed.contains(name)).collect();
    (!wrong.is_empty()).then(|| violation("forbidden sysctls", wrong.join(", ")))
}

pub(super) fn host_process(pod: CheckedPod<'_>) -> Option<Violation> {
    let is_set =
        |of: &Value| of["securityContext"]["windowsOptions"]["hostProcess"] == Value::Bool(true);
    let who = setters(is_set(pod.spec), &names(pod, is_set))?;
    let detail = format!("{who} must not set securityContext.windowsOptions.hostProcess=true");
    Some(violation("hostProcess", detail))
}
