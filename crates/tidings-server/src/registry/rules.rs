//! The rules that single kinds have for creating and updating.

use base64::Engine;
use tidings_api::{FieldError, FieldErrors};
use tidings_json::{Value, json};

use super::draft::Draft;
use super::meta::Meta;
use super::{Generation, Special};

/// The label that carries a namespace's own name (W174).
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// ConfigMaps and Secrets may hold this much (W171).
const DATA_BYTES_MAX: usize = 1 << 20;

impl Draft {
    /// Fills in what counts as said by the client that creates the object.
    pub(crate) fn fill_in(&mut self) {
        if self.has_status() && self.kind.special != Special::Node {
            self.members.remove("status"); // W181: only the subresource sets it
        }
        if self.kind.special == Special::Secret {
            self.merge_string_data();
            if self.text(&["type"]).is_empty() {
                self.members.insert("type".into(), "Opaque".into());
            }
        }
        self.label_namespace();
        self.count_template(None);
    }

    fn has_status(&self) -> bool {
        match &self.live {
            Some(live) => live.version().status,
            None => self.kind.status,
        }
    }

    /// Fills in what the kind has from the start.
    pub(crate) fn prepare_for_create(&mut self) {
        self.meta.generation = match self.kind.generation {
            Generation::None | Generation::CountedFromZero => self.meta.generation,
            _ => Some(1),
        };
        if self.kind.special == Special::Namespace {
            let spec = self.members.get("spec");
            let finalizers = spec.and_then(|spec| spec.get("finalizers"));
            let mut finalizers = finalizers
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            if !finalizers.iter().any(|finalizer| finalizer == "kubernetes") {
                finalizers.push("kubernetes".into());
            }
            self.members
                .insert("spec".into(), json!({ "finalizers": finalizers }));
            self.members
                .insert("status".into(), json!({ "phase": "Active" }));
        }
        self.label_namespace();
        self.add_to_workload();
        self.note_stored_version();
    }

    /// Takes from the stored object what a client may not change.
    pub(crate) fn prepare_for_update(&mut self, old: &Draft, subresource: Option<&str>) {
        match subresource {
            Some("status") => {
                // Only the status is taken from the client.
                let status = self.members.remove("status");
                self.members = old.members.clone();
                match status {
                    Some(status) => drop(self.members.insert("status".into(), status)),
                    None => drop(self.members.remove("status")),
                }
                if self.live.is_some() {
                    self.meta = Meta {
                        managed_fields: std::mem::take(&mut self.meta.managed_fields),
                        managed_reset: self.meta.managed_reset,
                        ..old.meta.clone()
                    };
                }
                match self.kind.special {
                    Special::Pod => self
                        .meta
                        .owner_references
                        .clone_from(&old.meta.owner_references),
                    Special::Deployment => self.meta.labels.clone_from(&old.meta.labels),
                    _ => {}
                }
            }
            Some("finalize") => {
                let finalizers = self
                    .members
                    .get("spec")
                    .and_then(|spec| spec.get("finalizers"))
                    .cloned();
                self.members = old.members.clone();
                let spec = finalizers.map_or_else(
                    || json!({}),
                    |finalizers| json!({ "finalizers": finalizers }),
                );
                self.members.insert("spec".into(), spec);
            }
            _ => {
                if self.has_status() {
                    self.members.remove("status");
                    if let Some(status) = old.members.get("status") {
                        self.members.insert("status".into(), status.clone());
                    }
                }
                if self.kind.special == Special::Namespace {
                    let spec = old
                        .members
                        .get("spec")
                        .cloned()
                        .unwrap_or_else(|| json!({}));
                    self.members.insert("spec".into(), spec);
                }
                if self.kind.special == Special::Secret {
                    self.merge_string_data();
                    if self.text(&["type"]).is_empty() {
                        self.members.insert("type".into(), "Opaque".into());
                    }
                }
            }
        }
        self.label_namespace();
        if subresource.is_none() {
            self.note_stored_version();
        }
        self.count_template(Some(old));
        self.meta.generation = self.next_generation(old, subresource);
    }

