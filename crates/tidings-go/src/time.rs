//! Times as Go's `metav1.Time` and `metav1.MicroTime` read and write them.

use std::ops::RangeInclusive;

use jiff::Timestamp;

use crate::quote;

/// Writes a time as RFC 3339 in UTC with whole seconds.
pub fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `time.Parse(time.RFC3339, text)`. Fractions of seconds are dropped, as `metav1.Time` drops them.
///
/// # Errors
/// With Go's message.
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    let layout = TimeLayout {
        text: "2006-01-02T15:04:05Z07:00",
        micros: false,
    };
    layout.parse(text)
}

/// Reads a time with exactly six digits behind the second, as `metav1.MicroTime` does. The fraction is dropped.
///
/// # Errors
/// With Go's message.
pub fn parse_micro_time(text: &str) -> Result<Timestamp, String> {
    let layout = TimeLayout {
        text: "2006-01-02T15:04:05.000000Z07:00",
        micros: true,
    };
    layout.parse(text)
}

/// A layout of `time.Parse`.
struct TimeLayout {
    text: &'static str,
    /// Six digits of a second are required, else any number of them is allowed.
    micros: bool,
}

impl TimeLayout {
    /// The elements up to the second: text in the layout, number of digits (0 for a separator), name in errors, valid values.
    const ELEMENTS: [(&'static str, usize, &'static str, RangeInclusive<u16>); 11] = [
        ("2006", 4, "year", 0..=9999),
        ("-", 0, "", 0..=0),
        ("01", 2, "month", 1..=12),
        ("-", 0, "", 0..=0),
        ("02", 2, "day", 0..=99),
        ("T", 0, "", 0..=0),
        ("15", 2, "hour", 0..=23),
        (":", 0, "", 0..=0),
        ("04", 2, "minute", 0..=59),
        (":", 0, "", 0..=0),
        ("05", 2, "second", 0..=59),
    ];

    fn parse(&self, text: &str) -> Result<Timestamp, String> {
        let mut rest = text;
        for (element, digits, name, values) in Self::ELEMENTS {
            let fits = match digits {
                0 => rest.starts_with(element),
                digits => count_digits(rest) >= digits,
            };
            if !fits {
                return Err(self.unexpected(text, rest, element));
            }
            let (value, after) = rest.split_at(digits.max(1));
            let in_range = |value: &str| value.parse().is_ok_and(|value| values.contains(&value));
            if digits > 0 && !in_range(value) {
                return Err(out_of_range(text, name));
            }
            rest = after;
        }
        let seconds = &text[..text.len() - rest.len()];
        let zone = self.skip_fraction(text, rest)?;
        let end = match zone.as_bytes() {
            [b'Z', ..] => 1,
            [b'+' | b'-', hours @ ..] if is_offset(hours) => 6,
            _ => return Err(self.unexpected(text, zone, "Z07:00")),
        };
        let (zone, after) = zone.split_at(end);
        if !after.is_empty() {
            let (text, after) = (quote(text), quote(after));
            return Err(format!("parsing time {text}: extra text: {after}"));
        }
        let time = format!("{seconds}{zone}").parse();
        time.map_err(|_| out_of_range(text, "day"))
    }

    /// What follows the fraction of a second.
    fn skip_fraction<'a>(&self, text: &str, rest: &'a str) -> Result<&'a str, String> {
        const MICROS_DIGITS: usize = 6;
        let fraction = rest.strip_prefix(['.', ',']);
        let digits = fraction.map_or(0, count_digits);
        match fraction {
            Some(fraction) if self.micros && digits >= MICROS_DIGITS => {
                Ok(&fraction[MICROS_DIGITS..])
            }
            _ if self.micros => Err(self.unexpected(text, rest, ".000000")),
            Some(fraction) if digits > 0 => Ok(&fraction[digits..]),
            _ => Ok(rest),
        }
    }

    fn unexpected(&self, text: &str, rest: &str, element: &str) -> String {
        format!(
            "parsing time {} as \"{}\": cannot parse {} as \"{element}\"",
            quote(text),
            self.text,
            quote(rest)
        )
    }
}

fn out_of_range(text: &str, name: &str) -> String {
    format!("parsing time {}: {name} out of range", quote(text))
}

fn count_digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// True if the bytes behind a sign begin with `07:00`.
fn is_offset(bytes: &[u8]) -> bool {
    bytes.get(2) == Some(&b':')
        && [0, 1, 3, 4]
            .iter()
            .all(|at| bytes.get(*at).is_some_and(u8::is_ascii_digit))
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

    #[test]
    fn wrong_times_are_refused_with_gos_words() {
        for (text, why) in [
            (
                "",
                r#"as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#,
            ),
            ("2026-13-01T00:00:00Z", ": month out of range"),
            ("2026-02-30T00:00:00Z", ": day out of range"),
            (
                "2026-02-03 00:00:00Z",
                r#"as "2006-01-02T15:04:05Z07:00": cannot parse " 00:00:00Z" as "T""#,
            ),
            (
                "2026-02-03T00:00:00",
                r#"as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#,
            ),
            ("2026-02-03T00:00:00Zx", r#": extra text: "x""#),
        ] {
            let error = parse_time(text).unwrap_err();
            assert!(
                error.starts_with("parsing time \"") && error.ends_with(why),
                "{error}"
            );
        }
        assert_eq!(
            parse_micro_time("2026-02-03T00:00:00Z").unwrap_err(),
            r#"parsing time "2026-02-03T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
        );
    }
}
