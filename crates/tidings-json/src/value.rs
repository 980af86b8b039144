//! A JSON value.

pub mod map;

use std::fmt;
use std::ops;

use crate::Number;
use map::Map;

/// A JSON value.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Value {
    /// `null`.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Value>),
    /// An object.
    Object(Map),
}

/// The value of members and elements that do not exist.
static NULL: Value = Value::Null;

macro_rules! is_and_as {
    ($($variant:ident, $is:ident, $as:ident -> $type:ty;)*) => {$(
        #[doc = concat!("True if it is [`Value::", stringify!($variant), "`].")]
        pub fn $is(&self) -> bool {
            matches!(self, Value::$variant(_))
        }

        #[doc = concat!("What it is, if it is [`Value::", stringify!($variant), "`].")]
        pub fn $as(&self) -> Option<&$type> {
            match self {
                Value::$variant(value) => Some(value),
                _ => None,
            }
        }
    )*};
}

impl Value {
    is_and_as! {
        String, is_string, as_str -> str;
        Number, is_number, as_number -> Number;
        Array, is_array, as_array -> Vec<Value>;
        Object, is_object, as_object -> Map;
    }

    /// True for `null`.
    #[inline]
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// True for `true` and `false`.
    #[inline]
    pub fn is_boolean(&self) -> bool {
        matches!(self, Value::Bool(_))
    }

    /// The boolean; `None` for other values.
    #[inline]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The number if it is an integer in the range of `i64`.
    #[inline]
    pub fn as_i64(&self) -> Option<i64> {
        self.as_number()?.as_i64()
    }

    /// The number if it is an integer in the range of `u64`.
    #[inline]
    pub fn as_u64(&self) -> Option<u64> {
        self.as_number()?.as_u64()
    }

    /// The number as a float; `None` for other values.
    #[inline]
    pub fn as_f64(&self) -> Option<f64> {
        self.as_number()?.as_f64()
    }

    /// True for integers in the range of `i64`.
    #[inline]
    pub fn is_i64(&self) -> bool {
        self.as_number().is_some_and(Number::is_i64)
    }

    /// True for integers in the range of `u64`.
    #[inline]
    pub fn is_u64(&self) -> bool {
        self.as_number().is_some_and(Number::is_u64)
    }

    /// True for numbers that are floats.
    #[inline]
    pub fn is_f64(&self) -> bool {
        self.as_number().is_some_and(Number::is_f64)
    }

    /// The elements of an array, mutable.
    #[inline]
    pub fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        match self {
            Value::Array(values) => Some(values),
            _ => None,
        }
    }

    /// The members of an object, mutable.
    #[inline]
    pub fn as_object_mut(&mut self) -> Option<&mut Map> {
        match self {
            Value::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The member with a name, or the element at an index.
    #[inline]
    pub fn get(&self, index: impl Index) -> Option<&Value> {
        index.of(self)
    }

    /// The member with a name, or the element at an index, mutable.
    #[inline]
    pub fn get_mut(&mut self, index: impl Index) -> Option<&mut Value> {
        index.of_mut(self)
    }

    /// The value that a JSON pointer (RFC 6901) points to.
    #[inline]
    pub fn pointer(&self, pointer: &str) -> Option<&Value> {
        steps(pointer)?.try_fold(self, |value, step| match value {
            Value::Object(members) => members.get(&step),
            Value::Array(values) => values.get(place(&step)?),
            _ => None,
        })
    }

    /// The value that a JSON pointer points to, mutable.
    #[inline]
    pub fn pointer_mut(&mut self, pointer: &str) -> Option<&mut Value> {
        steps(pointer)?.try_fold(self, |value, step| match value {
            Value::Object(members) => members.get_mut(&step),
            Value::Array(values) => values.get_mut(place(&step)?),
            _ => None,
        })
    }

    /// Takes the value and leaves `null`.
    #[inline]
    pub fn take(&mut self) -> Value {
        std::mem::take(self)
    }

    /// Sorts the members of this value and of all values in it by name.
    #[inline]
    pub fn sort_all_objects(&mut self) {
        match self {
            Value::Object(members) => {
                members.sort_keys();
                members.values_mut().for_each(Value::sort_all_objects);
            }
            Value::Array(values) => values.iter_mut().for_each(Value::sort_all_objects),
            _ => {}
        }
    }
}

/// The unescaped segments of a JSON pointer.
fn steps(pointer: &str) -> Option<impl Iterator<Item = String>> {
    let steps = match pointer {
        "" => None,
        pointer => Some(pointer.strip_prefix('/')?.split('/')),
    };
    let decoded = |step: &str| step.replace("~1", "/").replace("~0", "~");
    Some(steps.into_iter().flatten().map(decoded))
}

/// The array index of a pointer segment. Leading zeros and signs are not allowed.
fn place(step: &str) -> Option<usize> {
    let odd = step.starts_with('+') || (step.starts_with('0') && step.len() > 1);
    step.parse().ok().filter(|_| !odd)
}

/// Compact JSON.
impl fmt::Display for Value {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        f.write_str(&json)
    }
}