    /// A DaemonSet counts the changes of its template, as it did when it had no generation.
    fn count_template(&mut self, old: Option<&Draft>) {
        const COUNT: &str = "deprecated.daemonset.template.generation";
        if (self.kind.group, self.kind.kind) != ("apps", "DaemonSet") {
            return;
        }
        let count = old.map_or(1, |old| {
            let template = |draft: &Draft| {
                draft
                    .members
                    .get("spec")
                    .map(|spec| spec["template"].clone())
            };
            let before = old.meta.annotations.get(COUNT);
            let before = before.and_then(|count| count.parse().ok()).unwrap_or(0);
            before + i64::from(template(self) != template(old))
        });
        self.meta
            .annotations
            .insert(COUNT.into(), count.to_string());
    }

    /// W136.
    fn next_generation(&self, old: &Draft, subresource: Option<&str>) -> Option<i64> {
        let main = subresource.is_none();
        let marked = match self.kind.generation {
            Generation::None | Generation::Fixed => return old.meta.generation,
            Generation::CountedWithLabels => main && self.meta.labels != old.meta.labels,
            // Annotations of a Deployment are copied to what it makes.
            Generation::CountedWithAnnotations => {
                main && self.meta.annotations != old.meta.annotations
            }
            Generation::Counted | Generation::CountedFromZero => false,
        };
        let changed = marked || self.counted() != old.counted();
        let next = old
            .meta
            .generation
            .unwrap_or(0)
            .saturating_add(i64::from(changed));
        Some(next).filter(|next| *next > 0)
    }

    /// What the generation counts the changes of: the members that are not the status.
    fn counted(&self) -> Vec<(&String, &Value)> {
        // A custom resource without a status of its own has nothing that does not count.
        let all = self.live.is_some() && !self.has_status();
        let mut members: Vec<_> = self.members.iter().collect();
        members.retain(|(name, _)| all || *name != "status");
        members.sort_by_key(|(name, _)| *name);
        members
    }

    fn label_namespace(&mut self) {
        if self.kind.special == Special::Namespace && !self.meta.name.is_empty() {
            self.meta
                .labels
                .insert(NAMESPACE_NAME.into(), self.meta.name.clone());
        }
    }

    /// `stringData` is written as `data`, never stored.
    fn merge_string_data(&mut self) {
        let Some(Value::Object(strings)) = self.members.remove("stringData") else {
            return;
        };
        let mut data: std::collections::BTreeMap<String, Value> = self
            .members
            .get("data")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
            .into_iter()
            .collect();
        for (key, value) in strings {
            let encoded = base64::engine::general_purpose::STANDARD
                .encode(value.as_str().unwrap_or_default());
            data.insert(key, Value::String(encoded));
        }
        self.members
            .insert("data".into(), Value::Object(data.into_iter().collect()));
    }

    /// What is wrong with the object, besides its metadata. One that replaces another is compared with it.
    pub(crate) fn validate(
        &self,
        old: Option<&Draft>,
        subresource: Option<&str>,
        errors: &mut FieldErrors,
    ) {
        if let Some(old) = old {
            self.validate_update(old, errors);
        }
        if let Some(live) = &self.live {
            return self.check_custom(live, old, subresource, errors);
        }
        if self.kind.special == Special::Definition {
            return self.check_definition(old, subresource, errors);
        }
        self.check_workload(errors);
        if !matches!(self.kind.special, Special::ConfigMap | Special::Secret) {
            return;
        }
        let mut bytes = 0;
        for member in ["data", "binaryData"] {
            for (key, value) in self
                .members
                .get(member)
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
            {
                let length = value.as_str().unwrap_or_default().len();
                let plain = member == "data" && self.kind.special == Special::ConfigMap;
                bytes += if plain { length } else { length / 4 * 3 };
                if let Some(why) = wrong_config_key(key) {
                    errors.push(FieldError::invalid(format!("{member}[{key}]"), key, why));
                }
                let both = member == "binaryData"
                    && self
                        .members
                        .get("data")
                        .is_some_and(|data| data.get(key).is_some());
                if both {
                    let path = format!("data[{key}]");
                    errors.push(FieldError::invalid(
                        path,
                        key,
                        "duplicate of key present in binaryData",
                    ));
                }
            }
        }
        if bytes > DATA_BYTES_MAX {
            let path = if self.kind.special == Special::Secret {
                "data"
            } else {
                "[]"
            };
            errors.push(FieldError::too_long(path, DATA_BYTES_MAX));
        }
    }

