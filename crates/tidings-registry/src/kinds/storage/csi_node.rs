//! `CSINode` of `storage.k8s.io`: entry and table.

use crate::model::Kind;
use crate::table::fields::{count, name};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, integer};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "CSINode".into(),
        plural: "csinodes".into(),
        printer: &PRINTER,
        conditional_update: true,
        ..super::plain()
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        integer("Drivers", "How many drivers the node has."),
        AGE,
    ],
    cells: |object, now| {
        cells![
            name(object),
            count(object, &["spec", "drivers"]),
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
    fn csi_nodes() {
        let node = json!({"metadata": meta("n"), "spec": {"drivers": [{"name": "a"}]}});
        assert_eq!(print(&PRINTER, node), json!(["n", 1, "24s"]));
    }
}
