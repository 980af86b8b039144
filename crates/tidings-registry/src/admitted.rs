//! Objects on their way through admission: as webhooks and policies see them before they are stored, and with what those changed.

use std::sync::Arc;

use tidings_api::{EventType, Object, ResourceVersion, ServedObject, Status, UnstampedObject};
use tidings_json::{Touched, Value};
use tidings_merge::{MergeShape, Schema};

use crate::complete;
use crate::field_schema::FieldSchema;
use crate::model::{Draft, Kind};

/// An object that has no revision yet, with the resourceVersion that a client sent, if that is one.
///
/// # Errors
/// If it is not one JSON object.
pub fn without_revision(
    written: &UnstampedObject,
    sent: ResourceVersion,
) -> Result<Object, Status> {
    if sent > ResourceVersion::default() {
        return Ok(written.stamped(sent, EventType::Modified));
    }
    let object = Object::parse(written.value().clone()).map_err(Status::internal)?;
    // A custom resource has an empty resourceVersion, which is cut out of its JSON.
    let version = object.spans().resource_version;
    if version.is_empty() {
        return Ok(object);
    }
    let json = object.as_bytes();
    let start = version.start as usize - "\"resourceVersion\":".len();
    let end = version.end as usize;
    let (before, after) = (&json[..start], &json[end..]);
    let without = match after.strip_prefix(b",") {
        Some(after) => [before, after].concat(),
        None => [before.strip_suffix(b",").unwrap_or(before), after].concat(),
    };
    Object::parse(without).map_err(Status::internal)
}

/// An object with the members of a configuration, as by server-side apply. Who owns which fields does not change. Without a kind, the types of the members
/// are not known.
///
/// # Errors
/// If the configuration does not fit the kind, or replaces a value as a whole that has parts: what it does not name would be lost.
pub fn with_configuration(
    kind: Option<&Kind>,
    object: &Value,
    configuration: &Value,
) -> Result<Value, String> {
    let schema = kind.map_or(FieldSchema::Unknown, Kind::field_schema);
    let mut configuration = configuration.clone();
    if !configuration.is_object() {
        return Err("the expression makes no object".to_owned());
    }
    for name in ["apiVersion", "kind"] {
        configuration[name] = object[name].clone();
    }
    tidings_merge::fields_of(&configuration, schema)
        .map_err(|errors| format!("failed to convert patch object to typed object: {errors}"))?;
    let mut atomics = Vec::new();
    find_atomics(&configuration, schema, "", &mut atomics);
    if !atomics.is_empty() {
        let atomics = atomics.join(", ");
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {atomics}"
        ));
    }
    Ok(tidings_merge::merge(object, &configuration, schema))
}

/// The paths of lists and objects that are replaced as a whole.
fn find_atomics(value: &Value, schema: FieldSchema<'_>, path: &str, found: &mut Vec<String>) {
    let shape = schema.shape();
    match value {
        Value::Object(_) | Value::Array(_) if matches!(shape, MergeShape::Atomic) => {
            found.push(path.to_owned());
        }
        Value::Object(members) => {
            for (name, value) in members {
                let inner = match shape {
                    MergeShape::Map(item) => Some(item),
                    _ => schema.field(name),
                };
                if let Some(inner) = inner {
                    find_atomics(value, inner, &format!("{path}.{name}"), found);
                }
            }
        }
        Value::Array(values) => {
            if let MergeShape::Keyed(item) | MergeShape::Set(item) = shape {
                for (at, value) in values.iter().enumerate() {
                    find_atomics(value, item, &format!("{path}[{at}]"), found);
                }
            }
        }
        _ => {}
    }
}

/// The fields of an object that its kind does not have; none of a custom resource, which drops them.
///
/// # Errors
/// If it is no object of the kind.
pub fn unknown_fields(kind: &Arc<Kind>, object: &Value) -> Result<Vec<String>, String> {
    if kind.is_custom() {
        return Ok(Vec::new());
    }
    let draft = Draft::read_value(kind, object.clone())?;
    let paths = draft.odd.iter().map(|field| field.path().to_owned());
    Ok(paths.collect())
}

impl Draft {
    /// Brings a draft that was changed here and there into its form: with defaults, and with members in their order.
    pub fn complete(&mut self) {
        complete::complete(self, &Touched::Whole);
    }

    /// The object as it would be stored now.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub fn preview(&self) -> Result<Object, Status> {
        let sent = self.meta.resource_version.parse().unwrap_or_default();
        without_revision(&self.write()?, sent)
    }

    /// The object with what admission has made of it: `changed` is of the kind `shown`. Who owns which fields stays as it was.
    ///
    /// # Errors
    /// If it is no object of the kind.
    pub fn with_changes(&self, shown: &Arc<Kind>, changed: Value) -> Result<Draft, Status> {
        if shown.is_custom() && changed["kind"] != *shown.kind {
            let why = format!("the object is no {} any more", shown.kind);
            return Err(Status::internal(why));
        }
        let mut draft = Draft::read_value(shown, changed).map_err(Status::internal)?;
        if shown.is_custom() {
            draft.kind = self.kind.clone();
        }
        draft.odd = self.odd.clone();
        draft.meta.managed_fields = self.meta.managed_fields.clone();
        draft.meta.managed_sent.clear();
        draft.keeps_owners = true;
        Ok(draft)
    }
}
