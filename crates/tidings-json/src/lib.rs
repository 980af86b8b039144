//! JSON as a tree that is cheap to make, to compare and to change.
//!
//! [`Value`] is what `serde_json::Value` is, with the same names, and members stay in their order, also when one is removed. Only its
//! [`Map`] is another one: most objects have a few members, which are found faster by looking at each than by hashing, and a list of
//! them is made with one allocation. Large ones have an index.
//!
//! Reading and writing are serde_json's: `serde_json::from_slice::<Value>(…)` and `serde_json::to_vec(&value)`. [`Plain`] reads what is
//! written without frills, faster; [`Value::write`] writes as Go does.
//!
//! ```
//! use tidings_json::{Value, json};
//!
//! let mut pod: Value = serde_json::from_str(r#"{"kind":"Pod","spec":{"hostNetwork":true}}"#).unwrap();
//! pod["spec"]["nodeName"] = json!("a");
//! assert_eq!(pod.to_string(), r#"{"kind":"Pod","spec":{"hostNetwork":true,"nodeName":"a"}}"#);
//! assert_eq!(pod["metadata"]["name"], Value::Null);
//! ```

mod convert;
mod plain;
mod serial;
mod value;
mod write;

pub use plain::Plain;
pub use serde_json::Number;
pub use value::map::{self, Map};
pub use value::{Index, Value};
pub use write::{Sink, is_plain, write_string};

#[doc(hidden)]
pub use serde_json as __serde_json;

/// Makes a [`Value`] of JSON with expressions in it.
#[macro_export]
macro_rules! json {
    ($($json:tt)+) => {
        $crate::Value::from($crate::__serde_json::json!($($json)+))
    };
}

/// Makes a tree of something else.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn to_value(value: impl serde::Serialize) -> serde_json::Result<Value> {
    serde_json::to_value(value).map(Value::from)
}

/// Makes something else of a tree.
///
/// # Errors
/// If it is not of that form.
pub fn from_value<T: serde::de::DeserializeOwned>(value: Value) -> serde_json::Result<T> {
    serde_json::from_value(value.into())
}
