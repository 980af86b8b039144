//! Decodes and encodes `ObjectMeta` as Go does: empty fields are dropped, times become UTC, unknown fields are reported.

use tidings_go as go;
use tidings_json::{Map, Touched, Value};
use tidings_schema::{Field, FieldKind, FieldPath, ItemType, Type, fit};

/// Decoded metadata.
#[derive(Default)]
pub(crate) struct DecodedMeta {
    pub(crate) fields: Map,
    /// The paths of unknown fields, relative to metadata.
    pub(crate) unknown: Vec<String>,
}

/// Decodes metadata. With `drop_malformed`, fields that cannot be decoded are left out.
///
/// # Errors
/// The error of Go's decoder for the first field of the wrong type.
pub(crate) fn decode(metadata: &Value, drop_malformed: bool) -> Result<DecodedMeta, String> {
    let mut decoded = DecodedMeta::default();
    // Go decodes fields in sorted order, which decides which error is the first.
    let mut metadata = metadata.clone();
    metadata.sort_all_objects();
    let fields = match metadata {
        Value::Null => return Ok(decoded),
        Value::Object(fields) => fields,
        other => return Err(go::mismatch_value(&other, "v1.ObjectMeta")),
    };
    let Some(of) = tidings_schema::find_type("meta/v1", "ObjectMeta") else {
        return Err("the table of types has no ObjectMeta".into());
    };
    for (name, mut value) in fields {
        let path = FieldPath::Member(&FieldPath::Top, &name);
        let Some(field) = of.field(&name) else {
            path.note(&mut decoded.unknown);
            continue;
        };
        go::whole_numbers(&mut value);
        let unknown = &mut decoded.unknown;
        match fit(&mut value, field, of, &path, &Touched::Whole, unknown) {
            Ok(()) => {
                if let Some(value) = encoded(value, field) {
                    decoded.fields.insert(name, value);
                }
            }
            Err(_) if drop_malformed => {}
            Err(why) => return Err(why),
        }
    }
    Ok(decoded)
}

/// The value of a field as Go encodes it; `None` if Go leaves it out.
fn encoded(value: Value, field: &Field) -> Option<Value> {
    let is_kept = match (&value, field.kind) {
        (Value::Null, _) => false,
        (Value::String(text), FieldKind::One(ItemType::Time)) => {
            return go::parse_time(text)
                .ok()
                .map(|time| go::rfc3339(time).into());
        }
        (Value::String(text), _) => field.keep || !text.is_empty(),
        (Value::Number(number), _) => field.pointer || number.as_i64() != Some(0),
        (Value::Array(elements), FieldKind::List(_)) if elements.is_empty() => false,
        (Value::Object(entries), FieldKind::Map(_)) if entries.is_empty() => false,
        _ => true,
    };
    if !is_kept {
        return None;
    }
    Some(match (value, field.kind) {
        (Value::Array(elements), FieldKind::List(item)) => {
            let encoded = |element| encoded_item(element, item);
            elements.into_iter().map(encoded).collect()
        }
        (Value::Object(entries), FieldKind::Map(item)) => {
            let encoded = |(key, entry)| (key, encoded_item(entry, item));
            Value::Object(entries.into_iter().map(encoded).collect())
        }
        (value, _) => value,
    })
}

/// An element of a list or map. Null becomes the empty value.
fn encoded_item(value: Value, item: ItemType) -> Value {
    match (item, value) {
        (ItemType::Struct(of), Value::Object(members)) => encoded_struct(members, of),
        (ItemType::Struct(of), _) => encoded_struct(Map::new(), of),
        (_, Value::Null) => "".into(),
        (_, value) => value,
    }
}

/// A struct, with the text fields that Go writes even if they are empty.
fn encoded_struct(mut members: Map, of: &Type) -> Value {
    let mut fields = Map::new();
    for field in of.members() {
        let value = members.remove(field.name).unwrap_or_default();
        match encoded(value, field) {
            Some(value) => drop(fields.insert(field.name.to_owned(), value)),
            None if field.keep => drop(fields.insert(field.name.to_owned(), "".into())),
            None => {}
        }
    }
    fields.sort_keys();
    Value::Object(fields)
}
