//! Objects of custom resources: read from requests, written to the store, converted to other versions, and checked.
//!
//! Their members are sorted by name, at every depth.

use std::sync::Arc;

use tidings_api::{FieldError, FieldErrors, GroupVersionKind, Object, Status};
use tidings_go::{mismatch_value, whole_numbers};
use tidings_json::{Map, Touched, Value};
use tidings_schema::FieldPath;
use tidings_structural::Malformed;
use tidings_structural::definition::{DefinedVersion, Definition, MemberPath};

use super::CustomVersion;
use crate::model::{Draft, Kind, Meta, Subresource, document_with_duplicates, unrecognized};
use crate::reading::OddField;

/// Drops unknown members and fills in the defaults of the schema. Returns the paths of the dropped members.
fn prune_and_default(
    version: &DefinedVersion,
    object: &mut Value,
) -> Result<Vec<String>, FieldError> {
    let mut unknown = version.schema.prune(object);
    unknown.extend(version.schema.coerce(object, Malformed::Refuse)?);
    version.schema.default(object);
    Ok(unknown)
}

/// The JSON of a stored object as clients read it (W180): pruned and with the defaults of the schema of the version in which it
/// is stored. `None` if that is the stored JSON.
pub fn as_read(definition: &Definition, json: &[u8]) -> Option<Vec<u8>> {
    let mut object: Value = serde_json::from_slice(json).ok()?;
    let said = object["apiVersion"].as_str().unwrap_or_default();
    let said = said.rsplit('/').next().unwrap_or_default();
    let mut versions = definition.versions.iter();
    let version = versions.find(|version| version.name == said);
    // An object in a version that the definition no longer has is read as the storage version.
    let version = version.unwrap_or(definition.storage());
    version.schema.prune(&mut object);
    // Values that do not have the type in the current schema are left out (W180).
    let _ = version.schema.coerce(&mut object, Malformed::Drop);
    version.schema.default(&mut object);
    let now = written(object)?;
    (now != json).then_some(now)
}

/// The JSON of an object, with its members sorted.
fn written(mut object: Value) -> Option<Vec<u8>> {
    object.sort_all_objects();
    tidings_go::json(&object).ok()
}

impl CustomVersion {
    /// Converts an object that is stored in another version to this version.
    pub(super) fn in_this_version(&self, object: &Object) -> Vec<u8> {
        let version = self.version();
        let seen = || {
            let mut seen: Value = serde_json::from_slice(object.as_bytes()).ok()?;
            seen["apiVersion"] = format!("{}/{}", self.definition.group, version.name).into();
            version.schema.prune(&mut seen);
            written(seen)
        };
        seen().unwrap_or_else(|| object.as_bytes().to_vec())
    }

    /// The JSON of an object that a webhook has converted to this version.
    pub(super) fn shown_converted(&self, mut object: Value) -> Vec<u8> {
        self.version().schema.prune(&mut object);
        written(object).unwrap_or_default()
    }

    /// The JSON that is stored of an object that a webhook has converted to this version, the storage version.
    pub(super) fn stored_converted(&self, mut object: Value) -> Result<Vec<u8>, Status> {
        self.version().schema.prune(&mut object);
        self.in_stored_form(object)
    }

    /// The JSON of an object in the storage version as it is stored.
    fn in_stored_form(&self, mut object: Value) -> Result<Vec<u8>, Status> {
        // Readers see these defaults anyway. A dropped status gets its defaults back here.
        self.definition.storage().schema.default(&mut object);
        CustomVersion::in_form(object)
    }

    fn in_form(mut object: Value) -> Result<Vec<u8>, Status> {
        // The resourceVersion is inserted here when the object is read.
        object["metadata"]["resourceVersion"] = "".into();
        object.sort_all_objects();
        tidings_go::json(&object).map_err(Status::internal)
    }

    /// Reads the body of a request.
    pub(super) fn read_sent(&self, kind: &Arc<Kind>, body: &[u8]) -> Result<Draft, Status> {
        tracing::trace!(target: "tidings::walk", "reads the body into a draft, by the schema of its version");
        let unrecognized = |why: String| unrecognized(&kind.kind, why);
        let (members, duplicates) = document_with_duplicates(body).map_err(&unrecognized)?;
        if members.get("kind").is_none_or(|kind| kind == "") {
            let text = String::from_utf8_lossy(body);
            let start: String = text.chars().take(30).collect();
            let more = if start.len() < text.len() { " ..." } else { "" };
            let why = format!("Object 'Kind' is missing in '{text}' ({start}{more})");
            return Err(unrecognized(why));
        }
        check_type(kind, &members)?;
        let mut draft = self
            .read_members(kind, members)
            .map_err(|why| kind.unhandled(why))?;
        let twice = duplicates.into_iter().map(OddField::Duplicate);
        draft.odd.splice(0..0, twice);
        Ok(draft)
    }

