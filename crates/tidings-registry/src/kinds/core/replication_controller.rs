//! ReplicationControllers.

use std::sync::Arc;

use tidings_api::FieldErrors;

use crate::complete::{TypeDefaults, defaults, is_empty};
use crate::draft::Draft;
use crate::kind::{Generation, Kind, Scale, SelectableField, Subresource};
use crate::kinds::workload::{self, Runs, TEMPLATE};
use crate::kinds::{field, names};
use crate::printers::core as printers;
use crate::strategy::Strategy;

pub(super) fn kind() -> Kind {
    Kind {
        kind: "ReplicationController".into(),
        orphans: true,
        plural: "replicationcontrollers".into(),
        store_prefix: "controllers".into(),
        printer: &printers::REPLICATION_CONTROLLER,
        short_names: names(["rc"]),
        categories: names(["all"]),
        fields: vec![SelectableField {
            absent: "0",
            ..field("status.replicas", &[&["status", "replicas"]])
        }],
        generation: Generation::Counted,
        status: true,
        scale: Some(Scale::LabelMap),
        strategy: Arc::new(ReplicationControllers),
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[defaults(
    "core/v1.ReplicationControllerSpec",
    &[("replicas", "1")],
)];

#[derive(Debug)]
struct ReplicationControllers;

impl Strategy for ReplicationControllers {
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
        workload::check_pods(new, &TEMPLATE, Runs::ForEver, errors);
    }
}
