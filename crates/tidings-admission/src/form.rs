//! What objects of the API say, as far as several of their kinds share it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use tidings_api::LabelSelector;
use tidings_json::Value;

/// Why an object cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotReadable(pub String);

impl std::fmt::Display for NotReadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotReadable {}

/// What is done if a webhook or policy fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum FailurePolicy {
    /// The request goes on.
    Ignore,
    /// The request is refused.
    #[default]
    Fail,
}

/// How rules are compared with requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum MatchPolicy {
    /// As they stand.
    Exact,
    /// Also if the rule names another version of the same resource.
    #[default]
    Equivalent,
}

pub(crate) fn read<T: DeserializeOwned>(value: &Value) -> Result<T, NotReadable> {
    let read = serde_json::from_value(value.clone().into());
    read.map_err(|error| NotReadable(error.to_string()))
}

/// What metadata says of an object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Meta {
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// A selector; one that is not there selects everything.
pub(crate) fn selector<'de, D: Deserializer<'de>>(from: D) -> Result<LabelSelector, D::Error> {
    let json = Option::<serde_json::Value>::deserialize(from)?;
    let json = Value::from(json.unwrap_or_default());
    LabelSelector::of_json(&json).map_err(serde::de::Error::custom)
}

/// A member that may be null.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}
