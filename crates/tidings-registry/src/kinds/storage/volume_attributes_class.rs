//! `VolumeAttributesClass` of `storage.k8s.io`: entry and table.

use crate::kinds::names;
use crate::model::Kind;
use crate::table::fields::{name, text};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "VolumeAttributesClass".into(),
        plural: "volumeattributesclasses".into(),
        printer: &PRINTER,
        short_names: names(["vac"]),
        ..super::plain()
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[NAME, string("DriverName", "The driver it is for."), AGE],
    cells: |object, now| {
        cells![
            name(object),
            text(object, &["driverName"]),
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
    fn volume_attributes_classes() {
        let class = json!({"metadata": meta("vac"), "driverName": "x.io"});
        assert_eq!(print(&PRINTER, class), json!(["vac", "x.io", "24s"]));
    }
}
