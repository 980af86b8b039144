//! `ControllerRevision` of `apps`: entry and table.

use tidings_json::Value;

use crate::model::Kind;
use crate::table::fields::{flag, int, list, name, text};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "ControllerRevision".into(),
        plural: "controllerrevisions".into(),
        printer: &PRINTER,
        ..super::plain()
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Controller", "The object this is a revision of."),
        string("Revision", "The revision's number."),
        AGE,
    ],
    cells: |object, now| {
        cells![
            name(object),
            controller(object),
            int(object, &["revision"]),
            age(object, now),
        ]
    },
};

/// The owner that is the controller, as `kind.group/name`.
fn controller(object: &Value) -> String {
    let owners = list(object, &["metadata", "ownerReferences"]);
    let Some(owner) = owners.iter().find(|owner| flag(owner, &["controller"])) else {
        return "<none>".to_string();
    };
    let kind = text(owner, &["kind"]).to_lowercase();
    let name = text(owner, &["name"]);
    match text(owner, &["apiVersion"]).split_once('/') {
        Some((group, _)) => format!("{kind}.{}/{name}", group.to_lowercase()),
        None => format!("{kind}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn controller_revisions() {
        let revision = |owner: Value| {
            let mut revision = json!({"metadata": meta("cr"), "revision": 7});
            revision["metadata"]["ownerReferences"] = json!([owner]);
            print(&PRINTER, revision)
        };
        assert_eq!(
            revision(
                json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web",
                            "controller": true})
            ),
            json!(["cr", "statefulset.apps/web", 7, "24s"])
        );
        assert_eq!(
            revision(json!({"apiVersion": "v1", "kind": "Pod", "name": "web", "controller": true}))
                [1],
            "pod/web"
        );
        assert_eq!(
            revision(json!({"apiVersion": "v1", "kind": "Node", "name": "web"}))[1],
            "<none>"
        );
    }
}
