//! The kind of the group `apiextensions.k8s.io`.

mod custom_resource_definition;

use crate::model::Kind;

pub(super) fn kinds() -> Vec<Kind> {
    vec![custom_resource_definition::kind()]
}
