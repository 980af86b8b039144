//! Texts that stand for something else: times, amounts, binary data. `Err` is what Go says of one that does not.

use std::borrow::Cow;

use base64::DecodeError::{InvalidByte, InvalidLastSymbol};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use tidings_api::go;

const NO_QUANTITY: &str = "quantities must match the regular expression \
     '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const NO_SUFFIX: &str = "unable to parse quantity's suffix";

/// RFC 3339.
pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    text.parse()
        .map_err(|_| no_time(text, "2006-01-02T15:04:05Z07:00"))
}

/// RFC 3339 with six digits behind the second.
pub(super) fn micro_time(text: &str) -> Result<Timestamp, String> {
    let bad = || no_time(text, "2006-01-02T15:04:05.000000Z07:00");
    let (_, rest) = text.split_once('.').ok_or_else(bad)?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    if digits != 6 {
        return Err(bad());
    }
    text.parse().map_err(|_| bad())
}

fn no_time(text: &str, layout: &str) -> String {
    let text = go::quote(text);
    format!("parsing time {text} as \"{layout}\": cannot parse {text} as \"2006\"")
}

/// A number with a suffix: `1500m`, `1.5Gi`, `1e3`.
pub(super) fn quantity(text: &str) -> Result<(), String> {
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

/// Binary data; line breaks in it mean nothing.
pub(super) fn base64(text: &str) -> Result<(), String> {
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
    fn quantities_are_numbers_with_a_known_suffix() {
        for good in [
            "0", "1", "-1", "+1", ".5", "1.", "1.5Gi", "1500m", "1E", "1Ei", "1e3", "1E-3", "3n",
        ] {
            assert_eq!(quantity(good), Ok(()), "{good}");
        }
        for bad in ["", "abc", "Gi", "-", ".", "1.2.3", "١"] {
            assert_eq!(quantity(bad), Err(NO_QUANTITY.into()), "{bad}");
        }
        for bad in ["1K", "1mi", "1 Gi", "1e", "1e+", "1ei", "1x"] {
            assert_eq!(quantity(bad), Err(NO_SUFFIX.into()), "{bad}");
        }
    }

    #[test]
    fn times_have_as_many_digits_as_they_should() {
        assert!(time("2026-01-02T03:04:05.5+02:00").is_ok());
        assert!(time("yesterday").is_err() && time("").is_err());
        assert!(micro_time("2026-01-02T03:04:05.000006Z").is_ok());
        for bad in [
            "2026-01-02T03:04:05Z",
            "2026-01-02T03:04:05.5Z",
            "2026-01-02T03:04:05.0000067Z",
            "x.123456Z",
        ] {
            assert!(micro_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn line_breaks_in_binary_data_mean_nothing() {
        assert_eq!(base64("AAEC\r\nAAEC\n"), Ok(()));
        assert_eq!(
            base64("!!!"),
            Err("illegal base64 data at input byte 0".into())
        );
    }
}
