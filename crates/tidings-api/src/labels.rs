//! The labels of an object in one piece of memory.

use std::borrow::Borrow;
use std::fmt;

use tidings_json::Plain;

/// The labels of an object, sorted by key.
///
/// All keys and values stand in one text, each after its length: a program keeps the labels of a hundred thousand objects, and most have few.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Labels(Box<str>);

/// A length is two characters, the digits of a number in this base: the characters from 0 to 0x7fff are all valid.
const BASE: u32 = 0x8000;

impl Labels {
    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter()
            .find(|(candidate, _)| *candidate == key)
            .map(|(_, value)| value)
    }

    /// All labels in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || Some((unpack(&mut rest)?, unpack(&mut rest)?)))
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
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    packed.extend(
        [length / BASE, length % BASE].map(|digit| char::from_u32(digit).unwrap_or_default()),
    );
    packed.push_str(text);
}

fn unpack<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let mut digits = rest.chars();
    let length = u32::from(digits.next()?) * BASE + u32::from(digits.next()?);
    let (text, after) = digits.as_str().split_at_checked(length as usize)?;
    *rest = after;
    Some(text)
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
        let long = "x".repeat(BASE as usize + 3);
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
