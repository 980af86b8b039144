//! Definitions and schemas as errors print them: upstream's internal structs as JSON, with every field and none left out.

use tidings_api::go;
use tidings_json::{Map, Value};

use crate::text::json;

/// How a member of a struct is printed.
#[derive(Clone, Copy)]
enum As {
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
    Struct(&'static [Member]),
    List(&'static [Member]),
    /// A schema; its own name, because the table of its members cannot contain itself.
    Schema,
    Schemas,
    SchemaMap,
    /// `items`: a schema or a list of them.
    SchemaOrList,
    /// `additionalProperties`: a schema or a boolean.
    SchemaOrBool,
    /// `dependencies`: a map of them.
    Dependencies,
    /// One of `dependencies`: a schema or a list of names.
    SchemaOrNames,
}

/// The name of a field in Go, its name in JSON, and what it is.
type Member = (&'static str, &'static str, As);

const RULE: &[Member] = &[
    ("Rule", "rule", As::Text),
    ("Message", "message", As::Text),
    ("MessageExpression", "messageExpression", As::Text),
    ("Reason", "reason", As::Json),
    ("FieldPath", "fieldPath", As::Text),
    ("OptionalOldSelf", "optionalOldSelf", As::Json),
];

const DOCS: &[Member] = &[
    ("Description", "description", As::Text),
    ("URL", "url", As::Text),
];

const SCHEMA: &[Member] = &[
    ("ID", "id", As::Text),
    ("Schema", "$schema", As::Text),
    ("Ref", "$ref", As::Json),
    ("Description", "description", As::Text),
    ("Type", "type", As::Text),
    ("Nullable", "nullable", As::Bool),
    ("Format", "format", As::Text),
    ("Title", "title", As::Text),
    ("Default", "default", As::Json),
    ("Maximum", "maximum", As::Float),
    ("ExclusiveMaximum", "exclusiveMaximum", As::Bool),
    ("Minimum", "minimum", As::Float),
    ("ExclusiveMinimum", "exclusiveMinimum", As::Bool),
    ("MaxLength", "maxLength", As::Json),
    ("MinLength", "minLength", As::Json),
    ("Pattern", "pattern", As::Text),
    ("MaxItems", "maxItems", As::Json),
    ("MinItems", "minItems", As::Json),
    ("UniqueItems", "uniqueItems", As::Bool),
    ("MultipleOf", "multipleOf", As::Float),
    ("Enum", "enum", As::Json),
    ("MaxProperties", "maxProperties", As::Json),
    ("MinProperties", "minProperties", As::Json),
    ("Required", "required", As::Json),
    ("Items", "items", As::SchemaOrList),
    ("AllOf", "allOf", As::Schemas),
    ("OneOf", "oneOf", As::Schemas),
    ("AnyOf", "anyOf", As::Schemas),
    ("Not", "not", As::Schema),
    ("Properties", "properties", As::SchemaMap),
    (
        "AdditionalProperties",
        "additionalProperties",
        As::SchemaOrBool,
    ),
    ("PatternProperties", "patternProperties", As::SchemaMap),
    ("Dependencies", "dependencies", As::Dependencies),
    ("AdditionalItems", "additionalItems", As::SchemaOrBool),
    ("Definitions", "definitions", As::SchemaMap),
    ("ExternalDocs", "externalDocs", As::Struct(DOCS)),
    ("Example", "example", As::Json),
    (
        "XPreserveUnknownFields",
        "x-kubernetes-preserve-unknown-fields",
        As::Json,
    ),
    (
        "XEmbeddedResource",
        "x-kubernetes-embedded-resource",
        As::Bool,
    ),
    ("XIntOrString", "x-kubernetes-int-or-string", As::Bool),
    ("XListMapKeys", "x-kubernetes-list-map-keys", As::Json),
    ("XListType", "x-kubernetes-list-type", As::Json),
    ("XMapType", "x-kubernetes-map-type", As::Json),
    ("XValidations", "x-kubernetes-validations", As::List(RULE)),
];

const SCALE: &[Member] = &[
    ("SpecReplicasPath", "specReplicasPath", As::Text),
    ("StatusReplicasPath", "statusReplicasPath", As::Text),
    ("LabelSelectorPath", "labelSelectorPath", As::Json),
];

const VERSION: &[Member] = &[
    ("Name", "name", As::Text),
    ("Served", "served", As::Bool),
    ("Storage", "storage", As::Bool),
    ("Deprecated", "deprecated", As::Bool),
    ("DeprecationWarning", "deprecationWarning", As::Json),
    (
        "Schema",
        "schema",
        As::Struct(&[("OpenAPIV3Schema", "openAPIV3Schema", As::Struct(SCHEMA))]),
    ),
    (
        "Subresources",
        "subresources",
        As::Struct(&[
            ("Status", "status", As::Struct(&[])),
            ("Scale", "scale", As::Struct(SCALE)),
        ]),
    ),
    (
        "AdditionalPrinterColumns",
        "additionalPrinterColumns",
        As::List(&[
            ("Name", "name", As::Text),
            ("Type", "type", As::Text),
            ("Format", "format", As::Text),
            ("Description", "description", As::Text),
            ("Priority", "priority", As::Int),
            ("JSONPath", "jsonPath", As::Text),
        ]),
    ),
    (
        "SelectableFields",
        "selectableFields",
        As::List(&[("JSONPath", "jsonPath", As::Text)]),
    ),
];

/// A schema.
pub(crate) fn schema(schema: &Value) -> String {
    print(schema, As::Struct(SCHEMA))
}

/// `items` of a schema.
pub(crate) fn items(items: &Value) -> String {
    print(items, As::SchemaOrList)
}

/// The versions of a definition.
pub(crate) fn versions(versions: &Value) -> String {
    print(versions, As::List(VERSION))
}

fn print(value: &Value, kind: As) -> String {
    let mut out = String::new();
    put(&mut out, value, kind);
    out
}

fn put(out: &mut String, value: &Value, kind: As) {
    let kind = match kind {
        As::Schema => As::Struct(SCHEMA),
        As::Schemas => As::List(SCHEMA),
        kind => kind,
    };
    match (kind, value) {
        (As::Text, Value::Null) => out.push_str("\"\""),
        (As::Bool, Value::Null) => out.push_str("false"),
        (As::Int, Value::Null) => out.push('0'),
        (As::SchemaOrBool, Value::Bool(allows)) => {
            out.push_str(&format!("{{\"Allows\":{allows},\"Schema\":null}}"));
        }
        (_, Value::Null) => out.push_str("null"),
        (As::Float, Value::Number(number)) => match number.as_f64() {
            Some(float) => out.push_str(&float_text(float)),
            None => out.push_str(&number.to_string()),
        },
        (As::Struct(members), Value::Object(object)) => {
            let fields = members.iter().map(|(name, member, kind)| {
                (*name, object.get(member).unwrap_or(&Value::Null), *kind)
            });
            put_object(out, fields);
        }
        (As::List(members), Value::Array(values)) => {
            out.push('[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                put(out, value, As::Struct(members));
            }
            out.push(']');
        }
        (As::SchemaMap, Value::Object(object)) => put_map(out, object, As::Schema),
        (As::SchemaOrList, value) => {
            let (one, many) = match value {
                Value::Array(_) => (&Value::Null, value),
                _ => (value, &Value::Null),
            };
            let fields = [
                ("Schema", one, As::Struct(SCHEMA)),
                ("JSONSchemas", many, As::Schemas),
            ];
            put_object(out, fields.into_iter());
        }
        (As::SchemaOrBool, value) => {
            let allows = &Value::Bool(true);
            let fields = [
                ("Allows", allows, As::Bool),
                ("Schema", value, As::Struct(SCHEMA)),
            ];
            put_object(out, fields.into_iter());
        }
        (As::Dependencies, Value::Object(object)) => put_map(out, object, As::SchemaOrNames),
        (As::SchemaOrNames, value) => {
            let (schema, names) = match value {
                Value::Array(_) => (&Value::Null, value),
                _ => (value, &Value::Null),
            };
            let fields = [
                ("Schema", schema, As::Struct(SCHEMA)),
                ("Property", names, As::Json),
            ];
            put_object(out, fields.into_iter());
        }
        _ => out.push_str(&json(value)),
    }
}

fn put_object<'a>(out: &mut String, fields: impl Iterator<Item = (&'a str, &'a Value, As)>) {
    out.push('{');
    for (index, (name, value, kind)) in fields.enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(&json_text(name));
        out.push(':');
        put(out, value, kind);
    }
    out.push('}');
}

fn put_map(out: &mut String, object: &Map, kind: As) {
    let mut entries: Vec<_> = object.iter().collect();
    entries.sort_by_key(|(name, _)| *name);
    let fields = entries
        .into_iter()
        .map(|(name, value)| (name.as_str(), value, kind));
    put_object(out, fields);
}

fn json_text(text: &str) -> String {
    let bytes = go::json(text).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A float as `encoding/json` writes it: with an exponent if it is very large or very small.
pub(crate) fn float_text(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let scientific = format!("{value:e}");
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let sign = if exponent.starts_with('-') { "" } else { "+" };
        return format!("{digits}e{sign}{exponent}");
    }
    format!("{value}")
}
