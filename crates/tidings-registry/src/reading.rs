//! Reads JSON and notes what a plain reader lets pass: members that occur twice, members that do not exist (W173), and values that
//! are not of the type of their field.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use tidings_json::map::Entry;
use tidings_json::{Map, Number, Plain, Value};
use tidings_merge::Touched;
use tidings_schema::{Field, FieldKind, Item, Other, Type};

use tidings_go::mismatch;

/// A document, and the paths of members that occur more than once.
///
/// # Errors
/// If it is not JSON.
pub(crate) fn read(json: &[u8]) -> serde_json::Result<(Value, Vec<String>)> {
    let (value, repeated) = read_with_lines(json)?;
    let paths = repeated.into_iter().map(|again| again.path);
    Ok((value, paths.collect()))
}

/// The same, and where they occur again.
///
/// # Errors
/// If it is not JSON.
pub(crate) fn read_with_lines(json: &[u8]) -> serde_json::Result<(Value, Vec<RepeatedMember>)> {
    // Text is checked once, and not each string of it.
    match std::str::from_utf8(json) {
        Ok(text) => match Plain::read(text) {
            Some(value) => Ok((value, Vec::new())),
            None => read_from(serde_json::Deserializer::from_str(text), json),
        },
        Err(_) => read_from(serde_json::Deserializer::from_slice(json), json),
    }
}

fn read_from<'de>(
    mut reader: serde_json::Deserializer<impl serde_json::de::Read<'de>>,
    json: &[u8],
) -> serde_json::Result<(Value, Vec<RepeatedMember>)> {
    let mut repeated = Vec::new();
    let value = TreeReader {
        json,
        place: &JsonPlace::Top,
        repeated: &mut repeated,
    }
    .deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, repeated))
}

/// A member that was there before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RepeatedMember {
    pub(crate) path: String,
    pub(crate) name: String,
    /// The line of the document in which it stands. Names that are written with escapes are taken to be in the first one.
    pub(crate) line: usize,
}

/// A name, as it stands in the document if that is possible.
#[derive(Deserialize)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);

/// What is odd about members of a document, each once and in the order in which a reader comes across it. Of what does not exist
/// it is not told that it, or something in it, occurs twice.
pub(crate) fn odd_in_order(
    json: &[u8],
    duplicates: &[String],
    unknown: &[String],
) -> Vec<(&'static str, String)> {
    let mut finder = OddMembers {
        duplicates: duplicates.iter().map(String::as_str).collect(),
        unknown: unknown.iter().map(String::as_str).collect(),
        told: HashSet::new(),
        found: Vec::new(),
    };
    let mut reader = serde_json::Deserializer::from_slice(json);
    // It has been read once, so it can be read again.
    let _ = OddSearch(&mut finder, &JsonPlace::Top).deserialize(&mut reader);
    finder.found
}

/// What is looked for and has not been found yet, and what has been.
struct OddMembers<'a> {
    duplicates: HashSet<&'a str>,
    unknown: HashSet<&'a str>,
    /// What does not exist and has been told, because it can come again.
    told: HashSet<String>,
    found: Vec<(&'static str, String)>,
}

/// Looks through the value at a place.
struct OddSearch<'a, 'b>(&'a mut OddMembers<'b>, &'a JsonPlace<'a>);

impl<'de> DeserializeSeed<'de> for OddSearch<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for OddSearch<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let OddSearch(finder, place) = self;
        let mut at = 0;
        while elements
            .next_element_seed(OddSearch(finder, &JsonPlace::Element(place, at)))?
            .is_some()
        {
            at += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let OddSearch(finder, place) = self;
        let mut seen = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            let place = JsonPlace::Member(place, &name);
            // Paths are written down only while there is something left to find.
            let path = match (finder.duplicates.is_empty(), finder.unknown.is_empty()) {
                (true, true) => String::new(),
                _ => noted(&place),
            };
            if finder.unknown.contains(&*path) {
                if finder.told.insert(path.clone()) {
                    finder.found.push(("unknown", path));
                }
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            if !seen.insert(name.clone()) && finder.duplicates.remove(&*path) {
                finder.found.push(("duplicate", path));
            }
            members.next_value_seed(OddSearch(finder, &place))?;
        }
        Ok(())
    }
}

/// More oddities are not told, and none at more length: a request must not cost more than its size.
const NOTES_MAX: usize = 100;
const NOTE_CHARS_MAX: usize = 1000;

fn note(notes: &mut Vec<String>, place: &JsonPlace<'_>) {
    if notes.len() < NOTES_MAX {
        notes.push(noted(place));
    }
}

fn noted(place: &JsonPlace<'_>) -> String {
    let mut text = place.to_string();
    if let Some((end, _)) = text.char_indices().nth(NOTE_CHARS_MAX) {
        text.truncate(end);
    }
    text
}

