//! Pod templates and replication controllers.

use crate::table::fields::{has, int, int_or, name};
use crate::table::format::{age, containers, labels};
use crate::table::{AGE, CONTAINERS, IMAGES, NAME, SELECTOR, TablePrinter, integer, string};

pub(crate) static POD_TEMPLATE: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Containers", "Container names in the template."),
        string("Images", "Container images in the template."),
        string("Pod Labels", "Labels that the pods get."),
    ],
    cells: |object, _| {
        let (names, images) = containers(object, &["template", "spec", "containers"]);
        let labels = labels(object, &["template", "metadata", "labels"]);
        cells![name(object), names, images, labels]
    },
};

pub(crate) static REPLICATION_CONTROLLER: TablePrinter = TablePrinter {
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
        let (names, images) = containers(object, &["spec", "template", "spec", "containers"]);
        // Without a selector, the labels of the template select the pods.
        let selector = if has(object, &["spec", "selector"]) {
            labels(object, &["spec", "selector"])
        } else {
            labels(object, &["spec", "template", "metadata", "labels"])
        };
        cells![
            name(object),
            int_or(object, &["spec", "replicas"], 1),
            int(object, &["status", "replicas"]),
            int(object, &["status", "readyReplicas"]),
            age(object, now),
            names,
            images,
            selector,
        ]
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print, two_containers};
    use tidings_json::json;

    #[test]
    fn replication_controller_with_defaults() {
        let controller = json!({
            "metadata": meta("rc"),
            "spec": {"template": {
                "metadata": {"labels": {"app": "web", "a": "b"}},
                "spec": {"containers": two_containers()},
            }},
            "status": {"replicas": 2, "readyReplicas": 1},
        });
        assert_eq!(
            print(&REPLICATION_CONTROLLER, controller),
            json!([
                "rc",
                1,
                2,
                1,
                "24s",
                "app,log",
                "nginx:1.27,busybox",
                "a=b,app=web"
            ])
        );
    }

    #[test]
    fn pod_templates() {
        let template = json!({"metadata": meta("t"), "template": {
            "metadata": {"labels": {"app": "web", "a": "b"}},
            "spec": {"containers": two_containers()},
        }});
        assert_eq!(
            print(&POD_TEMPLATE, template),
            json!(["t", "app,log", "nginx:1.27,busybox", "a=b,app=web"])
        );
    }
}
