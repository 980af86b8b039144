//! Checks that values have the types of their fields, and removes unknown fields (W173).

use tidings_go::mismatch;
use tidings_json::Value;
use tidings_merge::Touched;
use tidings_schema::{Field, FieldKind, ItemType, StructAlternative, Type};

use super::path::{FieldPath, note};

/// Removes members that the type of a field does not have, and appends their paths to `unknown`. `Err` is Go's message about a
/// value of another type. Parts that are not in `touched` have been checked before.
pub(crate) fn fit(
    value: &mut Value,
    field: &'static Field,
    owner: &'static Type,
    path: &FieldPath<'_>,
    touched: &Touched,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    let wrong = |value: &Value, go_type: &str| {
        let named = format!("{}.{}", owner.name, path.members());
        Err(mismatch(value, &named, go_type))
    };
    match (value, field.kind) {
        (Value::Null, _) => Ok(()),
        (Value::Array(elements), FieldKind::List(item)) => {
            for (at, element) in elements.iter_mut().enumerate() {
                if let Some(touched) = touched.item(at) {
                    let path = FieldPath::Element(path, at);
                    fit_item(element, item, &path, touched, unknown, &wrong)?;
                }
            }
            Ok(())
        }
        (Value::Object(members), FieldKind::Map(item)) => {
            for (name, value) in members {
                if let Some(touched) = touched.member(name) {
                    let path = FieldPath::Entry(path, name);
                    fit_item(value, item, &path, touched, unknown, &wrong)?;
                }
            }
            Ok(())
        }
        (value, FieldKind::One(item)) => fit_item(value, item, path, touched, unknown, &wrong),
        (value, FieldKind::List(_) | FieldKind::Map(_)) => wrong(value, &go_type(field)),
    }
}

/// Fits a single value: that of a field, an element of a list or a value of a map.
fn fit_item(
    value: &mut Value,
    item: ItemType,
    path: &FieldPath<'_>,
    touched: &Touched,
    unknown: &mut Vec<String>,
    wrong: &dyn Fn(&Value, &str) -> Result<(), String>,
) -> Result<(), String> {
    let fits = match (item, &*value) {
        (_, Value::Null) => true,
        (ItemType::Struct(_), Value::Object(_)) => true,
        (
            ItemType::String | ItemType::Bytes | ItemType::Time | ItemType::MicroTime,
            Value::String(_),
        ) => true,
        (ItemType::Bool, Value::Bool(_)) => true,
        (ItemType::Int32, value) => value
            .as_i64()
            .is_some_and(|number| i32::try_from(number).is_ok()),
        (ItemType::Int64, value) => value.as_i64().is_some(),
        (ItemType::IntOrString, Value::String(_)) => true,
        (ItemType::IntOrString, value) => value
            .as_i64()
            .is_some_and(|number| i32::try_from(number).is_ok()),
        (ItemType::Double, value) => value.is_number(),
        (ItemType::Quantity, value) => value.is_string() || value.is_number(),
        (ItemType::Strings, Value::Array(texts)) => {
            let other = texts
                .iter()
                .find(|text| !matches!(text, Value::String(_) | Value::Null));
            match other {
                Some(other) => return wrong(other, "string"),
                None => true,
            }
        }
        (ItemType::Raw | ItemType::Fields, _) => true,
        (ItemType::Either(of, other), _) => return fit_either(value, (of, other), path, wrong),
        _ => false,
    };
    if !fits {
        return wrong(value, &item_type(item));
    }
    if let Value::String(text) = value {
        return match item {
            ItemType::Time => tidings_go::parse_time(text).map(drop),
            ItemType::MicroTime => tidings_go::parse_micro_time(text).map(drop),
            ItemType::Quantity => tidings_go::check_quantity(text),
            ItemType::Bytes => tidings_go::check_base64(text),
            _ => Ok(()),
        };
    }
    let (ItemType::Struct(of), Value::Object(members)) = (item, value) else {
        return Ok(());
    };
    let mut fitted = Ok(());
    members.retain(|name, value| {
        let Some(touched) = touched.member(name) else {
            return true;
        };
        let path = FieldPath::Member(path, name);
        match of.field(name) {
            Some(field) => {
                if fitted.is_ok() {
                    fitted = fit(value, field, of, &path, touched, unknown);
                }
                true
            }
            None => {
                note(unknown, &path);
                false
            }
        }
    });
    fitted
}

/// Fits a value that may be a struct or another type. Go reads it with a decoder of its own, which does not report unknown
/// fields.
fn fit_either(
    value: &mut Value,
    (of, other): (&'static Type, StructAlternative),
    path: &FieldPath<'_>,
    wrong: &dyn Fn(&Value, &str) -> Result<(), String>,
) -> Result<(), String> {
    let unknown = &mut Vec::new();
    let element = match other {
        StructAlternative::Strings => ItemType::String,
        _ => ItemType::Struct(of),
    };
    match (&mut *value, other) {
        (Value::Object(_), _) => fit_item(
            value,
            ItemType::Struct(of),
            path,
            &Touched::Whole,
            unknown,
            wrong,
        ),
        (Value::Bool(_), StructAlternative::Bool) => Ok(()),
        (_, StructAlternative::Bool) => Err("boolean or JSON schema expected".into()),
        (Value::Array(elements), _) => {
            let mut elements = elements.iter_mut().enumerate();
            elements.try_for_each(|(at, value)| {
                let path = FieldPath::Element(path, at);
                fit_item(value, element, &path, &Touched::Whole, unknown, wrong)
            })
        }
        _ => {
            *value = Value::Null;
            Ok(())
        }
    }
}

/// The Go type of a field.
pub(crate) fn go_type(field: &Field) -> String {
    match field.kind {
        FieldKind::One(item) => item_type(item),
        FieldKind::List(item) => format!("[]{}", item_type(item)),
        FieldKind::Map(item) => format!("map[string]{}", item_type(item)),
    }
}

/// The Go type of a single value.
fn item_type(item: ItemType) -> String {
    match item {
        ItemType::String | ItemType::Time | ItemType::MicroTime => "string".into(),
        ItemType::Bytes => "[]uint8".into(),
        ItemType::Bool => "bool".into(),
        ItemType::Int32 | ItemType::IntOrString => "int32".into(),
        ItemType::Int64 => "int64".into(),
        ItemType::Double => "float64".into(),
        ItemType::Quantity => "resource.Quantity".into(),
        ItemType::Raw => "runtime.RawExtension".into(),
        ItemType::Fields => "v1.FieldsV1".into(),
        ItemType::Strings => "v1.ExtraValue".into(),
        ItemType::Struct(of) | ItemType::Either(of, _) => format!("{}.{}", of.version, of.name),
    }
}

#[cfg(test)]
mod tests {
    use tidings_json::json;

    use super::*;

    #[test]
    fn w173_schemas_of_definitions_are_read_as_go_reads_them() {
        let of = tidings_schema::find_type("apiextensions/v1", "CustomResourceValidation");
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
