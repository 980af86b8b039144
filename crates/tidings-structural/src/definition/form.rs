//! Checks the JSON types of all members of a definition, by the table of types. Later checks rely on these types.

use tidings_api::FieldError;
use tidings_json::Value;
use tidings_schema::{FieldKind, ItemType, Type};

use crate::text::{FieldPath, bad_value};

/// Returns an error for each member of the wrong type. The contents of schemas are checked where schemas are compiled.
pub(super) fn check(crd: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let types = tidings_schema::find("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    // The metadata is that of any object and is checked elsewhere.
    for name in ["spec", "status"] {
        let field = types.and_then(|of| of.field(name));
        if let (Some(value), Some(field)) = (crd.get(name), field) {
            check_value(value, field.kind, &FieldPath::new(name), &mut errors);
        }
    }
    errors
}

fn check_value(value: &Value, kind: FieldKind, path: &FieldPath, errors: &mut Vec<FieldError>) {
    match (kind, value) {
        (_, Value::Null) => {}
        (FieldKind::One(item), value) => check_item(value, item, path, errors),
        (FieldKind::List(item), Value::Array(elements)) => {
            for (at, element) in elements.iter().enumerate() {
                let path = path.index(at);
                // A null member counts as absent; a null element is an error.
                match element {
                    Value::Null => errors.push(FieldError::required(path, "must not be null")),
                    element => check_item(element, item, &path, errors),
                }
            }
        }
        (FieldKind::Map(item), Value::Object(members)) => {
            for (name, value) in members {
                check_item(value, item, &path.key(name), errors);
            }
        }
        (FieldKind::List(_), value) => errors.push(wrong_type(value, "array", path)),
        (FieldKind::Map(_), value) => errors.push(wrong_type(value, "object", path)),
    }
}

fn check_item(value: &Value, item: ItemType, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let expected = match (item, value) {
        (ItemType::Struct(of), Value::Object(_)) => return check_struct(value, of, path, errors),
        (ItemType::String | ItemType::Bytes | ItemType::Time, Value::String(_))
        | (ItemType::Bool, Value::Bool(_)) => return,
        (ItemType::Int32, Value::Number(number))
            if number
                .as_i64()
                .is_some_and(|int| i32::try_from(int).is_ok()) =>
        {
            return;
        }
        (ItemType::Int64, Value::Number(number)) if number.as_i64().is_some() => return,
        (ItemType::Struct(_), _) => "object",
        (ItemType::String | ItemType::Bytes | ItemType::Time, _) => "string",
        (ItemType::Bool, _) => "boolean",
        (ItemType::Int32, _) => "integer of 32 bits",
        (ItemType::Int64, _) => "integer of 64 bits",
        // Definitions have such values only in schemas.
        _ => return,
    };
    errors.push(wrong_type(value, expected, path));
}

fn check_struct(value: &Value, of: &Type, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if of.name == "JSONSchemaProps" {
        return;
    }
    for member in of.members() {
        if let Some(value) = value.get(member.name) {
            check_value(value, member.kind, &path.child(member.name), errors);
        }
    }
}

fn wrong_type(value: &Value, expected: &str, path: &FieldPath) -> FieldError {
    let detail = format!("must be of type {expected}");
    FieldError::type_invalid(path.clone(), bad_value(value), detail)
}
