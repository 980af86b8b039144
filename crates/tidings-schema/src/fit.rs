//! Checks that values have the types of their fields, and removes unknown fields, as Go's decoder does (W173).

use std::borrow::Cow;

use tidings_go::{check_quantity, decode_base64, mismatch, parse_micro_time, parse_time};
use tidings_json::{Touched, Value};

use crate::field_path::FieldPath;
use crate::types::{Field, FieldKind, ItemType, StructAlternative, Type};

/// Removes members that the type of a field does not have, and appends their paths to `unknown`. Parts that are not in `touched`
/// have been checked before.
///
/// # Errors
/// With Go's message about the first value that does not have the type of its field.
pub fn fit(
    value: &mut Value,
    field: &'static Field,
    owner: &'static Type,
    path: &FieldPath<'_>,
    touched: &Touched,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    let place = FittedField { field, owner };
    match (value, field.kind) {
        (Value::Null, _) => Ok(()),
        (Value::Array(elements), FieldKind::List(item)) => {
            for (at, element) in elements.iter_mut().enumerate() {
                if let Some(touched) = touched.item(at) {
                    let path = FieldPath::Element(path, at);
                    place.fit_item(element, item, &path, touched, unknown)?;
                }
            }
            Ok(())
        }
        (Value::Object(members), FieldKind::Map(item)) => {
            for (name, value) in members {
                if let Some(touched) = touched.member(name) {
                    let path = FieldPath::Entry(path, name);
                    place.fit_item(value, item, &path, touched, unknown)?;
                }
            }
            Ok(())
        }
        (value, FieldKind::One(item)) => place.fit_item(value, item, path, touched, unknown),
        (value, FieldKind::List(_) | FieldKind::Map(_)) => {
            place.wrong(value, path, &field.go_type())
        }
    }
}

/// The field whose values are checked, and the type that it is a field of.
struct FittedField {
    field: &'static Field,
    owner: &'static Type,
}

impl FittedField {
    fn wrong(&self, value: &Value, path: &FieldPath<'_>, go_type: &str) -> Result<(), String> {
        let named = format!("{}.{}", self.owner.name, path.members());
        Err(mismatch(value, &named, go_type))
    }

    /// Fits a single value: that of the field, an element of its list or a value of its map.
    fn fit_item(
        &self,
        value: &mut Value,
        item: ItemType,
        path: &FieldPath<'_>,
        touched: &Touched,
        unknown: &mut Vec<String>,
    ) -> Result<(), String> {
        let fits = match (item, &*value) {
            (_, Value::Null) => true,
            (ItemType::Struct(of), Value::Object(_)) => {
                return fit_struct(value, of, path, touched, unknown);
            }
            (ItemType::String, Value::String(_)) => true,
            (ItemType::Bytes, Value::String(text)) => {
                return decode_base64(text.as_bytes()).map(drop);
            }
            (ItemType::Time, Value::String(text)) => return parse_time(text).map(drop),
            (ItemType::MicroTime, Value::String(text)) => return parse_micro_time(text).map(drop),
            (ItemType::Bool, Value::Bool(_)) => true,
            (ItemType::IntOrString, Value::String(_)) => true,
            (ItemType::Int32 | ItemType::IntOrString, value) => value
                .as_i64()
                .is_some_and(|number| i32::try_from(number).is_ok()),
            (ItemType::Int64, value) => value.as_i64().is_some(),
            (ItemType::Double, value) => value.is_number(),
            (ItemType::Quantity, Value::String(text)) => return check_quantity(text),
            (ItemType::Quantity, Value::Number(_)) => true,
            (ItemType::Quantity, other) => return check_quantity(&other.to_string()),
            (ItemType::Strings, Value::Array(texts)) => {
                let other = texts
                    .iter()
                    .find(|text| !matches!(text, Value::String(_) | Value::Null));
                match other {
                    Some(other) => return self.wrong(other, path, "string"),
                    None => true,
                }
            }
            (ItemType::Raw | ItemType::Fields, _) => true,
            (ItemType::Either(of, other), _) => return self.fit_either(value, (of, other), path),
            _ => false,
        };
        match fits {
            true => Ok(()),
            false => self.wrong(value, path, &self.item_type(item)),
        }
    }

