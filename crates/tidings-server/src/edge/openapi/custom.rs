//! The schemas of custom resources: the schemas in their definitions, and the members that all objects have.

use tidings_json::{Map, Value, json};
use tidings_schema::find_type;

use super::schemas::{Schemas, type_name};
use super::{OpenApiVersion, group_version_kind};
use tidings_registry::{CustomVersion, Kind};

/// The name of the schema of a custom resource: `com.example.stable.v1.CronTab`.
pub(super) fn name(kind: &Kind) -> String {
    let mut group: Vec<&str> = kind.group.split('.').collect();
    group.reverse();
    format!("{}.{}.{}", group.join("."), kind.version, kind.kind)
}

/// The name of the schema of its list.
pub(super) fn list_name(kind: &Kind, custom: &CustomVersion) -> String {
    let object = name(kind);
    let prefix = object.strip_suffix(&*kind.kind).unwrap_or_default();
    format!("{prefix}{}", custom.definition.names.list_kind)
}

/// Adds the schemas of a kind and of its list.
pub(super) fn put_schemas(schemas: &mut Schemas<'_>, kind: &Kind, custom: &CustomVersion) {
    let version = schemas.version();
    let mut object = custom.open_api();
    put_embedded(schemas, &mut object);
    if version == OpenApiVersion::V2 {
        simplify(&mut object);
    }
    put_type(schemas, &mut object, kind, &kind.kind, "ObjectMeta");
    put_selectable_fields(&mut object, custom);
    schemas.insert(name(kind), object);
    let items = json!({"$ref": version.reference(&name(kind))});
    let mut list = json!({
        "description": format!("A list of {}.", kind.kind),
        "type": "object",
        "required": ["items"],
        "properties": {"items": {
            "description": "The objects.",
            "type": "array",
            "items": items,
        }},
    });
    let list_kind = &custom.definition.names.list_kind;
    put_type(schemas, &mut list, kind, list_kind, "ListMeta");
    put_selectable_fields(&mut list, custom);
    schemas.insert(list_name(kind, custom), list);
}

fn put_selectable_fields(schema: &mut Value, custom: &CustomVersion) {
    let fields = custom.version().fields.iter();
    let fields: Vec<Value> = fields
        .map(|field| json!({"fieldPath": field.name}))
        .collect();
    if let Value::Object(schema) = schema
        && !fields.is_empty()
    {
        schema.insert("x-kubernetes-selectable-fields".into(), fields.into());
    }
}

/// Adds kind, apiVersion and metadata to the schemas of embedded resources.
fn put_embedded(schemas: &mut Schemas<'_>, schema: &mut Value) {
    let Value::Object(members) = schema else {
        return;
    };
    for name in ["items", "additionalProperties"] {
        if let Some(below) = members.get_mut(name) {
            put_embedded(schemas, below);
        }
    }
    if let Some(Value::Object(properties)) = members.get_mut("properties") {
        for below in properties.values_mut() {
            put_embedded(schemas, below);
        }
    }
    if members.get("x-kubernetes-embedded-resource") != Some(&Value::Bool(true)) {
        return;
    }
    put_members(schemas, members, "ObjectMeta");
    let required = members.entry("required").or_insert_with(|| json!([]));
    if let Value::Array(required) = required {
        for name in ["kind", "apiVersion"] {
            if !required.iter().any(|known| known == name) {
                required.push(name.into());
            }
        }
    }
}

/// Adds the group, version and kind to a schema, and the members that all objects have.
fn put_type(
    schemas: &mut Schemas<'_>,
    schema: &mut Value,
    kind: &Kind,
    kind_name: &str,
    meta: &str,
) {
    let Value::Object(schema) = schema else {
        return;
    };
    put_members(schemas, schema, meta);
    let named = group_version_kind(&kind.group, &kind.version, kind_name);
    schema.insert("x-kubernetes-group-version-kind".into(), json!([named]));
}

/// Adds kind, apiVersion and metadata.
fn put_members(schemas: &mut Schemas<'_>, schema: &mut Map, meta: &str) {
    // The descriptions of these members are the same for all kinds.
    let described = |field: &str| schemas.describe("core/v1", "Pod", field);
    let text = |field: &str| json!({"description": described(field), "type": "string"});
    let (version, kind_text) = (text("apiVersion"), text("kind"));
    let metadata_text = described("metadata");
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let Value::Object(properties) = properties {
        properties.insert("apiVersion".into(), version);
        properties.insert("kind".into(), kind_text);
        if let Some(of) = find_type("meta/v1", meta) {
            schemas.put(of);
            let mut metadata = Map::new();
            metadata.insert("description".into(), metadata_text.into());
            schemas.put_reference(&mut metadata, &type_name(of));
            properties.insert("metadata".into(), metadata.into());
        }
        properties.sort_keys();
    }
}

/// The names of the properties that may be null.
fn nullable_properties(schema: &Map) -> impl Iterator<Item = &str> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.into_iter().flatten();
    let nullable = properties.filter(|(_, property)| property["nullable"] == true);
    nullable.map(|(name, _)| name.as_str())
}

/// Removes what OpenAPI 2 cannot express, so that clients do not reject valid objects. A nullable property is no longer required.
fn simplify(schema: &mut Value) {
    let Value::Object(members) = schema else {
        return;
    };
    let is = |name: &str| members.get(name) == Some(&Value::Bool(true));
    let (is_nullable, is_open, is_either) = (
        is("nullable"),
        is("x-kubernetes-preserve-unknown-fields"),
        is("x-kubernetes-int-or-string"),
    );
    let nullable: Vec<String> = nullable_properties(members)
        .map(ToOwned::to_owned)
        .collect();
    if let Some(Value::Array(required)) = members.get_mut("required") {
        required.retain(|name| !nullable.iter().any(|known| name == known));
    }
    for name in ["nullable", "oneOf", "anyOf", "allOf", "not", "default"] {
        members.remove(name);
    }
    if is_nullable || is_open {
        for name in ["type", "properties", "items", "required"] {
            members.remove(name);
        }
    } else if is_either {
        members.remove("type");
    }
    for name in ["items", "additionalProperties"] {
        if let Some(below) = members.get_mut(name) {
            simplify(below);
        }
    }
    if let Some(Value::Object(properties)) = members.get_mut("properties") {
        properties.values_mut().for_each(simplify);
    }
}
