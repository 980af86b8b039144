//! Formats paths and values as errors print them.

use tidings_go as go;
use tidings_json::Value;

/// A field path that grows and shrinks while a tree is walked.
#[derive(Debug, Clone, Default)]
pub(crate) struct FieldPath(String);

impl FieldPath {
    pub(crate) fn new(text: &str) -> FieldPath {
        FieldPath(text.to_owned())
    }

    /// The path as `field.Path` prints it: an empty one is `<nil>`.
    pub(crate) fn text(&self) -> String {
        if self.0.is_empty() {
            "<nil>".to_owned()
        } else {
            self.0.clone()
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn child(&self, name: &str) -> FieldPath {
        let mut path = self.clone();
        path.push_child(name);
        path
    }

    pub(crate) fn key(&self, key: &str) -> FieldPath {
        FieldPath(format!("{}[{key}]", self.0))
    }

    pub(crate) fn index(&self, index: usize) -> FieldPath {
        FieldPath(format!("{}[{index}]", self.0))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    pub(crate) fn push_child(&mut self, name: &str) {
        if !self.0.is_empty() {
            self.0.push('.');
        }
        self.0.push_str(name);
    }

    pub(crate) fn push_key(&mut self, key: &str) {
        self.0.push('[');
        self.0.push_str(key);
        self.0.push(']');
    }

    pub(crate) fn push_index(&mut self, index: usize) {
        use std::fmt::Write;
        let _ = write!(self.0, "[{index}]");
    }
}

impl From<FieldPath> for String {
    fn from(path: FieldPath) -> String {
        path.text()
    }
}

/// The value in an error: text quoted, other scalars plain, lists and objects as JSON with sorted keys.
pub(crate) fn bad_value(value: &Value) -> String {
    match value {
        Value::String(text) => go::quote(text),
        Value::Number(_) => {
            go::GoNumber::of(value).map_or_else(|| value.to_string(), |n| n.to_string())
        }
        Value::Bool(_) | Value::Null => value.to_string(),
        Value::Array(_) | Value::Object(_) => json(value),
    }
}

/// JSON as Go's `json.Marshal` writes it: keys sorted, `<`, `>` and `&` escaped.
pub(crate) fn json(value: &Value) -> String {
    let mut sorted = value.clone();
    sorted.sort_all_objects();
    go::json_text(&sorted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidings_json::json;

    #[test]
    fn values_are_printed_as_errors_print_them() {
        assert_eq!(bad_value(&json!("a\"b")), r#""a\"b""#);
        assert_eq!(
            bad_value(&json!({"b": 1, "a": "<"})),
            "{\"a\":\"\\u003c\",\"b\":1}"
        );
        assert_eq!(bad_value(&json!(null)), "null");
        assert_eq!(
            bad_value(&json!(18446744073709551615_u64)),
            "1.8446744073709552e+19"
        );
    }
}