impl fmt::Debug for Value {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The name of a member or the index of an element.
pub trait Index {
    #[doc(hidden)]
    fn of<'v>(&self, value: &'v Value) -> Option<&'v Value>;

    #[doc(hidden)]
    fn of_mut<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value>;

    #[doc(hidden)]
    fn or_insert<'v>(&self, value: &'v mut Value) -> &'v mut Value;
}

impl Index for str {
    #[inline]
    fn of<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        value.as_object()?.get(self)
    }

    #[inline]
    fn of_mut<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        value.as_object_mut()?.get_mut(self)
    }

    #[inline]
    fn or_insert<'v>(&self, value: &'v mut Value) -> &'v mut Value {
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        match value {
            Value::Object(members) => members.entry(self).or_insert(Value::Null),
            other => panic!("no member {self:?} can be set in {other}"),
        }
    }
}

impl Index for String {
    #[inline]
    fn of<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.as_str().of(value)
    }

    #[inline]
    fn of_mut<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        self.as_str().of_mut(value)
    }

    #[inline]
    fn or_insert<'v>(&self, value: &'v mut Value) -> &'v mut Value {
        self.as_str().or_insert(value)
    }
}

impl Index for usize {
    #[inline]
    fn of<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        value.as_array()?.get(*self)
    }

    #[inline]
    fn of_mut<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        value.as_array_mut()?.get_mut(*self)
    }

    #[inline]
    fn or_insert<'v>(&self, value: &'v mut Value) -> &'v mut Value {
        match value {
            Value::Array(values) => &mut values[*self],
            other => panic!("there is no item {self} of {other}"),
        }
    }
}

impl<I: Index + ?Sized> Index for &I {
    #[inline]
    fn of<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        (**self).of(value)
    }

    #[inline]
    fn of_mut<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        (**self).of_mut(value)
    }

    #[inline]
    fn or_insert<'v>(&self, value: &'v mut Value) -> &'v mut Value {
        (**self).or_insert(value)
    }
}

/// Members and elements that do not exist are `null`.
impl<I: Index> ops::Index<I> for Value {
    type Output = Value;

    #[inline]
    fn index(&self, index: I) -> &Value {
        index.of(self).unwrap_or(&NULL)
    }
}

/// Adds a missing member as `null`. Panics if the value is neither an object, nor `null`, nor an array with that element.
impl<I: Index> ops::IndexMut<I> for Value {
    #[inline]
    fn index_mut(&mut self, index: I) -> &mut Value {
        index.or_insert(self)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Value, json};

    #[test]
    fn parts_are_found_as_serde_json_finds_them() {
        let text = r#"{"a":{"b/c":[1,{"~":"x"}],"":null},"0":[true,2.5,-1,"é\n"]}"#;
        let own: Value = serde_json::from_str(text).unwrap();
        let other: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(own.to_string(), other.to_string());
        assert_eq!(serde_json::Value::from(own.clone()), other);
        assert_eq!(own, Value::from(other.clone()));
        for pointer in [
            "",
            "/",
            "/a",
            "/a/",
            "/a/b~1c/1/~0",
            "/a/b~1c/01",
            "/a/b~1c/+1",
            "/a/b~1c/2",
            "/0/3",
            "/0/3/x",
            "a",
            "/0/0",
        ] {
            let expected = other.pointer(pointer).cloned().map(Value::from);
            assert_eq!(own.pointer(pointer), expected.as_ref(), "{pointer}");
        }
        assert_eq!(own["a"]["b/c"][1]["~"], "x");
        assert_eq!(own["nowhere"][7], Value::Null);
        assert_eq!(own["0"].get(1).and_then(Value::as_f64), Some(2.5));
    }

    #[test]
    fn members_are_added_where_they_are_set() {
        let mut value = json!({"a": [1]});
        value["b"]["c"] = json!(2);
        value["a"][0] = json!(null);
        assert_eq!(value.to_string(), r#"{"a":[null],"b":{"c":2}}"#);
        assert_eq!(value["b"].take(), json!({"c": 2}));
        assert_eq!(value, json!({"b": null, "a": [null]}));
    }
}
