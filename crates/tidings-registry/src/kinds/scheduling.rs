//! The kind of the group `scheduling.k8s.io`.

use crate::complete::{TypeDefaults, defaults};
use crate::kind::{FixedField, FixedRefusal, Generation, Kind};
use crate::kinds::{immutable, names};
use crate::printers::scheduling as printers;

pub(super) fn kinds() -> Vec<Kind> {
    vec![Kind {
        group: "scheduling.k8s.io".into(),
        kind: "PriorityClass".into(),
        plural: "priorityclasses".into(),
        printer: &printers::PRIORITY_CLASS,
        short_names: names(["pc"]),
        go_package: "scheduling",
        namespaced: false,
        named_texts: &[("preemptionPolicy", "v1.PreemptionPolicy")],
        generation: Generation::Fixed,
        fixed: vec![
            FixedField {
                path: &["value"],
                refusal: FixedRefusal::Forbidden("may not be changed in an update."),
            },
            immutable(&["preemptionPolicy"]),
        ],
        ..Kind::plain()
    }]
}

pub(super) const DEFAULTS: &[TypeDefaults] = &[defaults(
    "scheduling/v1.PriorityClass",
    &[("preemptionPolicy", r#""PreemptLowerPriority""#)],
)];
