//! Paths of members that are taken from an object together.

use std::sync::Arc;

use tidings_json::{Span, find_members};

/// The paths of the fields by which objects of a kind can be selected. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct FieldPaths(Arc<[Box<[Box<str>]>]>);

impl FieldPaths {
    /// Paths, each a sequence of member names.
    pub fn new<'p>(paths: impl IntoIterator<Item = impl AsRef<[&'p str]>>) -> FieldPaths {
        let path = |path: &[&str]| path.iter().map(|name| Box::from(*name)).collect();
        let paths = paths.into_iter().map(|names| path(names.as_ref()));
        FieldPaths(paths.collect())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The position of a path.
    pub fn position(&self, path: &[&str]) -> Option<usize> {
        let mut known = self.0.iter();
        known.position(|known| known.iter().map(|name| &**name).eq(path.iter().copied()))
    }

    pub(crate) fn at(&self, position: usize) -> &[Box<str>] {
        &self.0[position]
    }

    /// The spans of the values in one complete JSON object.
    pub(crate) fn find(&self, json: &[u8]) -> Box<[Option<Span>]> {
        find_members(json, &self.0).into()
    }
}

impl PartialEq for FieldPaths {
    fn eq(&self, other: &FieldPaths) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for FieldPaths {}
