//! The CEL value of a JSON value with its schema.

use std::sync::Arc;

use base64::Engine;
use tidings_go::GoNumber;
use tidings_json::Value;

use super::call;
use super::val::{CelText, Val};
use crate::node::{AdditionalProperties, SchemaNode};

impl<'a> Val<'a> {
    /// The CEL value of a JSON value with its schema.
    pub(crate) fn of(
        value: &'a Value,
        node: &'a SchemaNode,
        is_resource: bool,
    ) -> Result<Val<'a>, String> {
        Ok(match value {
            Value::Null => Val::Null,
            Value::Bool(value) => Val::Bool(*value),
            Value::String(text) => return of_text(text, node),
            Value::Number(_) => match (GoNumber::of(value), node.kind.as_str()) {
                (Some(number), "number") => Val::Double(number.as_f64()),
                (Some(GoNumber::Int(number)), _) => Val::Int(number),
                (Some(GoNumber::Float(number)), "integer") => Val::Int(number as i64),
                (Some(GoNumber::Float(number)), _) => Val::Double(number),
                (None, _) => return Err("invalid number".into()),
            },
            Value::Array(elements) => Val::Elements(elements, node),
            Value::Object(object) => match &node.additional {
                AdditionalProperties::Schema(schema) if node.properties.is_empty() => {
                    Val::Entries(object, schema)
                }
                _ => Val::Object(object, node, is_resource),
            },
        })
    }
}

fn of_text<'a>(text: &'a str, node: &SchemaNode) -> Result<Val<'a>, String> {
    if node.kind != "string" {
        return Ok(Val::Text(CelText::Borrowed(text)));
    }
    match node.format_text.as_str() {
        "byte" => match base64::engine::general_purpose::STANDARD.decode(text) {
            Ok(bytes) => Ok(Val::Bytes(Arc::new(bytes))),
            Err(error) => Err(format!(
                "Invalid byte formatted string {text}, err: {error}"
            )),
        },
        "duration" => call::library("duration", &[Val::text(text)], false),
        "date" => call::timestamp(&format!("{text}T00:00:00Z")),
        "date-time" => call::timestamp(&text.to_uppercase()),
        _ => Ok(Val::Text(CelText::Borrowed(text))),
    }
}
