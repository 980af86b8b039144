//! `PriorityClass` of `scheduling.k8s.io`: entry, defaults, fixed fields and table.

use crate::defaults::{TypeDefaults, defaults};
use crate::kinds::{immutable, names};
use crate::model::{FixedField, FixedRefusal, Generation, Kind};
use crate::table::fields::{flag, int, name, text_or};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, boolean, integer, string};

pub(super) fn kind() -> Kind {
    Kind {
        group: "scheduling.k8s.io".into(),
        kind: "PriorityClass".into(),
        plural: "priorityclasses".into(),
        printer: &PRINTER,
        short_names: names(["pc"]),
        go_package: "scheduling",
        namespaced: false,
        generation: Generation::Fixed,
        fixed: vec![
            FixedField {
                path: &["value"],
                refusal: FixedRefusal::Forbidden("may not be changed in an update."),
            },
            immutable(&["preemptionPolicy"]),
        ],
        ..Kind::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[defaults(
    "scheduling/v1.PriorityClass",
    &[("preemptionPolicy", r#""PreemptLowerPriority""#)],
)];

static PRINTER: TablePrinter = TablePrinter {
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
            print(&PRINTER, class),
            json!(["p", 1000, false, "24s", "PreemptLowerPriority"])
        );
    }
}
