//! The old value that belongs to a new one: fields by their names, elements of list maps by their keys.

use std::collections::HashMap;

use tidings_json::{Map, Value};

use crate::node::Node;

/// A value before and after an update.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'a> {
    pub(crate) new: &'a Value,
    pub(crate) old: &'a Value,
    pub(crate) node: &'a Node,
}

impl<'a> Pair<'a> {
    /// A field that is in both objects and in the schema.
    pub(crate) fn field(&self, name: &str) -> Option<Pair<'a>> {
        Some(Pair {
            new: self.new.as_object()?.get(name)?,
            old: self.old.as_object()?.get(name)?,
            node: self.node.field(name)?,
        })
    }

    /// The elements of the old list by key; `None` if the list is no list map.
    pub(crate) fn elements(&self) -> Option<Keyed<'a>> {
        match self.old {
            Value::Array(old) => Keyed::new(self.node, old),
            _ => None,
        }
    }

    /// True if nothing that can be told apart has changed: elements of list maps may have changed places.
    pub(crate) fn is_same(&self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                if new.len() != old.len() {
                    return false;
                }
                let (Some(keyed), Some(items)) = (self.elements(), self.node.items.as_deref())
                else {
                    return new == old;
                };
                new.iter().all(|new| {
                    let pair = keyed.get(new).map(|old| Pair {
                        new,
                        old,
                        node: items,
                    });
                    pair.is_some_and(|pair| pair.is_same())
                })
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len()
                    && new
                        .keys()
                        .all(|name| self.field(name).is_some_and(|field| field.is_same()))
            }
            (new, old) => new == old,
        }
    }
}

/// The elements of a list map by their keys. The first of those with the same key counts.
pub(crate) struct Keyed<'a> {
    keys: &'a [String],
    elements: HashMap<String, &'a Value>,
}

impl<'a> Keyed<'a> {
    pub(crate) fn new(node: &'a Node, elements: &'a [Value]) -> Option<Keyed<'a>> {
        if !node.is_list_map() || node.list_map_keys.is_empty() || elements.is_empty() {
            return None;
        }
        let keys = &node.list_map_keys;
        let mut by_key = HashMap::with_capacity(elements.len());
        for element in elements {
            if let Some(key) = element.as_object().and_then(|object| key_of(object, keys)) {
                by_key.entry(key).or_insert(element);
            }
        }
        Some(Keyed {
            keys,
            elements: by_key,
        })
    }

    pub(crate) fn get(&self, element: &Value) -> Option<&'a Value> {
        let key = key_of(element.as_object()?, self.keys)?;
        self.elements.get(&key).copied()
    }
}

/// All keys, each with its type. An element without one of them has none.
fn key_of(object: &Map, keys: &[String]) -> Option<String> {
    let mut composed = String::new();
    for key in keys {
        let value = object.get(key)?;
        if !(value.is_string() || value.is_number() || value.is_boolean()) {
            return None;
        }
        composed.push('\0');
        composed.push_str(&value.to_string());
    }
    Some(composed)
}
