//! The kinds of the group `networking.k8s.io`.

use super::{PLAIN, member, spec, status};
use crate::printers::networking;
use crate::registry::{Generation, Kind, NameRule, Shape};

const NETWORKING: Kind = Kind {
    group: "networking.k8s.io",
    go_package: "networking",
    ..PLAIN
};

pub(super) static KINDS: &[Kind] = &[
    Kind {
        kind: "IngressClass",
        plural: "ingressclasses",
        printer: &networking::INGRESS_CLASS,
        namespaced: false,
        members: &[spec("v1.IngressClassSpec")],
        generation: Generation::Counted,
        bookmark: r#","spec":{}"#,
        ..NETWORKING
    },
    Kind {
        kind: "Ingress",
        plural: "ingresses",
        printer: &networking::INGRESS,
        short_names: &["ing"],
        members: &[
            spec("v1.IngressSpec"),
            status("v1.IngressStatus", r#"{"loadBalancer":{}}"#),
        ],
        generation: Generation::Counted,
        status: true,
        bookmark: r#","spec":{},"status":{"loadBalancer":{}}"#,
        ..NETWORKING
    },
    Kind {
        kind: "IPAddress",
        plural: "ipaddresses",
        printer: &networking::IP_ADDRESS,
        short_names: &["ip"],
        namespaced: false,
        members: &[spec("v1.IPAddressSpec")],
        name_rule: NameRule::IpAddress,
        bookmark: r#","spec":{}"#,
        ..NETWORKING
    },
    Kind {
        kind: "NetworkPolicy",
        plural: "networkpolicies",
        printer: &networking::NETWORK_POLICY,
        short_names: &["netpol"],
        members: &[member(
            "spec",
            Shape::Object("v1.NetworkPolicySpec"),
            r#"{"podSelector":{},"policyTypes":["Ingress"]}"#,
        )],
        generation: Generation::Counted,
        bookmark: r#","spec":{"podSelector":{}}"#,
        ..NETWORKING
    },
    Kind {
        kind: "ServiceCIDR",
        plural: "servicecidrs",
        printer: &networking::SERVICE_CIDR,
        namespaced: false,
        members: &[
            spec("v1.ServiceCIDRSpec"),
            status("v1.ServiceCIDRStatus", "{}"),
        ],
        status: true,
        bookmark: r#","spec":{},"status":{}"#,
        ..NETWORKING
    },
];
