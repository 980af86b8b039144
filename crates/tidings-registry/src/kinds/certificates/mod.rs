//! The kind of the group `certificates.k8s.io`.

mod certificate_signing_request;

use crate::model::Kind;

pub(super) fn kinds() -> Vec<Kind> {
    vec![certificate_signing_request::kind()]
}
