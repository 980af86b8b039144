//! The kind of the group `policy`.

use super::{PLAIN, spec, status};
use crate::printers::policy;
use crate::registry::{Generation, Kind, NameRule};

pub(super) static KINDS: &[Kind] = &[Kind {
    group: "policy",
    kind: "PodDisruptionBudget",
    plural: "poddisruptionbudgets",
    printer: &policy::POD_DISRUPTION_BUDGET,
    short_names: &["pdb"],
    go_package: "policy",
    members: &[
        spec("v1.PodDisruptionBudgetSpec"),
        status(
            "v1.PodDisruptionBudgetStatus",
            r#"{"disruptionsAllowed":0,"currentHealthy":0,"desiredHealthy":0,"expectedPods":0}"#,
        ),
    ],
    name_rule: NameRule::Segment, // upstream forgot to check the name
    generation: Generation::Counted,
    status: true,
    conditional_update: true,
    bookmark: concat!(
        r#","spec":{},"status":{"disruptionsAllowed":0,"currentHealthy":0,"#,
        r#""desiredHealthy":0,"expectedPods":0}"#
    ),
    ..PLAIN
}];
