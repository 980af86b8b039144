//! [`Draft`], an object that is being written: read from a request or from the store, changed by the rules of its kind, and
//! turned into the bytes that are stored.

use std::fmt;
use std::sync::Arc;

use tidings_api::{FieldError, FieldErrors, Status};
use tidings_go::quote;
use tidings_json::{Map, Value};

use super::kind::{FixedRefusal, Generation, Kind, StatusKeeps, Subresource};
use super::meta::Meta;
use crate::reading::{self, OddField, depth};

/// The greatest nesting depth of an object.
pub const DEPTH_MAX: usize = 100;

/// An object that is being written.
#[derive(Clone)]
pub struct Draft {
    /// The kind that the object is stored as.
    pub kind: Arc<Kind>,
    /// The metadata.
    pub meta: Meta,
    /// The top-level members besides kind, apiVersion and metadata.
    pub members: Map,
    /// The unknown and duplicate fields of the request (W173).
    pub odd: Vec<OddField>,
    /// The write does not change managedFields: an apply has made them already, or the writer shall own nothing.
    pub keeps_owners: bool,
}

impl fmt::Debug for Draft {
    /// Shows only which object it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.group_version_kind();
        let (namespace, name) = (&self.meta.namespace, &self.meta.name);
        write!(f, "Draft({kind} {namespace}/{name})")
    }
}

impl Draft {
    pub(crate) fn new(kind: Arc<Kind>, meta: Meta, members: Map) -> Draft {
        Draft {
            kind,
            meta,
            members,
            odd: Vec::new(),
            keeps_owners: false,
        }
    }

    /// A draft in which nothing is set.
    pub fn empty(kind: &Arc<Kind>) -> Draft {
        Draft::new(kind.clone(), Meta::default(), kind.unset_members())
    }

    /// The whole object as JSON, without managedFields.
    pub(crate) fn whole(&self) -> Value {
        let mut whole = Map::new();
        let version = self.kind.group_version().to_string();
        whole.insert("apiVersion".into(), version.into());
        whole.insert("kind".into(), (*self.kind.kind).into());
        // Texts, numbers and maps of texts can always be written.
        let meta = tidings_json::to_value(&self.meta).unwrap_or_default();
        whole.insert("metadata".into(), meta);
        whole.extend(self.members.clone());
        Value::Object(whole)
    }

    /// Refuses an object that is nested deeper than [`DEPTH_MAX`]: some clients could not read it. Its managedFields are a little
    /// deeper.
    ///
    /// # Errors
    /// If the object, or a managedFields entry that the client sent, is nested too deep.
    pub fn check_depth(&self) -> Result<(), Status> {
        let members = self.members.values().map(depth).max().unwrap_or(0);
        let managed = self.meta.managed_sent.iter().map(depth).max().unwrap_or(0);
        if members < DEPTH_MAX && managed < DEPTH_MAX {
            return Ok(());
        }
        Err(Status::bad_request(format!(
            "the object is nested deeper than {DEPTH_MAX} levels"
        )))
    }

