//! `metadata`, read with the API server's error texts and written in its order (W138).

use std::collections::BTreeMap;

use serde::Serialize;
use tidings_api::{FieldError, FieldErrors, go, validate};
use tidings_json::{Map, Value};
use tidings_merge::{Managed, Touched};

use super::reading::{self, Place};
use super::{Kind, NameRule, Special, scalars};

/// Annotations may not take more than this, keys and values together (W170).
const ANNOTATION_BYTES_MAX: usize = 256 << 10;

/// A warning names at most so many owners that occur twice.
const REPEATED_MAX: usize = 100;

/// The metadata of an object, without its resourceVersion, which is not stored.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Meta {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) generate_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
    /// What the client sent.
    #[serde(skip)]
    pub(crate) resource_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) creation_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deletion_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deletion_grace_period_seconds: Option<i64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) owner_references: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) finalizers: Vec<String>,
    /// Comes last, see [`Meta::write`].
    #[serde(skip)]
    pub(crate) managed_fields: Managed,
    /// What the client sent of them, until it is known whether that counts.
    #[serde(skip)]
    pub(crate) managed_sent: Vec<Value>,
    /// The client wants to have no managedFields at all (W157).
    #[serde(skip)]
    pub(crate) managed_reset: bool,
}

/// What a JSON value is called in Go's errors.
pub(crate) fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// `json: cannot unmarshal …`.
pub(crate) fn mismatch(value: &Value, field: &str, go_type: &str) -> String {
    format!(
        "json: cannot unmarshal {} into Go struct field {field} of type {go_type}",
        go_kind(value)
    )
}

fn text(value: Value, field: &str) -> Result<String, String> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text),
        other => Err(mismatch(
            &other,
            &format!("ObjectMeta.metadata.{field}"),
            "string",
        )),
    }
}

fn integer(value: &Value, field: &str) -> Result<Option<i64>, String> {
    match value {
        Value::Null => Ok(None),
        value => match value.as_i64() {
            Some(number) => Ok(Some(number)),
            None => Err(mismatch(
                value,
                &format!("ObjectMeta.metadata.{field}"),
                "int64",
            )),
        },
    }
}

/// A time, as clients send it: RFC 3339, normalised to seconds in UTC.
fn time(value: Value, field: &str) -> Result<Option<String>, String> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => {
            let time = scalars::time(&text)?;
            Ok(Some(super::super::clock::rfc3339(time)))
        }
        other => Err(mismatch(
            &other,
            &format!("ObjectMeta.metadata.{field}"),
            "v1.Time",
        )),
    }
}

/// A map of text; `field` is as Go's errors name it.
pub(crate) fn strings(value: Value, field: &str) -> Result<BTreeMap<String, String>, String> {
    let members = match value {
        Value::Null => return Ok(BTreeMap::new()),
        Value::Object(members) => members,
        other => return Err(mismatch(&other, field, "map[string]string")),
    };
    let string = |(key, value)| match value {
        Value::String(text) => Ok((key, text)),
        Value::Null => Ok((key, String::new())),
        other => Err(mismatch(&other, field, "string")),
    };
    members.into_iter().map(string).collect()
}

fn array(value: Value, field: &str, go_type: &str) -> Result<Vec<Value>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(values) => Ok(values),
        other => Err(mismatch(
            &other,
            &format!("ObjectMeta.metadata.{field}"),
            go_type,
        )),
    }
}

