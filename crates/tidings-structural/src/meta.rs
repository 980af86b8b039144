//! Type and metadata of resources that are embedded in others.

use serde_json::{Map, Value};
use tidings_api::{FieldError, validate};

use crate::node::Node;
use crate::text::{Path, bad_value};

/// What a field of `metadata` holds.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Integer,
    Time,
    Texts,
    TextMap,
    Objects,
}

impl Shape {
    fn of(name: &str) -> Option<Shape> {
        Some(match name {
            "name" | "generateName" | "namespace" | "selfLink" | "uid" | "resourceVersion" => {
                Shape::Text
            }
            "generation" | "deletionGracePeriodSeconds" => Shape::Integer,
            "creationTimestamp" | "deletionTimestamp" => Shape::Time,
            "finalizers" => Shape::Texts,
            "labels" | "annotations" => Shape::TextMap,
            "ownerReferences" | "managedFields" => Shape::Objects,
            _ => return None,
        })
    }

    /// Why a value does not have this shape, in the words of Go's decoder.
    fn mismatch(self, name: &str, value: &Value) -> Option<String> {
        let wrong = |found: &Value, wanted: &str| {
            let found = match found {
                Value::Bool(_) => "bool",
                Value::Number(_) => "number",
                Value::String(_) => "string",
                Value::Array(_) => "array",
                Value::Object(_) => "object",
                Value::Null => "null",
            };
            let field = format!("ObjectMeta.{name}");
            Some(format!(
                "json: cannot unmarshal {found} into Go struct field {field} of type {wanted}"
            ))
        };
        if value.is_null() {
            return None;
        }
        match (self, value) {
            (Shape::Text, Value::String(_)) => None,
            (Shape::Text, _) => wrong(value, "string"),
            (Shape::Integer, Value::Number(number)) if number.is_i64() => None,
            (Shape::Integer, _) => wrong(value, "int64"),
            (Shape::Time, Value::String(text)) => match text.parse::<jiff::Timestamp>() {
                Ok(_) => None,
                Err(_) => Some(format!(
                    "parsing time {0} as \"2006-01-02T15:04:05Z07:00\": cannot parse {0} as \"2006\"",
                    tidings_api::go::quote(text)
                )),
            },
            (Shape::Time, _) => wrong(value, "string"),
            (Shape::Texts, Value::Array(elements)) => elements
                .iter()
                .find(|element| !element.is_string() && !element.is_null())
                .and_then(|e| wrong(e, "string")),
            (Shape::Texts, _) => wrong(value, "[]string"),
            (Shape::TextMap, Value::Object(entries)) => entries
                .values()
                .find(|entry| !entry.is_string() && !entry.is_null())
                .and_then(|e| wrong(e, "string")),
            (Shape::TextMap, _) => wrong(value, "map[string]string"),
            (Shape::Objects, Value::Array(elements)) => {
                let stranger = elements
                    .iter()
                    .find(|element| !element.is_object() && !element.is_null());
                stranger.and_then(|element| wrong(element, "v1.OwnerReference"))
            }
            (Shape::Objects, _) => wrong(value, "[]v1.OwnerReference"),
        }
    }
}

/// Drops unknown fields of embedded metadata and returns their paths. With `drop_malformed` also what has the wrong type.
///
/// # Errors
/// If something has the wrong type and may not be dropped.
pub(crate) fn coerce(
    value: &mut Value,
    node: &Node,
    is_resource: bool,
    drop_malformed: bool,
    path: &Path,
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
    object: &mut Map<String, Value>,
    drop_malformed: bool,
    path: &Path,
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
                object.shift_remove(name);
            }
            _ => {}
        }
    }
    let metadata_path = path.child("metadata");
    let Some(metadata) = object.get_mut("metadata") else {
        return Ok(());
    };
    let printed = bad_value(metadata);
    let fields = match metadata {
        Value::Object(fields) => fields,
        Value::Null => return Ok(()),
        _ if drop_malformed => return Ok(()),
        _ => {
            let detail = "json: cannot unmarshal into Go value of type v1.ObjectMeta";
            return Err(FieldError::invalid_value(metadata_path, printed, detail));
        }
    };
    let mut problem = None;
    fields.retain(|name, value| {
        let Some(shape) = Shape::of(name) else {
            unknown.push(format!("{}.{name}", metadata_path.as_str()));
            return false;
        };
        let why = shape.mismatch(name, value);
        let keep = why.is_none() && !(name == "creationTimestamp" && value.is_null());
        if problem.is_none() {
            problem = why;
        }
        keep
    });
    match problem {
        Some(why) if !drop_malformed => Err(FieldError::invalid_value(metadata_path, printed, why)),
        _ => Ok(()),
    }
}

/// Appends what is wrong with type and metadata of embedded resources.
pub(crate) fn check(
    value: &Value,
    node: &Node,
    is_resource: bool,
    path: &Path,
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

fn check_resource(object: &Map<String, Value>, path: &Path, errors: &mut Vec<FieldError>) {
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
    let Value::Object(fields) = metadata else {
        if !metadata.is_null() {
            let detail = "json: cannot unmarshal into Go value of type v1.ObjectMeta";
            errors.push(FieldError::invalid_value(path, bad_value(metadata), detail));
        }
        return;
    };
    let problem = fields
        .iter()
        .find_map(|(name, value)| Shape::of(name)?.mismatch(name, value));
    if let Some(why) = problem {
        errors.push(FieldError::invalid_value(path, bad_value(metadata), why));
        return;
    }
    check_metadata(fields, &path, errors);
}

fn check_metadata(fields: &Map<String, Value>, path: &Path, errors: &mut Vec<FieldError>) {
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut invalid = |name: &str, value: &str, why: Vec<String>| {
        let path = path.child(name);
        errors.extend(
            why.into_iter()
                .map(|why| FieldError::invalid(path.clone(), value, why)),
        );
    };
    for name in ["generateName", "name"] {
        if !text(name).is_empty() {
            invalid(name, text(name), validate::path_segment(text(name)));
        }
    }
    if !text("namespace").is_empty() {
        invalid(
            "namespace",
            text("namespace"),
            validate::dns1123_label(text("namespace")),
        );
    }
    for (key, value) in fields
        .get("labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        invalid("labels", key, validate::qualified_name(key));
        let value = value.as_str().unwrap_or_default();
        invalid("labels", value, validate::label_value(value));
    }
    for (key, _) in fields
        .get("annotations")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        invalid(
            "annotations",
            key,
            validate::qualified_name(&key.to_lowercase()),
        );
    }
    for finalizer in fields
        .get("finalizers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let finalizer = finalizer.as_str().unwrap_or_default();
        invalid("finalizers", finalizer, validate::qualified_name(finalizer));
    }
}
