//! `Lease` of `coordination.k8s.io`: entry and table.

use crate::model::Kind;
use crate::table::fields::{name, text};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        group: "coordination.k8s.io".into(),
        kind: "Lease".into(),
        plural: "leases".into(),
        printer: &PRINTER,
        go_package: "coordination",
        create_on_update: true,
        conditional_update: true,
        ..Kind::plain()
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[NAME, string("Holder", "Who holds the lease."), AGE],
    cells: |object, now| {
        cells![
            name(object),
            text(object, &["spec", "holderIdentity"]),
            age(object, now),
        ]
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn leases() {
        let lease = json!({"metadata": meta("l"), "spec": {"holderIdentity": "me"}});
        assert_eq!(print(&PRINTER, lease), json!(["l", "me", "24s"]));
    }
}
