//! Deployments.

use std::sync::Arc;

use tidings_api::FieldErrors;
use tidings_json::json;

use crate::complete::{TypeDefaults, defaults};
use crate::draft::Draft;
use crate::kind::{Generation, Kind, Scale, Subresource};
use crate::kinds::workload::complete_rolling_update;
use crate::kinds::{immutable, names};
use crate::printers::apps as printers;
use crate::strategy::Strategy;

pub(super) fn kind() -> Kind {
    Kind {
        kind: "Deployment".into(),
        plural: "deployments".into(),
        printer: &printers::DEPLOYMENT,
        short_names: names(["deploy"]),
        categories: names(["all"]),
        generation: Generation::CountedWithAnnotations,
        status: true,
        status_keeps: Some("labels"),
        scale: Some(Scale::LabelSelector),
        fixed: vec![immutable(&["spec", "selector"])],
        bookmark_replicas: true,
        strategy: Arc::new(Deployments),
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
struct Deployments;

impl Strategy for Deployments {
    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        _: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        super::check_workload(new, errors);
    }
}
