//! Patches of objects as JSON.

use serde_json::{Value, json};

/// One operation of a JSON patch. False if its test fails.
pub(crate) fn change(object: &mut Value, step: &Value) -> bool {
    let path = step["path"].as_str().unwrap();
    if step["op"] == "test" {
        return object.pointer(path).unwrap_or(&Value::Null) == &step["value"];
    }
    let (parent, last) = path.rsplit_once('/').unwrap();
    match (step["op"].as_str(), object.pointer_mut(parent)) {
        (Some("add"), Some(Value::Array(items))) => items.push(step["value"].clone()),
        (Some("add"), Some(parent)) => parent[last] = step["value"].clone(),
        (Some("remove"), Some(Value::Array(items))) => {
            items.remove(last.parse().unwrap());
        }
        _ => return false,
    }
    true
}

pub(crate) fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(members) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in members {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut object[name], value);
        }
    }
}
