//! Reads JSON from clients, and finds mistakes that a plain JSON reader ignores: duplicate fields, unknown fields (W173), and
//! values that do not have the type of their field.

mod fit;
mod odd;
mod path;

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use tidings_json::map::Entry;
use tidings_json::{Map, Number, Plain, Value};

pub(crate) use fit::{fit, go_type};
pub(crate) use odd::odd_in_order;
pub(crate) use path::FieldPath;
use path::{NOTES_MAX, noted};

/// Reads a document. Returns it and the paths of members that occur more than once.
///
/// # Errors
/// If it is not JSON.
pub(crate) fn read(json: &[u8]) -> serde_json::Result<(Value, Vec<String>)> {
    let (value, repeated) = read_with_lines(json)?;
    let paths = repeated.into_iter().map(|again| again.path);
    Ok((value, paths.collect()))
}

/// Reads a document. Returns it and the repeated members, with their lines.
///
/// # Errors
/// If it is not JSON.
pub(crate) fn read_with_lines(json: &[u8]) -> serde_json::Result<(Value, Vec<RepeatedMember>)> {
    // UTF-8 is checked once for the whole text, not for each string.
    match std::str::from_utf8(json) {
        Ok(text) => match Plain::read(text) {
            Some(value) => Ok((value, Vec::new())),
            None => read_from(serde_json::Deserializer::from_str(text), json),
        },
        Err(_) => read_from(serde_json::Deserializer::from_slice(json), json),
    }
}

fn read_from<'de>(
    mut reader: serde_json::Deserializer<impl serde_json::de::Read<'de>>,
    json: &[u8],
) -> serde_json::Result<(Value, Vec<RepeatedMember>)> {
    let mut repeated = Vec::new();
    let value = ValueReader {
        json,
        path: &FieldPath::Top,
        repeated: &mut repeated,
    }
    .deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, repeated))
}

/// A member that occurs again in the same object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RepeatedMember {
    /// The path in the document.
    pub(crate) path: String,
    /// The name of the member.
    pub(crate) name: String,
    /// The line of the repetition; 1 if the name is written with escapes.
    pub(crate) line: usize,
}

/// The name of a member, borrowed from the document unless it has escapes.
#[derive(Deserialize)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);

/// Reads a value, and records repeated members.
struct ValueReader<'a> {
    /// The whole document, to count lines.
    json: &'a [u8],
    /// The path of the value.
    path: &'a FieldPath<'a>,
    repeated: &'a mut Vec<RepeatedMember>,
}

impl ValueReader<'_> {
    /// The line of a name that is borrowed from the document, by its address in memory.
    fn line_of(&self, address: usize) -> usize {
        let at = address.checked_sub(self.json.as_ptr().addr());
        let before = at.and_then(|at| self.json.get(..at)).unwrap_or_default();
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }
}

impl<'de> DeserializeSeed<'de> for ValueReader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueReader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        loop {
            let element = ValueReader {
                json: self.json,
                path: &FieldPath::Element(self.path, values.len()),
                repeated: self.repeated,
            };
            match elements.next_element_seed(element)? {
                Some(value) => values.push(value),
                None => return Ok(Value::Array(values)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(MemberName(name)) = members.next_key()? {
            let path = FieldPath::Member(self.path, &name);
            let value = members.next_value_seed(ValueReader {
                json: self.json,
                path: &path,
                repeated: self.repeated,
            })?;
            let address = name.as_ptr().addr();
            match values.entry(name) {
                Entry::Vacant(entry) => drop(entry.insert(value)),
                Entry::Occupied(mut entry) => {
                    if self.repeated.len() < NOTES_MAX {
                        self.repeated.push(RepeatedMember {
                            path: noted(&FieldPath::Member(self.path, entry.key())),
                            name: noted(&FieldPath::Member(&FieldPath::Top, entry.key())),
                            line: self.line_of(address),
                        });
                    }
                    merge_repeated(entry.get_mut(), value);
                }
            }
        }
        Ok(Value::Object(values))
    }
}

/// Merges the value of a repeated member as Go does: the later value counts, but objects are merged.
fn merge_repeated(known: &mut Value, value: Value) {
    match (known, value) {
        (Value::Object(known), Value::Object(later)) => {
            for (name, value) in later {
                match known.get_mut(&name) {
                    None => drop(known.insert(name, value)),
                    Some(known) => merge_repeated(known, value),
                }
            }
        }
        (known, value) => *known = value,
    }
}

/// The nesting depth of a value.
pub(crate) fn depth(value: &Value) -> usize {
    match value {
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Array(values) => 1 + values.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use tidings_json::json;

    use super::path::NOTE_CHARS_MAX;
    use super::*;

    #[test]
    fn w173_duplicates_are_named_and_read_one_over_the_other() {
        let json = br#"{"a":{"x":1,"x":2,"l":[{"y":1,"y":3}]},"b":1,"a":{"z":1}}"#;
        let (value, duplicates) = read(json).unwrap();
        assert_eq!(
            value,
            json!({"a": {"x": 2, "l": [{"y": 3}], "z": 1}, "b": 1})
        );
        assert_eq!(duplicates, ["a.x", "a.l[0].y", "a"]);
    }

    #[test]
    fn plain_documents_are_read_as_serde_json_reads_them() {
        for json in [
            r#"[1,-2,3.5,true,null,"\u00e4",{"a":{}}]"#,
            "18446744073709551615",
            "1e3",
        ] {
            let (value, duplicates) = read(json.as_bytes()).unwrap();
            assert_eq!(value, serde_json::from_str::<Value>(json).unwrap());
            assert!(duplicates.is_empty());
        }
        assert!(read(b"{} x").is_err());
        assert!(
            read("[".repeat(1000).as_bytes()).is_err(),
            "depth is bounded"
        );
    }

    #[test]
    fn odd_members_cost_no_more_than_their_document() {
        let twice = vec![r#""a":1"#; 20_000].join(",");
        let json = format!(r#"{{"{}":{{{twice}}}}}"#, "k".repeat(20_000));
        let (_, duplicates) = read(json.as_bytes()).unwrap();
        assert_eq!(duplicates.len(), NOTES_MAX);
        assert!(duplicates.iter().all(|path| path.len() <= NOTE_CHARS_MAX));
    }
}
