//! `Secret` of the core group: entry, rules and table.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use tidings_api::{FieldError, FieldErrors};
use tidings_json::Value;

use super::{DATA_BYTES_MAX, check_immutable, check_keys, decoded_len};
use crate::kinds::selectable;
use crate::model::{Draft, Kind, Strategy, Subresource};
use crate::table::fields::{count, name, text_or};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "Secret".into(),
        plural: "secrets".into(),
        printer: &PRINTER,
        fields: vec![selectable("type", &[&["type"]])],
        strategy: Arc::new(SecretStrategy),
        ..super::plain()
    }
}

#[derive(Debug)]
struct SecretStrategy;

impl Strategy for SecretStrategy {
    fn fill_in(&self, draft: &mut Draft) {
        merge_string_data(draft);
        default_type(draft);
    }

    fn prepare_update(&self, new: &mut Draft, _: &Draft, _: Option<Subresource>) {
        merge_string_data(new);
        default_type(new);
    }

    fn check_update(&self, new: &Draft, old: &Draft, errors: &mut FieldErrors) {
        let said = new.text(&["type"]);
        if said != old.text(&["type"]) {
            errors.push(FieldError::invalid("type", said, "field is immutable"));
        }
        check_immutable(new, old, errors);
    }

    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        _: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        if check_keys(new, "data", decoded_len, errors) > DATA_BYTES_MAX {
            errors.push(FieldError::too_long("data", DATA_BYTES_MAX));
        }
    }
}

fn default_type(draft: &mut Draft) {
    if draft.text(&["type"]).is_empty() {
        draft.members.insert("type".into(), "Opaque".into());
    }
}

/// Moves `stringData` into `data`, encoded: `stringData` is never stored.
fn merge_string_data(draft: &mut Draft) {
    let Some(Value::Object(strings)) = draft.members.remove("stringData") else {
        return;
    };
    let data = draft.members.get("data").and_then(Value::as_object);
    let mut data: BTreeMap<String, Value> = data.cloned().unwrap_or_default().into_iter().collect();
    for (key, value) in strings {
        let text = value.as_str().unwrap_or_default();
        let encoded = base64::engine::general_purpose::STANDARD.encode(text);
        data.insert(key, Value::String(encoded));
    }
    let data = Value::Object(data.into_iter().collect());
    draft.members.insert("data".into(), data);
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Type", "What the secret is for."),
        string("Data", "How many entries it has."),
        AGE,
    ],
    cells: |object, now| {
        cells![
            name(object),
            text_or(object, &["type"], "Opaque"),
            count(object, &["data"]),
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
    fn entries_are_counted() {
        let secret = json!({"metadata": meta("s"), "data": {"a": "MQ=="}});
        assert_eq!(print(&PRINTER, secret), json!(["s", "Opaque", 1, "24s"]));
    }
}
