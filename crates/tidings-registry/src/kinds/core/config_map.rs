//! `ConfigMap` of the core group: entry, rules and table.

use std::sync::Arc;

use tidings_api::{FieldError, FieldErrors};

use super::{DATA_BYTES_MAX, check_immutable, check_keys, decoded_len};
use crate::kinds::names;
use crate::model::{Draft, Kind, Strategy, Subresource};
use crate::table::fields::{count, name};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "ConfigMap".into(),
        plural: "configmaps".into(),
        printer: &PRINTER,
        short_names: names(["cm"]),
        strategy: Arc::new(ConfigMapStrategy),
        ..super::plain()
    }
}

#[derive(Debug)]
struct ConfigMapStrategy;

impl Strategy for ConfigMapStrategy {
    fn check_update(&self, new: &Draft, old: &Draft, errors: &mut FieldErrors) {
        check_immutable(new, old, errors);
    }

    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        _: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        let text = check_keys(new, "data", str::len, errors);
        let binary = check_keys(new, "binaryData", decoded_len, errors);
        if text + binary > DATA_BYTES_MAX {
            errors.push(FieldError::too_long("[]", DATA_BYTES_MAX));
        }
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[NAME, string("Data", "How many entries it has."), AGE],
    cells: |object, now| {
        let entries = count(object, &["data"]) + count(object, &["binaryData"]);
        cells![name(object), entries, age(object, now)]
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn entries_are_counted() {
        let config = json!({
            "metadata": meta("cm"),
            "data": {"a": "1", "b": "2"},
            "binaryData": {"c": "AAAA"},
        });
        assert_eq!(print(&PRINTER, config), json!(["cm", 3, "24s"]));
    }
}
