//! The node group.

use crate::table::fields::{name, text};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, string};

pub(crate) static RUNTIME_CLASS: TablePrinter = TablePrinter {
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
        assert_eq!(print(&RUNTIME_CLASS, class), json!(["rc", "runsc", "24s"]));
    }
}
