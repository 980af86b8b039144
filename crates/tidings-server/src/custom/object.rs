//! Objects of custom resources: as clients send them, as they are stored, as other versions show them.
//!
//! Their members stand in the order of their names, at every depth.

use std::sync::Arc;

use tidings_api::{FieldError, FieldErrors, GroupVersionKind, Object, Status, go};
use tidings_json::{Map, Value};
use tidings_structural::Malformed;
use tidings_structural::definition::{Definition, MemberPath, Version};

use super::Live;
use crate::registry::Kind;
use crate::registry::draft::{self, Draft, odd};
use crate::registry::meta::Meta;
use crate::registry::stored::Stored;

/// Drops what the schema does not have and sets what it defaults. Returns the fields that were dropped because nobody knows them.
fn shape(version: &Version, object: &mut Value) -> Result<Vec<String>, FieldError> {
    let mut unknown = version.schema.prune(object);
    unknown.extend(version.schema.coerce(object, Malformed::Refuse)?);
    version.schema.default(object);
    Ok(unknown)
}

/// A stored object as the definition of now reads it (W180): by the schema of the version that it is stored in. `None` if that is
/// how it is stored.
pub(super) fn as_read(definition: &Definition, json: &[u8]) -> Option<Vec<u8>> {
    let mut object: Value = serde_json::from_slice(json).ok()?;
    let said = object["apiVersion"].as_str().unwrap_or_default();
    let said = said.rsplit('/').next().unwrap_or_default();
    let mut versions = definition.versions.iter();
    // Of a version that is no more nobody knows better.
    let version = versions.find(|version| version.name == said);
    let version = version.unwrap_or(definition.storage());
    version.schema.prune(&mut object);
    // What cannot be read any more is left out (W180).
    let _ = version.schema.coerce(&mut object, Malformed::Drop);
    version.schema.default(&mut object);
    let now = written(object)?;
    (now != json).then_some(now)
}

/// An object as a version shows it in which it is not stored.
pub(crate) fn as_seen(live: &Live, object: &Object) -> Vec<u8> {
    let version = live.version();
    let seen = || {
        let mut seen: Value = serde_json::from_slice(object.as_bytes()).ok()?;
        seen["apiVersion"] = format!("{}/{}", live.definition.group, version.name).into();
        version.schema.prune(&mut seen);
        written(seen)
    };
    seen().unwrap_or_else(|| object.as_bytes().to_vec())
}

fn written(mut object: Value) -> Option<Vec<u8>> {
    object.sort_all_objects();
    go::json(&object).ok()
}

