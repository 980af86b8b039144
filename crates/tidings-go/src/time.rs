//! Times as Go's `metav1.Time` and `metav1.MicroTime` read and write them.

use jiff::Timestamp;

use crate::quote;

/// Writes a time as RFC 3339 in UTC with whole seconds.
pub fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Reads a time as RFC 3339 has it.
///
/// # Errors
/// With Go's message.
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    text.parse()
        .map_err(|_| no_time(text, "2006-01-02T15:04:05Z07:00"))
}

/// Reads a time with exactly six digits behind the second.
///
/// # Errors
/// With Go's message.
pub fn parse_micro_time(text: &str) -> Result<Timestamp, String> {
    let bad = || no_time(text, "2006-01-02T15:04:05.000000Z07:00");
    let (_, rest) = text.split_once('.').ok_or_else(bad)?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    if digits != 6 {
        return Err(bad());
    }
    text.parse().map_err(|_| bad())
}

fn no_time(text: &str, layout: &str) -> String {
    let text = quote(text);
    format!("parsing time {text} as \"{layout}\": cannot parse {text} as \"2006\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_as_many_digits_as_they_should() {
        assert!(parse_time("2026-01-02T03:04:05.5+02:00").is_ok());
        assert!(parse_time("yesterday").is_err() && parse_time("").is_err());
        assert!(parse_micro_time("2026-01-02T03:04:05.000006Z").is_ok());
        for bad in [
            "2026-01-02T03:04:05Z",
            "2026-01-02T03:04:05.5Z",
            "2026-01-02T03:04:05.0000067Z",
            "x.123456Z",
        ] {
            assert!(parse_micro_time(bad).is_err(), "{bad}");
        }
    }
}
