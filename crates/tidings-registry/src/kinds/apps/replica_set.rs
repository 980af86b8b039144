//! `ReplicaSet` of `apps`: entry, defaults, rules and table.

use std::sync::Arc;

use tidings_api::FieldErrors;

use crate::defaults::{TypeDefaults, defaults};
use crate::kinds::workload;
use crate::kinds::workload::TEMPLATE_CONTAINERS;
use crate::kinds::{immutable, names};
use crate::model::{Draft, Generation, Kind, Scale, Strategy, Subresource};
use crate::table::fields::{int, int_or, name};
use crate::table::format::{age, containers, selector_or_none};
use crate::table::{AGE, CONTAINERS, IMAGES, NAME, SELECTOR, TablePrinter, integer};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "ReplicaSet".into(),
        plural: "replicasets".into(),
        printer: &PRINTER,
        short_names: names(["rs"]),
        categories: names(["all"]),
        generation: Generation::Counted,
        status: true,
        scale: Some(Scale::LabelSelector),
        fixed: vec![immutable(&["spec", "selector"])],
        bookmark_replicas: true,
        strategy: Arc::new(ReplicaSetStrategy),
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] =
    &[defaults("apps/v1.ReplicaSetSpec", &[("replicas", "1")])];

#[derive(Debug)]
struct ReplicaSetStrategy;

impl Strategy for ReplicaSetStrategy {
    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        _: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        workload::check_replicas(new, errors);
        super::check_workload(new, errors);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{print, workload};
    use tidings_json::json;

    #[test]
    fn replica_sets() {
        let spec = json!({"selector": {"matchLabels": {"app": "web"}}});
        let status = json!({"replicas": 2, "readyReplicas": 1});
        assert_eq!(
            print(&PRINTER, workload(spec, status)),
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
    }
}
