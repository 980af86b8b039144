//! The kind of the group `certificates.k8s.io`.

use super::{PLAIN, field, spec, status};
use crate::printers::certificates;
use crate::registry::{Kind, NameRule};

pub(super) static KINDS: &[Kind] = &[Kind {
    group: "certificates.k8s.io",
    kind: "CertificateSigningRequest",
    plural: "certificatesigningrequests",
    printer: &certificates::CERTIFICATE_SIGNING_REQUEST,
    short_names: &["csr"],
    go_package: "certificates",
    namespaced: false,
    members: &[
        spec("v1.CertificateSigningRequestSpec"),
        status("v1.CertificateSigningRequestStatus", "{}"),
    ],
    fields: &[field("spec.signerName", &[&["spec", "signerName"]])],
    name_rule: NameRule::Segment,
    status: true,
    bookmark: r#","spec":{"request":null,"signerName":""},"status":{}"#,
    ..PLAIN
}];
