//! The kind of the group `coordination.k8s.io`.

mod lease;

use crate::model::Kind;

pub(super) fn kinds() -> Vec<Kind> {
    vec![lease::kind()]
}