    /// Reads an object whose kind and apiVersion have been checked. `Err` is upstream's message.
    pub(super) fn read_members(&self, kind: &Arc<Kind>, members: Map) -> Result<Draft, String> {
        let mut object = Value::Object(members);
        whole_numbers(&mut object);
        let mut unknown = Vec::new();
        let meta = match object
            .as_object_mut()
            .and_then(|members| members.remove("metadata"))
        {
            None | Some(Value::Null) => Meta::default(),
            Some(Value::Object(meta)) => {
                // Upstream decodes the metadata alone: paths in Go's messages begin there.
                Meta::read(meta, &FieldPath::Top, &Touched::Whole, &mut unknown)?
            }
            Some(other) => return Err(mismatch_value(&other, "v1.ObjectMeta")),
        };
        let unknown_metadata = unknown.iter().map(|field| format!("metadata.{field}"));
        let mut unknown: Vec<String> = unknown_metadata.collect();
        unknown.extend(
            prune_and_default(self.version(), &mut object).map_err(|error| error.to_string())?,
        );
        let Value::Object(mut members) = object else {
            return Err("it is not an object".into());
        };
        members.remove("kind");
        members.remove("apiVersion");
        let mut draft = Draft::new(kind.clone(), meta, members);
        draft.odd = unknown.into_iter().map(OddField::Unknown).collect();
        Ok(draft)
    }

    /// The JSON that is stored for a draft, in the storage version. If a webhook converts objects to that version, it is the JSON of this version,
    /// for the webhook.
    pub(super) fn stored_bytes(&self, draft: &Draft) -> Result<Vec<u8>, Status> {
        let mut whole = draft.whole();
        let owners = &draft.meta.managed_fields;
        if !owners.0.is_empty() {
            let owners = serde_json::from_str(&owners.encode()).map_err(Status::internal)?;
            whole["metadata"]["managedFields"] = owners;
        }
        if !self.version().storage {
            if self.definition.webhook.is_some() {
                return CustomVersion::in_form(whole);
            }
            whole["apiVersion"] = self.stored_version().to_string().into();
            self.definition.storage().schema.prune(&mut whole);
        }
        self.in_stored_form(whole)
    }

    /// Refuses an object that does not follow the schema.
    pub(super) fn check_schema(
        &self,
        new: &Draft,
        old: Option<&Draft>,
        subresource: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        let version = self.version();
        let schema = &version.schema;
        let new = new.whole();
        if let Some(scale) = &version.scale {
            check_replicas(&new, &scale.spec_replicas, errors);
        }
        match (old.map(Draft::whole), subresource) {
            (Some(old), Some(Subresource::Status)) => schema.validate_status(&new, &old, errors),
            (old, _) => schema.validate(&new, old.as_ref(), errors),
        }
    }
}

/// Refuses a number of replicas below 0 or above 2147483647 (W182).
fn check_replicas(object: &Value, path: &MemberPath, errors: &mut FieldErrors) {
    let Some(replicas) = path.find(object).and_then(Value::as_i64) else {
        return; // other types of values are errors of the schema
    };
    let why = match replicas {
        ..0 => "should be a non-negative integer",
        0..=0x7fff_ffff => return,
        _ => "should be less than or equal to 2147483647",
    };
    errors.push(FieldError::invalid_value(&*path.text, replicas, why));
}

/// Refuses an object of another kind or apiVersion (W132).
pub(super) fn check_type(kind: &Kind, members: &Map) -> Result<(), Status> {
    let said = |name: &str| {
        members
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (version, said_kind) = (said("apiVersion"), said("kind"));
    let expected = kind.group_version().to_string();
    if version != expected {
        return Err(Status::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    if said_kind != kind.kind {
        let wrong = FieldError::invalid("kind", said_kind, format!("must be {}", kind.kind));
        let named = GroupVersionKind {
            kind: said_kind,
            ..kind.group_version_kind()
        };
        let name = members
            .get("metadata")
            .and_then(|meta| meta["name"].as_str());
        return Err(Status::invalid(
            named,
            name.unwrap_or_default(),
            &wrong.into(),
        ));
    }
    Ok(())
}
