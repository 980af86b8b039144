//! Decodes and encodes `ObjectMeta` as Go does: empty fields are dropped, times become UTC, unknown fields are reported.

use std::collections::BTreeMap;

use tidings_go as go;
use tidings_json::{Map, Value};

/// The type of a field.
enum MetaFieldType {
    /// Text, with its type in Go.
    Text(&'static str),
    /// Text that is encoded even if it is empty, with its type in Go.
    RequiredText(&'static str),
    Integer,
    /// An integer that is encoded even if it is zero.
    OptionalInteger,
    Bool,
    Time,
    Anything,
    Texts,
    TextMap,
    Structs(&'static MetaStruct),
}

/// A struct of Go: its name and its fields.
struct MetaStruct {
    name: &'static str,
    members: &'static [(&'static str, MetaFieldType)],
}

static OWNER: MetaStruct = MetaStruct {
    name: "OwnerReference",
    members: &[
        ("apiVersion", MetaFieldType::RequiredText("string")),
        ("kind", MetaFieldType::RequiredText("string")),
        ("name", MetaFieldType::RequiredText("string")),
        ("uid", MetaFieldType::RequiredText("types.UID")),
        ("controller", MetaFieldType::Bool),
        ("blockOwnerDeletion", MetaFieldType::Bool),
    ],
};

static MANAGED: MetaStruct = MetaStruct {
    name: "ManagedFieldsEntry",
    members: &[
        ("manager", MetaFieldType::Text("string")),
        (
            "operation",
            MetaFieldType::Text("v1.ManagedFieldsOperationType"),
        ),
        ("apiVersion", MetaFieldType::Text("string")),
        ("time", MetaFieldType::Time),
        ("fieldsType", MetaFieldType::Text("string")),
        ("fieldsV1", MetaFieldType::Anything),
        ("subresource", MetaFieldType::Text("string")),
    ],
};

static META: MetaStruct = MetaStruct {
    name: "ObjectMeta",
    members: &[
        ("name", MetaFieldType::Text("string")),
        ("generateName", MetaFieldType::Text("string")),
        ("namespace", MetaFieldType::Text("string")),
        ("selfLink", MetaFieldType::Text("string")),
        ("uid", MetaFieldType::Text("types.UID")),
        ("resourceVersion", MetaFieldType::Text("string")),
        ("generation", MetaFieldType::Integer),
        ("creationTimestamp", MetaFieldType::Time),
        ("deletionTimestamp", MetaFieldType::Time),
        ("deletionGracePeriodSeconds", MetaFieldType::OptionalInteger),
        ("labels", MetaFieldType::TextMap),
        ("annotations", MetaFieldType::TextMap),
        ("ownerReferences", MetaFieldType::Structs(&OWNER)),
        ("finalizers", MetaFieldType::Texts),
        ("managedFields", MetaFieldType::Structs(&MANAGED)),
    ],
};

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
    let fields = match metadata {
        Value::Null => return Ok(decoded),
        Value::Object(fields) => fields,
        other => {
            let found = go::json_type(other);
            return Err(format!(
                "json: cannot unmarshal {found} into Go value of type v1.ObjectMeta"
            ));
        }
    };
    let mut decoder = MetaDecoder::default();
    if drop_malformed {
        let mut whole = BTreeMap::new();
        for (name, value) in fields {
            let mut one = MetaDecoder::default();
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

/// Decodes fields and collects unknown fields and the first error.
#[derive(Default)]
struct MetaDecoder {
    unknown: Vec<String>,
    /// The first error. Go continues to decode after it.
    problem: Option<String>,
}

impl MetaDecoder {
    /// Decodes the members of a struct. `trail` is the path as Go prints it, without indices; `path` has indices. Both end with
    /// a dot if they are not empty.
    fn members<'v>(
        &mut self,
        fields: impl Iterator<Item = (&'v String, &'v Value)>,
        layout: &MetaStruct,
        trail: &str,
        path: &str,
    ) -> BTreeMap<String, Value> {
        let mut found = BTreeMap::new();
        for (name, shape) in layout.members {
            if let MetaFieldType::RequiredText(_) = shape {
                found.insert((*name).to_owned(), "".into());
            }
        }
        // Go decodes fields in sorted order, which decides which error is the first.
        let mut fields: Vec<_> = fields.collect();
        fields.sort_by_key(|(name, _)| *name);
        for (name, value) in fields {
            let known = layout.members.iter().find(|(member, _)| member == name);
            let Some((_, shape)) = known else {
                self.unknown.push(format!("{path}{name}"));
                continue;
            };
            let field = format!("{}.{trail}{name}", layout.name);
            let place = MetaFieldPlace {
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

    /// The value as Go encodes it; `None` if Go leaves it out.
    fn value(
        &mut self,
        value: &Value,
        shape: &MetaFieldType,
        place: &MetaFieldPlace<'_>,
    ) -> Option<Value> {
        match (shape, value) {
            (_, Value::Null) => None,
            (MetaFieldType::Anything, value) => Some(value.clone()),
            (MetaFieldType::Text(_), Value::String(text)) => {
                (!text.is_empty()).then(|| value.clone())
            }
            (MetaFieldType::RequiredText(_), Value::String(_))
            | (MetaFieldType::Bool, Value::Bool(_)) => Some(value.clone()),
            (MetaFieldType::Integer | MetaFieldType::OptionalInteger, Value::Number(number)) => {
                let Some(integer) = integer(number) else {
                    let number = number.as_f64().map_or_else(String::new, go::json_float);
                    self.wrong(&format!("number {number}"), place, "int64");
                    return None;
                };
                let is_kept = integer != 0 || matches!(shape, MetaFieldType::OptionalInteger);
                is_kept.then(|| integer.into())
            }
            (MetaFieldType::Time, Value::String(text)) => {
                match go::parse_time(text).map(go::rfc3339) {
                    Ok(time) => Some(time.into()),
                    Err(why) => {
                        self.problem.get_or_insert(why);
                        None
                    }
                }
            }
            (MetaFieldType::Texts, Value::Array(elements)) => {
                let texts: Vec<Value> = elements
                    .iter()
                    .map(|element| self.text(element, place))
                    .collect();
                (!texts.is_empty()).then(|| texts.into())
            }
            (MetaFieldType::TextMap, Value::Object(entries)) => {
                let mut sorted: Vec<_> = entries.iter().collect();
                sorted.sort_by_key(|(key, _)| *key);
                let texts: Map = sorted
                    .into_iter()
                    .map(|(key, entry)| (key.clone(), self.text(entry, place)))
                    .collect();
                (!texts.is_empty()).then(|| texts.into())
            }
            (MetaFieldType::Structs(layout), Value::Array(elements)) => {
                let structs: Vec<Value> = elements
                    .iter()
                    .enumerate()
                    .map(|(index, element)| self.element(element, layout, place, index))
                    .collect();
                (!structs.is_empty()).then(|| structs.into())
            }
            (shape, value) => {
                let wanted = match shape {
                    MetaFieldType::Text(name) | MetaFieldType::RequiredText(name) => {
                        (*name).to_owned()
                    }
                    MetaFieldType::Integer | MetaFieldType::OptionalInteger => "int64".to_owned(),
                    MetaFieldType::Bool => "bool".to_owned(),
                    MetaFieldType::Time | MetaFieldType::Anything => "string".to_owned(),
                    MetaFieldType::Texts => "[]string".to_owned(),
                    MetaFieldType::TextMap => "map[string]string".to_owned(),
                    MetaFieldType::Structs(layout) => format!("[]v1.{}", layout.name),
                };
                self.wrong(go::json_type(value), place, &wanted);
                None
            }
        }
    }

    /// Decodes an element of a list or map of text. Null becomes the empty text.
    fn text(&mut self, value: &Value, place: &MetaFieldPlace<'_>) -> Value {
        match value {
            Value::String(_) => return value.clone(),
            Value::Null => {}
            other => self.wrong(go::json_type(other), place, "string"),
        }
        "".into()
    }

    fn element(
        &mut self,
        value: &Value,
        layout: &MetaStruct,
        place: &MetaFieldPlace<'_>,
        index: usize,
    ) -> Value {
        let nothing = Map::new();
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Null => &nothing,
            other => {
                self.wrong(go::json_type(other), place, &format!("v1.{}", layout.name));
                &nothing
            }
        };
        let path = format!("{}[{index}].", place.path);
        let members = self.members(fields.iter(), layout, place.trail, &path);
        Value::Object(members.into_iter().collect())
    }

    fn wrong(&mut self, found: &str, place: &MetaFieldPlace<'_>, wanted: &str) {
        let field = place.field;
        self.problem.get_or_insert_with(|| {
            format!("json: cannot unmarshal {found} into Go struct field {field} of type {wanted}")
        });
    }
}

/// The path of a value in the forms that errors and warnings need.
struct MetaFieldPlace<'a> {
    /// The path in errors of Go's decoder, such as `OwnerReference.ownerReferences.uid`.
    field: &'a str,
    /// `field` without the type name, and with a dot at the end.
    trail: &'a str,
    /// The path in warnings, such as `ownerReferences[0].uid`.
    path: &'a str,
}

/// An integer; a float without a fraction counts too.
fn integer(number: &tidings_json::Number) -> Option<i64> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    number.as_i64().or_else(|| {
        let float = number.as_f64()?;
        let is_integer = float.fract() == 0.0 && float.abs() <= EXACT_MAX;
        is_integer.then_some(float as i64)
    })
}
