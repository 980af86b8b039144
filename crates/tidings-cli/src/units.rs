//! Durations and sizes as they are written on the command line.

use std::time::Duration;

pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    );
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err("write a whole number with its unit, as 30s, 10m or 2h".to_owned()),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| "write a whole number with its unit, as 30s, 10m or 2h".to_owned())?;
    number
        .checked_mul(seconds)
        .filter(|seconds| *seconds > 0)
        .map(Duration::from_secs)
        .ok_or("must be at least 1s".to_owned())
}

pub(crate) fn parse_bytes(text: &str) -> Result<usize, String> {
    let (number, unit) = match text.strip_suffix("Ki") {
        Some(number) => (number, 1 << 10),
        None => match text.strip_suffix("Mi") {
            Some(number) => (number, 1 << 20),
            None => (text, 1),
        },
    };
    let range = (64 << 10)..=(32 << 20);
    let bytes = number
        .parse()
        .ok()
        .and_then(|number: usize| number.checked_mul(unit));
    bytes
        .filter(|bytes| range.contains(bytes))
        .ok_or("write a number of bytes from 64Ki to 32Mi, as 1532Ki".to_owned())
}
