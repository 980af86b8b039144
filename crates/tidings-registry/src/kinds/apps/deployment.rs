//! `Deployment` of `apps`: entry, defaults, rules and table.

use std::sync::Arc;

use tidings_api::FieldErrors;
use tidings_json::json;

use crate::defaults::{TypeDefaults, defaults};
use crate::kinds::workload;
use crate::kinds::workload::{TEMPLATE_CONTAINERS, complete_rolling_update};
use crate::kinds::{immutable, names};
use crate::model::{Draft, Generation, Kind, Scale, StatusKeeps, Strategy, Subresource};
use crate::table::fields::{int, name};
use crate::table::format::{age, containers, selector};
use crate::table::{AGE, CONTAINERS, IMAGES, NAME, SELECTOR, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "Deployment".into(),
        plural: "deployments".into(),
        printer: &PRINTER,
        short_names: names(["deploy"]),
        categories: names(["all"]),
        generation: Generation::CountedWithAnnotations,
        status: true,
        status_keeps: Some(StatusKeeps::Labels),
        scale: Some(Scale::LabelSelector),
        fixed: vec![immutable(&["spec", "selector"])],
        bookmark_replicas: true,
        strategy: Arc::new(DeploymentStrategy),
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[
    defaults(
        "apps/v1.DeploymentSpec",
        &[
            ("replicas", "1"),
            ("revisionHistoryLimit", "10"),
            ("progressDeadlineSeconds", "600"),
        ],
    ),
    defaults(
        "apps/v1.DeploymentStrategy",
        &[("type", r#""RollingUpdate""#)],
    )
    .and(|strategy| {
        let defaults = [("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))];
        complete_rolling_update(strategy, &defaults);
    }),
];

#[derive(Debug)]
struct DeploymentStrategy;

impl Strategy for DeploymentStrategy {
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
        string("Ready", "Ready pods out of the desired ones."),
        string("Up-to-date", "Pods of the newest template."),
        string("Available", "Pods that serve for long enough."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, now| {
        let (names, images) = containers(object, TEMPLATE_CONTAINERS);
        cells![
            name(object),
            super::ready(object),
            int(object, &["status", "updatedReplicas"]),
            int(object, &["status", "availableReplicas"]),
            age(object, now),
            names,
            images,
            selector(object, &["spec", "selector"]).unwrap_or_else(|| "<invalid>".to_string()),
        ]
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{print, workload};

    #[test]
    fn deployments() {
        let web = json!({"selector": {"matchLabels": {"app": "web", "a": "b"}}});
        assert_eq!(
            print(&PRINTER, workload(web, json!({"updatedReplicas": 1}))),
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
            print(&PRINTER, workload(spec, status)),
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
            print(&PRINTER, workload(invalid, json!({})))[7],
            "<invalid>"
        );
    }
}
