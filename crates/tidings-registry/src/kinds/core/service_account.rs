//! `ServiceAccount` of the core group: entry and table.

use crate::kinds::names;
use crate::model::{Kind, Subresource};
use crate::table::fields::name;
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "ServiceAccount".into(),
        plural: "serviceaccounts".into(),
        printer: &PRINTER,
        short_names: names(["sa"]),
        own_parts: &[Subresource::Token],
        returns_deleted: true,
        ..super::plain()
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[NAME, AGE],
    cells: |object, now| cells![name(object), age(object, now)],
};
