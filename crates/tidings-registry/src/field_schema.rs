//! [`FieldSchema`], the schemas that managedFields and apply use: the table of types, and the schemas of custom resources.

use tidings_merge::{Keys, Scalar, Schema, Shape};
use tidings_schema::{Field, FieldKind, Item, ListKind, Type};
use tidings_structural::{self as structural, View};

/// The schema of a value: an entry of the table of types, or a part of the schema of a custom resource.
#[derive(Debug, Clone, Copy)]
pub enum FieldSchema<'a> {
    /// Nothing is known of the value.
    Unknown,
    /// A type of the table.
    Type(&'static Type),
    /// A field of a type of the table.
    Field(&'static Field),
    /// An element of a list or a value of a map.
    Item(Item),
    /// A part of the schema of a custom resource.
    Custom(View<'a>),
    /// The schema of a whole custom or embedded resource, which has kind, apiVersion and metadata too.
    CustomResource(View<'a>),
}

impl<'a> FieldSchema<'a> {
    fn custom(view: View<'a>) -> FieldSchema<'a> {
        match view.is_embedded_resource() {
            true => FieldSchema::CustomResource(view),
            false => FieldSchema::Custom(view),
        }
    }

    fn custom_shape(view: View<'a>) -> Shape<FieldSchema<'a>> {
        let items = || {
            view.items()
                .map_or(FieldSchema::Unknown, FieldSchema::custom)
        };
        match (view.shape(), view.list_kind()) {
            (structural::Shape::Untyped, _) => Shape::Unknown,
            (structural::Shape::Scalar, _) => Shape::Scalar(match view.type_name() {
                "string" => Scalar::String,
                "boolean" => Scalar::Bool,
                "integer" | "number" => Scalar::Number,
                _ => Scalar::Any,
            }),
            (structural::Shape::List, structural::ListKind::Set) => Shape::Set(items()),
            (structural::Shape::List, structural::ListKind::Map(_)) => Shape::Keyed(items()),
            (structural::Shape::List, structural::ListKind::Atomic) => Shape::Atomic,
            _ if view.is_atomic() => Shape::Atomic,
            // In a map every name has the schema of the values, so any name will do.
            (structural::Shape::Map, _) => Shape::Map(
                view.field("")
                    .map_or(FieldSchema::Unknown, FieldSchema::custom),
            ),
            (structural::Shape::Struct, _) => {
                match view.preserves_unknown_fields() && view.fields().next().is_none() {
                    true => Shape::Unknown,
                    false => Shape::Struct,
                }
            }
        }
    }

    fn shape_of_struct(of: &'static Type) -> Shape<FieldSchema<'a>> {
        match of.atomic {
            true => Shape::Atomic,
            false => Shape::Struct,
        }
    }

    fn shape_of_item(item: Item) -> Shape<FieldSchema<'a>> {
        match item {
            Item::Struct(of) => FieldSchema::shape_of_struct(of),
            Item::String | Item::Bytes => Shape::Scalar(Scalar::String),
            Item::Bool => Shape::Scalar(Scalar::Bool),
            Item::Int32 | Item::Int64 | Item::Double => Shape::Scalar(Scalar::Number),
            Item::Time | Item::MicroTime | Item::Quantity | Item::IntOrString => {
                Shape::Scalar(Scalar::Any)
            }
            Item::Raw | Item::Fields | Item::Strings | Item::Either(..) => Shape::Atomic,
        }
    }

    fn struct_type(self) -> Option<&'static Type> {
        match self {
            FieldSchema::Type(of) | FieldSchema::Item(Item::Struct(of)) => Some(of),
            FieldSchema::Field(field) => match field.kind {
                FieldKind::One(Item::Struct(of)) => Some(of),
                _ => None,
            },
            _ => None,
        }
    }
}

impl<'a> Schema for FieldSchema<'a> {
    fn shape(self) -> Shape<FieldSchema<'a>> {
        match self {
            FieldSchema::Unknown => Shape::Unknown,
            FieldSchema::Custom(view) => FieldSchema::custom_shape(view),
            FieldSchema::CustomResource(_) => Shape::Struct,
            FieldSchema::Type(of) => FieldSchema::shape_of_struct(of),
            FieldSchema::Field(field) if field.atomic => Shape::Atomic,
            FieldSchema::Field(field) => match (field.kind, &field.list) {
                (FieldKind::One(item), _) => FieldSchema::shape_of_item(item),
                (FieldKind::Map(item), _) => Shape::Map(FieldSchema::Item(item)),
                (FieldKind::List(_), ListKind::Atomic) => Shape::Atomic,
                (FieldKind::List(item), ListKind::Set) => Shape::Set(FieldSchema::Item(item)),
                (FieldKind::List(item), ListKind::Map(_)) => Shape::Keyed(FieldSchema::Item(item)),
            },
            FieldSchema::Item(item) => FieldSchema::shape_of_item(item),
        }
    }

    fn field(self, name: &str) -> Option<FieldSchema<'a>> {
        match self {
            FieldSchema::Unknown => Some(FieldSchema::Unknown),
            FieldSchema::CustomResource(_) if name == "metadata" => {
                tidings_schema::find_type("meta/v1", "ObjectMeta").map(FieldSchema::Type)
            }
            FieldSchema::CustomResource(_) if matches!(name, "kind" | "apiVersion") => {
                Some(FieldSchema::Item(Item::String))
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

    fn keys(self) -> Keys {
        if let FieldSchema::Custom(view) = self {
            let structural::ListKind::Map(keys) = view.list_kind() else {
                return Keys::default();
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
            _ => Keys::default(),
        }
    }
}
