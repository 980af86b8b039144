//! `ObjectMeta` as Go decodes it and writes it again: what is empty goes, times are in UTC, unknown fields are told.

use std::collections::BTreeMap;

use tidings_api::go;
use tidings_json::{Map, Value};

use crate::printed::float_text;

/// What a field holds.
enum Shape {
    /// Text, with its type in Go.
    Text(&'static str),
    /// Text that is written even if it is empty.
    RequiredText(&'static str),
    Integer,
    /// An integer for which zero is not the same as nothing.
    OptionalInteger,
    Bool,
    Time,
    Anything,
    Texts,
    TextMap,
    Structs(&'static Struct),
}

struct Struct {
    name: &'static str,
    members: &'static [(&'static str, Shape)],
}

static OWNER: Struct = Struct {
    name: "OwnerReference",
    members: &[
        ("apiVersion", Shape::RequiredText("string")),
        ("kind", Shape::RequiredText("string")),
        ("name", Shape::RequiredText("string")),
        ("uid", Shape::RequiredText("types.UID")),
        ("controller", Shape::Bool),
        ("blockOwnerDeletion", Shape::Bool),
    ],
};

static MANAGED: Struct = Struct {
    name: "ManagedFieldsEntry",
    members: &[
        ("manager", Shape::Text("string")),
        ("operation", Shape::Text("v1.ManagedFieldsOperationType")),
        ("apiVersion", Shape::Text("string")),
        ("time", Shape::Time),
        ("fieldsType", Shape::Text("string")),
        ("fieldsV1", Shape::Anything),
        ("subresource", Shape::Text("string")),
    ],
};

static META: Struct = Struct {
    name: "ObjectMeta",
    members: &[
        ("name", Shape::Text("string")),
        ("generateName", Shape::Text("string")),
        ("namespace", Shape::Text("string")),
        ("selfLink", Shape::Text("string")),
        ("uid", Shape::Text("types.UID")),
        ("resourceVersion", Shape::Text("string")),
        ("generation", Shape::Integer),
        ("creationTimestamp", Shape::Time),
        ("deletionTimestamp", Shape::Time),
        ("deletionGracePeriodSeconds", Shape::OptionalInteger),
        ("labels", Shape::TextMap),
        ("annotations", Shape::TextMap),
        ("ownerReferences", Shape::Structs(&OWNER)),
        ("finalizers", Shape::Texts),
        ("managedFields", Shape::Structs(&MANAGED)),
    ],
};

/// Metadata that was decoded.
#[derive(Default)]
pub(crate) struct Decoded {
    pub(crate) fields: Map,
    /// The paths of unknown fields, below metadata.
    pub(crate) unknown: Vec<String>,
}

/// Decodes metadata. With `drop_malformed`, fields that cannot be decoded are left out.
///
/// # Errors
/// The first thing that has the wrong type, in the words of Go's decoder.
pub(crate) fn decode(metadata: &Value, drop_malformed: bool) -> Result<Decoded, String> {
    let mut decoded = Decoded::default();
    let fields = match metadata {
        Value::Null => return Ok(decoded),
        Value::Object(fields) => fields,
        other => {
            let found = type_name(other);
            return Err(format!(
                "json: cannot unmarshal {found} into Go value of type v1.ObjectMeta"
            ));
        }
    };
    let mut decoder = Decoder::default();
    if drop_malformed {
        let mut whole = BTreeMap::new();
        for (name, value) in fields {
            let mut one = Decoder::default();
            let single = std::iter::once((name, value));
            let found = one.members(single, &META, "", "");
            if one.problem.is_none() {
                whole.extend(found);
                decoder.unknown.append(&mut one.unknown);
            }
        }
        decoded.fields = whole.into_iter().collect();
    } else {
        let found = decoder.members(fields.iter(), &META, "", "");
        decoded.fields = found.into_iter().collect();
    }
    decoded.unknown = decoder.unknown;
    match decoder.problem {
        Some(why) => Err(why),
        None => Ok(decoded),
    }
}

#[derive(Default)]
struct Decoder {
    unknown: Vec<String>,
    /// The first problem; Go goes on after it.
    problem: Option<String>,
}

impl Decoder {
    /// `trail` is the path as Go tells it, without indices; `path` is the one with them. Both end with a dot if not empty.
    fn members<'v>(
        &mut self,
        fields: impl Iterator<Item = (&'v String, &'v Value)>,
        layout: &Struct,
        trail: &str,
        path: &str,
    ) -> BTreeMap<String, Value> {
        let mut found = BTreeMap::new();
        for (name, shape) in layout.members {
            if let Shape::RequiredText(_) = shape {
                found.insert((*name).to_owned(), "".into());
            }
        }
        // Go has sorted them before it decodes them.
        let mut fields: Vec<_> = fields.collect();
        fields.sort_by_key(|(name, _)| *name);
        for (name, value) in fields {
            let known = layout.members.iter().find(|(member, _)| member == name);
            let Some((_, shape)) = known else {
                self.unknown.push(format!("{path}{name}"));
                continue;
            };
            let field = format!("{}.{trail}{name}", layout.name);
            let place = Place {
                field: &field,
                trail: &format!("{trail}{name}."),
                path: &format!("{path}{name}"),
            };
            if let Some(value) = self.value(value, shape, &place) {
                found.insert(name.clone(), value);
            }
        }
        found
    }

