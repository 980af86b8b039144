//! Searches for fields in encoded `fieldsV1` without decoding the whole set.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::element::PathElement;
use crate::set::FieldSet;

/// True if a field of `set` is in the set encoded as `fieldsV1` in `json`. Mostly `set` is small and `json` is large, so members
/// that are not in `set` are skipped.
pub(crate) fn meets_written(set: &FieldSet<'_>, json: &str) -> bool {
    let mut reader = serde_json::Deserializer::from_str(json);
    // JSON of an unexpected form is decoded as a set, which leaves out unknown elements.
    WrittenSearch(set)
        .deserialize(&mut reader)
        .unwrap_or_else(|_| FieldSet::decode(json).is_some_and(|written| written.meets(set)))
}

/// Searches for the fields of a set in one JSON object.
struct WrittenSearch<'a>(&'a FieldSet<'a>);

impl<'a> WrittenSearch<'a> {
    /// The fields to search for below a member.
    fn below(&self, step: &str) -> Option<&'a FieldSet<'a>> {
        match step.strip_prefix("f:") {
            Some(name) => self.0.below(&PathElement::field(name)),
            None => self.0.below(&PathElement::decode(step)?),
        }
    }
}

/// A member name, borrowed from the text if it has no escapes.
#[derive(Deserialize)]
struct WrittenName<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> DeserializeSeed<'de> for WrittenSearch<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for WrittenSearch<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a set of fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<bool, A::Error> {
        let (mut found, mut is_leaf, mut is_here) = (false, true, false);
        while let Some(WrittenName(name)) = members.next_key()? {
            if name == "." {
                is_here = true;
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            is_leaf = false;
            match self.below(&name) {
                Some(set) if !found => found = members.next_value_seed(WrittenSearch(set))?,
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        // `{}` means the field itself.
        Ok(found || self.0.here && (is_here || is_leaf))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_what_is_written() {
        let written = r#"{"f:a":{},"f:b":{".":{},"f:c":{"k:{\"name\":\"x\\u003c\"}":{".":{},"f:d":{}}}},"f:e":{"f:g":{}},"f:h":{"k:{\"name\":\"y<\"}":{}}}"#;
        let whole = FieldSet::decode(written).unwrap();
        for (looked_for, found) in [
            ("{}", false),
            (r#"{"f:a":{}}"#, true),
            (r#"{"f:a":{"f:x":{}}}"#, false),
            (r#"{"f:b":{}}"#, true),
            (r#"{"f:b":{"f:c":{}}}"#, false),
            (r#"{"f:b":{"f:c":{"k:{\"name\":\"x<\"}":{}}}}"#, true),
            (
                r#"{"f:b":{"f:c":{"k:{\"name\":\"x<\"}":{"f:d":{}}}}}"#,
                true,
            ),
            (
                r#"{"f:b":{"f:c":{"k:{\"name\":\"y\"}":{"f:d":{}}}}}"#,
                false,
            ),
            (r#"{"f:h":{"k:{\"name\":\"y\\u003c\"}":{}}}"#, true),
            (r#"{"f:h":{"k:{\"name\":\"y<\"}":{}}}"#, true),
            (r#"{"f:e":{}}"#, false),
            (r#"{"f:e":{"f:g":{}},"f:a":{"f:x":{}}}"#, true),
            (r#"{"f:z":{},"f:e":{"f:g":{}}}"#, true),
        ] {
            let set = FieldSet::decode(looked_for).unwrap();
            assert_eq!(meets_written(&set, written), found, "{looked_for}");
            assert_eq!(whole.meets(&set), found, "{looked_for}, as a set");
        }
    }
}
