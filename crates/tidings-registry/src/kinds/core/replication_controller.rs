//! `ReplicationController` of the core group: entry, defaults, rules and table.

use std::sync::Arc;

use tidings_api::FieldErrors;

use crate::defaults::{TypeDefaults, defaults, is_empty};
use crate::kinds::workload::{self, RestartPolicies, TEMPLATE, TEMPLATE_CONTAINERS};
use crate::kinds::{names, selectable};
use crate::model::{Draft, Generation, Kind, Scale, SelectableField, Strategy, Subresource};
use crate::table::fields::{has, int, int_or, name};
use crate::table::format::{age, containers, labels};
use crate::table::{AGE, CONTAINERS, IMAGES, NAME, SELECTOR, TablePrinter, integer};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "ReplicationController".into(),
        orphans: true,
        plural: "replicationcontrollers".into(),
        store_prefix: "controllers".into(),
        printer: &PRINTER,
        short_names: names(["rc"]),
        categories: names(["all"]),
        fields: vec![SelectableField {
            absent: "0",
            ..selectable("status.replicas", &[&["status", "replicas"]])
        }],
        generation: Generation::Counted,
        status: true,
        scale: Some(Scale::LabelMap),
        strategy: Arc::new(ReplicationControllerStrategy),
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[defaults(
    "core/v1.ReplicationControllerSpec",
    &[("replicas", "1")],
)];

#[derive(Debug)]
struct ReplicationControllerStrategy;

impl Strategy for ReplicationControllerStrategy {
    fn complete(&self, draft: &mut Draft) -> bool {
        if let Some(labels) = workload::template_labels(draft)
            && let Some(spec) = workload::spec_mut(draft)
            && is_empty(spec.get("selector"))
        {
            spec.insert("selector".into(), labels.into());
        }
        workload::label_as_template(draft);
        draft.members.contains_key("spec")
    }

    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        _: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        workload::check_replicas(new, errors);
        workload::check_pods(new, &TEMPLATE, RestartPolicies::OnlyAlways, errors);
    }
}

static PRINTER: TablePrinter = TablePrinter {
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
        let (names, images) = containers(object, TEMPLATE_CONTAINERS);
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
            print(&PRINTER, controller),
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
}
