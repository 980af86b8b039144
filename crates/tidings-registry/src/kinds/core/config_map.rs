//! ConfigMaps, and the rules that they share with Secrets.

use std::sync::Arc;

use tidings_api::{FieldError, FieldErrors};
use tidings_json::Value;

use crate::draft::Draft;
use crate::kind::{Kind, Subresource};
use crate::kinds::names;
use crate::printers::core as printers;
use crate::strategy::Strategy;

/// ConfigMaps and Secrets may hold this much (W171).
const DATA_BYTES_MAX: usize = 1 << 20;

pub(super) fn kind() -> Kind {
    Kind {
        kind: "ConfigMap".into(),
        plural: "configmaps".into(),
        printer: &printers::CONFIG_MAP,
        short_names: names(["cm"]),
        strategy: Arc::new(ConfigMaps),
        ..super::plain()
    }
}

#[derive(Debug)]
struct ConfigMaps;

impl Strategy for ConfigMaps {
    fn check_update(&self, new: &Draft, old: &Draft, errors: &mut FieldErrors) {
        check_immutable(new, old, errors);
    }

    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        _: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        let text = check_keys(new, "data", str::len, errors);
        let binary = check_keys(new, "binaryData", decoded_len, errors);
        if text + binary > DATA_BYTES_MAX {
            errors.push(FieldError::too_long("[]", DATA_BYTES_MAX));
        }
    }
}

/// Refuses changes of data that is marked as immutable.
pub(super) fn check_immutable(new: &Draft, old: &Draft, errors: &mut FieldErrors) {
    const FIXED: &str = "field is immutable when `immutable` is set";
    let is_marked = |draft: &Draft| draft.members.get("immutable") == Some(&Value::Bool(true));
    if !is_marked(old) {
        return;
    }
    if !is_marked(new) {
        errors.push(FieldError::forbidden("immutable", FIXED));
    }
    for member in ["data", "binaryData"] {
        if new.members.get(member) != old.members.get(member) {
            errors.push(FieldError::forbidden(member, FIXED));
        }
    }
}

/// Refuses too much data in a Secret.
pub(super) fn check_secret_data(draft: &Draft, errors: &mut FieldErrors) {
    if check_keys(draft, "data", decoded_len, errors) > DATA_BYTES_MAX {
        errors.push(FieldError::too_long("data", DATA_BYTES_MAX));
    }
}

/// The bytes of a base64 text.
fn decoded_len(text: &str) -> usize {
    text.len() / 4 * 3
}

/// Refuses keys that are none, and returns the size of the values.
fn check_keys(
    draft: &Draft,
    member: &str,
    size: fn(&str) -> usize,
    errors: &mut FieldErrors,
) -> usize {
    let entries = draft.members.get(member).and_then(Value::as_object);
    let mut bytes = 0;
    for (key, value) in entries.into_iter().flatten() {
        bytes += size(value.as_str().unwrap_or_default());
        if let Some(why) = wrong_key(key) {
            errors.push(FieldError::invalid(format!("{member}[{key}]"), key, why));
        }
        let both = member == "binaryData" && draft.at(&["data", key]).is_some();
        if both {
            let why = "duplicate of key present in binaryData";
            errors.push(FieldError::invalid(format!("data[{key}]"), key, why));
        }
    }
    bytes
}

fn wrong_key(key: &str) -> Option<String> {
    const FORM: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
                        'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
    if key.len() > 253 {
        return Some("must be no more than 253 characters".into());
    }
    let right = !key.is_empty()
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if !right {
        return Some(FORM.into());
    }
    match key {
        "." => Some("must not be '.'".into()),
        ".." => Some("must not be '..'".into()),
        key if key.starts_with("..") => Some("must not start with '..'".into()),
        _ => None,
    }
}