/// Where in the document a value stands.
pub(crate) enum JsonPlace<'a> {
    Top,
    Member(&'a JsonPlace<'a>, &'a str),
    /// A value of a map.
    Entry(&'a JsonPlace<'a>, &'a str),
    Element(&'a JsonPlace<'a>, usize),
}

impl fmt::Display for JsonPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JsonPlace::Top => Ok(()),
            JsonPlace::Member(JsonPlace::Top, name) => f.write_str(name),
            JsonPlace::Member(owner, name) | JsonPlace::Entry(owner, name) => {
                write!(f, "{owner}.{name}")
            }
            JsonPlace::Element(owner, at) => write!(f, "{owner}[{at}]"),
        }
    }
}

impl JsonPlace<'_> {
    /// The names on the way, without the places in lists and maps, as Go's messages have it.
    fn members(&self) -> String {
        match self {
            JsonPlace::Top => String::new(),
            JsonPlace::Member(JsonPlace::Top, name) => (*name).to_owned(),
            JsonPlace::Member(owner, name) => format!("{}.{name}", owner.members()),
            JsonPlace::Element(owner, _) | JsonPlace::Entry(owner, _) => owner.members(),
        }
    }
}

struct TreeReader<'a> {
    json: &'a [u8],
    place: &'a JsonPlace<'a>,
    repeated: &'a mut Vec<RepeatedMember>,
}

impl TreeReader<'_> {
    /// The line of a name that stands at an address.
    fn line_of(&self, name: usize) -> usize {
        let at = name.checked_sub(self.json.as_ptr().addr());
        let before = at.and_then(|at| self.json.get(..at)).unwrap_or_default();
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }
}

