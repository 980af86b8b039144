//! The formats of strings and numbers that validation checks. Other formats are ignored.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine;
use regex::Regex;
use tidings_go::{self as go, Url};

/// A format that validation checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    BsonObjectId,
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    Uuid,
    Uuid3,
    Uuid4,
    Uuid5,
    Isbn,
    Isbn10,
    Isbn13,
    CreditCard,
    Ssn,
    HexColor,
    RgbColor,
    Byte,
    Password,
    Date,
    Duration,
    DateTime,
    ShortName,
    LongName,
    Int32,
    Int64,
    Float,
    Double,
}

impl Format {
    /// The format of this name for these types; `None` if it is not checked for them.
    pub(crate) fn of(text: &str, types: &[&str]) -> Option<Format> {
        let only = if let [only] = types { only } else { "" };
        match only {
            "" | "string" => Format::of_text(&text.replace('-', "")),
            "integer" => match text {
                "int32" => Some(Format::Int32),
                "int64" => Some(Format::Int64),
                _ => None,
            },
            "number" => match text {
                "float" => Some(Format::Float),
                "double" => Some(Format::Double),
                _ => None,
            },
            _ => None,
        }
    }

    fn of_text(normalized: &str) -> Option<Format> {
        Some(match normalized {
            "bsonobjectid" => Format::BsonObjectId,
            "uri" => Format::Uri,
            "email" => Format::Email,
            "hostname" => Format::Hostname,
            "ipv4" => Format::Ipv4,
            "ipv6" => Format::Ipv6,
            "cidr" => Format::Cidr,
            "mac" => Format::Mac,
            "uuid" => Format::Uuid,
            "uuid3" => Format::Uuid3,
            "uuid4" => Format::Uuid4,
            "uuid5" => Format::Uuid5,
            "isbn" => Format::Isbn,
            "isbn10" => Format::Isbn10,
            "isbn13" => Format::Isbn13,
            "creditcard" => Format::CreditCard,
            "ssn" => Format::Ssn,
            "hexcolor" => Format::HexColor,
            "rgbcolor" => Format::RgbColor,
            "byte" => Format::Byte,
            "password" => Format::Password,
            "date" => Format::Date,
            "duration" => Format::Duration,
            "datetime" => Format::DateTime,
            "k8sshortname" => Format::ShortName,
            "k8slongname" => Format::LongName,
            _ => return None,
        })
    }

    /// True if a string has this format. All strings pass a format of numbers.
    pub(crate) fn holds(self, text: &str) -> bool {
        match self {
            Format::BsonObjectId => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
            Format::Uri => Url::parse_request(text).is_ok(),
            Format::Email => is_email(text),
            Format::Hostname => is_hostname(text),
            Format::Ipv4 => text.contains('.') && is_ip(text),
            Format::Ipv6 => text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
            Format::Cidr => is_cidr(text),
            Format::Mac => is_mac(text),
            Format::Uuid => UUID.is_match(text),
            Format::Uuid3 => UUID3.is_match(text),
            Format::Uuid4 => UUID4.is_match(text),
            Format::Uuid5 => UUID5.is_match(text),
            Format::Isbn => is_isbn10(text) || is_isbn13(text),
            Format::Isbn10 => is_isbn10(text),
            Format::Isbn13 => is_isbn13(text),
            Format::CreditCard => is_credit_card(text),
            Format::Ssn => SSN.is_match(text),
            Format::HexColor => HEX_COLOR.is_match(text),
            Format::RgbColor => RGB_COLOR.is_match(text),
            Format::Byte => is_base64(text),
            Format::Date => is_date(text),
            Format::Duration => is_duration(text),
            Format::DateTime => is_date_time(text),
            Format::ShortName => text.len() <= 63 && is_name(text),
            Format::LongName => text.len() <= 253 && text.split('.').all(is_name),
            Format::Password | Format::Int32 | Format::Int64 | Format::Float | Format::Double => {
                true
            }
        }
    }
}

macro_rules! regexes {
    ($($name:ident = $pattern:literal;)*) => {
        $(static $name: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new($pattern).expect(stringify!($name))
        });)*
    };
}

regexes! {
    UUID = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
    UUID3 = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
    UUID4 = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
    UUID5 = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
    SSN = r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$";
    HEX_COLOR = r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$";
    RGB_COLOR = r"^rgb\(\s*(0|[1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5])\s*,\s*(0|[1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5])\s*,\s*(0|[1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5])\s*\)$";
    HOSTNAME = r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$";
    CREDIT_CARD = r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$";
    TIME = r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$";
    DURATION = r"([0-9]+)\s*([A-Za-zµ]+)";
}

fn is_name(text: &str) -> bool {
    let is_member = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|b| is_member(*b))
        && bytes.last().is_some_and(|b| is_member(*b))
        && bytes.iter().all(|b| is_member(*b) || *b == b'-')
}

fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && text.split('.').all(|part| part.len() <= 63) && HOSTNAME.is_match(text)
}

