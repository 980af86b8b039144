//! `StorageClass` of `storage.k8s.io`: entry, defaults, fixed fields and table.

use crate::defaults::{TypeDefaults, defaults};
use crate::kinds::{immutable, names};
use crate::model::Kind;
use crate::table::fields::{flag, name, text, text_or};
use crate::table::format::{age, is_annotated};
use crate::table::{AGE, NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "StorageClass".into(),
        plural: "storageclasses".into(),
        printer: &PRINTER,
        short_names: names(["sc"]),
        fixed: vec![
            immutable(&["parameters"]),
            immutable(&["provisioner"]),
            immutable(&["reclaimPolicy"]),
            immutable(&["volumeBindingMode"]),
        ],
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[defaults(
    "storage/v1.StorageClass",
    &[
        ("reclaimPolicy", r#""Delete""#),
        ("volumeBindingMode", r#""Immediate""#),
    ],
)];

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Provisioner", "Who makes the volumes."),
        string("ReclaimPolicy", "What happens once a claim is gone."),
        string("VolumeBindingMode", "When volumes are made and bound."),
        string("AllowVolumeExpansion", "Whether volumes can grow."),
        AGE,
    ],
    cells: |object, now| {
        let mut name = name(object).to_string();
        if is_annotated(object, "storageclass.kubernetes.io/is-default-class")
            || is_annotated(object, "storageclass.beta.kubernetes.io/is-default-class")
        {
            name.push_str(" (default)");
        }
        cells![
            name,
            text(object, &["provisioner"]),
            text_or(object, &["reclaimPolicy"], "Delete"),
            text_or(object, &["volumeBindingMode"], "Immediate"),
            flag(object, &["allowVolumeExpansion"]),
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
    fn storage_classes() {
        let mut class = json!({"metadata": meta("sc"), "provisioner": "x.io/p"});
        assert_eq!(
            print(&PRINTER, class.clone()),
            json!(["sc", "x.io/p", "Delete", "Immediate", false, "24s"])
        );
        class["metadata"]["annotations"] =
            json!({"storageclass.kubernetes.io/is-default-class": "true"});
        assert_eq!(print(&PRINTER, class)[0], "sc (default)");
    }
}
