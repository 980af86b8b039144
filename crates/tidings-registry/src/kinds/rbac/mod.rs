//! The kinds of the group `rbac.authorization.k8s.io`, and what RoleBindings and ClusterRoleBindings share: a fixed field,
//! defaults and the table.

mod checks;
mod cluster_role_binding;
mod role_binding;

use std::sync::Arc;

use jiff::Timestamp;
use tidings_json::Value;

use self::checks::RoleStrategy;
use crate::defaults::{TypeDefaults, defaults, is_empty, member_text, rule};
use crate::model::{FixedField, FixedRefusal, Kind, NameRule};
use crate::table::fields::{list, name, text};
use crate::table::format::age;
use crate::table::{AGE, Column, NAME, string, wide};

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

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        cluster_role_binding::kind(),
        Kind {
            kind: "ClusterRole".into(),
            plural: "clusterroles".into(),
            namespaced: false,
            strategy: Arc::new(RoleStrategy { namespaced: false }),
            ..plain()
        },
        role_binding::kind(),
        Kind {
            kind: "Role".into(),
            plural: "roles".into(),
            strategy: Arc::new(RoleStrategy { namespaced: true }),
            ..plain()
        },
    ]
}

/// No update may change the role that a binding grants.
const FIXED_ROLE: FixedField = FixedField {
    path: &["roleRef"],
    refusal: FixedRefusal::Invalid("cannot change roleRef"),
};

pub(super) const DEFAULTS: &[TypeDefaults] = &[
    defaults(
        "rbac/v1.RoleRef",
        &[("apiGroup", r#""rbac.authorization.k8s.io""#)],
    ),
    rule("rbac/v1.Subject", |subject| {
        let named = matches!(member_text(subject, "kind"), "User" | "Group");
        if named && is_empty(subject.get("apiGroup")) {
            subject.insert("apiGroup".into(), GROUP.into());
        }
    }),
];

const BINDING_COLUMNS: &[Column] = &[
    NAME,
    string("Role", "The role that is granted."),
    AGE,
    wide("Users", "Users that get the role."),
    wide("Groups", "Groups that get the role."),
    wide("ServiceAccounts", "Service accounts that get the role."),
];

fn binding_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let kind = text(object, &["roleRef", "kind"]);
    let role = text(object, &["roleRef", "name"]);
    let of_kind = |kind: &str| -> Vec<&Value> {
        list(object, &["subjects"])
            .iter()
            .filter(|subject| text(subject, &["kind"]) == kind)
            .collect()
    };
    let names = |kind| {
        let names: Vec<&str> = of_kind(kind)
            .into_iter()
            .map(|subject| text(subject, &["name"]))
            .collect();
        names.join(", ")
    };
    let accounts: Vec<String> = of_kind("ServiceAccount")
        .into_iter()
        .map(|account| {
            let namespace = text(account, &["namespace"]);
            format!("{namespace}/{}", text(account, &["name"]))
        })
        .collect();
    cells![
        name(object),
        format!("{kind}/{role}"),
        age(object, now),
        names("User"),
        names("Group"),
        accounts.join(", "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn bindings_group_their_subjects() {
        let binding = json!({
            "metadata": meta("rb"),
            "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [
                {"kind": "User", "name": "ann"},
                {"kind": "User", "name": "bob"},
                {"kind": "Group", "name": "g"},
                {"kind": "ServiceAccount", "name": "sa", "namespace": "x"},
                {"kind": "ServiceAccount", "name": "sb", "namespace": "y"},
            ],
        });
        let expected = json!(["rb", "Role/r", "24s", "ann, bob", "g", "x/sa, y/sb"]);
        let all = kinds();
        let bindings = all.iter().filter(|kind| kind.kind.ends_with("Binding"));
        for kind in bindings {
            assert_eq!(
                print(kind.printer, binding.clone()),
                expected,
                "{}",
                kind.kind
            );
        }
    }
}
