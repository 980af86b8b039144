//! The kinds of the group `networking.k8s.io`.

use crate::complete::{TypeDefaults, defaults, is_empty, rule};
use crate::kind::{Generation, Kind, NameRule};
use crate::kinds::{immutable, names};
use crate::printers::networking as printers;

fn plain() -> Kind {
    Kind {
        group: "networking.k8s.io".into(),
        go_package: "networking",
        ..Kind::plain()
    }
}

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            kind: "IngressClass".into(),
            plural: "ingressclasses".into(),
            printer: &printers::INGRESS_CLASS,
            namespaced: false,
            generation: Generation::Counted,
            fixed: vec![immutable(&["spec", "controller"])],
            ..plain()
        },
        Kind {
            kind: "Ingress".into(),
            plural: "ingresses".into(),
            store_prefix: "ingress".into(),
            printer: &printers::INGRESS,
            short_names: names(["ing"]),
            generation: Generation::Counted,
            status: true,
            ..plain()
        },
        Kind {
            kind: "IPAddress".into(),
            plural: "ipaddresses".into(),
            printer: &printers::IP_ADDRESS,
            short_names: names(["ip"]),
            namespaced: false,
            name_rule: NameRule::IpAddress,
            ..plain()
        },
        Kind {
            kind: "NetworkPolicy".into(),
            plural: "networkpolicies".into(),
            printer: &printers::NETWORK_POLICY,
            short_names: names(["netpol"]),
            generation: Generation::Counted,
            ..plain()
        },
        Kind {
            kind: "ServiceCIDR".into(),
            plural: "servicecidrs".into(),
            printer: &printers::SERVICE_CIDR,
            namespaced: false,
            status: true,
            ..plain()
        },
    ]
}

pub(super) const DEFAULTS: &[TypeDefaults] = &[
    defaults(
        "networking/v1.IngressClassParametersReference",
        &[("scope", r#""Cluster""#)],
    ),
    defaults(
        "networking/v1.NetworkPolicyPort",
        &[("protocol", r#""TCP""#)],
    ),
    rule("networking/v1.NetworkPolicySpec", |spec| {
        if is_empty(spec.get("policyTypes")) {
            let mut types = vec!["Ingress"];
            if !is_empty(spec.get("egress")) {
                types.push("Egress");
            }
            spec.insert("policyTypes".into(), types.into());
        }
    }),
];