impl Meta {
    /// Reads metadata. Members that do not exist are named in `unknown` and left out.
    ///
    /// `Err` is Go's message.
    pub(crate) fn read(members: Map, unknown: &mut Vec<String>) -> Result<Meta, String> {
        let mut meta = Meta::default();
        let schema = tidings_schema::find_type("meta/v1", "ObjectMeta");
        for (name, mut value) in members {
            if matches!(name.as_str(), "ownerReferences" | "managedFields")
                && let Some(owner) = schema
                && let Some(field) = owner.field(&name)
            {
                let metadata = Place::Member(&Place::Top, "metadata");
                let place = Place::Member(&metadata, &name);
                reading::fit(&mut value, field, owner, &place, &Touched::Whole, unknown)?;
            }
            match name.as_str() {
                "name" => meta.name = text(value, "name")?,
                "generateName" => meta.generate_name = text(value, "generateName")?,
                "namespace" => meta.namespace = text(value, "namespace")?,
                "uid" => meta.uid = text(value, "uid")?,
                "resourceVersion" => meta.resource_version = text(value, "resourceVersion")?,
                "selfLink" => drop(text(value, "selfLink")?),
                "generation" => {
                    meta.generation = integer(&value, "generation")?.filter(|number| *number != 0)
                }
                "creationTimestamp" => meta.creation_timestamp = time(value, "creationTimestamp")?,
                "deletionTimestamp" => meta.deletion_timestamp = time(value, "deletionTimestamp")?,
                "deletionGracePeriodSeconds" => {
                    meta.deletion_grace_period_seconds =
                        integer(&value, "deletionGracePeriodSeconds")?;
                }
                "labels" => meta.labels = strings(value, "ObjectMeta.metadata.labels")?,
                "annotations" => {
                    meta.annotations = strings(value, "ObjectMeta.metadata.annotations")?
                }
                "ownerReferences" => {
                    meta.owner_references = array(value, "ownerReferences", "[]v1.OwnerReference")?;
                    for reference in &meta.owner_references {
                        if !reference.is_object() {
                            let field = "ObjectMeta.metadata.ownerReferences";
                            return Err(mismatch(reference, field, "v1.OwnerReference"));
                        }
                    }
                }
                "finalizers" => {
                    let values = array(value, "finalizers", "[]string")?;
                    meta.finalizers = values
                        .into_iter()
                        .map(|value| text(value, "finalizers"))
                        .collect::<Result<_, _>>()?;
                }
                // As if it had not been sent.
                "managedFields" if value.is_null() => {}
                "managedFields" => {
                    let entries = array(value, "managedFields", "[]v1.ManagedFieldsEntry")?;
                    // W157: an empty entry clears them.
                    meta.managed_reset = entries
                        .iter()
                        .all(|entry| entry.as_object().is_none_or(Map::is_empty));
                    if !meta.managed_reset {
                        meta.managed_sent = entries;
                    }
                }
                _ => unknown.push(format!("metadata.{name}")),
            }
        }
        Ok(meta)
    }

    /// Appends it as JSON.
    pub(crate) fn write(&self, bytes: &mut Vec<u8>) -> serde_json::Result<()> {
        go::write_json(bytes, self)?;
        self.write_owners(bytes);
        Ok(())
    }

