//! Reads JSON from clients, and finds mistakes that a plain JSON reader ignores: duplicate and unknown fields (W173).

mod odd;

use tidings_json::map::Entry;
use tidings_json::{Map, Outline, OutlineIndex, Plain, Value};

pub use odd::OddField;
pub(crate) use odd::odd_in_order;
use tidings_schema::{FieldPath, NOTES_MAX};

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
    let value: Value = match std::str::from_utf8(json) {
        Ok(text) => match Plain::read(text) {
            Some(value) => return Ok((value, Vec::new())),
            None => serde_json::from_str(text)?,
        },
        Err(_) => serde_json::from_slice(json)?,
    };
    match Outline::read(json) {
        Ok(outline) if outline.member_count() > member_count(&value) => {
            RepetitionReader::read(&outline)
        }
        _ => Ok((value, Vec::new())),
    }
}

/// How many members all objects of a value have. Of a repeated member only the last is in the value.
fn member_count(value: &Value) -> usize {
    match value {
        Value::Object(members) => members.len() + members.values().map(member_count).sum::<usize>(),
        Value::Array(values) => values.iter().map(member_count).sum(),
        _ => 0,
    }
}

/// A member that occurs again in the same object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RepeatedMember {
    /// The path in the document.
    pub(crate) path: String,
    /// The name of the member.
    pub(crate) name: String,
    /// The line of the repetition.
    pub(crate) line: usize,
}

/// Reads a document in which members are repeated, and records them.
struct RepetitionReader<'a> {
    outline: &'a Outline<'a>,
    repeated: Vec<RepeatedMember>,
}

impl RepetitionReader<'_> {
    fn read(outline: &Outline<'_>) -> serde_json::Result<(Value, Vec<RepeatedMember>)> {
        let mut reader = RepetitionReader {
            outline,
            repeated: Vec::new(),
        };
        let value = reader.value(outline.top(), &FieldPath::Top)?;
        Ok((value, reader.repeated))
    }

    fn value(&mut self, at: OutlineIndex, path: &FieldPath<'_>) -> serde_json::Result<Value> {
        if let Some(elements) = self.outline.elements(at) {
            let elements = elements.enumerate();
            let values =
                elements.map(|(index, at)| self.value(at, &FieldPath::Element(path, index)));
            return values.collect::<Result<_, _>>().map(Value::Array);
        }
        let Some(members) = self.outline.members(at) else {
            return serde_json::from_slice(self.outline.text(at));
        };
        let mut values = Map::new();
        for (name_at, value) in members {
            let name: String = serde_json::from_slice(self.outline.text(name_at))?;
            let value = self.value(value, &FieldPath::Member(path, &name))?;
            match values.entry(name) {
                Entry::Vacant(entry) => drop(entry.insert(value)),
                Entry::Occupied(mut entry) => {
                    self.note(name_at, path, entry.key());
                    merge_repeated(entry.get_mut(), value);
                }
            }
        }
        Ok(Value::Object(values))
    }

    fn note(&mut self, at: OutlineIndex, object: &FieldPath<'_>, name: &str) {
        if self.repeated.len() < NOTES_MAX {
            self.repeated.push(RepeatedMember {
                path: FieldPath::Member(object, name).noted(),
                name: FieldPath::Member(&FieldPath::Top, name).noted(),
                line: self.outline.line(at),
            });
        }
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

    use tidings_schema::NOTE_CHARS_MAX;

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
