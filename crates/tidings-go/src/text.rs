//! Printed values, and JSON with Go's escapes.

use tidings_json::Value;

use crate::{print_float, quote};

/// `fmt.Sprint` of decoded JSON, as messages of upstream show a patch: `map[spec:map[replicas:3]]`.
pub fn print(value: &Value) -> String {
    let mut text = String::new();
    put(&mut text, value);
    text
}

fn put(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("<nil>"),
        Value::Bool(value) => text.push_str(&value.to_string()),
        Value::String(value) => text.push_str(value),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (None, Some(float)) => text.push_str(&print_float(float)),
            _ => text.push_str(&number.to_string()),
        },
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push(' ');
                }
                put(text, item);
            }
            text.push(']');
        }
        Value::Object(members) => {
            text.push_str("map[");
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            for (at, (name, value)) in members.into_iter().enumerate() {
                if at > 0 {
                    text.push(' ');
                }
                text.push_str(name);
                text.push(':');
                put(text, value);
            }
            text.push(']');
        }
    }
}

/// `fmt.Sprintf("%#v")` of decoded JSON: `map[string]interface {}{"a":[]interface {}{1}}`.
pub fn print_syntax(value: &Value) -> String {
    match value {
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(print_syntax).collect();
            format!("[]interface {{}}{{{}}}", values.join(", "))
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            let members: Vec<_> = members
                .into_iter()
                .map(|(name, value)| format!("{}:{}", quote(name), print_syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", members.join(", "))
        }
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quote(text),
        other => print(other),
    }
}

/// [`json`] as text; empty if the value cannot be written as JSON.
pub fn json_text<T: serde::Serialize + ?Sized>(value: &T) -> String {
    json(value).map_or_else(
        |_| String::new(),
        |bytes| String::from_utf8_lossy(&bytes).into_owned(),
    )
}

/// A value as compact JSON with the escapes of `encoding/json` (W7): `<`, `>`, `&`, U+2028 and U+2029 as `\u….`.
///
/// # Errors
/// If the value cannot be written as JSON, as a map whose keys are not text.
pub fn json<T: serde::Serialize + ?Sized>(value: &T) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(256);
    write_json(&mut bytes, value)?;
    Ok(bytes)
}

/// Appends what [`json`] makes.
///
/// # Errors
/// As [`json`]; part of the value may have been written then.
pub fn write_json<T: serde::Serialize + ?Sized>(
    bytes: &mut Vec<u8>,
    value: &T,
) -> serde_json::Result<()> {
    struct Escaping;
    impl serde_json::ser::Formatter for Escaping {
        fn write_string_fragment<W: ?Sized + std::io::Write>(
            &mut self,
            writer: &mut W,
            fragment: &str,
        ) -> std::io::Result<()> {
            let bytes = fragment.as_bytes();
            let special =
                memchr::memchr3(b'<', b'>', b'&', bytes).or_else(|| memchr::memchr(0xe2, bytes));
            if special.is_none() {
                return writer.write_all(bytes);
            }
            let mut written = 0;
            for (at, byte) in bytes.iter().enumerate() {
                let escape = match byte {
                    b'<' => "\\u003c",
                    b'>' => "\\u003e",
                    b'&' => "\\u0026",
                    0xe2 if bytes[at..].starts_with("\u{2028}".as_bytes()) => "\\u2028",
                    0xe2 if bytes[at..].starts_with("\u{2029}".as_bytes()) => "\\u2029",
                    _ => continue,
                };
                writer.write_all(&bytes[written..at])?;
                writer.write_all(escape.as_bytes())?;
                written = at + if *byte == 0xe2 { 3 } else { 1 };
            }
            writer.write_all(&bytes[written..])
        }
    }
    value.serialize(&mut serde_json::Serializer::with_formatter(bytes, Escaping))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_written_as_everything_else_is() {
        let value = tidings_json::json!({
            "a<": [1, -2, 2.5, 1e30, u64::MAX, true, false, null, {}, []],
            "": {"\u{2028}&\n\"": "é\u{1}\u{7f}>"},
        });
        let mut written = Vec::new();
        value.write(&mut written);
        assert_eq!(
            String::from_utf8(written).unwrap(),
            String::from_utf8(json(&value).unwrap()).unwrap()
        );
    }

    #[test]
    fn w7_json_escapes_what_go_escapes() {
        assert_eq!(
            json("<a&b>\u{2028}é\n").unwrap(),
            "\"\\u003ca\\u0026b\\u003e\\u2028é\\n\"".as_bytes()
        );
    }

    #[test]
    fn json_is_printed_as_go_prints_it() {
        let value = tidings_json::json!({
            "z": [1, "x y", null, {"b": true, "a": {}}, []],
            "floats": [1.5, 1_234_567.5, 100_000.0, 1_000_000.0, 0.0001, 0.000_01, -2.5e-7, 1e30, 123_456.75],
            "large": u64::MAX,
            "empty": "",
        });
        assert_eq!(
            print(&value),
            "map[empty: floats:[1.5 1.2345675e+06 100000 1e+06 0.0001 1e-05 -2.5e-07 1e+30 123456.75] \
             large:1.8446744073709552e+19 z:[1 x y <nil> map[a:map[] b:true] []]]"
        );
    }
}
