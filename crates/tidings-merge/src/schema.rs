//! What is known about the types of an object.

use std::borrow::Cow;

use tidings_json::Value;

use crate::element::{Element, Part};

/// What the types say about the value at some place of an object.
///
/// It is a handle: cheap to copy, such as a reference into a table of types.
pub trait Schema: Copy {
    /// How the value is taken apart.
    fn shape(self) -> Shape<Self>;

    /// The member of a struct, if there is one of that name.
    fn field(self, name: &str) -> Option<Self>;

    /// True if a struct names that member. One that it keeps without knowing it is like an entry of a map.
    fn names(self, _name: &str) -> bool {
        true
    }

    /// The members by which items of a [`Shape::Keyed`] list are told apart, with their defaults.
    fn keys(self) -> Keys;
}

/// See [`Schema::keys`].
pub type Keys = Cow<'static, [(Box<str>, Option<Value>)]>;

/// How a value is taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape<S> {
    /// Not at all.
    Scalar(Scalar),
    /// Not at all, whatever is in it.
    Atomic,
    /// By its members, see [`Schema::field`].
    Struct,
    /// By its members, which can have any names.
    Map(S),
    /// By its items, which are scalars.
    Set(S),
    /// By its items, which are told apart by some of their members, see [`Schema::keys`].
    Keyed(S),
    /// Nothing is known. Objects are taken apart, all else is not.
    Unknown,
}

/// What a scalar has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// Text.
    String,
    /// A number.
    Number,
    /// True or false.
    Bool,
    /// Any of them.
    Any,
}

/// Nothing is known about an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unknown;

impl Schema for Unknown {
    fn shape(self) -> Shape<Unknown> {
        Shape::Unknown
    }

    fn field(self, _name: &str) -> Option<Unknown> {
        Some(Unknown)
    }

    fn keys(self) -> Keys {
        Keys::default()
    }
}

/// A part of a value.
pub(crate) struct Child<'a, S> {
    pub(crate) element: Element<'a>,
    pub(crate) value: &'a Value,
    pub(crate) schema: S,
    /// It is a member that the type names.
    pub(crate) named: bool,
}

/// The parts of a value; `None` if it is taken as one. Parts that cannot be told apart are reported and left out.
pub(crate) fn parts<'a, S: Schema>(
    value: &'a Value,
    schema: S,
    wrong: &mut dyn FnMut(String),
) -> Option<Vec<Child<'a, S>>> {
    let shape = schema.shape();
    match (shape, value) {
        (Shape::Scalar(_) | Shape::Atomic, _) => None,
        (Shape::Struct | Shape::Map(_) | Shape::Unknown, Value::Object(members)) => {
            let children = members.iter().filter_map(|(name, value)| {
                let (schema, named) = match shape {
                    Shape::Map(item) => (Some(item), false),
                    Shape::Struct => (schema.field(name), schema.names(name)),
                    _ => (Some(schema), false),
                };
                let Some(schema) = schema else {
                    wrong(format!(".{name}: field not declared in schema"));
                    return None;
                };
                Some(Child {
                    element: Element::field(name),
                    value,
                    schema,
                    named,
                })
            });
            Some(gathered(children, members.len()))
        }
        (Shape::Set(item), Value::Array(values)) => {
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
                        return Some(Child {
                            element: Element::Value(Part::Borrowed(value)),
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
        (Shape::Keyed(item), Value::Array(values)) => {
            let keys = schema.keys();
            let children =
                values
                    .iter()
                    .enumerate()
                    .filter_map(|(at, value)| match key(value, &keys) {
                        Ok(element) => Some(Child {
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

/// Mostly nothing is left out, so there is room for all from the start.
fn gathered<T>(items: impl Iterator<Item = T>, most: usize) -> Vec<T> {
    let mut gathered = Vec::with_capacity(most);
    gathered.extend(items);
    gathered
}

/// What tells an item of a list from the others.
pub(crate) fn key<'a>(
    value: &'a Value,
    keys: &[(Box<str>, Option<Value>)],
) -> Result<Element<'a>, String> {
    let members = match value {
        Value::Object(members) => members,
        Value::Null => {
            return Err("associative list with keys may not have a null element".to_owned());
        }
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let values = keys.iter().filter_map(|(name, default)| {
        if let Some((name, value)) = members.get_key_value(name) {
            return Some((Cow::Borrowed(&**name), Part::Borrowed(value)));
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
    Ok(Element::key(values))
}

/// True if two items of a list are told from the others by the same values.
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
