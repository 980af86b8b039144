//! The paths of values in a document, as messages to clients name them.

use std::fmt;

/// The most paths that are reported of one document: messages must not become much larger than the request.
pub(super) const NOTES_MAX: usize = 100;
/// The most characters of a reported path.
pub(super) const NOTE_CHARS_MAX: usize = 1000;

/// Appends a path to the reported ones, unless there are too many.
pub(super) fn note(notes: &mut Vec<String>, path: &FieldPath<'_>) {
    if notes.len() < NOTES_MAX {
        notes.push(noted(path));
    }
}

/// The text of a path, cut if it is too long.
pub(super) fn noted(path: &FieldPath<'_>) -> String {
    let mut text = path.to_string();
    if let Some((end, _)) = text.char_indices().nth(NOTE_CHARS_MAX) {
        text.truncate(end);
    }
    text
}

/// The path of a value in a document.
pub(crate) enum FieldPath<'a> {
    /// The document itself.
    Top,
    /// A member of a struct.
    Member(&'a FieldPath<'a>, &'a str),
    /// A value of a map.
    Entry(&'a FieldPath<'a>, &'a str),
    /// An element of a list.
    Element(&'a FieldPath<'a>, usize),
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldPath::Top => Ok(()),
            FieldPath::Member(FieldPath::Top, name) => f.write_str(name),
            FieldPath::Member(owner, name) | FieldPath::Entry(owner, name) => {
                write!(f, "{owner}.{name}")
            }
            FieldPath::Element(owner, at) => write!(f, "{owner}[{at}]"),
        }
    }
}

impl FieldPath<'_> {
    /// The names of struct members on the path, without list indexes and map keys, as Go's messages have them.
    pub(super) fn members(&self) -> String {
        match self {
            FieldPath::Top => String::new(),
            FieldPath::Member(FieldPath::Top, name) => (*name).to_owned(),
            FieldPath::Member(owner, name) => format!("{}.{name}", owner.members()),
            FieldPath::Element(owner, _) | FieldPath::Entry(owner, _) => owner.members(),
        }
    }
}
