//! Checks that the elements of sets and the keys of list maps are unique.

use std::collections::{HashMap, HashSet};

use tidings_api::FieldError;
use tidings_json::{Map, Value};

use crate::node::SchemaNode;
use crate::text::{FieldPath, bad_value, json};

/// Appends an error for each duplicate element or key anywhere in a value.
pub(crate) fn check(
    value: &Value,
    node: &SchemaNode,
    path: &mut FieldPath,
    errors: &mut Vec<FieldError>,
) {
    if !node.below.list_keys {
        return;
    }
    let len = path.len();
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                if let Some(schema) = node.additional.schema() {
                    path.push_key(name);
                    check(value, schema, path, errors);
                    path.truncate(len);
                }
                if let Some(property) = node.properties.get(name) {
                    path.push_child(name);
                    check(value, property, path, errors);
                    path.truncate(len);
                }
            }
        }
        Value::Array(elements) => {
            match node.list_type.as_deref() {
                Some("set") => {
                    for index in repeated(elements.iter().map(identity)) {
                        let printed = bad_value(&elements[index]);
                        errors.push(FieldError::duplicate_value(
                            path.index(index),
                            Some(printed),
                        ));
                    }
                }
                Some("map") => check_keys(elements, &node.list_map_keys, path, errors),
                _ => {}
            }
            if let Some(items) = &node.items {
                for (index, element) in elements.iter().enumerate() {
                    path.push_index(index);
                    check(element, items, path, errors);
                    path.truncate(len);
                }
            }
        }
        _ => {}
    }
}

fn check_keys(elements: &[Value], keys: &[String], path: &FieldPath, errors: &mut Vec<FieldError>) {
    let stranger = elements
        .iter()
        .position(|element| !element.is_null() && !element.is_object());
    if let Some(index) = stranger {
        let detail = "must be an object for an array of list-type map";
        let printed = bad_value(&elements[index]);
        errors.push(FieldError::invalid_value(
            path.index(index),
            printed,
            detail,
        ));
        return;
    }
    let key_of = |element: &Value| {
        let mut key = Map::new();
        for name in keys {
            if let Some(value) = element.get(name) {
                key.insert(name.clone(), value.clone());
            }
        }
        Value::Object(key)
    };
    let keys: Vec<Value> = elements.iter().map(key_of).collect();
    for index in repeated(keys.iter().map(json)) {
        let printed = json(&keys[index]);
        errors.push(FieldError::duplicate_value(
            path.index(index),
            Some(printed),
        ));
    }
}

/// The text that equal values share: JSON with sorted keys.
fn identity(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Object(_) => json(value),
        scalar => scalar.to_string(),
    }
}

/// The index of the second occurrence of each duplicate.
fn repeated(identities: impl Iterator<Item = String>) -> Vec<usize> {
    let mut seen: HashMap<String, ()> = HashMap::new();
    let mut told = HashSet::new();
    let mut second = Vec::new();
    for (index, identity) in identities.enumerate() {
        if seen.insert(identity.clone(), ()).is_some() && told.insert(identity) {
            second.push(index);
        }
    }
    second
}
