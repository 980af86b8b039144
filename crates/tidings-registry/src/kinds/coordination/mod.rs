//! The kind of the group `coordination.k8s.io`.

mod lease;

use crate::kind::Kind;

pub(super) fn kinds() -> Vec<Kind> {
    vec![lease::kind()]
}
