//! Prepares an object for validation: drops nulls and unknown fields, sets defaults.

use tidings_json::{Map, Value};

use crate::node::SchemaNode;

const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Drops null from fields that are neither nullable nor have a default.
pub(crate) fn drop_nulls(value: &mut Value, node: &SchemaNode) {
    match value {
        Value::Object(object) => object.retain(|name, value| match node.field(name) {
            Some(field) if value.is_null() => field.nullable || field.default.is_some(),
            Some(field) => {
                drop_nulls(value, field);
                true
            }
            None => true,
        }),
        Value::Array(elements) => {
            if let Some(items) = &node.items {
                elements
                    .iter_mut()
                    .for_each(|element| drop_nulls(element, items));
            }
        }
        _ => {}
    }
}

/// Sets defaults where fields are absent, or null and not nullable.
pub(crate) fn default(value: &mut Value, node: &SchemaNode) {
    // The flag covers all nodes below, so it also finds defaults inside an object that a default creates.
    if !node.below.defaults {
        return;
    }
    match value {
        Value::Object(object) => {
            for (name, property) in &node.properties {
                let Some(default) = &property.default else {
                    continue;
                };
                match object.get_mut(name) {
                    None => {
                        object.insert(name.clone(), default.clone());
                    }
                    Some(value) if value.is_null() && !property.nullable => {
                        *value = default.clone()
                    }
                    Some(_) => {}
                }
            }
            for (name, value) in object.iter_mut() {
                if let Some(property) = node.properties.get(name) {
                    self::default(value, property);
                } else if let Some(schema) = node.additional.schema() {
                    default_element(value, schema);
                }
            }
        }
        Value::Array(elements) => {
            if let Some(items) = &node.items {
                elements
                    .iter_mut()
                    .for_each(|element| default_element(element, items));
            }
        }
        _ => {}
    }
}

fn default_element(value: &mut Value, node: &SchemaNode) {
    if value.is_null()
        && !node.nullable
        && let Some(default) = &node.default
    {
        *value = default.clone();
    }
    default(value, node);
}

/// Removes fields that a schema does not specify and collects their paths.
#[derive(Default)]
pub(crate) struct Pruner {
    path: String,
    pub(crate) pruned: Vec<String>,
}

impl Pruner {
    /// Prunes a value by its schema. In a resource, apiVersion, kind and metadata stay unchanged.
    pub(crate) fn prune(
        &mut self,
        value: &mut Value,
        node: Option<&SchemaNode>,
        is_resource: bool,
    ) {
        if node.is_some_and(SchemaNode::preserves_unknown) {
            return self.skip(value, node, is_resource);
        }
        let len = self.path.len();
        match value {
            Value::Object(object) => self.prune_object(object, node, is_resource),
            Value::Array(elements) => {
                let items = node.and_then(|node| node.items.as_deref());
                for (index, element) in elements.iter_mut().enumerate() {
                    self.push_index(index);
                    self.prune(element, items, items.is_some_and(|items| items.embedded));
                    self.path.truncate(len);
                }
            }
            _ => {}
        }
    }

    fn prune_object(&mut self, object: &mut Map, node: Option<&SchemaNode>, is_resource: bool) {
        let len = self.path.len();
        object.retain(|name, value| {
            let is_meta = META_FIELDS.contains(&name.as_str());
            if is_resource && is_meta {
                return true;
            }
            if let Some(node) = node
                && (node.properties.contains_key(name) || node.additional.is_set())
            {
                let field = node.field(name);
                self.push_key(name);
                self.prune(value, field, field.is_some_and(|field| field.embedded));
                self.path.truncate(len);
                return true;
            }
            if !is_meta || len > 0 || node.is_none() {
                self.push_key(name);
                self.pruned.push(self.path.clone());
                self.path.truncate(len);
            }
            false
        });
    }

    /// Keeps unknown fields, but prunes below the fields that the schema specifies.
    fn skip(&mut self, value: &mut Value, node: Option<&SchemaNode>, is_resource: bool) {
        let Some(node) = node else {
            return;
        };
        let len = self.path.len();
        match value {
            Value::Object(object) => {
                for (name, value) in object.iter_mut() {
                    let is_meta = META_FIELDS.contains(&name.as_str());
                    if is_resource && is_meta {
                        continue;
                    }
                    if node.properties.contains_key(name) || node.additional.is_set() {
                        let field = node.field(name);
                        self.push_key(name);
                        self.prune(value, field, field.is_some_and(|field| field.embedded));
                        self.path.truncate(len);
                    }
                }
            }
            Value::Array(elements) => {
                let items = node.items.as_deref();
                for (index, element) in elements.iter_mut().enumerate() {
                    self.push_index(index);
                    self.skip(element, items, items.is_some_and(|items| items.embedded));
                    self.path.truncate(len);
                }
            }
            _ => {}
        }
    }

    fn push_key(&mut self, name: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(name);
    }

    fn push_index(&mut self, index: usize) {
        self.path.push('[');
        self.path.push_str(&index.to_string());
        self.path.push(']');
    }
}
