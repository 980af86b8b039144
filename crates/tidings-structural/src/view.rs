//! What a schema says about merging: for server-side apply.

use tidings_json::Value;

use crate::node::Node;

/// How the elements of a list are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListKind<'a> {
    /// Not at all: the list is taken as a whole. This is what lists are unless the schema says otherwise.
    Atomic,
    /// By their values.
    Set,
    /// By these fields.
    Map(&'a [String]),
}

/// What kind of value a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Text, a number, a boolean, or an int-or-string.
    Scalar,
    /// An object whose fields the schema names.
    Struct,
    /// An object whose values all have one schema.
    Map,
    /// A list.
    List,
    /// Anything: the schema has no type.
    Untyped,
}

/// A place in a schema.
#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a Node);

impl<'a> View<'a> {
    pub(crate) fn new(node: &'a Node) -> View<'a> {
        View(node)
    }

    /// What kind of value is here.
    pub fn shape(&self) -> Shape {
        match self.0.kind.as_str() {
            "array" => Shape::List,
            "object" if self.0.properties.is_empty() && self.0.additional.is_set() => Shape::Map,
            "object" => Shape::Struct,
            "" if !self.0.int_or_string => Shape::Untyped,
            _ => Shape::Scalar,
        }
    }

    /// The type as the schema names it; empty if it names none.
    pub fn type_name(&self) -> &'a str {
        &self.0.kind
    }

    /// The format as the schema names it; empty if it names none.
    pub fn format(&self) -> &'a str {
        &self.0.format_text
    }

    /// True if the value is taken as a whole: an atomic map, struct or list.
    pub fn is_atomic(&self) -> bool {
        match self.shape() {
            Shape::List => self.list_kind() == ListKind::Atomic,
            Shape::Map | Shape::Struct => self.0.map_type.as_deref() == Some("atomic"),
            Shape::Scalar | Shape::Untyped => true,
        }
    }

    /// How elements are told apart, if this is a list.
    pub fn list_kind(&self) -> ListKind<'a> {
        match self.0.list_type.as_deref() {
            Some("set") => ListKind::Set,
            Some("map") => ListKind::Map(&self.0.list_map_keys),
            _ => ListKind::Atomic,
        }
    }

    /// The schema of a field of a struct or a map.
    pub fn field(&self, name: &str) -> Option<View<'a>> {
        self.0.field(name).map(View)
    }

    /// The fields that are named.
    pub fn fields(&self) -> impl Iterator<Item = (&'a str, View<'a>)> {
        self.0
            .properties
            .iter()
            .map(|(name, node)| (name.as_str(), View(node)))
    }

    /// The schema of elements of a list.
    pub fn items(&self) -> Option<View<'a>> {
        self.0.items.as_deref().map(View)
    }

    /// The default, if there is one.
    pub fn default(&self) -> Option<&'a Value> {
        self.0.default.as_ref()
    }

    /// True if fields that the schema does not name are kept.
    pub fn preserves_unknown_fields(&self) -> bool {
        self.0.preserves_unknown()
    }

    /// True if a whole resource is here, with type and metadata.
    pub fn is_embedded_resource(&self) -> bool {
        self.0.embedded
    }

    /// True if null is a value here.
    pub fn is_nullable(&self) -> bool {
        self.0.nullable
    }

    /// True if this may be an integer or text.
    pub fn is_int_or_string(&self) -> bool {
        self.0.int_or_string
    }
}