impl<'de> DeserializeSeed<'de> for TreeReader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TreeReader<'_> {
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
            let element = TreeReader {
                json: self.json,
                place: &JsonPlace::Element(self.place, values.len()),
                repeated: self.repeated,
            };
            match elements.next_element_seed(element)? {
                Some(value) => values.push(value),
                None => return Ok(Value::Array(values)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(MemberName(name)) = members.next_key()? {
            let place = JsonPlace::Member(self.place, &name);
            let value = members.next_value_seed(TreeReader {
                json: self.json,
                place: &place,
                repeated: self.repeated,
            })?;
            let address = name.as_ptr().addr();
            match values.entry(name) {
                Entry::Vacant(entry) => drop(entry.insert(value)),
                Entry::Occupied(mut entry) => {
                    if self.repeated.len() < NOTES_MAX {
                        self.repeated.push(RepeatedMember {
                            path: noted(&JsonPlace::Member(self.place, entry.key())),
                            name: noted(&JsonPlace::Member(&JsonPlace::Top, entry.key())),
                            line: self.line_of(address),
                        });
                    }
                    join(entry.get_mut(), value);
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

/// Removes the members that the type of a field does not have, and names them. `Err` is Go's message about a value that is not
/// of the type. What is not touched has been looked at before.
pub(crate) fn fit(
    value: &mut Value,
    field: &'static Field,
    owner: &'static Type,
    place: &JsonPlace<'_>,
    touched: &Touched,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    let wrong = |value: &Value, go_type: &str| {
        let named = format!("{}.{}", owner.name, place.members());
        Err(mismatch(value, &named, go_type))
    };
    match (value, field.kind) {
        (Value::Null, _) => Ok(()),
        (Value::Array(elements), FieldKind::List(item)) => {
            for (at, element) in elements.iter_mut().enumerate() {
                if let Some(touched) = touched.item(at) {
                    let place = JsonPlace::Element(place, at);
                    fit_item(element, item, &place, touched, unknown, &wrong)?;
                }
            }
            Ok(())
        }
        (Value::Object(members), FieldKind::Map(item)) => {
            for (name, value) in members {
                if let Some(touched) = touched.member(name) {
                    let place = JsonPlace::Entry(place, name);
                    fit_item(value, item, &place, touched, unknown, &wrong)?;
                }
            }
            Ok(())
        }
        (value, FieldKind::One(item)) => fit_item(value, item, place, touched, unknown, &wrong),
        (value, FieldKind::List(_) | FieldKind::Map(_)) => wrong(value, &go_type(field)),
    }
}

fn fit_item(
    value: &mut Value,
    item: Item,
    place: &JsonPlace<'_>,
    touched: &Touched,
    unknown: &mut Vec<String>,
    wrong: &dyn Fn(&Value, &str) -> Result<(), String>,
) -> Result<(), String> {
    let fits = match (item, &*value) {
        (_, Value::Null) => true,
        (Item::Struct(_), Value::Object(_)) => true,
        (Item::String | Item::Bytes | Item::Time | Item::MicroTime, Value::String(_)) => true,
        (Item::Bool, Value::Bool(_)) => true,
        (Item::Int32, value) => value
            .as_i64()
            .is_some_and(|number| i32::try_from(number).is_ok()),
        (Item::Int64, value) => value.as_i64().is_some(),
        (Item::IntOrString, Value::String(_)) => true,
        (Item::IntOrString, value) => value
            .as_i64()
            .is_some_and(|number| i32::try_from(number).is_ok()),
        (Item::Double, value) => value.is_number(),
        (Item::Quantity, value) => value.is_string() || value.is_number(),
        (Item::Strings, Value::Array(texts)) => {
            let other = texts
                .iter()
                .find(|text| !matches!(text, Value::String(_) | Value::Null));
            match other {
                Some(other) => return wrong(other, "string"),
                None => true,
            }
        }
        (Item::Raw | Item::Fields, _) => true,
        (Item::Either(of, other), _) => return fit_either(value, (of, other), place, wrong),
        _ => false,
    };
    if !fits {
        return wrong(value, &item_type(item));
    }
    if let Value::String(text) = value {
        return match item {
            Item::Time => tidings_go::parse_time(text).map(drop),
            Item::MicroTime => tidings_go::parse_micro_time(text).map(drop),
            Item::Quantity => tidings_go::check_quantity(text),
            Item::Bytes => tidings_go::check_base64(text),
            _ => Ok(()),
        };
    }
    let (Item::Struct(of), Value::Object(members)) = (item, value) else {
        return Ok(());
    };
    let mut fitted = Ok(());
    members.retain(|name, value| {
        let Some(touched) = touched.member(name) else {
            return true;
        };
        let place = JsonPlace::Member(place, name);
        match of.field(name) {
            Some(field) => {
                if fitted.is_ok() {
                    fitted = fit(value, field, of, &place, touched, unknown);
                }
                true
            }
            None => {
                note(unknown, &place);
                false
            }
        }
    });
    fitted
}

/// What may be a struct or something else. Go reads it by itself, and says nothing of members that the type does not have.
fn fit_either(
    value: &mut Value,
    (of, other): (&'static Type, Other),
    place: &JsonPlace<'_>,
    wrong: &dyn Fn(&Value, &str) -> Result<(), String>,
) -> Result<(), String> {
    let unknown = &mut Vec::new();
    let element = match other {
        Other::Strings => Item::String,
        _ => Item::Struct(of),
    };
    match (&mut *value, other) {
        (Value::Object(_), _) => fit_item(
            value,
            Item::Struct(of),
            place,
            &Touched::Whole,
            unknown,
            wrong,
        ),
        (Value::Bool(_), Other::Bool) => Ok(()),
        (_, Other::Bool) => Err("boolean or JSON schema expected".into()),
        (Value::Array(elements), _) => {
            let mut elements = elements.iter_mut().enumerate();
            elements.try_for_each(|(at, value)| {
                let place = JsonPlace::Element(place, at);
                fit_item(value, element, &place, &Touched::Whole, unknown, wrong)
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

fn item_type(item: Item) -> String {
    match item {
        Item::String | Item::Time | Item::MicroTime => "string".into(),
        Item::Bytes => "[]uint8".into(),
        Item::Bool => "bool".into(),
        Item::Int32 | Item::IntOrString => "int32".into(),
        Item::Int64 => "int64".into(),
        Item::Double => "float64".into(),
        Item::Quantity => "resource.Quantity".into(),
        Item::Raw => "runtime.RawExtension".into(),
        Item::Fields => "v1.FieldsV1".into(),
        Item::Strings => "v1.ExtraValue".into(),
        Item::Struct(of) | Item::Either(of, _) => format!("{}.{}", of.version, of.name),
    }
}

/// How deep a value is nested.
pub(crate) fn depth(value: &Value) -> usize {
    match value {
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Array(values) => 1 + values.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use tidings_json::json;

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
    fn w173_odd_members_come_in_the_order_of_the_document() {
        let json =
            br#"{"a":1,"z":{"q":1,"q":2},"a":2,"l":[{"y":1,"u":0,"y":3,"y":4}],"z":5,"a":3}"#;
        let (_, duplicates) = read(json).unwrap();
        let unknown = ["z".to_owned(), "l[0].u".to_owned()];
        let odd = odd_in_order(json, &duplicates, &unknown);
        let odd: Vec<_> = odd.iter().map(|(what, path)| (*what, &**path)).collect();
        let expected = [
            ("unknown", "z"),
            ("duplicate", "a"),
            ("unknown", "l[0].u"),
            ("duplicate", "l[0].y"),
        ];
        assert_eq!(odd, expected);
    }

    #[test]
    fn w173_schemas_of_definitions_are_read_as_go_reads_them() {
        let of = tidings_schema::find_type("apiextensions/v1", "CustomResourceValidation");
        let (of, fields) = of.map(|of| (of, of.fields())).unwrap();
        let read = |schema: Value| {
            let (mut value, mut unknown) = (schema, Vec::new());
            let place = JsonPlace::Member(&JsonPlace::Top, "openAPIV3Schema");
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

    #[test]
    fn odd_members_cost_no_more_than_their_document() {
        let twice = vec![r#""a":1"#; 20_000].join(",");
        let json = format!(r#"{{"{}":{{{twice}}}}}"#, "k".repeat(20_000));
        let (_, duplicates) = read(json.as_bytes()).unwrap();
        assert_eq!(duplicates.len(), NOTES_MAX);
        assert!(duplicates.iter().all(|path| path.len() <= NOTE_CHARS_MAX));
    }
}
