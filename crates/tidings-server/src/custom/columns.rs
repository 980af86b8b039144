//! What `kubectl get` shows of a custom resource (W184).

use jiff::Timestamp;
use tidings_json::{Value, json};
use tidings_structural::definition::Column;

use super::Live;
use crate::printers::ago;

/// The columns behind the name, as a table describes them.
pub(crate) fn definitions(live: &Live) -> Vec<Value> {
    let columns = live.version().columns.iter();
    columns
        .map(|column| {
            json!({
                "name": column.name,
                "type": column.kind,
                "format": column.format,
                "description": column.description,
                "priority": column.priority,
            })
        })
        .collect()
}

/// The cells of an object, its name first.
pub(crate) fn cells(live: &Live, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let columns = live.version().columns.iter();
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
            .map_or(Value::Null, |text| ago(text, now).into()),
        _ => Value::Null,
    }
}
