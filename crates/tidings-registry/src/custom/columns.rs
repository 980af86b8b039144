//! The table of a custom resource: the columns that its definition names (W184).

use jiff::Timestamp;
use tidings_json::{Value, json};
use tidings_structural::definition::Column;

use super::CustomVersion;
use crate::table::{self, NAME};

/// The columns, each as JSON. The first is the name.
pub(super) fn definitions(custom: &CustomVersion) -> Vec<String> {
    let columns = custom.version().columns.iter();
    let own = columns.map(|column| {
        json!({
            "name": column.name,
            "type": column.kind,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        })
        .to_string()
    });
    std::iter::once(NAME.to_json()).chain(own).collect()
}

/// The cells of an object. The first is its name.
pub(super) fn cells(custom: &CustomVersion, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let columns = custom.version().columns.iter();
    let cells = columns.map(|column| cell(column, object, now));
    std::iter::once(Value::from(name)).chain(cells).collect()
}

fn cell(column: &Column, object: &Value, now: Timestamp) -> Value {
    let Some(value) = column.path.first(object) else {
        return Value::Null;
    };
    match column.kind.as_str() {
        "string" => column.path.first_text(object).into(),
        "integer" => value
            .as_i64()
            .or_else(|| value.as_f64().map(|number| number as i64))
            .map_or(Value::Null, Value::from),
        "number" if value.is_number() => value.clone(),
        "boolean" if value.is_boolean() => value.clone(),
        "date" => value
            .as_str()
            .map_or(Value::Null, |text| table::ago(text, now).into()),
        _ => Value::Null,
    }
}
