//! The trait that describes the types of an object to this crate.

use std::borrow::Cow;

use tidings_json::Value;

use crate::element::{ElementValue, PathElement};

/// The type of a value of an object.
///
/// Implementations are cheap to copy, such as a reference into a table of types.
pub trait Schema: Copy {
    /// How the value divides into parts.
    fn shape(self) -> MergeShape<Self>;

    /// The type of a member of a struct; `None` if the struct has no such member.
    fn field(self, name: &str) -> Option<Self>;

    /// True if the struct declares that member. A member that it only preserves is like an entry of a map.
    fn names(self, _name: &str) -> bool {
        true
    }

    /// The members that identify items of a [`MergeShape::Keyed`] list, with their defaults.
    fn keys(self) -> ListKeys;
}

/// The key members of a list with their defaults, see [`Schema::keys`].
pub type ListKeys = Cow<'static, [(Box<str>, Option<Value>)]>;

/// How a value divides into parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeShape<S> {
    /// A scalar: it has no parts.
    Scalar(Scalar),
    /// A value of any type that merges as one.
    Atomic,
    /// An object with declared members, see [`Schema::field`].
    Struct,
    /// An object whose members can have any names.
    Map(S),
    /// A list of unique scalars.
    Set(S),
    /// A list of objects that key members identify, see [`Schema::keys`].
    Keyed(S),
    /// Unknown. Objects have their members as parts, all other values are atomic.
    Unknown,
}

/// The type of a scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// Text.
    String,
    /// A number.
    Number,
    /// A boolean.
    Bool,
    /// Any scalar.
    Any,
}

/// The schema of objects whose types are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownSchema;

impl Schema for UnknownSchema {
    fn shape(self) -> MergeShape<UnknownSchema> {
        MergeShape::Unknown
    }

    fn field(self, _name: &str) -> Option<UnknownSchema> {
        Some(UnknownSchema)
    }

    fn keys(self) -> ListKeys {
        ListKeys::default()
    }
}

/// A part of a value, with its type.
pub(crate) struct ValuePart<'a, S> {
    pub(crate) element: PathElement<'a>,
    pub(crate) value: &'a Value,
    pub(crate) schema: S,
    /// True for a member that the struct declares.
    pub(crate) named: bool,
}

/// The parts of a value; `None` if it is atomic. Items without a valid key are reported to `wrong` and left out.
pub(crate) fn parts<'a, S: Schema>(
    value: &'a Value,
    schema: S,
    wrong: &mut dyn FnMut(String),
) -> Option<Vec<ValuePart<'a, S>>> {
    let shape = schema.shape();
    match (shape, value) {
        (MergeShape::Scalar(_) | MergeShape::Atomic, _) => None,
        (MergeShape::Struct | MergeShape::Map(_) | MergeShape::Unknown, Value::Object(members)) => {
            let children = members.iter().filter_map(|(name, value)| {
                let (schema, named) = match shape {
                    MergeShape::Map(item) => (Some(item), false),
                    MergeShape::Struct => (schema.field(name), schema.names(name)),
                    _ => (Some(schema), false),
                };
                let Some(schema) = schema else {
                    wrong(format!(".{name}: field not declared in schema"));
                    return None;
                };
                Some(ValuePart {
                    element: PathElement::field(name),
                    value,
                    schema,
                    named,
                })
            });
            Some(gathered(children, members.len()))
        }
        (MergeShape::Set(item), Value::Array(values)) => {
            let children = values.iter().enumerate().filter_map(|(at, value)| {
                let odd = match value {
                    Value::Object(_) => {
                        "associative list without keys has an element that's a map type"
                    }
                    Value::Array(_) => "not supported: associative list with lists as elements",
                    Value::Null => {
                        "associative list without keys has an element that's an explicit null"
                    }
                    value => {
                        return Some(ValuePart {
                            element: PathElement::Value(ElementValue::Borrowed(value)),
                            value,
                            schema: item,
                            named: false,
                        });
                    }
                };
                wrong(format!(": element {at}: {odd}"));
                None
            });
            Some(gathered(children, values.len()))
        }
        (MergeShape::Keyed(item), Value::Array(values)) => {
            let keys = schema.keys();
            let children =
                values
                    .iter()
                    .enumerate()
                    .filter_map(|(at, value)| match key(value, &keys) {
                        Ok(element) => Some(ValuePart {
                            element,
                            value,
                            schema: item,
                            named: false,
                        }),
                        Err(why) => {
                            wrong(format!(": element {at}: {why}"));
                            None
                        }
                    });
            Some(gathered(children, values.len()))
        }
        _ => None,
    }
}

/// Collects items with a capacity for all, because mostly none is left out.
fn gathered<T>(items: impl Iterator<Item = T>, most: usize) -> Vec<T> {
    let mut gathered = Vec::with_capacity(most);
    gathered.extend(items);
    gathered
}

/// The element that identifies an item of a keyed list.
pub(crate) fn key<'a>(
    value: &'a Value,
    keys: &[(Box<str>, Option<Value>)],
) -> Result<PathElement<'a>, String> {
    let members = match value {
        Value::Object(members) => members,
        Value::Null => {
            return Err("associative list with keys may not have a null element".to_owned());
        }
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let values = keys.iter().filter_map(|(name, default)| {
        if let Some((name, value)) = members.get_key_value(name) {
            return Some((Cow::Borrowed(&**name), ElementValue::Borrowed(value)));
        }
        let default = default.clone()?;
        Some((Cow::Owned(String::from(&**name)), default.into()))
    });
    let values = gathered(values, keys.len());
    if values.is_empty() {
        let names: Vec<_> = keys.iter().map(|(name, _)| format!("{name:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    Ok(PathElement::key(values))
}

/// True if two items of a list have the same key values.
pub(crate) fn same_key(one: &Value, two: &Value, keys: &[(Box<str>, Option<Value>)]) -> bool {
    let (Value::Object(one), Value::Object(two)) = (one, two) else {
        return false;
    };
    let mut any = false;
    let same = keys.iter().all(|(name, default)| {
        let value = one.get(name).or(default.as_ref());
        any |= value.is_some();
        value == two.get(name).or(default.as_ref())
    });
    same && any
}