    /// The value as it is written again; nothing if it is left out then.
    fn value(&mut self, value: &Value, shape: &Shape, place: &Place<'_>) -> Option<Value> {
        match (shape, value) {
            (_, Value::Null) => None,
            (Shape::Anything, value) => Some(value.clone()),
            (Shape::Text(_), Value::String(text)) => (!text.is_empty()).then(|| value.clone()),
            (Shape::RequiredText(_), Value::String(_)) | (Shape::Bool, Value::Bool(_)) => {
                Some(value.clone())
            }
            (Shape::Integer | Shape::OptionalInteger, Value::Number(number)) => {
                let Some(integer) = integer(number) else {
                    let number = number.as_f64().map_or_else(String::new, float_text);
                    self.wrong(&format!("number {number}"), place, "int64");
                    return None;
                };
                let is_kept = integer != 0 || matches!(shape, Shape::OptionalInteger);
                is_kept.then(|| integer.into())
            }
            (Shape::Time, Value::String(text)) => match time(text) {
                Ok(time) => Some(time.into()),
                Err(why) => {
                    self.problem.get_or_insert(why);
                    None
                }
            },
            (Shape::Texts, Value::Array(elements)) => {
                let texts: Vec<Value> = elements
                    .iter()
                    .map(|element| self.text(element, place))
                    .collect();
                (!texts.is_empty()).then(|| texts.into())
            }
            (Shape::TextMap, Value::Object(entries)) => {
                let mut sorted: Vec<_> = entries.iter().collect();
                sorted.sort_by_key(|(key, _)| *key);
                let texts: Map = sorted
                    .into_iter()
                    .map(|(key, entry)| (key.clone(), self.text(entry, place)))
                    .collect();
                (!texts.is_empty()).then(|| texts.into())
            }
            (Shape::Structs(layout), Value::Array(elements)) => {
                let structs: Vec<Value> = elements
                    .iter()
                    .enumerate()
                    .map(|(index, element)| self.element(element, layout, place, index))
                    .collect();
                (!structs.is_empty()).then(|| structs.into())
            }
            (shape, value) => {
                let wanted = match shape {
                    Shape::Text(name) | Shape::RequiredText(name) => (*name).to_owned(),
                    Shape::Integer | Shape::OptionalInteger => "int64".to_owned(),
                    Shape::Bool => "bool".to_owned(),
                    Shape::Time | Shape::Anything => "string".to_owned(),
                    Shape::Texts => "[]string".to_owned(),
                    Shape::TextMap => "map[string]string".to_owned(),
                    Shape::Structs(layout) => format!("[]v1.{}", layout.name),
                };
                self.wrong(type_name(value), place, &wanted);
                None
            }
        }
    }

    /// An element of a list or map of text: null is the empty text.
    fn text(&mut self, value: &Value, place: &Place<'_>) -> Value {
        match value {
            Value::String(_) => return value.clone(),
            Value::Null => {}
            other => self.wrong(type_name(other), place, "string"),
        }
        "".into()
    }

