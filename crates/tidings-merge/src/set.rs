//! Sets of fields.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::Schema;
use crate::element::Element;
use crate::schema::Shape;

/// A set of fields of an object, as a tree of their paths.
///
/// A field can be in the set without the fields below it, and they without it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// The field at this place is in the set.
    pub here: bool,
    /// What is in the set below it. No entry is empty.
    pub below: BTreeMap<Element, FieldSet>,
}

impl FieldSet {
    /// A field without anything below it.
    pub fn leaf() -> FieldSet {
        FieldSet {
            here: true,
            below: BTreeMap::new(),
        }
    }

    /// A set of fields given by the names on the way to them.
    pub fn of_names(paths: &[&[&str]]) -> FieldSet {
        let mut set = FieldSet::default();
        for path in paths {
            let mut at = &mut set;
            for name in *path {
                at = at.below.entry(Element::field(name)).or_default();
            }
            at.here = true;
        }
        set
    }

    /// Reads `fieldsV1`. Steps that cannot be read are left out.
    pub fn decode(value: &Value) -> FieldSet {
        let mut set = FieldSet::default();
        for (name, value) in value.as_object().into_iter().flatten() {
            if name == "." {
                set.here = true;
            } else if let Some(element) = Element::decode(name) {
                let mut below = FieldSet::decode(value);
                if below.below.is_empty() {
                    below.here = true; // `{}` stands for the field itself
                }
                set.below.insert(element, below);
            }
        }
        set
    }

    /// Writes `fieldsV1`.
    pub fn encode(&self) -> Value {
        let mut members = Map::with_capacity(self.below.len() + 1);
        if self.here && !self.below.is_empty() {
            members.insert(".".into(), Value::Object(Map::new()));
        }
        for (element, set) in &self.below {
            members.insert(element.encoded(), set.encode());
        }
        Value::Object(members)
    }

    /// True if nothing is in it.
    pub fn is_empty(&self) -> bool {
        !self.here && self.below.is_empty()
    }

    /// Puts a set below an element, if it has anything in it.
    pub fn put(&mut self, element: Element, set: FieldSet) {
        if !set.is_empty() {
            self.below.insert(element, set);
        }
    }

    /// Adds what is in another set.
    pub fn add(&mut self, other: &FieldSet) {
        self.here |= other.here;
        for (element, set) in &other.below {
            match self.below.get_mut(element) {
                Some(own) => own.add(set),
                None => drop(self.below.insert(element.clone(), set.clone())),
            }
        }
    }

    /// Takes out what is in another set.
    pub fn remove(&mut self, other: &FieldSet) {
        self.here &= !other.here;
        for (element, set) in &other.below {
            if let Some(own) = self.below.get_mut(element) {
                own.remove(set);
                if own.is_empty() {
                    self.below.remove(element);
                }
            }
        }
    }

    /// Takes out what is in another set; of fields that have nothing below them there, everything below as well.
    pub fn remove_with_below(&mut self, other: &FieldSet) {
        self.here &= !other.here;
        for (element, set) in &other.below {
            if set.below.is_empty() {
                self.below.remove(element);
            } else if let Some(own) = self.below.get_mut(element) {
                own.remove_with_below(set);
                if own.is_empty() {
                    self.below.remove(element);
                }
            }
        }
    }

    /// What is in both sets.
    #[must_use]
    pub fn common(&self, other: &FieldSet) -> FieldSet {
        let mut common = FieldSet {
            here: self.here && other.here,
            below: BTreeMap::new(),
        };
        for (element, set) in &self.below {
            if let Some(also) = other.below.get(element) {
                common.put(element.clone(), set.common(also));
            }
        }
        common
    }

    /// With the members of structs that have something below them.
    #[must_use]
    pub(crate) fn with_named<S: Schema>(&self, schema: S) -> FieldSet {
        let mut named = FieldSet {
            here: self.here,
            below: BTreeMap::new(),
        };
        for (element, set) in &self.below {
            let (below, is_named) = match (element, schema.shape()) {
                (Element::Field(name), Shape::Struct) => (schema.field(name), true),
                (Element::Field(_), Shape::Map(item)) => (Some(item), false),
                (Element::Key(_), Shape::Keyed(item)) => (Some(item), false),
                _ => (None, false),
            };
            let mut set = match below {
                Some(schema) => set.with_named(schema),
                None => set.clone(),
            };
            set.here |= is_named && below.is_some();
            named.below.insert(element.clone(), set);
        }
        named
    }

    /// The paths of all fields in it, as they are shown: `.spec.ports[port=80].name`.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect(&mut String::new(), &mut paths);
        paths
    }

    fn collect(&self, path: &mut String, paths: &mut Vec<String>) {
        if self.here && !path.is_empty() {
            paths.push(path.clone());
        }
        for (element, set) in &self.below {
            let length = path.len();
            path.push_str(&element.to_string());
            set.collect(path, paths);
            path.truncate(length);
        }
    }
}
