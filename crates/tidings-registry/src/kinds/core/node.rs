//! `Node` of the core group: entry and table.

use std::collections::BTreeSet;

use tidings_json::Value;

use crate::kinds::{names, selectable};
use crate::model::{Kind, SelectableField};
use crate::table::fields::{flag, list, map, name, nonempty, text};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, string, wide};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "Node".into(),
        plural: "nodes".into(),
        store_prefix: "minions".into(),
        printer: &PRINTER,
        short_names: names(["no"]),
        namespaced: false,
        fields: vec![SelectableField {
            absent: "false",
            ..selectable("spec.unschedulable", &[&["spec", "unschedulable"]])
        }],
        status: true,
        // A kubelet creates its Node with a status.
        created_with_status: true,
        ..super::plain()
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Status", "Whether the node is ready and accepts pods."),
        string("Roles", "The node's roles, from its labels."),
        AGE,
        string("Version", "The kubelet's version."),
        wide("Internal-IP", "The first address inside the cluster."),
        wide("External-IP", "The first address outside the cluster."),
        wide("OS-Image", "The operating system."),
        wide("Kernel-Version", "The kernel version and architecture."),
        wide(
            "Container-Runtime",
            "The container runtime and its version.",
        ),
    ],
    cells: |node, now| {
        let info = |key| text(node, &["status", "nodeInfo", key]);
        let known = |key| nonempty(info(key), "<unknown>");
        let kernel = match info("architecture") {
            "" => known("kernelVersion").to_string(),
            architecture => format!("{} ({architecture})", known("kernelVersion")),
        };
        cells![
            name(node),
            status(node),
            roles(node),
            age(node, now),
            info("kubeletVersion"),
            address(node, "InternalIP"),
            address(node, "ExternalIP"),
            known("osImage"),
            kernel,
            known("containerRuntimeVersion"),
        ]
    },
};

fn status(node: &Value) -> String {
    // If there are several Ready conditions, the last one counts.
    let ready = list(node, &["status", "conditions"])
        .iter()
        .rfind(|item| text(item, &["type"]) == "Ready");
    let status = match ready.map(|item| text(item, &["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if flag(node, &["spec", "unschedulable"]) {
        format!("{status},SchedulingDisabled")
    } else {
        status.to_string()
    }
}

/// The Roles column, from label names that begin with `node-role.kubernetes.io/` and the label `kubernetes.io/role`.
fn roles(node: &Value) -> String {
    let roles: BTreeSet<&str> = map(node, &["metadata", "labels"])
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.as_str() {
            "kubernetes.io/role" => value.as_str(),
            key => key.strip_prefix("node-role.kubernetes.io/"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() {
        return "<none>".to_string();
    }
    Vec::from_iter(roles).join(",")
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    list(node, &["status", "addresses"])
        .iter()
        .find(|item| text(item, &["type"]) == kind)
        .map_or("<none>", |item| text(item, &["address"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn ready_node() {
        let mut node = json!({
            "metadata": meta("n1"),
            "spec": {"unschedulable": true},
            "status": {
                "conditions": [
                    {"type": "MemoryPressure", "status": "False"},
                    {"type": "Ready", "status": "True"},
                ],
                "addresses": [
                    {"type": "Hostname", "address": "h"},
                    {"type": "InternalIP", "address": "10.0.0.9"},
                    {"type": "ExternalIP", "address": "1.1.1.1"},
                ],
                "nodeInfo": {
                    "architecture": "amd64",
                    "containerRuntimeVersion": "containerd://2.0",
                    "kernelVersion": "6.1",
                    "kubeletVersion": "v1.36.4",
                    "osImage": "Debian",
                },
            },
        });
        node["metadata"]["labels"] = json!({
            "node-role.kubernetes.io/control-plane": "",
            "kubernetes.io/role": "etcd",
        });
        assert_eq!(
            print(&PRINTER, node),
            json!([
                "n1",
                "Ready,SchedulingDisabled",
                "control-plane,etcd",
                "24s",
                "v1.36.4",
                "10.0.0.9",
                "1.1.1.1",
                "Debian",
                "6.1 (amd64)",
                "containerd://2.0"
            ])
        );
    }

    #[test]
    fn nodes_that_are_not_ready() {
        let status = |node: Value| print(&PRINTER, node)[1].clone();
        let silent = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
        assert_eq!(status(silent), "NotReady");
        assert_eq!(
            print(&PRINTER, json!({"metadata": meta("n3")})),
            json!([
                "n3",
                "Unknown",
                "<none>",
                "24s",
                "",
                "<none>",
                "<none>",
                "<unknown>",
                "<unknown>",
                "<unknown>"
            ])
        );
    }
}
