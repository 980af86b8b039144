//! The apps group.

use jiff::Timestamp;
use tidings_json::Value;

use crate::table::fields::{flag, int, int_or, list, name, text};
use crate::table::format::{age, containers, labels, selector, selector_or_none};
use crate::table::{AGE, CONTAINERS, IMAGES, NAME, SELECTOR, TablePrinter, integer, string};

const POD_CONTAINERS: &[&str] = &["spec", "template", "spec", "containers"];

pub(crate) static DEPLOYMENT: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Ready", "Ready pods out of the desired ones."),
        string("Up-to-date", "Pods of the newest template."),
        string("Available", "Pods that serve for long enough."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, now| {
        let (names, images) = containers(object, POD_CONTAINERS);
        cells![
            name(object),
            ready(object),
            int(object, &["status", "updatedReplicas"]),
            int(object, &["status", "availableReplicas"]),
            age(object, now),
            names,
            images,
            selector(object, &["spec", "selector"]).unwrap_or_else(|| "<invalid>".to_string()),
        ]
    },
};

pub(crate) static REPLICA_SET: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        integer("Desired", "How many pods there should be."),
        integer("Current", "How many pods there are."),
        integer("Ready", "How many pods are ready."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, now| {
        let (names, images) = containers(object, POD_CONTAINERS);
        cells![
            name(object),
            int_or(object, &["spec", "replicas"], 1),
            int(object, &["status", "replicas"]),
            int(object, &["status", "readyReplicas"]),
            age(object, now),
            names,
            images,
            selector_or_none(object, &["spec", "selector"]),
        ]
    },
};

pub(crate) static STATEFUL_SET: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Ready", "Ready pods out of the desired ones."),
        AGE,
        CONTAINERS,
        IMAGES,
    ],
    cells: |object, now| {
        let (names, images) = containers(object, POD_CONTAINERS);
        cells![name(object), ready(object), age(object, now), names, images]
    },
};

pub(crate) static DAEMON_SET: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        integer("Desired", "Nodes that should run the pod."),
        integer("Current", "Nodes that run the pod and should."),
        integer("Ready", "Nodes whose pod is ready."),
        integer("Up-to-date", "Nodes whose pod has the newest template."),
        integer("Available", "Nodes whose pod serves for long enough."),
        string("Node Selector", "Labels of the nodes that run the pod."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: daemon_set_cells,
};

pub(crate) static CONTROLLER_REVISION: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Controller", "The object this is a revision of."),
        string("Revision", "The revision's number."),
        AGE,
    ],
    cells: |object, now| {
        cells![
            name(object),
            controller(object),
            int(object, &["revision"]),
            age(object, now),
        ]
    },
};

fn daemon_set_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(object, POD_CONTAINERS);
    let status = |key| int(object, &["status", key]);
    cells![
        name(object),
        status("desiredNumberScheduled"),
        status("currentNumberScheduled"),
        status("numberReady"),
        status("updatedNumberScheduled"),
        status("numberAvailable"),
        labels(object, &["spec", "template", "spec", "nodeSelector"]),
        age(object, now),
        names,
        images,
        selector_or_none(object, &["spec", "selector"]),
    ]
}

fn ready(object: &Value) -> String {
    let ready = int(object, &["status", "readyReplicas"]);
    let desired = int_or(object, &["spec", "replicas"], 1);
    format!("{ready}/{desired}")
}

/// The controlling owner as `kind.group/name`.
fn controller(object: &Value) -> String {
    let owners = list(object, &["metadata", "ownerReferences"]);
    let Some(owner) = owners.iter().find(|owner| flag(owner, &["controller"])) else {
        return "<none>".to_string();
    };
    let kind = text(owner, &["kind"]).to_lowercase();
    let name = text(owner, &["name"]);
    match text(owner, &["apiVersion"]).split_once('/') {
        Some((group, _)) => format!("{kind}.{}/{name}", group.to_lowercase()),
        None => format!("{kind}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print, two_containers};
    use tidings_json::json;

    fn workload(spec: Value, status: Value) -> Value {
        let mut object = json!({"metadata": meta("w"), "spec": spec, "status": status});
        object["spec"]["template"] = json!({"spec": {
            "containers": two_containers(),
            "nodeSelector": {"x": "y", "disk": "ssd"},
        }});
        object
    }

    #[test]
    fn deployments() {
        let web = json!({"selector": {"matchLabels": {"app": "web", "a": "b"}}});
        assert_eq!(
            print(&DEPLOYMENT, workload(web, json!({"updatedReplicas": 1}))),
            json!([
                "w",
                "0/1",
                1,
                0,
                "24s",
                "app,log",
                "nginx:1.27,busybox",
                "a=b,app=web"
            ])
        );
        let spec = json!({"replicas": 3, "selector": {
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "a", "operator": "In", "values": ["c", "b"]},
                {"key": "z", "operator": "DoesNotExist"},
            ],
        }});
        let status = json!({"updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 1});
        assert_eq!(
            print(&DEPLOYMENT, workload(spec, status)),
            json!([
                "w",
                "2/3",
                2,
                1,
                "24s",
                "app,log",
                "nginx:1.27,busybox",
                "a in (b,c),app=web,!z"
            ])
        );
        let invalid = json!({"selector": {"matchExpressions": [{"operator": "Like"}]}});
        assert_eq!(
            print(&DEPLOYMENT, workload(invalid, json!({})))[7],
            "<invalid>"
        );
    }

    #[test]
    fn sets() {
        let spec = json!({"selector": {"matchLabels": {"app": "web"}}});
        let status = json!({"replicas": 2, "readyReplicas": 1});
        assert_eq!(
            print(&REPLICA_SET, workload(spec.clone(), status.clone())),
            json!([
                "w",
                1,
                2,
                1,
                "24s",
                "app,log",
                "nginx:1.27,busybox",
                "app=web"
            ])
        );
        assert_eq!(
            print(&STATEFUL_SET, workload(spec.clone(), status)),
            json!(["w", "1/1", "24s", "app,log", "nginx:1.27,busybox"])
        );
        let status = json!({
            "desiredNumberScheduled": 5,
            "currentNumberScheduled": 4,
            "numberReady": 3,
            "updatedNumberScheduled": 2,
            "numberAvailable": 1,
        });
        assert_eq!(
            print(&DAEMON_SET, workload(spec, status)),
            json!([
                "w",
                5,
                4,
                3,
                2,
                1,
                "disk=ssd,x=y",
                "24s",
                "app,log",
                "nginx:1.27,busybox",
                "app=web"
            ])
        );
    }

    #[test]
    fn controller_revisions() {
        let revision = |owner: Value| {
            let mut revision = json!({"metadata": meta("cr"), "revision": 7});
            revision["metadata"]["ownerReferences"] = json!([owner]);
            print(&CONTROLLER_REVISION, revision)
        };
        assert_eq!(
            revision(
                json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web",
                            "controller": true})
            ),
            json!(["cr", "statefulset.apps/web", 7, "24s"])
        );
        assert_eq!(
            revision(json!({"apiVersion": "v1", "kind": "Pod", "name": "web", "controller": true}))
                [1],
            "pod/web"
        );
        assert_eq!(
            revision(json!({"apiVersion": "v1", "kind": "Node", "name": "web"}))[1],
            "<none>"
        );
    }
}
