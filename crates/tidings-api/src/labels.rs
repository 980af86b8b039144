//! The labels of an object in one piece of memory.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Range;

use tidings_json::Plain;

/// The labels of an object, sorted by key.
///
/// All keys and values stand in one text, each after its length: a program keeps the labels of a hundred thousand objects, and most have few.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Labels(Box<str>);

/// A length below this is one character. Others are this character and [`DIGITS`] digits.
const LONG: u8 = 0x7f;
/// Digits of seven bits: all are valid characters of one byte.
const DIGITS: usize = 5;

impl Labels {
    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        let bytes = self.0.as_bytes();
        let mut at = 0;
        loop {
            let candidate = next_text(bytes, &mut at)?;
            let value = next_text(bytes, &mut at)?;
            if bytes.get(candidate) == Some(key.as_bytes()) {
                return self.0.get(value);
            }
        }
    }

    /// All labels in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let bytes = self.0.as_bytes();
            let (key, value) = (next_text(bytes, &mut at)?, next_text(bytes, &mut at)?);
            Some((self.0.get(key)?, self.0.get(value)?))
        })
    }

    /// Reads the labels of JSON and packs them as [`Labels`] does; nothing if it is no map of strings.
    pub(crate) fn pack(json: &[u8], packed: &mut String) {
        packed.clear();
        let text = std::str::from_utf8(json).unwrap_or_default();
        // Servers write keys in order and nothing that is escaped.
        let mut last = None;
        let mut plain = Plain::new(text);
        let read = plain.members(|key, plain| {
            if last.is_some_and(|last| last >= key) {
                return None;
            }
            last = Some(key);
            pack_text(key, packed);
            pack_text(plain.string()?, packed);
            Some(())
        });
        if read.and_then(|()| plain.end()).is_none() {
            packed.clear();
            let labels: Labels = string_map(json).into_iter().collect();
            packed.push_str(&labels.0);
        }
    }

    pub(crate) fn of_json(json: &[u8]) -> Labels {
        let mut packed = String::new();
        Labels::pack(json, &mut packed);
        Labels(packed.into())
    }

    /// Labels from the text that [`Object::pack_labels`](crate::Object::pack_labels) made.
    pub fn from_packed(packed: &str) -> Labels {
        Labels(packed.into())
    }
}

impl Borrow<str> for Labels {
    /// The packed text.
    fn borrow(&self) -> &str {
        &self.0
    }
}

fn pack_text(text: &str, packed: &mut String) {
    let length = text.len();
    match u8::try_from(length) {
        Ok(short) if short < LONG => packed.push(char::from(short)),
        _ => {
            packed.push(char::from(LONG));
            let digit = |place: usize| char::from((length >> (7 * place)) as u8 & 0x7f);
            packed.extend((0..DIGITS).map(digit));
        }
    }
    packed.push_str(text);
}

/// Where the text after a position stands. Moves the position behind it.
fn next_text(packed: &[u8], at: &mut usize) -> Option<Range<usize>> {
    let first = *packed.get(*at)?;
    let mut start = *at + 1;
    let mut length = usize::from(first);
    if first == LONG {
        let digits = packed.get(start..start + DIGITS)?;
        start += DIGITS;
        length = digits
            .iter()
            .rev()
            .fold(0, |length, digit| length << 7 | usize::from(*digit));
    }
    *at = start + length;
    Some(start..*at)
}

impl FromIterator<(String, String)> for Labels {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Labels {
        // The last of duplicate keys counts, so they are inserted in order.
        let sorted: std::collections::BTreeMap<String, String> = pairs.into_iter().collect();
        let mut packed = String::new();
        for (key, value) in &sorted {
            pack_text(key, &mut packed);
            pack_text(value, &mut packed);
        }
        Labels(packed.into())
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// The members of a map of strings; empty if the bytes are not such a map.
pub(crate) fn string_map(json: &[u8]) -> Vec<(String, String)> {
    if json.is_empty() {
        return Vec::new();
    }
    let map: Result<serde_json::Map<String, serde_json::Value>, _> = serde_json::from_slice(json);
    map.unwrap_or_default()
        .into_iter()
        .filter_map(|(key, value)| match value {
            serde_json::Value::String(text) => Some((key, text)),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_come_back_sorted_and_whatever_they_contain() {
        let long = "x".repeat(70_000);
        let check = |json: &str, expected: &[(&str, &str)]| {
            let labels = Labels::of_json(json.as_bytes());
            assert_eq!(labels.iter().collect::<Vec<_>>(), expected, "{json}");
            for (key, value) in expected {
                assert_eq!(labels.get(key), Some(*value));
            }
            assert_eq!(labels.get("absent"), None);
            let pairs = expected
                .iter()
                .map(|(key, value)| ((*key).into(), (*value).into()));
            assert_eq!(labels, pairs.collect());
        };
        check("", &[]);
        check("null", &[]);
        check("{}", &[]);
        check(r#"{"a":"1"}"#, &[("a", "1")]);
        check(r#"{"a":"","":"b"}"#, &[("", "b"), ("a", "")]);
        check(r#"{ "b" : "2", "a" : "1" }"#, &[("a", "1"), ("b", "2")]);
        check(r#"{"a":"1","a":"2"}"#, &[("a", "2")]);
        check(r#"{"a":1,"b":"2"}"#, &[("b", "2")]);
        check(r#"{"\u0061":"\u0000☃"}"#, &[("a", "\0☃")]);
        check(
            &format!(r#"{{"a":"{long}","b":"c"}}"#),
            &[("a", &long), ("b", "c")],
        );
    }
}
