//! The schemas of custom resources: what their definitions say, and what all objects have.

use serde_json::{Map, Value, json};
use tidings_schema::find_type;

use super::schemas::{Schemas, type_name};
use super::{Version, group_version_kind};
use crate::custom::Live;
use crate::registry::Kind;

/// What the schema of a custom resource is called: `com.example.stable.v1.CronTab`.
pub(super) fn name(kind: &Kind) -> String {
    let mut group: Vec<&str> = kind.group.split('.').collect();
    group.reverse();
    format!("{}.{}.{}", group.join("."), kind.version, kind.kind)
}

/// What the schema of its lists is called.
pub(super) fn list_name(kind: &Kind, live: &Live) -> String {
    let object = name(kind);
    let place = object.strip_suffix(kind.kind).unwrap_or_default();
    format!("{place}{}", live.definition.names.list_kind)
}

/// Adds the schemas of a kind and of its lists.
pub(super) fn put_schemas(schemas: &mut Schemas<'_>, kind: &Kind, live: &Live) {
    let version = schemas.version();
    let mut object = live.open_api();
    if version == Version::V2 {
        simplify(&mut object);
    }
    put_type(schemas, &mut object, kind, kind.kind, "ObjectMeta");
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
    let list_kind = &live.definition.names.list_kind;
    put_type(schemas, &mut list, kind, list_kind, "ListMeta");
    schemas.insert(list_name(kind, live), list);
}

/// Adds kind, apiVersion and metadata.
fn put_type(
    schemas: &mut Schemas<'_>,
    schema: &mut Value,
    kind: &Kind,
    kind_name: &str,
    meta: &str,
) {
    // They are what they are in all kinds.
    let described = |field: &str| schemas.describe("core/v1", "Pod", field);
    let text = |field: &str| json!({"description": described(field), "type": "string"});
    let (version, kind_text) = (text("apiVersion"), text("kind"));
    let metadata_text = described("metadata");
    let Value::Object(schema) = schema else {
        return;
    };
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
    let named = group_version_kind(kind.group, kind.version, kind_name);
    schema.insert("x-kubernetes-group-version-kind".into(), json!([named]));
}

/// Version 2 of OpenAPI has no words for some things; what clients would check wrongly is left out.
fn simplify(schema: &mut Value) {
    let Value::Object(members) = schema else {
        return;
    };
    for name in ["nullable", "oneOf", "anyOf", "allOf", "not", "default"] {
        members.shift_remove(name);
    }
    let is = |name: &str| members.get(name) == Some(&Value::Bool(true));
    if is("x-kubernetes-preserve-unknown-fields") {
        for name in ["type", "properties", "items", "required"] {
            members.shift_remove(name);
        }
    } else if is("x-kubernetes-int-or-string") {
        members.shift_remove("type");
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
