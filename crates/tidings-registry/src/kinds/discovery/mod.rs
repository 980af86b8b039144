//! The kind of the group `discovery.k8s.io`.

pub(super) mod endpoint_slice;

use crate::model::Kind;

pub(super) fn kinds() -> Vec<Kind> {
    vec![endpoint_slice::kind()]
}
