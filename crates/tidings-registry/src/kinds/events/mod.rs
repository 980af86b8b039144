//! The kind of the group `events.k8s.io`.

pub(super) mod event;

use crate::model::Kind;

pub(super) fn kinds() -> Vec<Kind> {
    vec![event::kind()]
}
