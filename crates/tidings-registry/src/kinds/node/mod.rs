//! The kind of the group `node.k8s.io`.

mod runtime_class;

use crate::model::Kind;

pub(super) fn kinds() -> Vec<Kind> {
    vec![runtime_class::kind()]
}
