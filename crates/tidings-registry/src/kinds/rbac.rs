//! The kinds of the group `rbac.authorization.k8s.io`.

use crate::complete::{TypeDefaults, defaults, is_empty, rule, text};
use crate::kind::{FixedField, FixedRefusal, Kind, NameRule};
use crate::printers::rbac as printers;

const GROUP: &str = "rbac.authorization.k8s.io";

fn plain() -> Kind {
    Kind {
        group: GROUP.into(),
        go_package: "rbac",
        name_rule: NameRule::Segment,
        create_on_update: true,
        ..Kind::plain()
    }
}

const FIXED_ROLE: FixedField = FixedField {
    path: &["roleRef"],
    refusal: FixedRefusal::Invalid("cannot change roleRef"),
};

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            kind: "ClusterRoleBinding".into(),
            plural: "clusterrolebindings".into(),
            printer: &printers::CLUSTER_ROLE_BINDING,
            namespaced: false,
            fixed: vec![FIXED_ROLE],
            ..plain()
        },
        Kind {
            kind: "ClusterRole".into(),
            plural: "clusterroles".into(),
            namespaced: false,
            ..plain()
        },
        Kind {
            kind: "RoleBinding".into(),
            plural: "rolebindings".into(),
            printer: &printers::ROLE_BINDING,
            fixed: vec![FIXED_ROLE],
            ..plain()
        },
        Kind {
            kind: "Role".into(),
            plural: "roles".into(),
            ..plain()
        },
    ]
}

pub(super) const DEFAULTS: &[TypeDefaults] = &[
    defaults(
        "rbac/v1.RoleRef",
        &[("apiGroup", r#""rbac.authorization.k8s.io""#)],
    ),
    rule("rbac/v1.Subject", |subject| {
        let named = matches!(text(subject, "kind"), "User" | "Group");
        if named && is_empty(subject.get("apiGroup")) {
            subject.insert("apiGroup".into(), GROUP.into());
        }
    }),
];
