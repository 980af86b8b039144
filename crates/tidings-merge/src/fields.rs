//! What a manager owns, as a set and as it is written.

use std::sync::OnceLock;

use crate::set::FieldSet;
use crate::written::meets_written;

/// The fields that a manager owns.
///
/// Most entries of an object stay as they are, so each form is made from the other only when it is wanted.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    /// One of the two is always there, or nothing is owned.
    json: OnceLock<Box<str>>,
    set: OnceLock<FieldSet<'static>>,
}

impl Fields {
    /// Fields as `fieldsV1` has them.
    pub(crate) fn from_json(json: impl Into<Box<str>>) -> Fields {
        Fields {
            json: OnceLock::from(json.into()),
            set: OnceLock::new(),
        }
    }

    /// As `fieldsV1` has them.
    pub fn json(&self) -> &str {
        self.json.get_or_init(|| self.set().encode().into())
    }

    /// As a set.
    pub fn set(&self) -> &FieldSet<'static> {
        self.set.get_or_init(|| {
            let set = self.json.get().and_then(|json| FieldSet::decode(json));
            set.unwrap_or_default()
        })
    }

    /// True if nothing is owned.
    pub fn is_empty(&self) -> bool {
        match self.json.get() {
            Some(json) => &**json == "{}",
            None => self.set().is_empty(),
        }
    }

    /// True if something is owned that is in another set.
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

impl From<FieldSet<'static>> for Fields {
    fn from(set: FieldSet<'static>) -> Fields {
        Fields {
            json: OnceLock::new(),
            set: OnceLock::from(set),
        }
    }
}

/// Sets are written in one way only.
impl PartialEq for Fields {
    fn eq(&self, other: &Fields) -> bool {
        self.json() == other.json()
    }
}

impl Eq for Fields {}
