//! The kind of the group `certificates.k8s.io`.

use crate::kind::{Kind, NameRule};
use crate::kinds::{field, names};
use crate::printers::certificates as printers;

pub(super) fn kinds() -> Vec<Kind> {
    vec![Kind {
        group: "certificates.k8s.io".into(),
        kind: "CertificateSigningRequest".into(),
        plural: "certificatesigningrequests".into(),
        printer: &printers::CERTIFICATE_SIGNING_REQUEST,
        short_names: names(["csr"]),
        go_package: "certificates",
        namespaced: false,
        fields: vec![field("spec.signerName", &[&["spec", "signerName"]])],
        name_rule: NameRule::Segment,
        status: true,
        ..Kind::plain()
    }]
}