    fn element(
        &mut self,
        value: &Value,
        layout: &Struct,
        place: &Place<'_>,
        index: usize,
    ) -> Value {
        let nothing = Map::new();
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Null => &nothing,
            other => {
                self.wrong(type_name(other), place, &format!("v1.{}", layout.name));
                &nothing
            }
        };
        let path = format!("{}[{index}].", place.path);
        let members = self.members(fields.iter(), layout, place.trail, &path);
        Value::Object(members.into_iter().collect())
    }

    fn wrong(&mut self, found: &str, place: &Place<'_>, wanted: &str) {
        let field = place.field;
        self.problem.get_or_insert_with(|| {
            format!("json: cannot unmarshal {found} into Go struct field {field} of type {wanted}")
        });
    }
}

/// Where a value is.
struct Place<'a> {
    /// As Go tells it: `OwnerReference.ownerReferences.uid`.
    field: &'a str,
    /// The part of that without the name of the type, with a dot at its end.
    trail: &'a str,
    /// As warnings tell it: `ownerReferences[0].uid`.
    path: &'a str,
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// An integer, also if it is written as a float.
fn integer(number: &tidings_json::Number) -> Option<i64> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    number.as_i64().or_else(|| {
        let float = number.as_f64()?;
        let is_integer = float.fract() == 0.0 && float.abs() <= EXACT_MAX;
        is_integer.then_some(float as i64)
    })
}

/// A time as it is written again: in UTC, without fractions of seconds.
///
/// # Errors
/// In the words of Go's `time.Parse`.
fn time(text: &str) -> Result<String, String> {
    const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
    let quoted = go::quote(text);
    let mut rest = text;
    // What stands there, how many digits it has, and what its values are called and may be.
    for (element, digits, name, values) in [
        ("2006", 4, "year", 0..=9999),
        ("-", 0, "", 0..=0),
        ("01", 2, "month", 1..=12),
        ("-", 0, "", 0..=0),
        ("02", 2, "day", 0..=99),
        ("T", 0, "", 0..=0),
        ("15", 2, "hour", 0..=23),
        (":", 0, "", 0..=0),
        ("04", 2, "minute", 0..=59),
        (":", 0, "", 0..=0),
        ("05", 2, "second", 0..=59),
    ] {
        let fits = match digits {
            0 => rest.starts_with(element),
            digits => rest
                .as_bytes()
                .get(..digits)
                .is_some_and(|bytes| bytes.iter().all(u8::is_ascii_digit)),
        };
        if !fits {
            let rest = go::quote(rest);
            return Err(format!(
                "parsing time {quoted} as \"{LAYOUT}\": cannot parse {rest} as \"{element}\""
            ));
        }
        let (value, after) = rest.split_at(digits.max(1));
        if digits > 0
            && !value
                .parse()
                .is_ok_and(|value: u16| values.contains(&value))
        {
            return Err(format!("parsing time {quoted}: {name} out of range"));
        }
        rest = after;
    }
    let seconds = &text[..text.len() - rest.len()];
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        let after = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
        if after.len() < fraction.len() {
            rest = after;
        }
    }
    let is_offset = |rest: &str| {
        let bytes = rest.as_bytes();
        bytes.len() >= 6
            && matches!(bytes[0], b'+' | b'-')
            && bytes[3] == b':'
            && [1, 2, 4, 5].iter().all(|at| bytes[*at].is_ascii_digit())
    };
    let after = match rest.strip_prefix('Z') {
        Some(after) => after,
        None if is_offset(rest) => &rest[6..],
        None => {
            let rest = go::quote(rest);
            return Err(format!(
                "parsing time {quoted} as \"{LAYOUT}\": cannot parse {rest} as \"Z07:00\""
            ));
        }
    };
    if !after.is_empty() {
        let after = go::quote(after);
        return Err(format!("parsing time {quoted}: extra text: {after}"));
    }
    let zone = &rest[..rest.len() - after.len()];
    match format!("{seconds}{zone}").parse::<jiff::Timestamp>() {
        Ok(time) => Ok(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        Err(_) => Err(format!("parsing time {quoted}: day out of range")),
    }
}
