//! The node group.

use super::fields::{name, text};
use super::format::age;
use super::{AGE, NAME, Printer, string};

pub(crate) static RUNTIME_CLASS: Printer = Printer {
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
    use crate::printers::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn runtime_classes() {
        let class = json!({"metadata": meta("rc"), "handler": "runsc"});
        assert_eq!(print(&RUNTIME_CLASS, class), json!(["rc", "runsc", "24s"]));
    }
}
