//! Coerces and checks apiVersion, kind and metadata of embedded resources.

use tidings_api::{FieldError, validate};
use tidings_json::{Map, Value};

use crate::node::SchemaNode;
use crate::object_meta;
use crate::text::{FieldPath, bad_value};

/// Rewrites embedded metadata as Go decodes and encodes it: without unknown and empty fields. Appends the paths of unknown fields
/// to `unknown`. With `drop_malformed`, fields of the wrong type are dropped too.
///
/// # Errors
/// If a field has the wrong type and may not be dropped.
pub(crate) fn coerce(
    value: &mut Value,
    node: &SchemaNode,
    is_resource: bool,
    drop_malformed: bool,
    path: &FieldPath,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    if !is_resource && !node.below.embedded {
        return Ok(());
    }
    match value {
        Value::Object(object) => {
            if is_resource {
                coerce_resource(object, drop_malformed, path, unknown)?;
            }
            for (name, value) in object.iter_mut() {
                if let Some(property) = node.properties.get(name) {
                    let path = path.child(name);
                    coerce(
                        value,
                        property,
                        property.embedded,
                        drop_malformed,
                        &path,
                        unknown,
                    )?;
                } else if let Some(schema) = node.additional.schema() {
                    let path = path.key(name);
                    coerce(
                        value,
                        schema,
                        schema.embedded,
                        drop_malformed,
                        &path,
                        unknown,
                    )?;
                }
            }
        }
        Value::Array(elements) => {
            if let Some(items) = &node.items {
                for (index, element) in elements.iter_mut().enumerate() {
                    let path = path.index(index);
                    coerce(
                        element,
                        items,
                        items.embedded,
                        drop_malformed,
                        &path,
                        unknown,
                    )?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn coerce_resource(
    object: &mut Map,
    drop_malformed: bool,
    path: &FieldPath,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    for name in ["apiVersion", "kind"] {
        match object.get(name) {
            Some(value) if !value.is_string() && !drop_malformed => {
                return Err(FieldError::invalid_value(
                    path.child(name),
                    bad_value(value),
                    "must be a string",
                ));
            }
            Some(value) if !value.is_string() => {
                object.remove(name);
            }
            _ => {}
        }
    }
    let metadata_path = path.child("metadata");
    let Some(metadata) = object.get_mut("metadata") else {
        return Ok(());
    };
    match object_meta::decode(metadata, drop_malformed) {
        Ok(decoded) => {
            let paths = decoded.unknown.iter();
            unknown.extend(paths.map(|field| format!("{}.{field}", metadata_path.as_str())));
            *metadata = Value::Object(decoded.fields);
            Ok(())
        }
        // Metadata that is not an object stays as it is.
        Err(_) if drop_malformed => Ok(()),
        Err(why) => Err(FieldError::invalid_value(
            metadata_path,
            bad_value(metadata),
            why,
        )),
    }
}

/// Appends the errors of apiVersion, kind and metadata of embedded resources.
pub(crate) fn check(
    value: &Value,
    node: &SchemaNode,
    is_resource: bool,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    if !is_resource && !node.below.embedded {
        return;
    }
    match value {
        Value::Object(object) => {
            if is_resource {
                check_resource(object, path, errors);
            }
            for (name, value) in object {
                if let Some(property) = node.properties.get(name) {
                    check(
                        value,
                        property,
                        property.embedded,
                        &path.child(name),
                        errors,
                    );
                } else if let Some(schema) = node.additional.schema() {
                    check(value, schema, schema.embedded, &path.key(name), errors);
                }
            }
        }
        Value::Array(elements) => {
            if let Some(items) = &node.items {
                for (index, element) in elements.iter().enumerate() {
                    check(element, items, items.embedded, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

fn check_resource(object: &Map, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        let path = path.child(name);
        match object.get(name) {
            None => errors.push(FieldError::required(path, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(path, text, "must not be empty"));
            }
            Some(Value::String(text)) if name == "apiVersion" => {
                if text.matches('/').count() > 1 {
                    let detail = format!("unexpected GroupVersion string: {text}");
                    errors.push(FieldError::invalid(path, text, detail));
                }
            }
            Some(Value::String(text)) => {
                let why = validate::dns1035_label(&text.to_lowercase());
                if !why.is_empty() {
                    let detail = format!(
                        "may have mixed case, but should otherwise match: {}",
                        why.join(",")
                    );
                    errors.push(FieldError::invalid(path, text, detail));
                }
            }
            Some(value) => {
                errors.push(FieldError::invalid_value(
                    path,
                    bad_value(value),
                    "must be a string",
                ));
            }
        }
    }
    let Some(metadata) = object.get("metadata") else {
        return;
    };
    let path = path.child("metadata");
    match object_meta::decode(metadata, false) {
        Ok(decoded) => check_metadata(&decoded.fields, &path, errors),
        Err(why) => errors.push(FieldError::invalid_value(path, bad_value(metadata), why)),
    }
}

/// The maximum length of the name of a subresource in managedFields.
const SUBRESOURCE_BYTES_MAX: usize = 256;

/// Checks decoded metadata, whose fields have the right types.
fn check_metadata(fields: &Map, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut invalid = |name: &str, value: &str, why: Vec<String>| {
        let path = path.child(name);
        errors.extend(
            why.into_iter()
                .map(|why| FieldError::invalid(path.clone(), value, why)),
        );
    };
    let generated = text("generateName");
    if !generated.is_empty() {
        // A suffix follows, so `.` and `..` are valid here.
        let why = validate::path_segment(&format!("{generated}x"));
        invalid("generateName", generated, why);
    }
    if !text("name").is_empty() {
        invalid("name", text("name"), validate::path_segment(text("name")));
    }
    let namespace = text("namespace");
    if !namespace.is_empty() {
        invalid("namespace", namespace, validate::dns1123_label(namespace));
    }
    let child = |name: &str| String::from(path.child(name));
    let generation = fields.get("generation").and_then(Value::as_i64);
    errors.extend(validate::generation(&child("generation"), generation));
    let texts = |name: &str| {
        let entries = fields.get(name).and_then(Value::as_object);
        let entries = entries.into_iter().flatten();
        entries.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
    };
    errors.extend(validate::labels(&child("labels"), texts("labels")));
    let annotations = texts("annotations");
    errors.extend(validate::annotations(&child("annotations"), annotations));
    let list = |name: &str| fields.get(name).and_then(Value::as_array);
    if let Some(owners) = list("ownerReferences") {
        errors.extend(validate::owner_references(
            &child("ownerReferences"),
            owners,
        ));
    }
    if let Some(finalizers) = list("finalizers") {
        let names: Vec<_> = finalizers.iter().filter_map(Value::as_str).collect();
        errors.extend(validate::finalizers(&child("finalizers"), &names));
    }
    if let Some(entries) = list("managedFields") {
        check_managed(entries, &path.child("managedFields"), errors);
    }
}

fn member<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn check_managed(entries: &[Value], path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (index, entry) in entries.iter().enumerate() {
        let path = path.index(index);
        let operation = member(entry, "operation");
        if !["Apply", "Update"].contains(&operation) {
            let detail = "must be `Apply` or `Update`";
            let path = path.child("operation");
            errors.push(FieldError::invalid(path, operation, detail));
        }
        let kind = member(entry, "fieldsType");
        if !kind.is_empty() && kind != "FieldsV1" {
            let path = path.child("fieldsType");
            errors.push(FieldError::invalid(path, kind, "must be `FieldsV1`"));
        }
        let manager_path = String::from(path.child("manager"));
        let manager = member(entry, "manager");
        errors.extend(validate::field_manager(&manager_path, manager));
        if member(entry, "subresource").len() > SUBRESOURCE_BYTES_MAX {
            let path = path.child("subresource");
            errors.push(FieldError::too_long(path, SUBRESOURCE_BYTES_MAX));
        }
    }
}
