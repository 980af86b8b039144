//! Finds unknown and duplicate fields in the order of the document (W173).

use std::collections::HashSet;
use std::fmt;

use tidings_go::quote;
use tidings_json::{Outline, OutlineIndex, unquote};

use tidings_schema::FieldPath;

/// A field of a document that is ignored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum OddField {
    /// The field at this path occurs again.
    Duplicate(String),
    /// The type has no field at this path.
    Unknown(String),
}

impl OddField {
    /// The path of the field.
    pub fn path(&self) -> &str {
        let (OddField::Duplicate(path) | OddField::Unknown(path)) = self;
        path
    }
}

/// Upstream's message about the field.
impl fmt::Display for OddField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OddField::Duplicate(path) => write!(f, "duplicate field {}", quote(path)),
            OddField::Unknown(path) => write!(f, "unknown field {}", quote(path)),
        }
    }
}

/// The unknown and duplicate fields of a document, each once and in the order of the document. Duplicates of an unknown field, or
/// inside of it, are left out.
pub(crate) fn odd_in_order(
    json: &[u8],
    duplicates: &[String],
    unknown: &[String],
) -> Vec<OddField> {
    let mut finder = OddFields {
        duplicates: duplicates.iter().map(String::as_str).collect(),
        unknown: unknown.iter().map(String::as_str).collect(),
        reported: HashSet::new(),
        found: Vec::new(),
    };
    // The document has been parsed already, so it has an outline.
    if let Ok(outline) = Outline::read(json) {
        finder.search(&outline, outline.top(), &FieldPath::Top);
    }
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
    found: Vec<OddField>,
}

impl OddFields<'_> {
    fn search(&mut self, outline: &Outline<'_>, at: OutlineIndex, path: &FieldPath<'_>) {
        for (index, element) in outline.elements(at).into_iter().flatten().enumerate() {
            self.search(outline, element, &FieldPath::Element(path, index));
        }
        let mut seen = HashSet::new();
        for (name, value) in outline.members(at).into_iter().flatten() {
            let name = unquote(outline.text(name)).unwrap_or_default();
            let name = String::from_utf8_lossy(&name).into_owned();
            let path = FieldPath::Member(path, &name);
            let text = path.noted();
            if self.unknown.contains(&*text) {
                if self.reported.insert(text.clone()) {
                    self.found.push(OddField::Unknown(text));
                }
                continue;
            }
            let again = seen.contains(&name);
            if again && self.duplicates.remove(&*text) {
                self.found.push(OddField::Duplicate(text));
            }
            self.search(outline, value, &path);
            seen.insert(name);
        }
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
        let odd: Vec<String> = odd.iter().map(ToString::to_string).collect();
        let expected = [
            "unknown field \"z\"",
            "duplicate field \"a\"",
            "unknown field \"l[0].u\"",
            "duplicate field \"l[0].y\"",
        ];
        assert_eq!(odd, expected);
    }
}
