//! [`Meta`], the metadata of objects: read with upstream's error messages, checked, and written in upstream's order (W138).

use std::collections::BTreeMap;

use serde::Serialize;
use tidings_api::validate::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER};
use tidings_api::{FieldError, FieldErrors, validate};
use tidings_go::quote;
use tidings_json::{Map, Touched, Value};
use tidings_merge::Managed;
use tidings_schema::{FieldPath, fit};

use super::name_rule::NameRule;

/// The most owner references that a warning about duplicates lists.
const REPEATED_MAX: usize = 100;

/// The metadata of an object. The resourceVersion is not stored in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// `name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `generateName`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub generate_name: String,
    /// `namespace`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// `uid`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The resourceVersion that the client sent.
    #[serde(skip)]
    pub resource_version: String,
    /// `generation`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// `creationTimestamp`, in whole seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    /// `deletionTimestamp`, in whole seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    /// `deletionGracePeriodSeconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    /// `labels`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// `annotations`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// `ownerReferences`, as JSON.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<Value>,
    /// `finalizers`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// `managedFields`. Written last, see [`Meta::write`].
    #[serde(skip)]
    pub managed_fields: Managed,
    /// The managedFields that the client sent, until the write decides whether to use them.
    #[serde(skip)]
    pub managed_sent: Vec<Value>,
    /// The client asks to remove all managedFields (W157).
    #[serde(skip)]
    pub managed_reset: bool,
}

/// A text; empty if it is null.
fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        _ => String::new(),
    }
}

/// A time in RFC 3339, normalised to seconds in UTC; `None` if it is null.
fn time(value: &Value) -> Option<String> {
    let time = tidings_go::parse_time(value.as_str()?).ok()?;
    Some(tidings_go::rfc3339(time))
}

/// A map of texts; empty if it is null.
pub(crate) fn texts(value: Value) -> BTreeMap<String, String> {
    let members = match value {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    let text = |(name, value)| (name, text(value));
    members.into_iter().map(text).collect()
}

/// A list; empty if it is null.
fn array(value: Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values,
        _ => Vec::new(),
    }
}

impl Meta {
    /// Reads metadata that stands at the path `at` of a document. Unknown members are left out, and their paths are appended to
    /// `unknown`. Parts that are not in `touched` have been checked before.
    ///
    /// # Errors
    /// With Go's message about the first value of another type.
    pub fn read(
        members: Map,
        at: &FieldPath<'_>,
        touched: &Touched,
        unknown: &mut Vec<String>,
    ) -> Result<Meta, String> {
        let mut meta = Meta::default();
        let schema = tidings_schema::find_type("meta/v1", "ObjectMeta");
        for (name, mut value) in members {
            if let Some(owner) = schema
                && let Some(touched) = touched.member(&name)
            {
                let path = FieldPath::Member(at, &name);
                match owner.field(&name) {
                    Some(field) => fit(&mut value, field, owner, &path, touched, unknown)?,
                    None => path.note(unknown),
                }
            }
            meta.set(&name, value);
        }
        Ok(meta)
    }

    /// Sets a member whose type has been checked. Null is the same as absent.
    fn set(&mut self, name: &str, value: Value) {
        match name {
            "name" => self.name = text(value),
            "generateName" => self.generate_name = text(value),
            "namespace" => self.namespace = text(value),
            "uid" => self.uid = text(value),
            "resourceVersion" => self.resource_version = text(value),
            "generation" => self.generation = value.as_i64().filter(|number| *number != 0),
            "creationTimestamp" => self.creation_timestamp = time(&value),
            "deletionTimestamp" => self.deletion_timestamp = time(&value),
            "deletionGracePeriodSeconds" => self.deletion_grace_period_seconds = value.as_i64(),
            "labels" => self.labels = texts(value),
            "annotations" => self.annotations = texts(value),
            "ownerReferences" => {
                self.owner_references = array(value);
                for reference in &mut self.owner_references {
                    if reference.is_null() {
                        *reference = Map::new().into();
                    }
                }
            }
            "finalizers" => self.finalizers = array(value).into_iter().map(text).collect(),
            "managedFields" if value.is_null() => {}
            "managedFields" => {
                let entries = array(value);
                // A list of nothing but empty entries removes all managedFields (W157).
                self.managed_reset = entries
                    .iter()
                    .all(|entry| entry.as_object().is_none_or(Map::is_empty));
                if !self.managed_reset {
                    self.managed_sent = entries;
                }
            }
            // `selfLink` is never stored.
            _ => {}
        }
    }

