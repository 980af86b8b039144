//! JSON without a schema as CEL values, and CEL values as JSON.

use tidings_go::GoNumber;
use tidings_json::{Map, Value};

use super::val::{CelText, Val};

impl<'a> Val<'a> {
    /// The value of JSON without a schema. Nothing is copied.
    pub(crate) fn of_json(value: &'a Value) -> Val<'a> {
        match value {
            Value::Null => Val::Null,
            Value::Bool(value) => Val::Bool(*value),
            Value::String(text) => Val::Text(CelText::Borrowed(text)),
            Value::Number(_) => match GoNumber::of(value) {
                Some(GoNumber::Int(number)) => Val::Int(number),
                Some(GoNumber::Float(number)) => Val::Double(number),
                None => Val::Null,
            },
            Value::Array(elements) => Val::JsonList(elements),
            Value::Object(members) => Val::JsonMap(members),
        }
    }

    /// The value as JSON.
    ///
    /// # Errors
    /// If it has no such form.
    pub(crate) fn to_json(&self) -> Result<Value, String> {
        Ok(match self {
            Val::Null | Val::Optional(None) => Value::Null,
            Val::Optional(Some(inner)) => inner.to_json()?,
            Val::Bool(value) => (*value).into(),
            Val::Int(number) => (*number).into(),
            Val::Uint(number) => (*number).into(),
            Val::Double(number) => (*number).into(),
            Val::Text(text) => text.as_str().into(),
            Val::JsonMap(members) => Value::Object((*members).clone()),
            Val::JsonList(elements) => elements.to_vec().into(),
            Val::List(elements) => {
                let elements: Result<Vec<Value>, String> =
                    elements.iter().map(Val::to_json).collect();
                elements?.into()
            }
            Val::Map(entries) => {
                let mut members = Map::new();
                for (key, value) in entries.iter() {
                    let Val::Text(key) = key else {
                        return Err("a key of the result is no text".to_owned());
                    };
                    members.insert(key.as_str().to_owned(), value.to_json()?);
                }
                members.into()
            }
            other => return Err(format!("the result is of the type {}", other.type_name())),
        })
    }
}
