//! ReplicaSets.

use std::sync::Arc;

use tidings_api::FieldErrors;

use crate::complete::{TypeDefaults, defaults};
use crate::draft::Draft;
use crate::kind::{Generation, Kind, Scale, Subresource};
use crate::kinds::{immutable, names};
use crate::printers::apps as printers;
use crate::strategy::Strategy;

pub(super) fn kind() -> Kind {
    Kind {
        kind: "ReplicaSet".into(),
        plural: "replicasets".into(),
        printer: &printers::REPLICA_SET,
        short_names: names(["rs"]),
        categories: names(["all"]),
        generation: Generation::Counted,
        status: true,
        scale: Some(Scale::LabelSelector),
        fixed: vec![immutable(&["spec", "selector"])],
        bookmark_replicas: true,
        strategy: Arc::new(ReplicaSets),
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] =
    &[defaults("apps/v1.ReplicaSetSpec", &[("replicas", "1")])];

#[derive(Debug)]
struct ReplicaSets;

impl Strategy for ReplicaSets {
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
