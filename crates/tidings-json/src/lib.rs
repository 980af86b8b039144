#![doc = include_str!("../README.md")]

mod convert;
mod lookup;
mod outline;
mod plain;
mod pretty;
mod scan;
mod serial;
mod span;
mod touched;
mod value;
mod write;

pub use lookup::{find_member, find_members};
pub use outline::{NotJson, Outline, OutlineChildren, OutlineIndex};
pub use plain::Plain;
pub use pretty::{Indenter, indent};
pub use scan::{ScanError, ScanEvents, Scanner, ValueKind};
pub use serde_json::Number;
pub use span::{Span, unquote};
pub use touched::{Touched, TouchedPart};
pub use value::map::{self, Map};
pub use value::{Index, Value};
pub use write::{JsonOutput, is_plain, write_string};

#[doc(hidden)]
pub use serde_json as __serde_json;

/// Makes a [`Value`] of JSON with expressions in it.
#[macro_export]
macro_rules! json {
    ($($json:tt)+) => {
        $crate::Value::from($crate::__serde_json::json!($($json)+))
    };
}

/// Converts a value that serde can write to a [`Value`].
///
/// # Errors
/// If it cannot be written as JSON.
pub fn to_value(value: impl serde::Serialize) -> serde_json::Result<Value> {
    serde_json::to_value(value).map(Value::from)
}

/// Converts a [`Value`] to a type that serde can read.
///
/// # Errors
/// If the value does not fit the type.
pub fn from_value<T: serde::de::DeserializeOwned>(value: Value) -> serde_json::Result<T> {
    serde_json::from_value(value.into())
}
