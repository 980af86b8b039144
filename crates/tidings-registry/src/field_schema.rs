//! [`FieldSchema`], the schemas that managedFields and apply use: the table of types, and the schemas of custom resources.

use tidings_merge::{ListKeys, MergeShape, Scalar, Schema};
use tidings_schema::{Field, FieldKind, ItemType, ListKind, Type};
use tidings_structural::{self as structural, SchemaView};

/// The schema of a value: an entry of the table of types, or a part of the schema of a custom resource.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FieldSchema<'a> {
    /// Nothing is known of the value.
    Unknown,
    /// A type of the table.
    Type(&'static Type),
    /// A field of a type of the table.
    Field(&'static Field),
    /// An element of a list or a value of a map.
    ItemType(ItemType),
    /// A part of the schema of a custom resource.
    Custom(SchemaView<'a>),
    /// The schema of a whole custom or embedded resource, which has kind, apiVersion and metadata too.
    CustomResource(SchemaView<'a>),
}

impl<'a> FieldSchema<'a> {
    fn custom(view: SchemaView<'a>) -> FieldSchema<'a> {
        match view.is_embedded_resource() {
            true => FieldSchema::CustomResource(view),
            false => FieldSchema::Custom(view),
        }
    }

    fn custom_shape(view: SchemaView<'a>) -> MergeShape<FieldSchema<'a>> {
        let items = || {
            view.items()
                .map_or(FieldSchema::Unknown, FieldSchema::custom)
        };
        match (view.shape(), view.list_kind()) {
            (structural::SchemaShape::Untyped, _) => MergeShape::Unknown,
            (structural::SchemaShape::Scalar, _) => MergeShape::Scalar(match view.type_name() {
                "string" => Scalar::String,
                "boolean" => Scalar::Bool,
                "integer" | "number" => Scalar::Number,
                _ => Scalar::Any,
            }),
            (structural::SchemaShape::List, structural::ListKind::Set) => MergeShape::Set(items()),
            (structural::SchemaShape::List, structural::ListKind::Map(_)) => {
                MergeShape::Keyed(items())
            }
            (structural::SchemaShape::List, structural::ListKind::Atomic) => MergeShape::Atomic,
            _ if view.is_atomic() => MergeShape::Atomic,
            // In a map every name has the schema of the values, so any name will do.
            (structural::SchemaShape::Map, _) => MergeShape::Map(
                view.field("")
                    .map_or(FieldSchema::Unknown, FieldSchema::custom),
            ),
            (structural::SchemaShape::Struct, _) => {
                match view.preserves_unknown_fields() && view.fields().next().is_none() {
                    true => MergeShape::Unknown,
                    false => MergeShape::Struct,
                }
            }
        }
    }

    fn shape_of_struct(of: &'static Type) -> MergeShape<FieldSchema<'a>> {
        match of.atomic {
            true => MergeShape::Atomic,
            false => MergeShape::Struct,
        }
    }

    fn shape_of_item(item: ItemType) -> MergeShape<FieldSchema<'a>> {
        match item {
            ItemType::Struct(of) => FieldSchema::shape_of_struct(of),
            ItemType::String | ItemType::Bytes => MergeShape::Scalar(Scalar::String),
            ItemType::Bool => MergeShape::Scalar(Scalar::Bool),
            ItemType::Int32 | ItemType::Int64 | ItemType::Double => {
                MergeShape::Scalar(Scalar::Number)
            }
            ItemType::Time | ItemType::MicroTime | ItemType::Quantity | ItemType::IntOrString => {
                MergeShape::Scalar(Scalar::Any)
            }
            ItemType::Raw | ItemType::Fields | ItemType::Strings | ItemType::Either(..) => {
                MergeShape::Atomic
            }
        }
    }

    fn struct_type(self) -> Option<&'static Type> {
        match self {
            FieldSchema::Type(of) | FieldSchema::ItemType(ItemType::Struct(of)) => Some(of),
            FieldSchema::Field(field) => match field.kind {
                FieldKind::One(ItemType::Struct(of)) => Some(of),
                _ => None,
            },
            _ => None,
        }
    }
}

impl<'a> Schema for FieldSchema<'a> {
    fn shape(self) -> MergeShape<FieldSchema<'a>> {
        match self {
            FieldSchema::Unknown => MergeShape::Unknown,
            FieldSchema::Custom(view) => FieldSchema::custom_shape(view),
            FieldSchema::CustomResource(_) => MergeShape::Struct,
            FieldSchema::Type(of) => FieldSchema::shape_of_struct(of),
            FieldSchema::Field(field) if field.atomic => MergeShape::Atomic,
            FieldSchema::Field(field) => match (field.kind, &field.list) {
                (FieldKind::One(item), _) => FieldSchema::shape_of_item(item),
                (FieldKind::Map(item), _) => MergeShape::Map(FieldSchema::ItemType(item)),
                (FieldKind::List(_), ListKind::Atomic) => MergeShape::Atomic,
                (FieldKind::List(item), ListKind::Set) => {
                    MergeShape::Set(FieldSchema::ItemType(item))
                }
                (FieldKind::List(item), ListKind::Map(_)) => {
                    MergeShape::Keyed(FieldSchema::ItemType(item))
                }
            },
            FieldSchema::ItemType(item) => FieldSchema::shape_of_item(item),
        }
    }

    fn field(self, name: &str) -> Option<FieldSchema<'a>> {
        match self {
            FieldSchema::Unknown => Some(FieldSchema::Unknown),
            FieldSchema::CustomResource(_) if name == "metadata" => {
                tidings_schema::find_type("meta/v1", "ObjectMeta").map(FieldSchema::Type)
            }
            FieldSchema::CustomResource(_) if matches!(name, "kind" | "apiVersion") => {
                Some(FieldSchema::ItemType(ItemType::String))
            }
            FieldSchema::Custom(view) | FieldSchema::CustomResource(view) => match view.field(name)
            {
                Some(field) => Some(FieldSchema::custom(field)),
                None => view
                    .preserves_unknown_fields()
                    .then_some(FieldSchema::Unknown),
            },
            of => of.struct_type()?.field(name).map(FieldSchema::Field),
        }
    }

    fn names(self, name: &str) -> bool {
        match self {
            FieldSchema::Custom(view) | FieldSchema::CustomResource(view) => {
                let of_every_object = matches!(self, FieldSchema::CustomResource(_))
                    && matches!(name, "kind" | "apiVersion" | "metadata");
                of_every_object || view.field(name).is_some()
            }
            _ => true,
        }
    }

    fn keys(self) -> ListKeys {
        if let FieldSchema::Custom(view) = self {
            let structural::ListKind::Map(keys) = view.list_kind() else {
                return ListKeys::default();
            };
            let items = view.items();
            let default = |key: &String| items?.field(key)?.default().cloned();
            return keys
                .iter()
                .map(|key| (key.as_str().into(), default(key)))
                .collect();
        }
        match self {
            FieldSchema::Field(field) => field.keys().into(),
            _ => ListKeys::default(),
        }
    }
}
