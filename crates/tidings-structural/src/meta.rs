//! Coerces and checks apiVersion, kind and metadata of embedded resources.

use tidings_api::{FieldError, go, validate};
use tidings_json::{Map, Value};

use crate::node::SchemaNode;
use crate::object_meta;
use crate::text::{FieldPath, bad_value, json, unprintable};

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

/// The maximum size of all annotations of an object together.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
const MANAGER_BYTES_MAX: usize = 128;
const SUBRESOURCE_BYTES_MAX: usize = 256;
/// The maximum number of errors about extra controllers: each prints all owners, so the output grows quadratically.
const EXTRA_CONTROLLERS_REPORTED_MAX: usize = 8;

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
    if let Some(generation) = fields.get("generation").and_then(Value::as_i64)
        && generation < 0
    {
        let detail = "must be greater than or equal to 0";
        let path = path.child("generation");
        errors.push(FieldError::invalid_value(path, generation, detail));
    }
    check_keys(fields, path, errors);
    let list = |name: &str| fields.get(name).and_then(Value::as_array);
    if let Some(owners) = list("ownerReferences") {
        check_owners(owners, &path.child("ownerReferences"), errors);
    }
    if let Some(finalizers) = list("finalizers") {
        check_finalizers(finalizers, &path.child("finalizers"), errors);
    }
    if let Some(entries) = list("managedFields") {
        check_managed(entries, &path.child("managedFields"), errors);
    }
}

/// Checks labels and annotations.
fn check_keys(fields: &Map, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let entries = |name: &str| {
        let entries = fields.get(name).and_then(Value::as_object);
        let entries = entries.into_iter().flatten();
        entries.map(|(key, value)| (key, value.as_str().unwrap_or_default()))
    };
    let mut invalid = |path: &FieldPath, value: &str, why: Vec<String>| {
        let why = why.into_iter();
        errors.extend(why.map(|why| FieldError::invalid(path.clone(), value, why)));
    };
    let labels = path.child("labels");
    for (key, value) in entries("labels") {
        invalid(&labels, key, validate::qualified_name(key));
        invalid(&labels, value, validate::label_value(value));
    }
    let annotations = path.child("annotations");
    let mut bytes = 0;
    for (key, value) in entries("annotations") {
        let why = validate::qualified_name(&key.to_lowercase());
        invalid(&annotations, key, why);
        bytes += key.len() + value.len();
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.push(FieldError::too_long(annotations, ANNOTATIONS_BYTES_MAX));
    }
}

fn member<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// An owner reference as errors print it: its members in the order of Go's struct.
fn printed_owner(owner: &Value) -> Value {
    let members = [
        "apiVersion",
        "kind",
        "name",
        "uid",
        "controller",
        "blockOwnerDeletion",
    ];
    let found = members.into_iter().filter_map(|name| {
        let value = owner.get(name)?;
        Some((name.to_owned(), value.clone()))
    });
    Value::Object(found.collect())
}

fn go_json(value: &Value) -> String {
    let bytes = go::json(value).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn check_owners(owners: &[Value], path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut controller: Option<String> = None;
    let mut told = 0;
    for owner in owners {
        let api_version = member(owner, "apiVersion");
        let version = match api_version.split('/').collect::<Vec<_>>().as_slice() {
            [version] | [_, version] => *version,
            _ => "",
        };
        if version.is_empty() {
            let detail = "version must not be empty";
            let path = path.child("apiVersion");
            errors.push(FieldError::invalid(path, api_version, detail));
        }
        for name in ["kind", "name", "uid"] {
            if member(owner, name).is_empty() {
                let path = path.child(name);
                errors.push(FieldError::invalid(path, "", "must not be empty"));
            }
        }
        if api_version == "v1" && member(owner, "kind") == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            let printed = go_json(&printed_owner(owner));
            errors.push(FieldError::invalid_value(path.clone(), printed, detail));
        }
        if owner.get("controller") != Some(&Value::Bool(true)) {
            continue;
        }
        let name = format!("{}/{}", member(owner, "kind"), member(owner, "name"));
        match &controller {
            None => controller = Some(name),
            Some(_) if told == EXTRA_CONTROLLERS_REPORTED_MAX => {}
            Some(first) => {
                told += 1;
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                );
                let all = owners.iter().map(printed_owner).collect();
                let printed = go_json(&Value::Array(all));
                errors.push(FieldError::invalid_value(path.clone(), printed, detail));
            }
        }
    }
}

fn check_finalizers(finalizers: &[Value], path: &FieldPath, errors: &mut Vec<FieldError>) {
    for finalizer in finalizers {
        let name = finalizer.as_str().unwrap_or_default();
        let why = validate::qualified_name(name).into_iter();
        errors.extend(why.map(|why| FieldError::invalid(path.clone(), name, why)));
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        let printed = json(&Value::Array(finalizers.to_vec()));
        errors.push(FieldError::invalid_value(path.clone(), printed, detail));
    }
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
        let manager = member(entry, "manager");
        let manager_path = path.child("manager");
        if manager.len() > MANAGER_BYTES_MAX {
            let path = manager_path.clone();
            errors.push(FieldError::too_long(path, MANAGER_BYTES_MAX));
        }
        for (at, c) in unprintable(manager) {
            let code = c as u32;
            let detail = format!("invalid character U+{code:04X} (at position {at})");
            errors.push(FieldError::invalid(manager_path.clone(), manager, detail));
        }
        if member(entry, "subresource").len() > SUBRESOURCE_BYTES_MAX {
            let path = path.child("subresource");
            errors.push(FieldError::too_long(path, SUBRESOURCE_BYTES_MAX));
        }
    }
}