/// Parses as Go's `netutils.ParseIPSloppy`: leading zeros are allowed.
fn is_ip(text: &str) -> bool {
    if text.contains(':') {
        return text.parse::<Ipv6Addr>().is_ok();
    }
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() == 4
        && parts.iter().all(|part| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_digit())
                && part.trim_start_matches('0').len() <= 3
                && part.parse::<u32>().is_ok_and(|number| number <= 255)
        })
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let max = if address.contains(':') { 128 } else { 32 };
    is_ip(address)
        && !length.is_empty()
        && length.bytes().all(|b| b.is_ascii_digit())
        && length.parse::<u32>().is_ok_and(|length| length <= max)
}

/// Six, eight or twenty bytes, in pairs with `:` or `-`, or in fours with `.`.
fn is_mac(text: &str) -> bool {
    let is_hex =
        |part: &str, len: usize| part.len() == len && part.bytes().all(|b| b.is_ascii_hexdigit());
    for separator in [':', '-'] {
        let parts: Vec<&str> = text.split(separator).collect();
        if [6, 8, 20].contains(&parts.len()) && parts.iter().all(|part| is_hex(part, 2)) {
            return true;
        }
    }
    let parts: Vec<&str> = text.split('.').collect();
    [3, 4, 10].contains(&parts.len()) && parts.iter().all(|part| is_hex(part, 4))
}

/// True for addresses that Go's `mail.ParseAddress` accepts, except comments: `a@b` or `Name <a@b>`.
fn is_email(text: &str) -> bool {
    let text = text.trim();
    let address = match text
        .strip_suffix('>')
        .and_then(|rest| rest.rsplit_once('<'))
    {
        Some((name, address)) => {
            let is_word = |c: char| c.is_alphanumeric() || " .\"!#$%&'*+-/=?^_`{|}~".contains(c);
            if !name.chars().all(is_word) {
                return false;
            }
            address
        }
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let is_atom = |text: &str| {
        !text.is_empty()
            && text.split('.').all(|part| {
                !part.is_empty()
                    && part.chars().all(|c| {
                        !c.is_ascii()
                            || c.is_ascii_alphanumeric()
                            || "!#$%&'*+-/=?^_`{|}~".contains(c)
                    })
            })
    };
    let is_quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let is_literal = domain
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|inner| inner.parse::<Ipv4Addr>().is_ok() || inner.starts_with("IPv6:"));
    (is_quoted || is_atom(local)) && (is_literal || is_atom(domain))
}

fn is_isbn10(text: &str) -> bool {
    let digits = text.replace([' ', '-'], "");
    let bytes = digits.as_bytes();
    if bytes.len() != 10 || !bytes[..9].iter().all(u8::is_ascii_digit) {
        return false;
    }
    let last = match bytes[9] {
        b'X' | b'x' => 10,
        b if b.is_ascii_digit() => u32::from(b - b'0'),
        _ => return false,
    };
    let sum: u32 = (1_u32..)
        .zip(&bytes[..9])
        .map(|(at, b)| at * u32::from(b - b'0'))
        .sum();
    (sum + 10 * last).is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits = text.replace([' ', '-'], "");
    if digits.len() != 13 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return false;
    }
    let weighted = digits.bytes().zip([1_u32, 3].into_iter().cycle());
    let sum: u32 = weighted
        .map(|(b, weight)| weight * u32::from(b - b'0'))
        .sum();
    sum.is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !CREDIT_CARD.is_match(&digits) {
        return false;
    }
    let doubled = digits.bytes().rev().enumerate().map(|(at, b)| {
        let digit = u32::from(b - b'0') * if at % 2 == 1 { 2 } else { 1 };
        if digit > 9 { digit - 9 } else { digit }
    });
    doubled.sum::<u32>().is_multiple_of(10)
}

/// True for padded base64 in the standard alphabet. An empty text is not base64.
fn is_base64(text: &str) -> bool {
    !text.is_empty()
        && base64::engine::general_purpose::STANDARD
            .decode(text)
            .is_ok()
}

fn is_date(text: &str) -> bool {
    text.len() == 10
        && text.as_bytes()[4] == b'-'
        && text.as_bytes()[7] == b'-'
        && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let Some((date, time)) = lower.split_once('t') else {
        return false;
    };
    // Upstream ignores everything after a second `t`.
    let time = time.split('t').next().unwrap_or_default();
    let Some(parts) = TIME.captures(time) else {
        return false;
    };
    is_date(date) && &parts[1] <= "23" && &parts[2] <= "59" && &parts[3] <= "59"
}

/// True for Go's durations, and for durations with spaces and units up to weeks.
fn is_duration(text: &str) -> bool {
    if go::parse_duration(text).is_ok() {
        return true;
    }
    const EXACT: [&str; 15] = [
        "ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk", "nano", "micro", "milli",
        "sec",
    ];
    const PREFIXES: [&str; 8] = [
        "nano", "micro", "milli", "sec", "min", "hour", "day", "week",
    ];
    DURATION.captures_iter(text).any(|found| {
        let unit = found[2].to_lowercase();
        found[1].parse::<i64>().is_ok()
            && (EXACT.contains(&unit.as_str())
                || PREFIXES.iter().any(|prefix| unit.starts_with(prefix)))
    })
}
