//! Compares two states of an object and returns the fields that differ.

use std::collections::BTreeMap;

use tidings_json::Value;

use crate::element::PathElement;
use crate::schema::{Schema, ValuePart, parts};
use crate::set::FieldSet;

/// The fields that a write has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes<'a> {
    /// Fields that were added or have another value.
    pub set: FieldSet<'a>,
    /// Fields that were removed.
    pub removed: FieldSet<'a>,
}

impl<'a> Changes<'a> {
    /// Compares two objects, given by their members.
    pub fn between<S: Schema>(
        old: impl IntoIterator<Item = (&'a str, &'a Value)>,
        new: impl IntoIterator<Item = (&'a str, &'a Value)>,
        schema: S,
    ) -> Changes<'a> {
        let mut sides: BTreeMap<&'a str, [Option<&'a Value>; 2]> = BTreeMap::new();
        for (name, value) in old {
            sides.entry(name).or_default()[0] = Some(value);
        }
        for (name, value) in new {
            sides.entry(name).or_default()[1] = Some(value);
        }
        let mut changes = Changes::default();
        for (name, [old, new]) in sides {
            if let Some(schema) = schema.field(name) {
                changes.put(PathElement::field(name), Changes::of(old, new, schema));
            }
        }
        changes
    }

    /// Compares two values; `None` is an absent value.
    pub fn of<S: Schema>(old: Option<&'a Value>, new: Option<&'a Value>, schema: S) -> Changes<'a> {
        let mut changes = Changes::default();
        if old == new {
            return changes; // the common case: most of an object does not change
        }
        match (not_empty(old, schema), not_empty(new, schema)) {
            (None, None) => changes.as_one(old, new),
            (before, after) => {
                if before.is_none() != after.is_none() && old.is_some() && new.is_some() {
                    changes.as_other_form(old, new, schema);
                }
                changes.by_parts(before.unwrap_or_default(), after.unwrap_or_default());
                changes.set.here |= old.is_none();
                changes.removed.here |= new.is_none();
            }
        }
        changes
    }

    /// True if no field differs.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.removed.is_empty()
    }

    /// Compares two values that have no parts.
    fn as_one(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, None) => {}
            (Some(_), None) => self.removed.here = true,
            (old, new) => self.set.here = old != new,
        }
    }

    /// Compares a value that has parts with one that has none.
    fn as_other_form<S: Schema>(&mut self, old: Option<&Value>, new: Option<&Value>, schema: S) {
        let granular = |value: Option<&Value>| {
            value
                .is_some_and(|value| value.is_null() || parts(value, schema, &mut |_| {}).is_some())
        };
        // An empty or null map or list is still granular, so only a change of the form counts.
        self.set.here |= !(granular(old) && granular(new));
    }

    /// Compares two values part by part.
    fn by_parts<S: Schema>(&mut self, old: Vec<ValuePart<'a, S>>, new: Vec<ValuePart<'a, S>>) {
        type Sides<'a> = [Vec<&'a Value>; 2];
        let mut sides: BTreeMap<PathElement<'a>, (Sides<'a>, S)> = BTreeMap::new();
        for (side, children) in [old, new].into_iter().enumerate() {
            for child in children {
                let entry = sides.entry(child.element);
                let (values, _) = entry.or_insert_with(|| (Sides::default(), child.schema));
                values[side].push(child.value);
            }
        }
        for (element, ([old, new], schema)) in sides {
            let below = match (&*old, &*new) {
                // Duplicate items count as one field: managers do not own parts of them.
                ([_, _, ..], [_, _, ..]) => {
                    let mut below = Changes::default();
                    below.set.here = old != new;
                    below
                }
                ([_, _, ..], new) => {
                    let mut below = Changes::of(None, new.first().copied(), schema);
                    below.removed.here = true;
                    below
                }
                (old, [_, _, ..]) => {
                    let mut below = Changes::of(old.first().copied(), None, schema);
                    below.set.here = true;
                    below
                }
                (old, new) => Changes::of(old.first().copied(), new.first().copied(), schema),
            };
            self.put(element, below);
        }
    }

    /// The changes of a value from the changes of its parts, given in any order.
    pub(crate) fn of_below(below: Vec<(PathElement<'a>, Changes<'a>)>) -> Changes<'a> {
        let (mut set, mut removed) = (Vec::with_capacity(below.len()), Vec::new());
        for (element, changes) in below {
            if !changes.removed.is_empty() {
                removed.push((element.clone(), changes.removed));
            }
            set.push((element, changes.set));
        }
        Changes {
            set: FieldSet::of_below(set),
            removed: FieldSet::of_below(removed),
        }
    }

    fn put(&mut self, element: PathElement<'a>, below: Changes<'a>) {
        if !below.removed.is_empty() {
            self.removed.put(element.clone(), below.removed);
        }
        self.set.put(element, below.set);
    }

    /// Removes fields that no manager can own, see [`FieldSet::remove_with_below`].
    pub fn ignore(&mut self, ignored: &FieldSet<'_>) {
        self.set.remove_with_below(ignored);
        self.removed.remove_with_below(ignored);
    }

    /// Changes that borrow nothing.
    pub fn into_owned(self) -> Changes<'static> {
        Changes {
            set: self.set.into_owned(),
            removed: self.removed.into_owned(),
        }
    }
}

/// The parts of a value; `None` if it has none.
fn not_empty<S: Schema>(value: Option<&Value>, schema: S) -> Option<Vec<ValuePart<'_, S>>> {
    parts(value?, schema, &mut |_| {}).filter(|parts| !parts.is_empty())
}
