//! Objects on their way through admission: as webhooks and policies see them before they are stored, and with what those changed.

use std::sync::Arc;

use bytes::Bytes;
use tidings_api::{EventType, Object, ResourceVersion, ServedObject, Status, UnstampedObject};
use tidings_json::{Touched, Value};

use crate::complete;
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
    Object::parse(Bytes::from(without)).map_err(Status::internal)
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
