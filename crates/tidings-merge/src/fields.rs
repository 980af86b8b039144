//! The fields that a manager owns, as a set and as JSON.

use std::sync::OnceLock;

use crate::set::FieldSet;
use crate::written::meets_written;

/// The fields that a manager owns.
///
/// Most entries of an object do not change, so each form is computed from the other only on demand.
#[derive(Debug, Clone, Default)]
pub struct OwnedFields {
    /// `fieldsV1`. At least one of the two forms is set, or the manager owns nothing.
    json: OnceLock<Box<str>>,
    set: OnceLock<FieldSet<'static>>,
}

impl OwnedFields {
    /// Fields from `fieldsV1`.
    pub(crate) fn from_json(json: impl Into<Box<str>>) -> OwnedFields {
        OwnedFields {
            json: OnceLock::from(json.into()),
            set: OnceLock::new(),
        }
    }

    /// The fields encoded as `fieldsV1`.
    pub fn json(&self) -> &str {
        self.json.get_or_init(|| self.set().encode().into())
    }

    /// The fields as a set.
    pub fn set(&self) -> &FieldSet<'static> {
        self.set.get_or_init(|| {
            let set = self.json.get().and_then(|json| FieldSet::decode(json));
            set.unwrap_or_default()
        })
    }

    /// True if the manager owns no fields.
    pub fn is_empty(&self) -> bool {
        match self.json.get() {
            Some(json) => &**json == "{}",
            None => self.set().is_empty(),
        }
    }

    /// True if a field is also in another set.
    pub(crate) fn meets(&self, other: &FieldSet<'_>) -> bool {
        match (self.set.get(), self.json.get()) {
            (None, Some(json)) => !other.is_empty() && meets_written(other, json),
            _ => self.set().meets(other),
        }
    }

    pub(crate) fn add(&mut self, other: &FieldSet<'_>) {
        if !self.set().contains(other) {
            self.change(|set| set.add(other.clone().into_owned()));
        }
    }

    pub(crate) fn remove(&mut self, other: &FieldSet<'_>) {
        if self.meets(other) {
            self.change(|set| set.remove(other));
        }
    }

    pub(crate) fn into_set(self) -> FieldSet<'static> {
        self.set();
        self.set.into_inner().unwrap_or_default()
    }

    fn change(&mut self, change: impl FnOnce(&mut FieldSet<'static>)) {
        self.set();
        let mut set = self.set.take().unwrap_or_default();
        change(&mut set);
        *self = set.into();
    }
}

impl From<FieldSet<'static>> for OwnedFields {
    fn from(set: FieldSet<'static>) -> OwnedFields {
        OwnedFields {
            json: OnceLock::new(),
            set: OnceLock::from(set),
        }
    }
}

/// Compares the encodings: equal sets have equal encodings.
impl PartialEq for OwnedFields {
    fn eq(&self, other: &OwnedFields) -> bool {
        self.json() == other.json()
    }
}

impl Eq for OwnedFields {}
