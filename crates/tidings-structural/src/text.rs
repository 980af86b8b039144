//! Formats paths and values as errors print them.

use std::sync::LazyLock;

use regex::Regex;
use tidings_api::go;
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

/// A number as Go decodes it from JSON: an integer if it is written as one and fits into 64 bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum GoNumber {
    Int(i64),
    Float(f64),
}

impl GoNumber {
    pub(crate) fn of(value: &Value) -> Option<GoNumber> {
        let number = value.as_number()?;
        Some(match number.as_i64() {
            Some(integer) => GoNumber::Int(integer),
            None => GoNumber::Float(number.as_f64()?),
        })
    }

    pub(crate) fn as_f64(self) -> f64 {
        match self {
            GoNumber::Int(integer) => integer as f64,
            GoNumber::Float(float) => float,
        }
    }
}

impl std::fmt::Display for GoNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GoNumber::Int(integer) => integer.fmt(f),
            GoNumber::Float(value) => f.write_str(&float(*value)),
        }
    }
}

/// A float as Go's `fmt.Sprintf("%v", value)` prints it.
pub(crate) fn float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return match value {
            value if value.is_nan() => "NaN".into(),
            value if value > 0.0 => "+Inf".into(),
            _ => "-Inf".into(),
        };
    };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => format!("{value}"),
    }
}

/// The value in an error: text quoted, other scalars plain, lists and objects as JSON with sorted keys.
pub(crate) fn bad_value(value: &Value) -> String {
    match value {
        Value::String(text) => go::quote(text),
        Value::Number(_) => {
            GoNumber::of(value).map_or_else(|| value.to_string(), |n| n.to_string())
        }
        Value::Bool(_) | Value::Null => value.to_string(),
        Value::Array(_) | Value::Object(_) => json(value),
    }
}

/// JSON as Go's `json.Marshal` writes it: keys sorted, `<`, `>` and `&` escaped.
pub(crate) fn json(value: &Value) -> String {
    let mut sorted = value.clone();
    sorted.sort_all_objects();
    match go::json(&sorted) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => String::new(),
    }
}

/// Matches a character that is not printable for Go's `unicode.IsPrint`.
static UNPRINTABLE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"[^\p{L}\p{M}\p{N}\p{P}\p{S} ]").ok());

/// The characters of a text that Go's `unicode.IsPrint` refuses, with their byte positions.
pub(crate) fn unprintable(text: &str) -> impl Iterator<Item = (usize, char)> {
    let found = UNPRINTABLE.iter().flat_map(|regex| regex.find_iter(text));
    found.filter_map(|found| Some((found.start(), found.as_str().chars().next()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidings_json::json;

    #[test]
    fn numbers_are_printed_as_go_prints_them() {
        for (value, expected) in [
            (1.0, "1"),
            (0.5, "0.5"),
            (1_234_567.5, "1.2345675e+06"),
            (1e21, "1e+21"),
            (0.00001, "1e-05"),
            (1.5e300, "1.5e+300"),
            (-2.25, "-2.25"),
        ] {
            assert_eq!(float(value), expected);
        }
    }

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
