//! Resource quantities: which texts are quantities, their canonical form (`1024Mi` becomes `1Gi`), and sums of them.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Sub};

const NO_QUANTITY: &str = "quantities must match the regular expression \
     '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const NO_SUFFIX: &str = "unable to parse quantity's suffix";

/// Checks a quantity, which is a number with a suffix: `1500m`, `1.5Gi`, `1e3`.
///
/// # Errors
/// With upstream's message.
pub fn check_quantity(text: &str) -> Result<(), String> {
    let number = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = number.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, suffix) = number.split_at(end.unwrap_or(number.len()));
    let digits = number.bytes().filter(u8::is_ascii_digit).count();
    if digits == 0 || number.len() - digits > 1 {
        return Err(NO_QUANTITY.into());
    }
    let known = match suffix.strip_prefix(['e', 'E']) {
        _ if suffix.is_empty() => true,
        Some("") => suffix == "E",
        Some("i") => suffix == "Ei",
        Some(exponent) => {
            let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            !exponent.is_empty() && exponent.bytes().all(|byte| byte.is_ascii_digit())
        }
        None => matches!(
            suffix,
            "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi"
        ),
    };
    if known { Ok(()) } else { Err(NO_SUFFIX.into()) }
}

/// How the quantity was written, which decides how it is printed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum QuantityStyle {
    Decimal,
    Binary,
    Exponent,
}

const NANO: i128 = 1_000_000_000;

/// A quantity in its canonical form. An invalid or enormous one stays as it is written.
pub fn canonical_quantity(text: &str) -> String {
    WrittenQuantity::read(text)
        .filter(|written| !written.is_kept())
        .and_then(|written| print(written.nanos()?, written.style))
        .unwrap_or_else(|| text.to_string())
}

/// An amount that can be added and compared. It is exact to billionths; what is larger than 10^29 is cut.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nanos: i128,
    style: QuantityStyle,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Quantity = Quantity {
        nanos: 0,
        style: QuantityStyle::Decimal,
    };

    /// Reads a quantity. `None` if it is none.
    pub fn parse(text: &str) -> Option<Quantity> {
        check_quantity(text).ok()?;
        let written = WrittenQuantity::read(text)?;
        let most = i128::MAX >> 8;
        let cut = if written.negative { -most } else { most };
        Some(Quantity {
            nanos: written.nanos().unwrap_or(cut).clamp(-most, most),
            style: written.style,
        })
    }

    /// A whole number.
    pub fn whole(number: i64) -> Quantity {
        Quantity {
            nanos: i128::from(number) * NANO,
            ..Quantity::ZERO
        }
    }

    /// True if it is zero.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// The whole number above.
    pub fn value(self) -> i128 {
        -(-self.nanos).div_euclid(NANO)
    }

    /// The whole number of thousandths above.
    pub fn milli_value(self) -> i128 {
        -(-self.nanos).div_euclid(NANO / 1000)
    }
}

impl Add for Quantity {
    type Output = Quantity;

    /// A sum is printed as its first part is, unless that is zero.
    fn add(self, other: Quantity) -> Quantity {
        Quantity {
            nanos: self.nanos.saturating_add(other.nanos),
            style: if self.is_zero() {
                other.style
            } else {
                self.style
            },
        }
    }
}

impl Sub for Quantity {
    type Output = Quantity;

    fn sub(self, other: Quantity) -> Quantity {
        let nanos = -other.nanos;
        self + Quantity { nanos, ..other }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Quantity) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match print(self.nanos, self.style) {
            Some(text) => f.write_str(&text),
            None => write!(f, "{}", self.value()),
        }
    }
}

/// The parts of a quantity as it was written.
struct WrittenQuantity {
    negative: bool,
    digits: String,
    /// How many of the digits are behind the point.
    decimals: i32,
    style: QuantityStyle,
    base: i128,
    exponent: i32,
}

impl WrittenQuantity {
    fn read(text: &str) -> Option<WrittenQuantity> {
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
        Some(WrittenQuantity {
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
        self.style != QuantityStyle::Binary
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
        if self.style == QuantityStyle::Binary {
            nanos = nanos.min(i128::from(i64::MAX) * NANO);
        }
        Some(if self.negative { -nanos } else { nanos })
    }
}

/// The style, base and exponent that a suffix means.
fn scale(suffix: &str) -> Option<(QuantityStyle, i128, i32)> {
    let decimal = |exponent| Some((QuantityStyle::Decimal, 10, exponent));
    let binary = |exponent| Some((QuantityStyle::Binary, 2, exponent));
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
            Some((QuantityStyle::Exponent, 10, exponent))
        }
    }
}

/// Writes a quantity with the largest suffix that needs no fraction.
fn print(nanos: i128, style: QuantityStyle) -> Option<String> {
    if nanos == 0 {
        return Some("0".to_string());
    }
    // Small or fractional binary quantities are clearer as decimal ones.
    if style == QuantityStyle::Binary && nanos % NANO == 0 && nanos.abs() >= 1024 * NANO {
        let (number, steps) = divide(nanos / NANO, 1024);
        let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].get(steps)?;
        return Some(format!("{number}{suffix}"));
    }
    let (number, steps) = divide(nanos, 1000);
    if style == QuantityStyle::Exponent {
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
            assert_eq!(canonical_quantity(text), expected, "{text}");
        }
    }

    #[test]
    fn sums_are_exact_and_printed_as_their_first_part() {
        let quantity = |text: &str| Quantity::parse(text).unwrap();
        for (one, other, sum) in [
            ("1", "500m", "1500m"),
            ("1Gi", "512Mi", "1536Mi"),
            ("0", "1Gi", "1Gi"),
            ("1000", "1Gi", "1073742824"),
            ("100m", "900m", "1"),
            ("1e3", "1e3", "2e3"),
        ] {
            assert_eq!((quantity(one) + quantity(other)).to_string(), sum);
            assert_eq!(quantity(sum) - quantity(other), quantity(one));
        }
        assert!(quantity("1Ki") > quantity("1k") && quantity("1") == quantity("1000m"));
        assert_eq!(quantity("1500m").value(), 2);
        assert_eq!(quantity("-1500m").value(), -1);
        assert_eq!(quantity("1.0001").milli_value(), 1001);
        assert!(quantity("9e99") > quantity("1E") && Quantity::parse("1x").is_none());
    }

    #[test]
    fn quantities_are_numbers_with_a_known_suffix() {
        for good in [
            "0", "1", "-1", "+1", ".5", "1.", "1.5Gi", "1500m", "1E", "1Ei", "1e3", "1E-3", "3n",
        ] {
            assert_eq!(check_quantity(good), Ok(()), "{good}");
        }
        for bad in ["", "abc", "Gi", "-", ".", "1.2.3", "١"] {
            assert_eq!(check_quantity(bad), Err(NO_QUANTITY.into()), "{bad}");
        }
        for bad in ["1K", "1mi", "1 Gi", "1e", "1e+", "1ei", "1x"] {
            assert_eq!(check_quantity(bad), Err(NO_SUFFIX.into()), "{bad}");
        }
    }
}
