//! The kind of the group `policy`.

use crate::kind::{Generation, Kind, NameRule};
use crate::kinds::names;
use crate::printers::policy as printers;

pub(super) fn kinds() -> Vec<Kind> {
    vec![Kind {
        group: "policy".into(),
        kind: "PodDisruptionBudget".into(),
        plural: "poddisruptionbudgets".into(),
        printer: &printers::POD_DISRUPTION_BUDGET,
        short_names: names(["pdb"]),
        go_package: "policy",
        name_rule: NameRule::Segment, // upstream does not check the name
        generation: Generation::Counted,
        status: true,
        conditional_update: true,
        ..Kind::plain()
    }]
}
