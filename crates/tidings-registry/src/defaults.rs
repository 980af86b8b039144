//! The defaults of types, as the files of kinds declare them.

use tidings_json::{Map, Value};
use tidings_schema::Type;

/// The defaults of one type.
pub(crate) struct TypeDefaults {
    /// The Go package and the name of the type, as in `core/v1.Pod`.
    pub(crate) of: &'static str,
    /// Fields that are set if they are absent or zero, and their default as JSON.
    pub(crate) fields: &'static [(&'static str, &'static str)],
    /// Defaults that depend on other fields.
    pub(crate) rule: Option<fn(&mut Map)>,
}

/// Constant defaults of the fields of a type.
pub(crate) const fn defaults(
    of: &'static str,
    fields: &'static [(&'static str, &'static str)],
) -> TypeDefaults {
    TypeDefaults {
        of,
        fields,
        rule: None,
    }
}

/// Defaults of a type that depend on its other fields.
pub(crate) const fn rule(of: &'static str, rule: fn(&mut Map)) -> TypeDefaults {
    TypeDefaults {
        of,
        fields: &[],
        rule: Some(rule),
    }
}

impl TypeDefaults {
    /// Adds a rule for defaults that depend on other fields.
    pub(crate) const fn and(self, rule: fn(&mut Map)) -> TypeDefaults {
        TypeDefaults {
            rule: Some(rule),
            ..self
        }
    }

    /// The type in the table of types.
    pub(crate) fn find(&self) -> Option<&'static Type> {
        let (package, name) = self.of.split_once('.')?;
        tidings_schema::find_type(package, name)
    }
}

/// True for zero values, which Go leaves out of fields that are not pointers.
pub(crate) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

/// True if a member is absent or zero.
pub(crate) fn is_empty(value: Option<&Value>) -> bool {
    value.is_none_or(is_zero)
}

/// The text of a member; empty if the member is absent or not a text.
pub(crate) fn member_text<'a>(members: &'a Map, name: &str) -> &'a str {
    members
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or_default()
}
