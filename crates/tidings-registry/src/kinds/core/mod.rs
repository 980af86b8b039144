//! The kinds of the group without a name, which upstream calls core.
//!
//! Below the list stands what two kinds share: checks of the data of ConfigMaps and Secrets, and columns of PersistentVolumes and
//! PersistentVolumeClaims.

mod config_map;
pub(super) mod endpoints;
pub(super) mod event;
pub(super) mod limit_range;
mod namespace;
mod node;
pub(super) mod persistent_volume;
pub(super) mod persistent_volume_claim;
pub(super) mod pod;
mod pod_template;
pub(super) mod replication_controller;
mod resource_quota;
mod secret;
pub(super) mod service;
mod service_account;

use tidings_api::{FieldError, FieldErrors};
use tidings_json::Value;

use crate::model::{Draft, Kind};
use crate::table::fields::{is_deleting, text, text_or, texts};
use crate::table::{Column, string, wide};

fn plain() -> Kind {
    Kind {
        go_package: "core",
        ..Kind::plain()
    }
}

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        config_map::kind(),
        endpoints::kind(),
        event::kind(),
        limit_range::kind(),
        namespace::kind(),
        node::kind(),
        persistent_volume_claim::kind(),
        persistent_volume::kind(),
        pod::kind(),
        pod_template::kind(),
        replication_controller::kind(),
        resource_quota::kind(),
        secret::kind(),
        service_account::kind(),
        service::kind(),
    ]
}

/// The largest total size of the values of a ConfigMap or Secret, in bytes (W171).
const DATA_BYTES_MAX: usize = 1 << 20;

/// Refuses changes of a ConfigMap or Secret with `immutable: true`.
fn check_immutable(new: &Draft, old: &Draft, errors: &mut FieldErrors) {
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

/// The number of bytes that a base64 text encodes, rounded up to a multiple of three.
fn decoded_len(text: &str) -> usize {
    text.len() / 4 * 3
}

/// Refuses invalid keys of a data member, and returns the total size of its values.
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

/// The reason why a key of a ConfigMap or Secret is invalid.
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

const CAPACITY: Column = string("Capacity", "The volume's size.");

const ACCESS_MODES: Column = string("Access Modes", "How the volume can be mounted.");

const STORAGE_CLASS: Column = string("StorageClass", "The storage class.");

const ATTRIBUTES_CLASS: Column = string("VolumeAttributesClass", "The volume attributes class.");

const VOLUME_MODE: Column = wide("VolumeMode", "Whether it is a file system or a raw device.");

/// The Status column of a volume or claim.
fn volume_phase(object: &Value) -> &str {
    if is_deleting(object) {
        "Terminating"
    } else {
        text_or(object, &["status", "phase"], "Pending")
    }
}

/// The access modes at a path, abbreviated.
fn access_modes(object: &Value, path: &[&str]) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let modes = texts(object, path);
    let short: Vec<&str> = SHORT
        .into_iter()
        .filter(|(mode, _)| modes.contains(mode))
        .map(|(_, short)| short)
        .collect();
    short.join(",")
}

/// The storage class: the annotation is older than the field, and counts first.
fn storage_class(object: &Value) -> &str {
    text_or(
        object,
        &[
            "metadata",
            "annotations",
            "volume.beta.kubernetes.io/storage-class",
        ],
        text(object, &["spec", "storageClassName"]),
    )
}

fn attributes_class(object: &Value) -> &str {
    text_or(object, &["spec", "volumeAttributesClassName"], "<unset>")
}

fn volume_mode(object: &Value) -> &str {
    text_or(object, &["spec", "volumeMode"], "Filesystem")
}
