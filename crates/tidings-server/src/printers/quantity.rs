//! Resource quantities in their canonical text form (`1024Mi` becomes `1Gi`).

use tidings_json::Value;

use super::fields::field;

/// The quantity at a path in canonical form; an absent one is 0.
pub(super) fn quantity(object: &Value, path: &[&str]) -> String {
    match field(object, path) {
        None => "0".to_string(),
        Some(Value::String(text)) => canonical(text.trim()),
        Some(Value::Number(number)) => canonical(&number.to_string()),
        Some(_) => String::new(),
    }
}

/// How the quantity was written, which decides how it is printed.
#[derive(Clone, Copy, PartialEq)]
enum Style {
    Decimal,
    Binary,
    Exponent,
}

const NANO: i128 = 1_000_000_000;

/// An invalid or enormous quantity prints as it was written.
fn canonical(text: &str) -> String {
    Written::read(text)
        .filter(|written| !written.is_kept())
        .and_then(|written| print(written.nanos()?, written.style))
        .unwrap_or_else(|| text.to_string())
}

/// The parts of a quantity as it was written.
struct Written {
    negative: bool,
    digits: String,
    /// How many of the digits are behind the point.
    decimals: i32,
    style: Style,
    base: i128,
    exponent: i32,
}

impl Written {
    fn read(text: &str) -> Option<Written> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let number_end = unsigned
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at_checked(number_end)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let whole = match whole.trim_start_matches('0') {
            "" => "0",
            whole => whole,
        };
        if !number.contains(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let (style, base, exponent) = scale(suffix)?;
        Some(Written {
            negative: text.starts_with('-'),
            digits: format!("{whole}{fraction}"),
            decimals: i32::try_from(fraction.len()).ok()?,
            style,
            base,
            exponent,
        })
    }

    /// Decimal quantities whose last digit stands for a whole suffix step stay
    /// as they are, unless zeros lead or trail: `1.125` does not become `1125m`.
    fn is_kept(&self) -> bool {
        let scale = self.exponent.saturating_sub(self.decimals);
        self.style != Style::Binary
            && self.digits.len() <= 18
            && scale >= -9
            && scale % 3 == 0
            && !self.digits.starts_with('0')
            && !self.digits.ends_with("000")
    }

    /// The amount in billionths, rounded away from zero.
    fn nanos(&self) -> Option<i128> {
        let factor = self.base.checked_pow(self.exponent.unsigned_abs())?;
        let mut numerator = self.digits.parse::<i128>().ok()?.checked_mul(NANO)?;
        let mut denominator = 10_i128.checked_pow(self.decimals.unsigned_abs())?;
        if self.exponent < 0 {
            denominator = denominator.checked_mul(factor)?;
        } else {
            numerator = numerator.checked_mul(factor)?;
        }
        let mut nanos = numerator.checked_add(denominator - 1)? / denominator;
        if self.style == Style::Binary {
            nanos = nanos.min(i128::from(i64::MAX) * NANO);
        }
        Some(if self.negative { -nanos } else { nanos })
    }
}

/// The style, base and exponent that a suffix means.
fn scale(suffix: &str) -> Option<(Style, i128, i32)> {
    let decimal = |exponent| Some((Style::Decimal, 10, exponent));
    let binary = |exponent| Some((Style::Binary, 2, exponent));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            Some((Style::Exponent, 10, exponent))
        }
    }
}

/// Writes a quantity with the largest suffix that needs no fraction.
fn print(nanos: i128, style: Style) -> Option<String> {
    if nanos == 0 {
        return Some("0".to_string());
    }
    // Small or fractional binary quantities are clearer as decimal ones.
    if style == Style::Binary && nanos % NANO == 0 && nanos.abs() >= 1024 * NANO {
        let (number, steps) = divide(nanos / NANO, 1024);
        let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].get(steps)?;
        return Some(format!("{number}{suffix}"));
    }
    let (number, steps) = divide(nanos, 1000);
    if style == Style::Exponent {
        let exponent = i64::try_from(steps).ok()? * 3 - 9;
        return Some(match exponent {
            0 => number.to_string(),
            _ => format!("{number}e{exponent}"),
        });
    }
    let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].get(steps)?;
    Some(format!("{number}{suffix}"))
}

/// Divides by `base` as often as that leaves no remainder.
fn divide(mut number: i128, base: i128) -> (i128, usize) {
    let mut steps = 0;
    while number != 0 && number % base == 0 {
        number /= base;
        steps += 1;
    }
    (number, steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidings_json::json;

    #[test]
    fn quantities_become_canonical() {
        for (text, expected) in [
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("2000", "2k"),
            ("100000", "100k"),
            ("1e3", "1e3"),
            ("1.5e3", "1500"),
            ("1e1", "10"),
            ("1.125", "1.125"),
            ("1.000", "1"),
            ("0.125", "125m"),
            ("2.5Mi", "2560Ki"),
            ("9Ei", "9223372036854775807"),
            ("20E", "20E"),
            ("0.1n", "1n"),
            ("-250m", "-250m"),
            ("0Gi", "0"),
            ("10G", "10G"),
            ("many", "many"),
            ("", ""),
            (".", "."),
            ("m", "m"),
        ] {
            assert_eq!(canonical(text), expected, "{text}");
        }
    }

    #[test]
    fn numbers_and_absent_fields_are_quantities() {
        let object = json!({"cpu": 2, "half": 0.5});
        assert_eq!(quantity(&object, &["cpu"]), "2");
        assert_eq!(quantity(&object, &["half"]), "500m");
        assert_eq!(quantity(&object, &["memory"]), "0");
    }
}