    /// The Go type of a value of the field. It is not always that of the field's items: see `fit_either`.
    fn item_type(&self, item: ItemType) -> Cow<'static, str> {
        match self.field.item() {
            ItemType::Either(..) => item.go_type(),
            _ => self.field.item_go_type(),
        }
    }

    /// Fits a value that may be a struct or another type. Go reads it with a decoder of its own, which does not report unknown
    /// fields.
    fn fit_either(
        &self,
        value: &mut Value,
        (of, other): (&'static Type, StructAlternative),
        path: &FieldPath<'_>,
    ) -> Result<(), String> {
        let unknown = &mut Vec::new();
        let element = match other {
            StructAlternative::Strings => ItemType::String,
            _ => ItemType::Struct(of),
        };
        match (&mut *value, other) {
            (Value::Object(_), _) => fit_struct(value, of, path, &Touched::Whole, unknown),
            (Value::Bool(_), StructAlternative::Bool) => Ok(()),
            (_, StructAlternative::Bool) => Err("boolean or JSON schema expected".into()),
            (Value::Array(elements), _) => {
                let mut elements = elements.iter_mut().enumerate();
                elements.try_for_each(|(at, value)| {
                    let path = FieldPath::Element(path, at);
                    self.fit_item(value, element, &path, &Touched::Whole, unknown)
                })
            }
            _ => {
                *value = Value::Null;
                Ok(())
            }
        }
    }
}

/// Fits the members of an object to a struct.
fn fit_struct(
    value: &mut Value,
    of: &'static Type,
    path: &FieldPath<'_>,
    touched: &Touched,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    let Value::Object(members) = value else {
        return Ok(());
    };
    let mut fitted = Ok(());
    members.retain(|name, value| {
        let Some(touched) = touched.member(name) else {
            return true;
        };
        let Some((field, inlined)) = of.field_and_inlined(name) else {
            FieldPath::Member(path, name).note(unknown);
            return false;
        };
        if fitted.is_ok() {
            let inner = inlined.map(|inner| FieldPath::Inlined(path, inner.name));
            let path = FieldPath::Member(inner.as_ref().unwrap_or(path), name);
            fitted = fit(value, field, of, &path, touched, unknown);
        }
        true
    });
    fitted
}

#[cfg(test)]
mod tests {
    use tidings_json::json;

    use super::*;

    #[test]
    fn w173_schemas_of_definitions_are_read_as_go_reads_them() {
        let of = crate::find_type("apiextensions/v1", "CustomResourceValidation");
        let (of, fields) = of.map(|of| (of, of.fields())).unwrap();
        let read = |schema: Value| {
            let (mut value, mut unknown) = (schema, Vec::new());
            let place = FieldPath::Member(&FieldPath::Top, "openAPIV3Schema");
            fit(
                &mut value,
                &fields[0],
                of,
                &place,
                &Touched::Whole,
                &mut unknown,
            )
            .map(|()| (value, unknown))
        };
        let schema =
            json!({"properties": {"a": {"items": {"odd": 1}}, "b": {"odd": 1, "items": 5}}});
        let fitted = json!({"properties": {"a": {"items": {}}, "b": {"items": null}}});
        let unknown = vec!["openAPIV3Schema.properties.b.odd".to_owned()];
        assert_eq!(read(schema), Ok((fitted, unknown)));
        let place = "Go struct field JSONSchemaProps.openAPIV3Schema.properties";
        for (property, message) in [
            (
                json!({"items": {"maxLength": "x"}}),
                format!("json: cannot unmarshal string into {place}.items.maxLength of type int64"),
            ),
            (
                json!({"items": [5]}),
                format!(
                    "json: cannot unmarshal number into {place}.items of type v1.JSONSchemaProps"
                ),
            ),
            (
                json!({"dependencies": {"x": [1]}}),
                format!("json: cannot unmarshal number into {place}.dependencies of type string"),
            ),
            (
                json!({"maximum": "x"}),
                format!("json: cannot unmarshal string into {place}.maximum of type float64"),
            ),
            (
                json!({"additionalProperties": "x"}),
                "boolean or JSON schema expected".to_owned(),
            ),
        ] {
            assert_eq!(read(json!({"properties": {"a": property}})), Err(message));
        }
    }
}