    /// The value at a path of members.
    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        let (first, rest) = path.split_first()?;
        let value = self.members.get(first)?;
        rest.iter().try_fold(value, |value, name| value.get(name))
    }

    /// The text at a path of members; empty if there is none.
    pub fn text(&self, path: &[&str]) -> &str {
        self.at(path).and_then(Value::as_str).unwrap_or_default()
    }

    /// The texts of the list at a path of members; empty if there is none.
    pub fn texts(&self, path: &[&str]) -> Vec<String> {
        let list = self.at(path).and_then(Value::as_array);
        let texts = list.into_iter().flatten().filter_map(Value::as_str);
        texts.map(ToOwned::to_owned).collect()
    }

    /// Checks that the name in an object is the name in the URL (W142).
    ///
    /// # Errors
    /// If the name is empty or another one.
    pub fn check_name(said: &str, name: &str) -> Result<(), Status> {
        match said {
            "" => Err(Status::bad_request(format!(
                "the name of the object ({name} based on URL) was undeterminable: name must be provided"
            ))),
            said if said == name => Ok(()),
            said => Err(Status::bad_request(format!(
                "the name of the object ({said}) does not match the name on the URL ({name})"
            ))),
        }
    }

    /// Sets the namespace to that of the URL (W134). `kind` is the kind in the URL.
    ///
    /// # Errors
    /// If the object has another namespace.
    pub fn settle_namespace(&mut self, kind: &Kind, namespace: &str) -> Result<(), Status> {
        let said = &mut self.meta.namespace;
        if !kind.namespaced {
            said.clear();
        } else if said.is_empty() {
            namespace.clone_into(said);
        } else if namespace != said {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Status::bad_request(message));
        }
        Ok(())
    }

    /// Fills in members of a new object that the creating client will own in managedFields.
    pub fn fill_in(&mut self) {
        if self.kind.status && !self.kind.created_with_status {
            self.members.remove("status"); // only the subresource sets it (W181)
        }
        let kind = self.kind.clone();
        kind.strategy.fill_in(self);
    }

    /// Fills in members of a new object that no manager owns in managedFields.
    pub fn prepare_for_create(&mut self) {
        self.meta.generation = match self.kind.generation {
            Generation::None | Generation::CountedFromZero => self.meta.generation,
            _ => Some(1),
        };
        let kind = self.kind.clone();
        kind.strategy.prepare_create(self);
    }

    /// Restores members that a client may not change from the stored object, and counts the generation.
    pub fn prepare_for_update(&mut self, old: &Draft, subresource: Option<Subresource>) {
        let kind = self.kind.clone();
        match subresource {
            Some(Subresource::Status) => {
                let status = self.members.remove("status");
                self.members = old.members.clone();
                match status {
                    Some(status) => drop(self.members.insert("status".into(), status)),
                    None => drop(self.members.remove("status")),
                }
                match kind.status_keeps {
                    Some(StatusKeeps::OwnerReferences) => {
                        let owners = &old.meta.owner_references;
                        self.meta.owner_references.clone_from(owners);
                    }
                    Some(StatusKeeps::Labels) => self.meta.labels.clone_from(&old.meta.labels),
                    None => {}
                }
            }
            Some(
                Subresource::Finalize
                | Subresource::Token
                | Subresource::Approval
                | Subresource::Binding
                | Subresource::Eviction,
            ) => {}
            Some(Subresource::Scale) | None if kind.status => {
                self.members.remove("status");
                if let Some(status) = old.members.get("status") {
                    self.members.insert("status".into(), status.clone());
                }
            }
            Some(Subresource::Scale) | None => {}
        }
        kind.strategy.prepare_update(self, old, subresource);
        self.meta.generation = self.next_generation(old, subresource);
    }

    /// The generation after an update (W136).
    fn next_generation(&self, old: &Draft, subresource: Option<Subresource>) -> Option<i64> {
        let main = subresource.is_none();
        let marked = match self.kind.generation {
            Generation::None | Generation::Fixed => return old.meta.generation,
            Generation::CountedWithLabels => main && self.meta.labels != old.meta.labels,
            // Annotations of a Deployment are copied to its ReplicaSets.
            Generation::CountedWithAnnotations => {
                main && self.meta.annotations != old.meta.annotations
            }
            Generation::Counted | Generation::CountedWithStatus | Generation::CountedFromZero => {
                false
            }
        };
        let changed = marked || self.counted() != old.counted();
        let next = old
            .meta
            .generation
            .unwrap_or(0)
            .saturating_add(i64::from(changed));
        Some(next).filter(|next| *next > 0)
    }

    /// The members whose changes the generation counts, sorted by name: all but the status.
    fn counted(&self) -> Vec<(&String, &Value)> {
        let all = self.kind.generation == Generation::CountedWithStatus;
        let mut members: Vec<_> = self.members.iter().collect();
        members.retain(|(name, _)| all || *name != "status");
        members.sort_by_key(|(name, _)| *name);
        members
    }

    /// Appends the errors of the object. `kind` is the kind in the URL, whose rule for names counts; `old` is the object that it
    /// replaces.
    pub fn validate(
        &self,
        kind: &Kind,
        old: Option<&Draft>,
        subresource: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        self.meta
            .validate(kind.name_rule, kind.bare_finalizers, errors);
        if let Some(old) = old {
            self.check_fixed(old, errors);
            self.meta.validate_update(&old.meta, errors);
            self.kind.strategy.check_update(self, old, errors);
        }
        self.kind.strategy.check(self, old, subresource, errors);
    }

    /// Refuses changes of fixed fields.
    fn check_fixed(&self, old: &Draft, errors: &mut FieldErrors) {
        for field in &self.kind.fixed {
            let value = self.at(field.path);
            if value == old.at(field.path) {
                continue;
            }
            let (path, value) = (field.path.join("."), value.unwrap_or(&Value::Null));
            errors.push(match field.refusal {
                FixedRefusal::Immutable => {
                    FieldError::invalid_value(path, value, "field is immutable")
                }
                FixedRefusal::Invalid(why) => FieldError::invalid_value(path, value, why),
                FixedRefusal::Forbidden(why) => FieldError::forbidden(path, why),
            });
        }
        self.kind.strategy.check_fixed(self, old, errors);
    }

    /// True if the object is being deleted and can be removed: no finalizers, no grace period (W147).
    pub fn may_go(&self) -> bool {
        self.meta.may_go() && !self.kind.strategy.is_held(self)
    }
}

/// Upstream's message about an unknown kind.
pub fn unregistered(kind: &str, version: &str) -> String {
    format!(
        "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
        quote(kind),
        quote(version)
    )
}

/// The members of a body that is a JSON object. Its kind and apiVersion, if there are any, are text.
///
/// # Errors
/// With upstream's message.
pub fn document(body: &[u8]) -> Result<Map, String> {
    document_with_duplicates(body).map(|(members, _)| members)
}

/// The members of a body as [`document`] reads it, and the paths of fields that occur twice.
pub(crate) fn document_with_duplicates(body: &[u8]) -> Result<(Map, Vec<String>), String> {
    let shown = || {
        let start = &body[..body.len().min(30)];
        if body.is_empty() {
            "<empty>".to_owned()
        } else if body.first() == Some(&b'{') {
            let more = if body.len() > start.len() { " ..." } else { "" };
            format!("{}{more}", String::from_utf8_lossy(start))
        } else {
            start.iter().map(|byte| format!("{byte:02x}")).collect()
        }
    };
    let error = |why: String| {
        format!(
            "couldn't get version/kind; json parse error: {why} ({})",
            shown()
        )
    };
    let (value, duplicates) = reading::read(body).map_err(|why| {
        error(if why.is_eof() {
            "unexpected end of JSON input".to_owned()
        } else {
            format!("invalid JSON: {why}")
        })
    })?;
    let members = match value {
        Value::Object(members) => members,
        Value::Null => Map::new(),
        other => {
            let go_type = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
            return Err(error(tidings_go::mismatch_value(&other, go_type)));
        }
    };
    for name in ["apiVersion", "kind"] {
        if let Some(other) = members
            .get(name)
            .filter(|value| !value.is_string() && !value.is_null())
        {
            let wrong = tidings_go::mismatch(other, &format!(".{name}"), "string");
            return Err(error(wrong));
        }
    }
    Ok((members, duplicates))
}
