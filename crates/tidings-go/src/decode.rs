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

/// The message for a value that is not of the Go type of its field: `json: cannot unmarshal ...`.
pub fn mismatch(value: &Value, field: &str, go_type: &str) -> String {
    format!(
        "json: cannot unmarshal {} into Go struct field {field} of type {go_type}",
        json_type(value)
    )
}

/// Checks base64, in which line breaks are ignored.
///
/// # Errors
/// With Go's message, which names the first wrong byte.
pub fn check_base64(text: &str) -> Result<(), String> {
    let joined: Cow<'_, str> = if text.contains(['\n', '\r']) {
        text.replace(['\n', '\r'], "").into()
    } else {
        text.into()
    };
    let at = match STANDARD.decode(&*joined) {
        Ok(_) => return Ok(()),
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
    fn line_breaks_in_binary_data_mean_nothing() {
        assert_eq!(check_base64("AAEC\r\nAAEC\n"), Ok(()));
        assert_eq!(
            check_base64("!!!"),
            Err("illegal base64 data at input byte 0".into())
        );
    }
}
