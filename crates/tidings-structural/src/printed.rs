//! Prints definitions and schemas as errors do: upstream's internal structs as JSON, with all fields, also empty ones.

use tidings_go as go;
use tidings_json::{Map, Value};

use crate::text::json;

/// How a member of a struct is printed.
#[derive(Clone, Copy)]
enum PrintKind {
    /// Text, empty if it is absent.
    Text,
    /// A boolean, false if it is absent.
    Bool,
    /// An integer, 0 if it is absent.
    Int,
    /// A float, null if it is absent.
    Float,
    /// Any JSON, null if it is absent.
    Json,
    Struct(&'static [PrintedMember]),
    List(&'static [PrintedMember]),
    /// A schema. It is a variant of its own because the table of its members cannot contain itself.
    Schema,
    Schemas,
    SchemaMap,
    /// `items`: a schema or a list of them.
    SchemaOrList,
    /// `additionalProperties`: a schema or a boolean.
    SchemaOrBool,
    /// `dependencies`: a map of schemas or lists of names.
    Dependencies,
    /// An entry of `dependencies`: a schema or a list of names.
    SchemaOrNames,
}

/// The name of a field in Go, its name in JSON, and how it is printed.
type PrintedMember = (&'static str, &'static str, PrintKind);

const RULE: &[PrintedMember] = &[
    ("Rule", "rule", PrintKind::Text),
    ("Message", "message", PrintKind::Text),
    ("MessageExpression", "messageExpression", PrintKind::Text),
    ("Reason", "reason", PrintKind::Json),
    ("FieldPath", "fieldPath", PrintKind::Text),
    ("OptionalOldSelf", "optionalOldSelf", PrintKind::Json),
];

const DOCS: &[PrintedMember] = &[
    ("Description", "description", PrintKind::Text),
    ("URL", "url", PrintKind::Text),
];

const SCHEMA: &[PrintedMember] = &[
    ("ID", "id", PrintKind::Text),
    ("Schema", "$schema", PrintKind::Text),
    ("Ref", "$ref", PrintKind::Json),
    ("Description", "description", PrintKind::Text),
    ("Type", "type", PrintKind::Text),
    ("Nullable", "nullable", PrintKind::Bool),
    ("Format", "format", PrintKind::Text),
    ("Title", "title", PrintKind::Text),
    ("Default", "default", PrintKind::Json),
    ("Maximum", "maximum", PrintKind::Float),
    ("ExclusiveMaximum", "exclusiveMaximum", PrintKind::Bool),
    ("Minimum", "minimum", PrintKind::Float),
    ("ExclusiveMinimum", "exclusiveMinimum", PrintKind::Bool),
    ("MaxLength", "maxLength", PrintKind::Json),
    ("MinLength", "minLength", PrintKind::Json),
    ("Pattern", "pattern", PrintKind::Text),
    ("MaxItems", "maxItems", PrintKind::Json),
    ("MinItems", "minItems", PrintKind::Json),
    ("UniqueItems", "uniqueItems", PrintKind::Bool),
    ("MultipleOf", "multipleOf", PrintKind::Float),
    ("Enum", "enum", PrintKind::Json),
    ("MaxProperties", "maxProperties", PrintKind::Json),
    ("MinProperties", "minProperties", PrintKind::Json),
    ("Required", "required", PrintKind::Json),
    ("Items", "items", PrintKind::SchemaOrList),
    ("AllOf", "allOf", PrintKind::Schemas),
    ("OneOf", "oneOf", PrintKind::Schemas),
    ("AnyOf", "anyOf", PrintKind::Schemas),
    ("Not", "not", PrintKind::Schema),
    ("Properties", "properties", PrintKind::SchemaMap),
    (
        "AdditionalProperties",
        "additionalProperties",
        PrintKind::SchemaOrBool,
    ),
    (
        "PatternProperties",
        "patternProperties",
        PrintKind::SchemaMap,
    ),
    ("Dependencies", "dependencies", PrintKind::Dependencies),
    (
        "AdditionalItems",
        "additionalItems",
        PrintKind::SchemaOrBool,
    ),
    ("Definitions", "definitions", PrintKind::SchemaMap),
    ("ExternalDocs", "externalDocs", PrintKind::Struct(DOCS)),
    ("Example", "example", PrintKind::Json),
    (
        "XPreserveUnknownFields",
        "x-kubernetes-preserve-unknown-fields",
        PrintKind::Json,
    ),
    (
        "XEmbeddedResource",
        "x-kubernetes-embedded-resource",
        PrintKind::Bool,
    ),
    (
        "XIntOrString",
        "x-kubernetes-int-or-string",
        PrintKind::Bool,
    ),
    (
        "XListMapKeys",
        "x-kubernetes-list-map-keys",
        PrintKind::Json,
    ),
    ("XListType", "x-kubernetes-list-type", PrintKind::Json),
    ("XMapType", "x-kubernetes-map-type", PrintKind::Json),
    (
        "XValidations",
        "x-kubernetes-validations",
        PrintKind::List(RULE),
    ),
];

const SCALE: &[PrintedMember] = &[
    ("SpecReplicasPath", "specReplicasPath", PrintKind::Text),
    ("StatusReplicasPath", "statusReplicasPath", PrintKind::Text),
    ("LabelSelectorPath", "labelSelectorPath", PrintKind::Json),
];

const VERSION: &[PrintedMember] = &[
    ("Name", "name", PrintKind::Text),
    ("Served", "served", PrintKind::Bool),
    ("Storage", "storage", PrintKind::Bool),
    ("Deprecated", "deprecated", PrintKind::Bool),
    ("DeprecationWarning", "deprecationWarning", PrintKind::Json),
    (
        "Schema",
        "schema",
        PrintKind::Struct(&[(
            "OpenAPIV3Schema",
            "openAPIV3Schema",
            PrintKind::Struct(SCHEMA),
        )]),
    ),
    (
        "Subresources",
        "subresources",
        PrintKind::Struct(&[
            ("Status", "status", PrintKind::Struct(&[])),
            ("Scale", "scale", PrintKind::Struct(SCALE)),
        ]),
    ),
    (
        "AdditionalPrinterColumns",
        "additionalPrinterColumns",
        PrintKind::List(&[
            ("Name", "name", PrintKind::Text),
            ("Type", "type", PrintKind::Text),
            ("Format", "format", PrintKind::Text),
            ("Description", "description", PrintKind::Text),
            ("Priority", "priority", PrintKind::Int),
            ("JSONPath", "jsonPath", PrintKind::Text),
        ]),
    ),
    (
        "SelectableFields",
        "selectableFields",
        PrintKind::List(&[("JSONPath", "jsonPath", PrintKind::Text)]),
    ),
];

/// Prints a schema.
pub(crate) fn schema(schema: &Value) -> String {
    print(schema, PrintKind::Struct(SCHEMA))
}

/// Prints `items` of a schema.
pub(crate) fn items(items: &Value) -> String {
    print(items, PrintKind::SchemaOrList)
}

/// Prints the versions of a definition.
pub(crate) fn versions(versions: &Value) -> String {
    print(versions, PrintKind::List(VERSION))
}

fn print(value: &Value, kind: PrintKind) -> String {
    let mut out = String::new();
    put(&mut out, value, kind);
    out
}

fn put(out: &mut String, value: &Value, kind: PrintKind) {
    let kind = match kind {
        PrintKind::Schema => PrintKind::Struct(SCHEMA),
        PrintKind::Schemas => PrintKind::List(SCHEMA),
        kind => kind,
    };
    match (kind, value) {
        (PrintKind::Text, Value::Null) => out.push_str("\"\""),
        (PrintKind::Bool, Value::Null) => out.push_str("false"),
        (PrintKind::Int, Value::Null) => out.push('0'),
        (PrintKind::SchemaOrBool, Value::Bool(allows)) => {
            out.push_str(&format!("{{\"Allows\":{allows},\"Schema\":null}}"));
        }
        (_, Value::Null) => out.push_str("null"),
        (PrintKind::Float, Value::Number(number)) => match number.as_f64() {
            Some(float) => out.push_str(&go::json_float(float)),
            None => out.push_str(&number.to_string()),
        },
        (PrintKind::Struct(members), Value::Object(object)) => {
            let fields = members.iter().map(|(name, member, kind)| {
                (*name, object.get(member).unwrap_or(&Value::Null), *kind)
            });
            put_object(out, fields);
        }
        (PrintKind::List(members), Value::Array(values)) => {
            out.push('[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                put(out, value, PrintKind::Struct(members));
            }
            out.push(']');
        }
        (PrintKind::SchemaMap, Value::Object(object)) => put_map(out, object, PrintKind::Schema),
        (PrintKind::SchemaOrList, value) => {
            let (one, many) = match value {
                Value::Array(_) => (&Value::Null, value),
                _ => (value, &Value::Null),
            };
            let fields = [
                ("Schema", one, PrintKind::Struct(SCHEMA)),
                ("JSONSchemas", many, PrintKind::Schemas),
            ];
            put_object(out, fields.into_iter());
        }
        (PrintKind::SchemaOrBool, value) => {
            let allows = &Value::Bool(true);
            let fields = [
                ("Allows", allows, PrintKind::Bool),
                ("Schema", value, PrintKind::Struct(SCHEMA)),
            ];
            put_object(out, fields.into_iter());
        }
        (PrintKind::Dependencies, Value::Object(object)) => {
            put_map(out, object, PrintKind::SchemaOrNames)
        }
        (PrintKind::SchemaOrNames, value) => {
            let (schema, names) = match value {
                Value::Array(_) => (&Value::Null, value),
                _ => (value, &Value::Null),
            };
            let fields = [
                ("Schema", schema, PrintKind::Struct(SCHEMA)),
                ("Property", names, PrintKind::Json),
            ];
            put_object(out, fields.into_iter());
        }
        _ => out.push_str(&json(value)),
    }
}

fn put_object<'a>(out: &mut String, fields: impl Iterator<Item = (&'a str, &'a Value, PrintKind)>) {
    out.push('{');
    for (index, (name, value, kind)) in fields.enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(&go::json_text(name));
        out.push(':');
        put(out, value, kind);
    }
    out.push('}');
}

fn put_map(out: &mut String, object: &Map, kind: PrintKind) {
    let mut entries: Vec<_> = object.iter().collect();
    entries.sort_by_key(|(name, _)| *name);
    let fields = entries
        .into_iter()
        .map(|(name, value)| (name.as_str(), value, kind));
    put_object(out, fields);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Upstream prints its internal types, which have other field names and another order than the types of the API, but the
    /// same members.
    #[test]
    fn members_are_those_of_the_table_of_types() {
        let printed = [
            ("JSONSchemaProps", SCHEMA),
            ("ValidationRule", RULE),
            ("ExternalDocumentation", DOCS),
            ("CustomResourceDefinitionVersion", VERSION),
            ("CustomResourceSubresourceScale", SCALE),
        ];
        for (name, members) in printed {
            let of = tidings_schema::find_type("apiextensions/v1", name).unwrap();
            let expected: BTreeSet<&str> = of.members().map(|member| member.name).collect();
            let found: BTreeSet<&str> = members.iter().map(|(_, json, _)| *json).collect();
            assert_eq!(found, expected, "{name}");
        }
    }
}
