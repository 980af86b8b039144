//! The paths of values in a document, as messages to clients name them.

use std::fmt;

/// The most paths that are reported of one document: messages must not become much larger than the request.
pub const NOTES_MAX: usize = 100;
/// The most characters of a reported path.
pub const NOTE_CHARS_MAX: usize = 1000;

/// The path of a value in a document.
#[derive(Debug, Clone, Copy)]
pub enum FieldPath<'a> {
    /// The document itself.
    Top,
    /// A member of a struct.
    Member(&'a FieldPath<'a>, &'a str),
    /// A value of a map.
    Entry(&'a FieldPath<'a>, &'a str),
    /// An element of a list.
    Element(&'a FieldPath<'a>, usize),
    /// An inlined struct of this name. Only Go's messages have it in their paths.
    Inlined(&'a FieldPath<'a>, &'a str),
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
            FieldPath::Inlined(owner, _) => owner.fmt(f),
        }
    }
}

impl FieldPath<'_> {
    /// The text of the path, cut if it is too long to be reported.
    pub fn noted(&self) -> String {
        let mut text = self.to_string();
        if let Some((end, _)) = text.char_indices().nth(NOTE_CHARS_MAX) {
            text.truncate(end);
        }
        text
    }

    /// Appends the path to the reported ones, unless there are too many.
    pub fn note(&self, notes: &mut Vec<String>) {
        if notes.len() < NOTES_MAX {
            notes.push(self.noted());
        }
    }

    /// The names of struct members on the path, without list indexes and map keys, as Go's messages have them.
    pub(crate) fn members(&self) -> String {
        match self {
            FieldPath::Top => String::new(),
            FieldPath::Member(FieldPath::Top, name) => (*name).to_owned(),
            FieldPath::Member(owner, name) | FieldPath::Inlined(owner, name) => {
                format!("{}.{name}", owner.members())
            }
            FieldPath::Element(owner, _) | FieldPath::Entry(owner, _) => owner.members(),
        }
    }
}
