//! What `encoding/json` and `encoding/base64` say of values that do not fit.

use std::borrow::Cow;

use base64::DecodeError::{InvalidByte, InvalidLastSymbol};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidings_json::Value;

/// The name of a JSON value's type in Go's errors.
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The message for a value that is not of the Go type of its struct field: `json: cannot unmarshal ...`.
pub fn mismatch(value: &Value, field: &str, go_type: &str) -> String {
    format!(
        "json: cannot unmarshal {} into Go struct field {field} of type {go_type}",
        found(value, go_type)
    )
}

/// The message for a value, not of a struct field, that is not of the Go type it is decoded into.
pub fn mismatch_value(value: &Value, go_type: &str) -> String {
    format!(
        "json: cannot unmarshal {} into Go value of type {go_type}",
        found(value, go_type)
    )
}

/// What the message says of the value. The digits of a number are named if an integer was expected.
fn found(value: &Value, go_type: &str) -> String {
    match value {
        Value::Number(number) if matches!(go_type, "int32" | "int64") => format!("number {number}"),
        other => json_type(other).to_owned(),
    }
}

/// Decodes base64, in which line breaks are ignored.
///
/// # Errors
/// With Go's message, which names the first wrong byte.
pub fn decode_base64(text: &[u8]) -> Result<Vec<u8>, String> {
    let joined: Cow<'_, [u8]> = match memchr::memchr2(b'\n', b'\r', text) {
        None => text.into(),
        Some(_) => {
            let is_break = |byte: &u8| matches!(byte, b'\n' | b'\r');
            let bytes = text.iter().copied();
            bytes.filter(|byte| !is_break(byte)).collect()
        }
    };
    let at = match STANDARD.decode(&*joined) {
        Ok(bytes) => return Ok(bytes),
        Err(InvalidByte(at, _)) => at,
        Err(InvalidLastSymbol { offset, .. }) => offset,
        Err(_) => text.len(),
    };
    Err(format!("illegal base64 data at input byte {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_named_where_an_integer_was_expected() {
        let number = tidings_json::json!(1.5);
        let why = mismatch_value(&number, "int32");
        assert!(why.contains("unmarshal number 1.5 into"), "{why}");
        let why = mismatch(&number, "A.b", "string");
        assert!(why.contains("unmarshal number into"), "{why}");
    }

    #[test]
    fn line_breaks_in_binary_data_mean_nothing() {
        assert_eq!(decode_base64(b"AAEC\r\nAA==\n"), Ok(vec![0, 1, 2, 0]));
        assert_eq!(
            decode_base64(b"!!!"),
            Err("illegal base64 data at input byte 0".into())
        );
    }
}
