//! The kinds of the group `rbac.authorization.k8s.io`.

use super::{PLAIN, member};
use crate::printers::rbac;
use crate::registry::{Kind, Member, NameRule, Shape};

const RBAC: Kind = Kind {
    group: "rbac.authorization.k8s.io",
    go_package: "rbac",
    name_rule: NameRule::Segment,
    create_on_update: true,
    ..PLAIN
};

const RULES: Member = member("rules", Shape::Array("[]v1.PolicyRule"), "null");

const BINDING: &[Member] = &[
    member("subjects", Shape::Array("[]v1.Subject"), ""),
    // Upstream refuses a binding without a role, but fills in the group before.
    member(
        "roleRef",
        Shape::Object("v1.RoleRef"),
        r#"{"apiGroup":"rbac.authorization.k8s.io","kind":"","name":""}"#,
    ),
];

const BINDING_BOOKMARK: &str = r#","roleRef":{"apiGroup":"","kind":"","name":""}"#;

pub(super) static KINDS: &[Kind] = &[
    Kind {
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        printer: &rbac::CLUSTER_ROLE_BINDING,
        namespaced: false,
        members: BINDING,
        bookmark: BINDING_BOOKMARK,
        ..RBAC
    },
    Kind {
        kind: "ClusterRole",
        plural: "clusterroles",
        namespaced: false,
        members: &[
            RULES,
            member("aggregationRule", Shape::Object("v1.AggregationRule"), ""),
        ],
        bookmark: r#","rules":null"#,
        ..RBAC
    },
    Kind {
        kind: "RoleBinding",
        plural: "rolebindings",
        printer: &rbac::ROLE_BINDING,
        members: BINDING,
        bookmark: BINDING_BOOKMARK,
        ..RBAC
    },
    Kind {
        kind: "Role",
        plural: "roles",
        members: &[RULES],
        bookmark: r#","rules":null"#,
        ..RBAC
    },
];
