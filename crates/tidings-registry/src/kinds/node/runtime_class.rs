//! `RuntimeClass` of `node.k8s.io`: entry and table.

use crate::model::Kind;
use crate::table::fields::{name, text};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        group: "node.k8s.io".into(),
        kind: "RuntimeClass".into(),
        plural: "runtimeclasses".into(),
        printer: &PRINTER,
        go_package: "node",
        namespaced: false,
        create_on_update: true,
        conditional_update: true,
        ..Kind::plain()
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Handler", "The container runtime's name for the class."),
        AGE,
    ],
    cells: |object, now| cells![name(object), text(object, &["handler"]), age(object, now)],
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn runtime_classes() {
        let class = json!({"metadata": meta("rc"), "handler": "runsc"});
        assert_eq!(print(&PRINTER, class), json!(["rc", "runsc", "24s"]));
    }
}
