//! Reads fields of a JSON object for tables, with a default for fields that are absent or of another type.

use tidings_go::canonical_quantity;
use tidings_json::{Map, Value};

/// The value at a path; `None` if it is absent or null.
pub(crate) fn field<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter()
        .try_fold(object, |value, key| value.get(key))
        .filter(|value| !value.is_null())
}

/// True if there is a value at a path that is not null.
pub(crate) fn has(object: &Value, path: &[&str]) -> bool {
    field(object, path).is_some()
}

/// The text at a path, or "".
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    text_or(object, path, "")
}

/// The text at a path, or `default` if there is none. An empty text is kept.
pub(crate) fn text_or<'a>(object: &'a Value, path: &[&str], default: &'a str) -> &'a str {
    field(object, path)
        .and_then(Value::as_str)
        .unwrap_or(default)
}

/// Replaces an empty text by `default`.
pub(crate) fn nonempty<'a>(text: &'a str, default: &'a str) -> &'a str {
    if text.is_empty() { default } else { text }
}

/// The whole number at a path, or 0.
pub(crate) fn int(object: &Value, path: &[&str]) -> i64 {
    int_or(object, path, 0)
}

/// The whole number at a path, or `default`.
pub(crate) fn int_or(object: &Value, path: &[&str], default: i64) -> i64 {
    field(object, path)
        .and_then(Value::as_i64)
        .unwrap_or(default)
}

/// The truth value at a path, or false.
pub(crate) fn flag(object: &Value, path: &[&str]) -> bool {
    flag_or(object, path, false)
}

/// The truth value at a path, or `default`.
pub(crate) fn flag_or(object: &Value, path: &[&str], default: bool) -> bool {
    field(object, path)
        .and_then(Value::as_bool)
        .unwrap_or(default)
}

/// The array at a path, or an empty one.
pub(crate) fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    field(object, path)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The texts of the array at a path.
pub(crate) fn texts<'a>(object: &'a Value, path: &[&str]) -> Vec<&'a str> {
    list(object, path)
        .iter()
        .filter_map(Value::as_str)
        .collect()
}

/// The map at a path, if there is one.
pub(crate) fn map<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Map> {
    field(object, path).and_then(Value::as_object)
}

/// The number of entries of the array or map at a path.
pub(crate) fn count(object: &Value, path: &[&str]) -> usize {
    match field(object, path) {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(entries)) => entries.len(),
        _ => 0,
    }
}

/// `metadata.name`.
pub(crate) fn name(object: &Value) -> &str {
    text(object, &["metadata", "name"])
}

/// True if the object has a deletionTimestamp.
pub(crate) fn is_deleting(object: &Value) -> bool {
    has(object, &["metadata", "deletionTimestamp"])
}

/// The first condition of a type in the object's status.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, &["status", "conditions"])
        .iter()
        .find(|condition| text(condition, &["type"]) == kind)
}

/// Whether the first condition of a type is "True".
pub(crate) fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| text(condition, &["status"]) == "True")
}

/// The quantity at a path in its canonical form; an absent one is 0.
pub(crate) fn quantity(object: &Value, path: &[&str]) -> String {
    match field(object, path) {
        None => "0".to_string(),
        Some(Value::String(text)) => canonical_quantity(text.trim()),
        Some(Value::Number(number)) => canonical_quantity(&number.to_string()),
        Some(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidings_json::json;

    #[test]
    fn missing_and_odd_fields_have_defaults() {
        let object = json!({"a": {"b": null, "c": "", "d": [1, "x"]}});
        assert!(!has(&object, &["a", "b"]));
        assert!(has(&object, &["a", "c"]));
        assert_eq!(text_or(&object, &["a", "c"], "y"), "");
        assert_eq!(text_or(&object, &["a", "d"], "y"), "y");
        assert_eq!(texts(&object, &["a", "d"]), ["x"]);
        assert_eq!(count(&object, &["a"]), 3);
        assert_eq!(int_or(&object, &["a", "b", "c"], 1), 1);
    }

    #[test]
    fn first_condition_counts() {
        let object = json!({"status": {"conditions": [
            {"type": "Ready", "status": "False"},
            {"type": "Ready", "status": "True"},
        ]}});
        assert!(!is_true(&object, "Ready"));
    }

    #[test]
    fn numbers_and_absent_fields_are_quantities() {
        let object = json!({"cpu": 2, "half": 0.5});
        assert_eq!(quantity(&object, &["cpu"]), "2");
        assert_eq!(quantity(&object, &["half"]), "500m");
        assert_eq!(quantity(&object, &["memory"]), "0");
    }
}