    /// Puts the managedFields into metadata that has just been written without them.
    pub(super) fn write_owners(&self, bytes: &mut Vec<u8>) {
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

    /// W141: drops owner references that occur twice and says which. Upstream looks at those of a patch later than at others, and
    /// says so.
    pub(crate) fn deduplicate_owners(&mut self, patched: bool) -> Option<String> {
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

    /// What whoever writes a custom resource is warned of: finalizers that others may use too.
    pub(crate) fn finalizer_warnings(&self, known: &[String]) -> Vec<String> {
        let bare = |name: &&String| !name.contains('/') && !known.contains(name);
        let mut bare: Vec<&String> = self.finalizers.iter().filter(bare).collect();
        bare.retain(|name| !STANDARD_FINALIZERS.contains(&name.as_str()));
        bare.sort();
        let said = |name: &&String| {
            let how = match name.contains('.') {
                true => "name including a path (/)",
                false => "name",
            };
            format!(
                "metadata.finalizers: {}: prefer a domain-qualified finalizer {how} to avoid accidental conflicts with other \
                 finalizer writers",
                go::quote(name)
            )
        };
        bare.iter().map(said).collect()
    }

    /// W169, W170: what is wrong with it.
    pub(crate) fn validate(&self, kind: &Kind, errors: &mut FieldErrors) {
        if !self.generate_name.is_empty() {
            // A dash at the end is fine: more follows it.
            let prefix = self
                .generate_name
                .strip_suffix('-')
                .map_or(self.generate_name.clone(), |head| format!("{head}a"));
            let wrong = kind.name_rule.check(&prefix);
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
            let wrong = kind.name_rule.check(&self.name);
            errors.extend(
                wrong
                    .into_iter()
                    .map(|why| FieldError::invalid("metadata.name", &self.name, why)),
            );
        }
        if let Some(generation) = self.generation.filter(|generation| *generation < 0) {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid_value(
                "metadata.generation",
                generation,
                why,
            ));
        }
        for (key, value) in &self.labels {
            let wrong_key = validate::qualified_name(key);
            errors.extend(
                wrong_key
                    .into_iter()
                    .map(|why| FieldError::invalid("metadata.labels", key, why)),
            );
            let wrong_value = validate::label_value(value);
            errors.extend(
                wrong_value
                    .into_iter()
                    .map(|why| FieldError::invalid("metadata.labels", value, why)),
            );
        }
        for key in self.annotations.keys() {
            // Annotation keys may have capitals in their prefix.
            let wrong = validate::qualified_name(&key.to_lowercase());
            errors.extend(
                wrong
                    .into_iter()
                    .map(|why| FieldError::invalid("metadata.annotations", key, why)),
            );
        }
        let bytes: usize = self
            .annotations
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        if bytes > ANNOTATION_BYTES_MAX {
            errors.push(FieldError::too_long(
                "metadata.annotations",
                ANNOTATION_BYTES_MAX,
            ));
        }
        self.validate_owners(errors);
        for (index, finalizer) in self.finalizers.iter().enumerate() {
            let wrong = validate::qualified_name(finalizer);
            errors.extend(
                wrong
                    .into_iter()
                    .map(|why| FieldError::invalid("metadata.finalizers", finalizer, why)),
            );
            let bare = !finalizer.contains('/') && kind.custom.is_none();
            let bare = bare && kind.special != Special::Definition;
            if bare && !STANDARD_FINALIZERS.contains(&finalizer.as_str()) {
                let why = "name is neither a standard finalizer name nor is it fully qualified";
                errors.push(FieldError::invalid(
                    format!("metadata.finalizers[{index}]"),
                    finalizer,
                    why,
                ));
            }
        }
        let has = |name: &str| self.finalizers.iter().any(|finalizer| finalizer == name);
        if has("orphan") && has("foregroundDeletion") {
            let both = "finalizer orphan and foregroundDeletion cannot be both set";
            errors.push(FieldError::invalid_value(
                "metadata.finalizers",
                format!("{:?}", self.finalizers),
                both,
            ));
        }
    }

    fn validate_owners(&self, errors: &mut FieldErrors) {
        let mut controllers = 0;
        for reference in &self.owner_references {
            let path = "metadata.ownerReferences";
            let text = |name: &str| {
                reference
                    .get(name)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            for name in ["apiVersion", "kind", "name", "uid"] {
                if text(name).is_empty() {
                    let (field, detail) = (format!("{path}.{name}"), "must not be empty");
                    errors.push(match name {
                        "apiVersion" => FieldError::invalid(field, "", "version must not be empty"),
                        _ => FieldError::invalid(field, "", detail),
                    });
                }
            }
            controllers +=
                usize::from(reference.get("controller").and_then(Value::as_bool) == Some(true));
        }
        if controllers > 1 {
            let names: Vec<&str> = self
                .owner_references
                .iter()
                .filter_map(|owner| owner.get("name")?.as_str())
                .collect();
            errors.push(FieldError::invalid_value(
                "metadata.ownerReferences",
                format!("{names:?}"),
                "Only one reference can have Controller set to true",
            ));
        }
    }

    /// True if the object is being deleted and nothing holds it any longer (W147).
    pub(crate) fn may_go(&self) -> bool {
        self.deletion_timestamp.is_some()
            && self.finalizers.is_empty()
            && self.deletion_grace_period_seconds.unwrap_or(0) == 0
    }
}

impl NameRule {
    /// Why a name does not follow the rule.
    fn check(self, name: &str) -> Vec<String> {
        match self {
            NameRule::Subdomain => validate::dns1123_subdomain(name),
            NameRule::Label => validate::dns1123_label(name),
            NameRule::Segment => validate::path_segment(name),
            NameRule::IpAddress => match name.parse::<std::net::IpAddr>() {
                Ok(address) if address.to_string() == name => Vec::new(),
                Ok(address) => vec![format!("must be in canonical form (\"{address}\")")],
                Err(_) => {
                    vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".into()]
                }
            },
        }
    }
}

const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
