//! The kind of the group `policy`.

mod pod_disruption_budget;

use crate::model::Kind;

pub(super) fn kinds() -> Vec<Kind> {
    vec![pod_disruption_budget::kind()]
}
