//! A draft: an object while it is being written. Read from a request or from the store, changed by the rules of its kind, and turned
//! into the bytes that are stored.

use std::sync::Arc;

use tidings_api::{FieldError, FieldErrors, Object, Status, UnstampedObject};
use tidings_go::quote;
use tidings_json::{Map, Value};
use tidings_merge::Touched;

use crate::kind::{FixedRefusal, Generation, Kind, Subresource};
use crate::meta::Meta;
use crate::reading::{self, depth};
use crate::stored::StoredObject;

/// How deep an object may be nested.
pub const DEPTH_MAX: usize = 100;

/// An object being written.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The kind that it is stored as.
    pub kind: Arc<Kind>,
    /// Its metadata.
    pub meta: Meta,
    /// The top-level members besides kind, apiVersion and metadata.
    pub members: Map,
    /// What is odd about fields of the request: those that do not exist, and those that occur twice (W173).
    pub odd: Vec<String>,
    /// Its managedFields name the owners already: it comes from an apply.
    pub applied: bool,
}

impl Draft {
    pub(crate) fn new(kind: Arc<Kind>, meta: Meta, members: Map) -> Draft {
        Draft {
            kind,
            meta,
            members,
            odd: Vec::new(),
            applied: false,
        }
    }

    /// Reads the body of a request (W132, W133).
    ///
    /// # Errors
    /// If it is not an object of the kind.
    pub fn read(kind: &Arc<Kind>, body: &[u8]) -> Result<Draft, Status> {
        kind.strategy.read_body(kind, body)
    }

    /// Reads a whole object that a patch made, and that may be of the wrong kind.
    ///
    /// # Errors
    /// With Go's message.
    pub fn read_value(kind: &Arc<Kind>, value: Value) -> Result<Draft, String> {
        Draft::read_touched(kind, value, &Touched::Whole)
    }

    /// A draft made from a stored object with some members replaced: only those that are touched are checked and filled in.
    ///
    /// # Errors
    /// With Go's message.
    pub fn read_touched(
        kind: &Arc<Kind>,
        value: Value,
        touched: &Touched,
    ) -> Result<Draft, String> {
        kind.strategy.read_value(kind, value, touched)
    }

    /// Reads an object from the cache.
    ///
    /// # Errors
    /// If the store holds something that this server does not write.
    pub fn of(kind: &Arc<Kind>, object: &Object) -> Result<Draft, Status> {
        kind.strategy.read_object(kind, object)
    }

    /// Makes a draft of a stored object that has been read. The types of its values are not checked again.
    ///
    /// # Errors
    /// If the store holds something that this server does not write.
    pub fn of_stored(kind: &Arc<Kind>, stored: StoredObject) -> Result<Draft, Status> {
        kind.strategy.read_stored(kind, stored)
    }

    /// An object in which nothing is set.
    pub fn empty(kind: &Arc<Kind>) -> Draft {
        Draft::new(kind.clone(), Meta::default(), kind.unset_members())
    }

    /// The whole object as its kind shows it, without the owners of its fields.
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

    /// Refuses an object that is nested too deep to be read by every client. What managedFields say of it is a little deeper.
    ///
    /// # Errors
    /// If it is.
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

    /// True if both would be stored as the same bytes.
    pub fn is_same_as(&self, other: &Draft) -> bool {
        self.kind.strategy.is_same(self, other)
    }

    /// The bytes that are stored: the object as GET returns it, without its resourceVersion.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub fn write(&self) -> Result<UnstampedObject, Status> {
        self.kind.strategy.write(self)
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

    /// Checks the name of an object that the URL names too (W142).
    ///
    /// # Errors
    /// If it is another name or none.
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

    /// Gives the object the namespace of the URL (W134). `kind` is the kind in the URL.
    ///
    /// # Errors
    /// If it says that it is in another one.
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

    /// Fills in what counts as said by the client that creates the object.
    pub fn fill_in(&mut self) {
        if self.kind.status && !self.kind.created_with_status {
            self.members.remove("status"); // only the subresource sets it (W181)
        }
        let kind = self.kind.clone();
        kind.strategy.fill_in(self);
    }

    /// Fills in what the server adds to a new object in its own name.
    pub fn prepare_for_create(&mut self) {
        self.meta.generation = match self.kind.generation {
            Generation::None | Generation::CountedFromZero => self.meta.generation,
            _ => Some(1),
        };
        let kind = self.kind.clone();
        kind.strategy.prepare_create(self);
    }

    /// Takes from the stored object what a client may not change.
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
                    Some("ownerReferences") => {
                        let owners = &old.meta.owner_references;
                        self.meta.owner_references.clone_from(owners);
                    }
                    Some("labels") => self.meta.labels.clone_from(&old.meta.labels),
                    _ => {}
                }
            }
            Some(Subresource::Finalize) => {}
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

    /// The members whose changes the generation counts, by name: all but the status.
    fn counted(&self) -> Vec<(&String, &Value)> {
        // A member of a custom resource that is called status is like others if there is no such subresource.
        let all = self.kind.is_custom() && !self.kind.status;
        let mut members: Vec<_> = self.members.iter().collect();
        members.retain(|(name, _)| all || *name != "status");
        members.sort_by_key(|(name, _)| *name);
        members
    }

    /// Appends what is wrong with the object. `kind` is the kind that the client writes, whose rule for names counts; `old` is the object
    /// that it replaces.
    pub fn validate(
        &self,
        kind: &Kind,
        old: Option<&Draft>,
        subresource: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        self.meta.validate(kind, errors);
        if let Some(old) = old {
            self.check_fixed(old, errors);
            self.meta.validate_update(&old.meta, errors);
            self.kind.strategy.check_update(self, old, errors);
        }
        self.kind.strategy.check(self, old, subresource, errors);
    }

    /// Refuses changes of fields that stay as they were created.
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

    /// True if the object is being deleted and nothing holds it any longer (W147).
    pub fn may_go(&self) -> bool {
        self.meta.may_go() && !self.kind.strategy.is_held(self)
    }
}

/// What upstream says of a kind that it does not know.
pub fn unregistered(kind: &str, version: &str) -> String {
    format!(
        "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
        quote(kind),
        quote(version)
    )
}

/// What upstream says of a field that is `unknown` or `duplicate`.
pub(crate) fn odd(what: &str, field: &str) -> String {
    format!("{what} field {}", quote(field))
}

/// A body as an object whose kind and apiVersion are text.
///
/// # Errors
/// With upstream's message.
pub fn document(body: &[u8]) -> Result<Map, String> {
    document_with_duplicates(body).map(|(members, _)| members)
}

/// As [`document`], with the paths of fields that occur twice.
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
            let kind = tidings_go::json_type(&other);
            return Err(error(format!(
                "json: cannot unmarshal {kind} into Go value of type {go_type}"
            )));
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
