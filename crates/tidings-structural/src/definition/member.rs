//! Reads members of JSON objects. A member that is absent, null or of the wrong type reads as empty; `form` has checked types.

use tidings_json::Value;

/// A member that is present and not null.
pub(super) fn get<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    value.get(name).filter(|member| !member.is_null())
}

/// The member at a path of names.
pub(super) fn at<'a>(value: &'a Value, names: &[&str]) -> Option<&'a Value> {
    names.iter().try_fold(value, |value, name| get(value, name))
}

pub(super) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn flag(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or(false)
}

pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value
        .get(name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

pub(super) fn texts<'a>(value: &'a Value, name: &str) -> Vec<&'a str> {
    list(value, name).iter().filter_map(Value::as_str).collect()
}

/// The name of the storage version: the first that has `storage: true`.
pub(super) fn storage_version(crd: &Value) -> Option<&str> {
    let versions = crd
        .get("spec")
        .map_or(&[][..], |spec| list(spec, "versions"));
    versions
        .iter()
        .find(|version| flag(version, "storage"))
        .map(|version| text(version, "name"))
}
