//! The kinds of the group `networking.k8s.io`.

mod ingress;
pub(super) mod ingress_class;
mod ip_address;
pub(super) mod network_policy;
mod service_cidr;

use crate::model::Kind;

fn plain() -> Kind {
    Kind {
        group: "networking.k8s.io".into(),
        go_package: "networking",
        ..Kind::plain()
    }
}

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        ingress_class::kind(),
        ingress::kind(),
        ip_address::kind(),
        network_policy::kind(),
        service_cidr::kind(),
    ]
}
