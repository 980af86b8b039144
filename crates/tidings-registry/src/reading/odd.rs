//! Finds unknown and duplicate fields in the order of the document (W173).

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::path::{FieldPath, noted};

/// The unknown and duplicate fields of a document, each once and in the order of the document. Duplicates of an unknown field, or
/// inside of it, are left out.
pub(crate) fn odd_in_order(
    json: &[u8],
    duplicates: &[String],
    unknown: &[String],
) -> Vec<(&'static str, String)> {
    let mut finder = OddFields {
        duplicates: duplicates.iter().map(String::as_str).collect(),
        unknown: unknown.iter().map(String::as_str).collect(),
        reported: HashSet::new(),
        found: Vec::new(),
    };
    let mut reader = serde_json::Deserializer::from_slice(json);
    // The document has been parsed already, so this does not fail.
    let _ = OddFieldVisitor(&mut finder, &FieldPath::Top).deserialize(&mut reader);
    finder.found
}

/// The fields that are searched for, and those that have been found.
struct OddFields<'a> {
    /// Paths of duplicate fields that have not been found yet.
    duplicates: HashSet<&'a str>,
    /// Paths of unknown fields.
    unknown: HashSet<&'a str>,
    /// Paths of unknown fields that have been found: an unknown field can occur twice.
    reported: HashSet<String>,
    /// `unknown` or `duplicate`, and the path.
    found: Vec<(&'static str, String)>,
}

/// Searches the value at a path.
struct OddFieldVisitor<'a, 'b>(&'a mut OddFields<'b>, &'a FieldPath<'a>);

impl<'de> DeserializeSeed<'de> for OddFieldVisitor<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for OddFieldVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let OddFieldVisitor(finder, here) = self;
        let mut at = 0;
        while elements
            .next_element_seed(OddFieldVisitor(finder, &FieldPath::Element(here, at)))?
            .is_some()
        {
            at += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let OddFieldVisitor(finder, here) = self;
        let mut seen = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            let here = FieldPath::Member(here, &name);
            // Paths are formatted only if there are fields to find.
            let path = match (finder.duplicates.is_empty(), finder.unknown.is_empty()) {
                (true, true) => String::new(),
                _ => noted(&here),
            };
            if finder.unknown.contains(&*path) {
                if finder.reported.insert(path.clone()) {
                    finder.found.push(("unknown", path));
                }
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            if !seen.insert(name.clone()) && finder.duplicates.remove(&*path) {
                finder.found.push(("duplicate", path));
            }
            members.next_value_seed(OddFieldVisitor(finder, &here))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::read;

    #[test]
    fn w173_odd_members_come_in_the_order_of_the_document() {
        let json =
            br#"{"a":1,"z":{"q":1,"q":2},"a":2,"l":[{"y":1,"u":0,"y":3,"y":4}],"z":5,"a":3}"#;
        let (_, duplicates) = read(json).unwrap();
        let unknown = ["z".to_owned(), "l[0].u".to_owned()];
        let odd = odd_in_order(json, &duplicates, &unknown);
        let odd: Vec<_> = odd.iter().map(|(what, path)| (*what, &**path)).collect();
        let expected = [
            ("unknown", "z"),
            ("duplicate", "a"),
            ("unknown", "l[0].u"),
            ("duplicate", "l[0].y"),
        ];
        assert_eq!(odd, expected);
    }
}
