//! The scheduling group.

use crate::table::fields::{flag, int, name, text_or};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, boolean, integer, string};

pub(crate) static PRIORITY_CLASS: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        integer("Value", "The priority of pods in the class."),
        boolean(
            "Global-Default",
            "Whether pods without a class get this one.",
        ),
        AGE,
        string(
            "PreemptionPolicy",
            "Whether pods push out those of lower priority.",
        ),
    ],
    cells: |object, now| {
        cells![
            name(object),
            int(object, &["value"]),
            flag(object, &["globalDefault"]),
            age(object, now),
            text_or(object, &["preemptionPolicy"], "PreemptLowerPriority"),
        ]
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn priority_classes() {
        let class = json!({"metadata": meta("p"), "value": 1000});
        assert_eq!(
            print(&PRIORITY_CLASS, class),
            json!(["p", 1000, false, "24s", "PreemptLowerPriority"])
        );
    }
}