impl Draft {
    /// Reads the body of a request for a custom resource.
    pub(crate) fn read_custom(
        kind: &'static Kind,
        live: Arc<Live>,
        body: &[u8],
    ) -> Result<Draft, Status> {
        let unrecognized = |why: String| {
            Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): {why}",
                kind.kind
            ))
        };
        let (members, duplicates) = draft::document_with_duplicates(body).map_err(&unrecognized)?;
        if members.get("kind").is_none_or(|kind| kind == "") {
            let text = String::from_utf8_lossy(body);
            let start: String = text.chars().take(30).collect();
            let more = if start.len() < text.len() { " ..." } else { "" };
            let why = format!("Object 'Kind' is missing in '{text}' ({start}{more})");
            return Err(unrecognized(why));
        }
        check_type(kind, &members)?;
        let mut draft = Draft::read_custom_members(kind, live, members).map_err(|why| {
            Status::bad_request(format!(
                "{} in version {} cannot be handled as a {}: {why}",
                kind.kind,
                go::quote(kind.version),
                kind.kind
            ))
        })?;
        let twice = duplicates.iter().map(|field| odd("duplicate", field));
        draft.odd.splice(0..0, twice);
        Ok(draft)
    }

    /// Reads an object whose kind and apiVersion are right. `Err` is upstream's message.
    pub(crate) fn read_custom_members(
        kind: &'static Kind,
        live: Arc<Live>,
        mut members: Map,
    ) -> Result<Draft, String> {
        let mut unknown = Vec::new();
        let meta = match members.remove("metadata") {
            None | Some(Value::Null) => Meta::default(),
            Some(Value::Object(meta)) => Meta::read(meta, &mut unknown)
                .map_err(|why| why.replace("ObjectMeta.metadata.", "ObjectMeta."))?,
            Some(other) => {
                let found = crate::registry::meta::go_kind(&other);
                return Err(format!(
                    "json: cannot unmarshal {found} into Go value of type v1.ObjectMeta"
                ));
            }
        };
        let mut object = Value::Object(members);
        whole_numbers(&mut object);
        unknown.extend(shape(live.version(), &mut object).map_err(|error| error.to_string())?);
        let Value::Object(mut members) = object else {
            return Err("it is no object".into());
        };
        members.remove("kind");
        members.remove("apiVersion");
        Ok(Draft {
            kind,
            meta,
            members,
            odd: unknown.iter().map(|field| odd("unknown", field)).collect(),
            applied: false,
            live: Some(live),
        })
    }

    /// Reads an object that this server has stored.
    pub(crate) fn custom_of(
        kind: &'static Kind,
        live: Arc<Live>,
        object: &Object,
    ) -> Result<Draft, Status> {
        let stored = Stored::read(&kind.shown(object)).map_err(Status::internal)?;
        Draft::of_stored(kind, Some(live), stored)
    }

    /// The whole object, as its kind shows it, but for the owners of its fields.
    pub(crate) fn whole(&self) -> Value {
        let mut whole = Map::new();
        let version = self.kind.group_version().to_string();
        whole.insert("apiVersion".into(), version.into());
        whole.insert("kind".into(), self.kind.kind.into());
        // Texts, numbers and maps of texts can always be written.
        let meta = tidings_json::to_value(&self.meta).unwrap_or_default();
        whole.insert("metadata".into(), meta);
        whole.extend(self.members.clone());
        Value::Object(whole)
    }

    /// The bytes that are stored of a custom resource.
    pub(crate) fn custom_bytes(&self, live: &Live) -> Result<Vec<u8>, Status> {
        let mut whole = self.whole();
        whole["apiVersion"] = live.stored_version().into();
        let storage = live.definition.storage();
        if !live.version().storage {
            storage.schema.prune(&mut whole);
        }
        // Whoever reads it next would find these defaults: those of a status that was dropped are among them.
        storage.schema.default(&mut whole);
        let owners = &self.meta.managed_fields;
        if !owners.0.is_empty() {
            let owners = serde_json::from_str(&owners.encode()).map_err(Status::internal)?;
            whole["metadata"]["managedFields"] = owners;
        }
        // The place of the version that an object gets when it is read.
        whole["metadata"]["resourceVersion"] = "".into();
        whole.sort_all_objects();
        go::json(&whole).map_err(Status::internal)
    }

    /// What the schema says about an object that is created, or that replaces another.
    pub(crate) fn check_custom(
        &self,
        live: &Live,
        old: Option<&Draft>,
        subresource: Option<&str>,
        errors: &mut FieldErrors,
    ) {
        let version = live.version();
        let schema = &version.schema;
        let new = self.whole();
        if let Some(scale) = &version.scale {
            check_replicas(&new, &scale.spec_replicas, errors);
        }
        match (old.map(Draft::whole), subresource) {
            (Some(old), Some("status")) => schema.validate_status(&new, &old, errors),
            (old, _) => schema.validate(&new, old.as_ref(), errors),
        }
    }
}

/// What a scale counts must be a number of copies (W182).
fn check_replicas(object: &Value, path: &MemberPath, errors: &mut FieldErrors) {
    let Some(replicas) = path.find(object).and_then(Value::as_i64) else {
        return; // the schema says what else is wrong
    };
    let why = match replicas {
        ..0 => "should be a non-negative integer",
        0..=0x7fff_ffff => return,
        _ => "should be less than or equal to 2147483647",
    };
    errors.push(FieldError::invalid_value(&*path.text, replicas, why));
}

/// Numbers as Go writes them again: one without a fraction has none.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            // Beyond this not every whole number is one.
            const EXACT: f64 = 9_007_199_254_740_992.0;
            if float.fract() == 0.0 && float.abs() <= EXACT {
                *value = (float as i64).into();
            }
        }
        Value::Array(values) => values.iter_mut().for_each(whole_numbers),
        Value::Object(members) => members.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// An object says which kind it is of, and must be right (W132).
pub(crate) fn check_type(kind: &Kind, members: &Map) -> Result<(), Status> {
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