    /// What an update may not change.
    fn validate_update(&self, old: &Draft, errors: &mut FieldErrors) {
        self.check_fixed(old, errors);
        const FIXED: &str = "field is immutable when `immutable` is set";
        if self.meta.deletion_timestamp != old.meta.deletion_timestamp {
            let value = self.meta.deletion_timestamp.as_deref().unwrap_or_default();
            errors.push(FieldError::invalid(
                "metadata.deletionTimestamp",
                value,
                "field is immutable",
            ));
        }
        if let Some(grace) = self.meta.deletion_grace_period_seconds
            && self.meta.deletion_grace_period_seconds != old.meta.deletion_grace_period_seconds
        {
            let path = "metadata.deletionGracePeriodSeconds";
            errors.push(FieldError::invalid_value(path, grace, "field is immutable"));
        }
        if old.meta.deletion_timestamp.is_some() {
            let known = &old.meta.finalizers;
            let mut added: Vec<&String> = self
                .meta
                .finalizers
                .iter()
                .filter(|name| !known.contains(name))
                .collect();
            added.sort();
            if !added.is_empty() {
                let quoted: Vec<String> = added
                    .iter()
                    .map(|finalizer| tidings_api::go::quote(finalizer))
                    .collect();
                errors.push(FieldError::forbidden(
                    "metadata.finalizers",
                    format!(
                        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                        quoted.join(", ")
                    ),
                ));
            }
        }
        if self.kind.special == Special::Namespace {
            let phase = self.text(&["status", "phase"]);
            let wrong = match (self.meta.deletion_timestamp.is_some(), phase) {
                (false, "Active") | (true, "Terminating") => None,
                (false, _) => Some("may only be 'Active' if `deletionTimestamp` is empty"),
                (true, _) => Some("may only be 'Terminating' if `deletionTimestamp` is not empty"),
            };
            let wrong = wrong.map(|why| FieldError::invalid("status.Phase", phase, why));
            errors.extend(wrong);
        }
        if self.kind.special == Special::Secret && self.text(&["type"]) != old.text(&["type"]) {
            errors.push(FieldError::invalid(
                "type",
                self.text(&["type"]),
                "field is immutable",
            ));
        }
        let fixed = old.members.get("immutable") == Some(&Value::Bool(true));
        if matches!(self.kind.special, Special::ConfigMap | Special::Secret) && fixed {
            if self.members.get("immutable") != Some(&Value::Bool(true)) {
                errors.push(FieldError::forbidden("immutable", FIXED));
            }
            for member in ["data", "binaryData"] {
                if self.members.get(member) != old.members.get(member) {
                    errors.push(FieldError::forbidden(member, FIXED));
                }
            }
        }
    }

    /// How long the object lives on after a deletion, if its kind is deleted gracefully (W162).
    pub(crate) fn grace_seconds(&self, requested: Option<i64>) -> Option<i64> {
        if self.kind.special != Special::Pod {
            return None;
        }
        let own = self
            .members
            .get("spec")
            .and_then(|spec| spec.get("terminationGracePeriodSeconds"));
        // The default of the schema is 30 seconds.
        let period = requested.unwrap_or_else(|| own.and_then(Value::as_i64).unwrap_or(30));
        let runs_nowhere = self.text(&["spec", "nodeName"]).is_empty();
        let over = matches!(self.text(&["status", "phase"]), "Failed" | "Succeeded");
        Some(match period {
            _ if runs_nowhere || over => 0,
            period if period < 0 => 1,
            period => period,
        })
    }
}

fn wrong_config_key(key: &str) -> Option<String> {
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

impl Draft {
    /// True unless this is a namespace that finalizers of its own still hold (W175).
    pub(crate) fn namespace_is_empty(&self) -> bool {
        let finalizers = self
            .members
            .get("spec")
            .and_then(|spec| spec.get("finalizers"))
            .and_then(Value::as_array);
        self.kind.special != Special::Namespace || finalizers.is_none_or(Vec::is_empty)
    }
}
