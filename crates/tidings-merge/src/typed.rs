//! The fields that a configuration sets, and what is wrong with it.

use serde_json::Value;

use crate::schema::{Child, Scalar, Schema, Shape, parts};
use crate::set::FieldSet;

/// What is wrong with a configuration: one line each, with the path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", shown(.0))]
pub struct TypeErrors(pub Vec<String>);

fn shown(errors: &[String]) -> String {
    match errors {
        [only] => only.clone(),
        several => format!("errors:\n  {}", several.join("\n  ")),
    }
}

/// The fields that a configuration sets: leaves, items of lists, members of maps, and what is empty.
///
/// # Errors
/// If it does not fit the types, or has items twice.
pub fn fields_of<S: Schema>(config: &Value, schema: S) -> Result<FieldSet, TypeErrors> {
    let mut errors = Vec::new();
    let fields = walk(config, schema, &mut String::new(), &mut errors);
    if errors.is_empty() {
        Ok(fields)
    } else {
        Err(TypeErrors(errors))
    }
}

/// The same of an object that is stored: what does not fit is left out.
pub(crate) fn fields_of_stored<S: Schema>(object: &Value, schema: S) -> FieldSet {
    walk(object, schema, &mut String::new(), &mut Vec::new())
}

fn walk<S: Schema>(
    value: &Value,
    schema: S,
    path: &mut String,
    errors: &mut Vec<String>,
) -> FieldSet {
    if let Some(why) = misfit(value, schema.shape()) {
        let separator = if path.is_empty() { "" } else { ": " };
        errors.push(format!("{path}{separator}{why}"));
        return FieldSet::default();
    }
    // One is told of each value: what comes behind it may be a consequence.
    let mut told = false;
    let wrong = &mut |why: String| {
        if !std::mem::replace(&mut told, true) {
            errors.push(format!("{path}{why}"));
        }
    };
    let Some(children) = parts(value, schema, wrong) else {
        // A list or an object that is null sets nothing by itself: whoever has it as a member says so.
        let granular = !matches!(schema.shape(), Shape::Scalar(_) | Shape::Atomic);
        return if granular && value.is_null() {
            FieldSet::default()
        } else {
            FieldSet::leaf()
        };
    };
    let mut set = FieldSet::default();
    for Child {
        element,
        value,
        schema,
        named,
    } in children
    {
        let length = path.len();
        path.push_str(&element.to_string());
        let mut below = walk(value, schema, path, errors);
        path.truncate(length);
        let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
        below.here |= empty || !named;
        if set.below.contains_key(&element) {
            errors.push(format!("{path}: duplicate entries for key {element}"));
        }
        set.put(element, below);
    }
    set
}

/// Why a value cannot be what the types say.
fn misfit<S: Copy>(value: &Value, shape: Shape<S>) -> Option<String> {
    let wanted = match shape {
        _ if value.is_null() => return None,
        Shape::Struct | Shape::Map(_) if !value.is_object() => "map",
        Shape::Set(_) | Shape::Keyed(_) if !value.is_array() => "list",
        Shape::Scalar(Scalar::Bool) if !value.is_boolean() => "boolean",
        Shape::Scalar(Scalar::String) if !value.is_string() => {
            let shown = go_syntax(value);
            return Some(format!(
                "expected string, got &value.valueUnstructured{{Value:{shown}}}"
            ));
        }
        Shape::Scalar(Scalar::Number) if !value.is_number() => {
            let kind = match value {
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                Value::Array(_) => "[]interface {}",
                _ => "map[string]interface {}",
            };
            return Some(format!("expected numeric (int or float), got {kind}"));
        }
        _ => return None,
    };
    Some(format!("expected {wanted}, got &{{{}}}", go_text(value)))
}

/// A value as Go prints it.
fn go_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(go_text).collect();
            format!("[{}]", values.join(" "))
        }
        Value::Object(members) => {
            let members = members.iter();
            let members: Vec<_> = members
                .map(|(name, value)| format!("{name}:{}", go_text(value)))
                .collect();
            format!("map[{}]", members.join(" "))
        }
        Value::Null => "<nil>".to_owned(),
        other => other.to_string(),
    }
}

/// A value as Go source.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", values.join(", "))
        }
        Value::Object(members) => {
            let members = members.iter();
            let members: Vec<_> = members
                .map(|(name, value)| format!("{name:?}:{}", go_syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", members.join(", "))
        }
        Value::Null => "interface {}(nil)".to_owned(),
        other => other.to_string(),
    }
}
