//! Numbers and booleans as `strconv` and `fmt` read and write them.

use tidings_json::Value;

use crate::quote;

/// `strconv.NumError`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("strconv.{function}: parsing {}: {reason}", quote(.text))]
pub struct ParseNumberError {
    function: &'static str,
    text: String,
    reason: &'static str,
}

/// `strconv.ParseUint(text, 10, 64)`.
///
/// # Errors
/// With Go's message, if the text is not such a number.
pub fn parse_uint(text: &str) -> Result<u64, ParseNumberError> {
    let error = |reason| ParseNumberError {
        function: "ParseUint",
        text: text.to_owned(),
        reason,
    };
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(error("invalid syntax"));
    }
    text.parse().map_err(|_| error("value out of range"))
}

/// `strconv.ParseInt(text, 10, 64)`.
///
/// # Errors
/// With Go's message, if the text is not such a number.
pub fn parse_int(text: &str) -> Result<i64, ParseNumberError> {
    let error = |reason| ParseNumberError {
        function: "ParseInt",
        text: text.to_owned(),
        reason,
    };
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(error("invalid syntax"));
    }
    text.parse().map_err(|_| error("value out of range"))
}

/// The boolean of a query parameter (W21): everything but `0` and `false` is true, the empty text included.
pub fn query_bool(text: &str) -> bool {
    text != "0" && !text.eq_ignore_ascii_case("false")
}

/// `fmt.Sprint` of a float64: with an exponent of two digits or more from a million on and below a ten-thousandth.
pub fn print_float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return match value {
            value if value.is_nan() => "NaN".into(),
            value if value > 0.0 => "+Inf".into(),
            _ => "-Inf".into(),
        };
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// A number as Go decodes it from JSON: an integer if it is written as one and fits into 64 bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GoNumber {
    /// `int64`
    Int(i64),
    /// `float64`
    Float(f64),
}

impl GoNumber {
    /// The number of a value; `None` if it is none.
    pub fn of(value: &Value) -> Option<GoNumber> {
        let number = value.as_number()?;
        Some(match number.as_i64() {
            Some(integer) => GoNumber::Int(integer),
            None => GoNumber::Float(number.as_f64()?),
        })
    }

    /// The number as `float64`.
    pub fn as_f64(self) -> f64 {
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
            GoNumber::Float(value) => f.write_str(&print_float(*value)),
        }
    }
}

/// The integer that Go writes for a float without a fraction. Above 2^53 not every integer is a float.
pub fn whole_number(float: f64) -> Option<i64> {
    const WHOLE_MAX: f64 = (1_u64 << 53) as f64;
    (float.fract() == 0.0 && float.abs() <= WHOLE_MAX).then_some(float as i64)
}

/// Turns floats without a fraction into integers, at every depth, as Go writes them.
pub fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(whole) = number.as_f64().and_then(whole_number) {
                *value = whole.into();
            }
        }
        Value::Array(values) => values.iter_mut().for_each(whole_numbers),
        Value::Object(members) => members.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// A float as Go's `encoding/json` writes it: with an exponent below 1e-6 and from 1e21 on.
pub fn json_float(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let scientific = format!("{value:e}");
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let sign = if exponent.starts_with('-') { "" } else { "+" };
        return format!("{digits}e{sign}{exponent}");
    }
    format!("{value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w22_integers_fail_with_gos_words() {
        assert_eq!(
            parse_int("abc").unwrap_err().to_string(),
            r#"strconv.ParseInt: parsing "abc": invalid syntax"#
        );
        let huge = "99999999999999999999";
        assert_eq!(
            parse_int(huge).unwrap_err().to_string(),
            format!("strconv.ParseInt: parsing \"{huge}\": value out of range")
        );
        assert_eq!(parse_int("-5"), Ok(-5));
        assert_eq!(
            parse_uint("-1").unwrap_err().to_string(),
            r#"strconv.ParseUint: parsing "-1": invalid syntax"#
        );
    }

    #[test]
    fn w21_everything_but_zero_and_false_is_true() {
        assert!(["", "1", "true", "foo"].into_iter().all(query_bool));
        assert!(!["0", "false", "FALSE"].into_iter().any(query_bool));
    }

    #[test]
    fn floats_are_printed_with_an_exponent_of_two_digits() {
        for (value, expected) in [
            (1.0, "1"),
            (0.5, "0.5"),
            (1_234_567.5, "1.2345675e+06"),
            (1e21, "1e+21"),
            (0.00001, "1e-05"),
            (1.5e300, "1.5e+300"),
            (-2.25, "-2.25"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(print_float(value), expected);
        }
    }
}
