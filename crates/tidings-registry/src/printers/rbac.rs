//! The rbac group. Roles and cluster roles use the default printer.

use jiff::Timestamp;
use tidings_json::Value;

use crate::table::fields::{list, name, text};
use crate::table::format::age;
use crate::table::{AGE, Column, NAME, TablePrinter, string, wide};

const COLUMNS: &[Column] = &[
    NAME,
    string("Role", "The role that is granted."),
    AGE,
    wide("Users", "Users that get the role."),
    wide("Groups", "Groups that get the role."),
    wide("ServiceAccounts", "Service accounts that get the role."),
];

pub(crate) static ROLE_BINDING: TablePrinter = TablePrinter {
    columns: COLUMNS,
    cells: binding_cells,
};

pub(crate) static CLUSTER_ROLE_BINDING: TablePrinter = TablePrinter {
    columns: COLUMNS,
    cells: binding_cells,
};

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
        assert_eq!(print(&ROLE_BINDING, binding.clone()), expected);
        assert_eq!(print(&CLUSTER_ROLE_BINDING, binding), expected);
    }
}
