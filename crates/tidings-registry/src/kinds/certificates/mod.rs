//! The kind of the group `certificates.k8s.io`.

mod certificate_signing_request;
mod request;

use crate::model::Kind;
pub use request::{CertificateRequest, read_request};

pub(super) fn kinds() -> Vec<Kind> {
    vec![certificate_signing_request::kind()]
}
