//! Facets: what selectors compare with values. Watches and lists are looked up by them.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};

use crate::field_paths::FieldPaths;
use crate::object::Object;

/// A label or field of objects that has at most one value in each object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Facet {
    /// `metadata.name`.
    Name,
    /// The label with this key.
    Label(Box<str>),
    /// A field that can be selected by.
    Field(FieldFacet),
}

impl Facet {
    /// The value in an object; `None` if it does not have the label. An absent field has a value too.
    pub fn value<'o>(&self, object: &'o Object) -> Option<Cow<'o, str>> {
        match self {
            Facet::Name => Some(object.name()),
            Facet::Label(key) => object.labels().get(key).map(Cow::Borrowed),
            Facet::Field(field) => Some(field.value(object)),
        }
    }
}

/// A field that can be selected by: the first of some paths at which an object has a scalar.
#[derive(Debug, Clone)]
pub struct FieldFacet {
    /// All paths that are taken from an object of its kind.
    paths: FieldPaths,
    /// Which of them are those of this field.
    alternatives: Box<[usize]>,
    /// The value where an object has none.
    absent: Box<str>,
}

impl FieldFacet {
    /// A field at some of the paths of its kind.
    pub fn new(
        paths: &FieldPaths,
        alternatives: impl IntoIterator<Item = usize>,
        absent: &str,
    ) -> FieldFacet {
        let all = paths.len();
        let alternatives = alternatives.into_iter().filter(|path| *path < all);
        FieldFacet {
            alternatives: alternatives.collect(),
            paths: paths.clone(),
            absent: absent.into(),
        }
    }

    /// The value in an object.
    pub fn value<'o>(&self, object: &'o Object) -> Cow<'o, str> {
        let mut values = self.alternatives.iter();
        let found = values.find_map(|path| object.kept_field(&self.paths, *path));
        found.unwrap_or_else(|| Cow::Owned(self.absent.as_ref().to_owned()))
    }

    fn identity(&self) -> impl Iterator<Item = &[Box<str>]> {
        self.alternatives.iter().map(|path| self.paths.at(*path))
    }
}

impl PartialEq for FieldFacet {
    fn eq(&self, other: &FieldFacet) -> bool {
        self.absent == other.absent && self.identity().eq(other.identity())
    }
}

impl Eq for FieldFacet {}

impl Hash for FieldFacet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.absent.hash(state);
        self.identity().for_each(|path| path.hash(state));
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn object() -> Object {
        let json = br#"{"metadata":{"name":"a","labels":{"app":"web"}},"spec":{"node":"n1","on":true,"list":[1]}}"#;
        Object::parse(json).unwrap()
    }

    fn paths() -> FieldPaths {
        FieldPaths::new([
            vec!["spec", "old"],
            vec!["spec", "node"],
            vec!["spec", "on"],
            vec!["spec", "list"],
        ])
    }

    #[test]
    fn a_facet_has_one_value_in_an_object() {
        let (object, paths) = (object(), paths());
        let field = |alternatives: &[usize], absent: &str| {
            let facet = FieldFacet::new(&paths, alternatives.iter().copied(), absent);
            Facet::Field(facet).value(&object).unwrap().into_owned()
        };
        assert_eq!(field(&[0, 1], ""), "n1", "the first that is there");
        assert_eq!(field(&[2], ""), "true");
        assert_eq!(field(&[0], "none"), "none");
        assert_eq!(field(&[3], ""), "", "not a scalar");
        assert_eq!(field(&[], ""), "", "a field that never has a value");
        let label = |key: &str| {
            let value = Facet::Label(key.into()).value(&object);
            value.map(Cow::into_owned)
        };
        assert_eq!(label("app").as_deref(), Some("web"));
        assert_eq!(label("tier"), None);
        assert_eq!(Facet::Name.value(&object).as_deref(), Some("a"));
    }

    #[test]
    fn paths_of_another_kind_are_found_too() {
        let (object, other) = (object(), FieldPaths::new([vec!["spec", "on"]]));
        let node = FieldFacet::new(&paths(), [1], "");
        assert_eq!(node.value(&object), "n1");
        assert_eq!(FieldFacet::new(&other, [0], "").value(&object), "true");
        assert_eq!(node.value(&object), "n1");
    }

    #[test]
    fn fields_are_equal_by_their_paths() {
        let (one, other) = (paths(), FieldPaths::new([vec!["spec", "node"]]));
        assert_eq!(
            FieldFacet::new(&one, [1], ""),
            FieldFacet::new(&other, [0], "")
        );
        assert_ne!(
            FieldFacet::new(&one, [1], ""),
            FieldFacet::new(&one, [2], "")
        );
    }
}
