//! The kind of the group `scheduling.k8s.io`.

pub(super) mod priority_class;

use crate::model::Kind;

pub(super) fn kinds() -> Vec<Kind> {
    vec![priority_class::kind()]
}
