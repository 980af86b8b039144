//! Finds the old value of a new one in an update: fields by name, elements of list maps by key.

use std::collections::HashMap;

use tidings_json::{Map, Value};

use crate::node::SchemaNode;

/// A value before and after an update, with its schema.
#[derive(Clone, Copy)]
pub(crate) struct UpdatePair<'a> {
    pub(crate) new: &'a Value,
    pub(crate) old: &'a Value,
    pub(crate) node: &'a SchemaNode,
}

impl<'a> UpdatePair<'a> {
    /// The pair of a field; `None` if one of the objects or the schema does not have the field.
    pub(crate) fn field(&self, name: &str) -> Option<UpdatePair<'a>> {
        Some(UpdatePair {
            new: self.new.as_object()?.get(name)?,
            old: self.old.as_object()?.get(name)?,
            node: self.node.field(name)?,
        })
    }

    /// The elements of the old list by key; `None` if the list is not a list map.
    pub(crate) fn elements(&self) -> Option<KeyedElements<'a>> {
        match self.old {
            Value::Array(old) => KeyedElements::new(self.node, old),
            _ => None,
        }
    }

    /// True if the value has not changed. The order of the elements of list maps does not matter.
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
                    let pair = keyed.get(new).map(|old| UpdatePair {
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

/// The elements of a list map by key. Of several elements with the same key the first counts.
pub(crate) struct KeyedElements<'a> {
    keys: &'a [String],
    elements: HashMap<String, &'a Value>,
}

impl<'a> KeyedElements<'a> {
    pub(crate) fn new(node: &'a SchemaNode, elements: &'a [Value]) -> Option<KeyedElements<'a>> {
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
        Some(KeyedElements {
            keys,
            elements: by_key,
        })
    }

    pub(crate) fn get(&self, element: &Value) -> Option<&'a Value> {
        let key = key_of(element.as_object()?, self.keys)?;
        self.elements.get(&key).copied()
    }
}

/// The values of all key fields as one text that keeps their types; `None` if a key field is missing.
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
