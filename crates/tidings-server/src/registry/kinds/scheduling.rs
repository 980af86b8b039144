//! The kind of the group `scheduling.k8s.io`.

use super::{PLAIN, member};
use crate::printers::scheduling;
use crate::registry::{Generation, Kind, Shape};

pub(super) static KINDS: &[Kind] = &[Kind {
    group: "scheduling.k8s.io",
    kind: "PriorityClass",
    plural: "priorityclasses",
    printer: &scheduling::PRIORITY_CLASS,
    short_names: &["pc"],
    go_package: "scheduling",
    namespaced: false,
    members: &[
        member("value", Shape::Number("int32"), "0"),
        member("globalDefault", Shape::Flag, ""),
        member("description", Shape::String, ""),
        member(
            "preemptionPolicy",
            Shape::Named("v1.PreemptionPolicy"),
            "\"PreemptLowerPriority\"",
        ),
    ],
    generation: Generation::Fixed,
    bookmark: r#","value":0"#,
    ..PLAIN
}];
