//! Reads JSON and notes what a plain reader lets pass: members that occur twice, and members that do not exist (W173).

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use tidings_schema::{Field, FieldKind, Item, Type};

/// A document, and the paths of members that occur more than once.
///
/// # Errors
/// If it is not JSON.
pub(super) fn read(json: &[u8]) -> serde_json::Result<(Value, Vec<String>)> {
    let mut duplicates = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(json);
    let value = Reader {
        place: &Place::Top,
        duplicates: &mut duplicates,
    }
    .deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, duplicates))
}

/// Where in the document a value stands.
enum Place<'a> {
    Top,
    Member(&'a Place<'a>, &'a str),
    Element(&'a Place<'a>, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Top => Ok(()),
            Place::Member(Place::Top, name) => f.write_str(name),
            Place::Member(owner, name) => write!(f, "{owner}.{name}"),
            Place::Element(owner, at) => write!(f, "{owner}[{at}]"),
        }
    }
}

struct Reader<'a> {
    place: &'a Place<'a>,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        loop {
            let element = Reader {
                place: &Place::Element(self.place, values.len()),
                duplicates: self.duplicates,
            };
            match elements.next_element_seed(element)? {
                Some(value) => values.push(value),
                None => return Ok(Value::Array(values)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let place = Place::Member(self.place, &name);
            let value = members.next_value_seed(Reader {
                place: &place,
                duplicates: self.duplicates,
            })?;
            match values.get_mut(&name) {
                None => drop(values.insert(name, value)),
                Some(known) => {
                    self.duplicates.push(place.to_string());
                    join(known, value);
                }
            }
        }
        Ok(Value::Object(values))
    }
}

/// Of two members with one name the later counts; objects are read one over the other, as Go does it.
fn join(known: &mut Value, value: Value) {
    match (known, value) {
        (Value::Object(known), Value::Object(later)) => {
            for (name, value) in later {
                match known.get_mut(&name) {
                    None => drop(known.insert(name, value)),
                    Some(known) => join(known, value),
                }
            }
        }
        (known, value) => *known = value,
    }
}

/// Removes the members that the type of a field does not have, and names them.
pub(super) fn prune(
    value: &mut Value,
    field: &'static Field,
    path: &str,
    unknown: &mut Vec<String>,
) {
    let Item::Struct(of) = field.item() else {
        return;
    };
    match (value, field.kind) {
        (Value::Array(elements), FieldKind::List(_)) => {
            for (at, element) in elements.iter_mut().enumerate() {
                prune_struct(element, of, &format!("{path}[{at}]"), unknown);
            }
        }
        (Value::Object(members), FieldKind::Map(_)) => {
            for (name, value) in members {
                prune_struct(value, of, &format!("{path}.{name}"), unknown);
            }
        }
        (value, FieldKind::One(_)) => prune_struct(value, of, path, unknown),
        _ => {}
    }
}

fn prune_struct(value: &mut Value, of: &'static Type, path: &str, unknown: &mut Vec<String>) {
    let Some(members) = value.as_object_mut() else {
        return;
    };
    members.retain(|name, value| match of.field(name) {
        Some(field) => {
            prune(value, field, &format!("{path}.{name}"), unknown);
            true
        }
        None => {
            unknown.push(format!("{path}.{name}"));
            false
        }
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn w173_duplicates_are_named_and_read_one_over_the_other() {
        let json = br#"{"a":{"x":1,"x":2,"l":[{"y":1,"y":3}]},"b":1,"a":{"z":1}}"#;
        let (value, duplicates) = read(json).unwrap();
        assert_eq!(
            value,
            json!({"a": {"x": 2, "l": [{"y": 3}], "z": 1}, "b": 1})
        );
        assert_eq!(duplicates, ["a.x", "a.l[0].y", "a"]);
    }

    #[test]
    fn plain_documents_are_read_as_serde_json_reads_them() {
        for json in [
            r#"[1,-2,3.5,true,null,"\u00e4",{"a":{}}]"#,
            "18446744073709551615",
            "1e3",
        ] {
            let (value, duplicates) = read(json.as_bytes()).unwrap();
            assert_eq!(value, serde_json::from_str::<Value>(json).unwrap());
            assert!(duplicates.is_empty());
        }
        assert!(read(b"{} x").is_err());
        assert!(
            read("[".repeat(1000).as_bytes()).is_err(),
            "depth is bounded"
        );
    }
}
