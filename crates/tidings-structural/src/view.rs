//! What a schema says about merging, for server-side apply.

use tidings_json::Value;

use crate::node::SchemaNode;

/// How the elements of a list are identified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListKind<'a> {
    /// Not at all: the list is one value. This is the default.
    Atomic,
    /// By their values.
    Set,
    /// By the values of these fields.
    Map(&'a [String]),
}

/// What kind of value a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaShape {
    /// Text, a number, a boolean, or an int-or-string.
    Scalar,
    /// An object whose fields the schema names.
    Struct,
    /// An object whose values all have one schema.
    Map,
    /// A list.
    List,
    /// Any value: the schema has no type.
    Untyped,
}

/// A node of a schema.
#[derive(Debug, Clone, Copy)]
pub struct SchemaView<'a>(&'a SchemaNode);

impl<'a> SchemaView<'a> {
    pub(crate) fn new(node: &'a SchemaNode) -> SchemaView<'a> {
        SchemaView(node)
    }

    /// What kind of value the node describes.
    pub fn shape(&self) -> SchemaShape {
        match self.0.kind.as_str() {
            "array" => SchemaShape::List,
            "object" if self.0.properties.is_empty() && self.0.additional.is_set() => {
                SchemaShape::Map
            }
            "object" => SchemaShape::Struct,
            "" if !self.0.int_or_string => SchemaShape::Untyped,
            _ => SchemaShape::Scalar,
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

    /// True if the value merges as one: an atomic map, struct or list, or a scalar.
    pub fn is_atomic(&self) -> bool {
        match self.shape() {
            SchemaShape::List => self.list_kind() == ListKind::Atomic,
            SchemaShape::Map | SchemaShape::Struct => self.0.map_type.as_deref() == Some("atomic"),
            SchemaShape::Scalar | SchemaShape::Untyped => true,
        }
    }

    /// How the elements of a list are identified.
    pub fn list_kind(&self) -> ListKind<'a> {
        match self.0.list_type.as_deref() {
            Some("set") => ListKind::Set,
            Some("map") => ListKind::Map(&self.0.list_map_keys),
            _ => ListKind::Atomic,
        }
    }

    /// The schema of a field of a struct or a map.
    pub fn field(&self, name: &str) -> Option<SchemaView<'a>> {
        self.0.field(name).map(SchemaView)
    }

    /// The fields that `properties` names.
    pub fn fields(&self) -> impl Iterator<Item = (&'a str, SchemaView<'a>)> {
        self.0
            .properties
            .iter()
            .map(|(name, node)| (name.as_str(), SchemaView(node)))
    }

    /// The schema of the elements of a list.
    pub fn items(&self) -> Option<SchemaView<'a>> {
        self.0.items.as_deref().map(SchemaView)
    }

    /// The default of the schema.
    pub fn default(&self) -> Option<&'a Value> {
        self.0.default.as_ref()
    }

    /// True if fields that the schema does not name are kept.
    pub fn preserves_unknown_fields(&self) -> bool {
        self.0.preserves_unknown()
    }

    /// True if the value is an embedded resource, with apiVersion, kind and metadata.
    pub fn is_embedded_resource(&self) -> bool {
        self.0.embedded
    }

    /// True if the value may be null.
    pub fn is_nullable(&self) -> bool {
        self.0.nullable
    }

    /// True if the value may be an integer or text.
    pub fn is_int_or_string(&self) -> bool {
        self.0.int_or_string
    }
}