    /// Appends the metadata as JSON.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub fn write(&self, bytes: &mut Vec<u8>) -> serde_json::Result<()> {
        tidings_go::write_json(bytes, self)?;
        self.write_owners(bytes);
        Ok(())
    }

    /// Inserts managedFields into metadata that has just been appended without them.
    pub(crate) fn write_owners(&self, bytes: &mut Vec<u8>) {
        if self.managed_fields.0.is_empty() {
            return;
        }
        let end = bytes.pop();
        if !bytes.ends_with(b"{") {
            bytes.push(b',');
        }
        bytes.extend_from_slice(b"\"managedFields\":");
        bytes.extend_from_slice(self.managed_fields.encode().as_bytes());
        bytes.extend(end);
    }

    /// Removes duplicate owner references, and returns a warning with their uids (W141). Upstream words the warning differently
    /// for patches.
    pub fn deduplicate_owners(&mut self, patched: bool) -> Option<String> {
        let mut seen = std::collections::HashSet::new();
        let mut repeated: Vec<String> = Vec::new();
        self.owner_references.retain(|reference| {
            let mut sorted = reference.clone();
            sorted.sort_all_objects(); // the order of members makes no difference
            let first = seen.insert(sorted.to_string());
            if !first && repeated.len() < REPEATED_MAX {
                let uid = reference.get("uid").and_then(Value::as_str);
                repeated.push(uid.unwrap_or_default().to_owned());
            }
            first
        });
        if repeated.is_empty() {
            return None;
        }
        let when = if patched {
            " after mutating admission happens"
        } else {
            ""
        };
        Some(format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may \
             reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            repeated.join(", ")
        ))
    }

    /// Appends the errors of the metadata (W169, W170). `bare_finalizers` allows finalizers without a domain.
    pub fn validate(&self, name_rule: NameRule, bare_finalizers: bool, errors: &mut FieldErrors) {
        if !self.generate_name.is_empty() {
            // A dash at the end is allowed: the generated suffix follows it.
            let prefix = self
                .generate_name
                .strip_suffix('-')
                .map_or(self.generate_name.clone(), |head| format!("{head}a"));
            let wrong = name_rule.check(&prefix);
            errors.extend(
                wrong.into_iter().map(|why| {
                    FieldError::invalid("metadata.generateName", &self.generate_name, why)
                }),
            );
        }
        if self.name.is_empty() {
            errors.push(FieldError::required(
                "metadata.name",
                "name or generateName is required",
            ));
        } else {
            let wrong = name_rule.check(&self.name);
            errors.extend(
                wrong
                    .into_iter()
                    .map(|why| FieldError::invalid("metadata.name", &self.name, why)),
            );
        }
        errors.extend(validate::generation("metadata.generation", self.generation));
        let texts = |(key, value)| -> (&str, &str) { (String::as_str(key), String::as_str(value)) };
        let labels = self.labels.iter().map(texts);
        errors.extend(validate::labels("metadata.labels", labels));
        let annotations = self.annotations.iter().map(texts);
        errors.extend(validate::annotations("metadata.annotations", annotations));
        let owners = &self.owner_references;
        errors.extend(validate::owner_references(
            "metadata.ownerReferences",
            owners,
        ));
        let finalizers: Vec<_> = self.finalizers.iter().map(String::as_str).collect();
        errors.extend(validate::finalizers("metadata.finalizers", &finalizers));
        for (index, finalizer) in self.finalizers.iter().enumerate() {
            let bare = !finalizer.contains('/') && !bare_finalizers;
            if bare && !STANDARD_FINALIZERS.contains(&finalizer.as_str()) {
                let why = "name is neither a standard finalizer name nor is it fully qualified";
                errors.push(FieldError::invalid(
                    format!("metadata.finalizers[{index}]"),
                    finalizer,
                    why,
                ));
            }
        }
    }

    /// Appends errors for changes that an update may not make.
    pub(crate) fn validate_update(&self, old: &Meta, errors: &mut FieldErrors) {
        if self.deletion_timestamp != old.deletion_timestamp {
            let value = self.deletion_timestamp.as_deref().unwrap_or_default();
            let path = "metadata.deletionTimestamp";
            errors.push(FieldError::invalid(path, value, "field is immutable"));
        }
        if let Some(grace) = self.deletion_grace_period_seconds
            && self.deletion_grace_period_seconds != old.deletion_grace_period_seconds
        {
            let path = "metadata.deletionGracePeriodSeconds";
            errors.push(FieldError::invalid_value(path, grace, "field is immutable"));
        }
        if old.deletion_timestamp.is_none() {
            return;
        }
        let finalizers = self.finalizers.iter();
        let mut added: Vec<&String> = finalizers
            .filter(|name| !old.finalizers.contains(name))
            .collect();
        added.sort();
        if !added.is_empty() {
            let quoted: Vec<String> = added.iter().map(|finalizer| quote(finalizer)).collect();
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    quoted.join(", ")
                ),
            ));
        }
    }

    /// True if the object is being deleted and has no finalizers and no grace period left (W147).
    pub fn may_go(&self) -> bool {
        self.deletion_timestamp.is_some()
            && self.finalizers.is_empty()
            && self.deletion_grace_period_seconds.unwrap_or(0) == 0
    }
}

/// The finalizer in the spec that holds a namespace until it is empty.
pub const NAMESPACE_FINALIZER: &str = "kubernetes";

/// Finalizers of Kubernetes itself, which have no domain.
pub(crate) const STANDARD_FINALIZERS: [&str; 3] =
    [NAMESPACE_FINALIZER, ORPHAN_FINALIZER, FOREGROUND_FINALIZER];
