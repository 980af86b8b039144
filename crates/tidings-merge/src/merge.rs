//! What becomes of an object when a configuration is put over it, and when fields are taken away.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::element::Element;
use crate::schema::{Child, Schema, Shape, parts};
use crate::set::FieldSet;

/// The object with everything that the configuration says.
pub fn merge<S: Schema>(live: &Value, config: &Value, schema: S) -> Value {
    match (live, config) {
        (Value::Object(live), Value::Object(config))
            if !matches!(schema.shape(), Shape::Scalar(_) | Shape::Atomic) =>
        {
            Value::Object(merge_members(live, config, schema))
        }
        (Value::Array(_), Value::Array(_)) => {
            match (children(live, schema), children(config, schema)) {
                (Some(live), Some(config)) => Value::Array(merge_items(&live, &config)),
                _ => config.clone(),
            }
        }
        // Saying that there is nothing in it takes nothing away from it.
        (live, Value::Null) if children(live, schema).is_some_and(|parts| !parts.is_empty()) => {
            live.clone()
        }
        _ => config.clone(),
    }
}

/// The parts of a value that has some; what cannot be told apart is left out.
fn children<S: Schema>(value: &Value, schema: S) -> Option<Vec<Child<'_, S>>> {
    parts(value, schema, &mut |_| {})
}

fn merge_members<S: Schema>(
    live: &Map<String, Value>,
    config: &Map<String, Value>,
    schema: S,
) -> Map<String, Value> {
    let mut merged = live.clone();
    for (name, value) in config {
        let schema = match schema.shape() {
            Shape::Map(item) => Some(item),
            Shape::Struct => schema.field(name),
            _ => Some(schema),
        };
        let value = match (merged.get(name), schema) {
            (Some(live), Some(schema)) => merge(live, value, schema),
            _ => value.clone(),
        };
        merged.insert(name.clone(), value);
    }
    merged
}

/// The items of both lists. Those of the configuration come in its order; those that only the object has stay between the
/// neighbours that they have.
fn merge_items<S: Schema>(live: &[Child<'_, S>], config: &[Child<'_, S>]) -> Vec<Value> {
    let same = live.iter().map(|child| &child.element);
    if same.eq(config.iter().map(|child| &child.element)) {
        let pairs = live.iter().zip(config);
        return pairs
            .map(|(live, config)| merge(live.value, config.value, config.schema))
            .collect();
    }
    let mut lives: BTreeMap<&Element, Vec<&Child<'_, S>>> = BTreeMap::new();
    for child in live {
        lives.entry(&child.element).or_default().push(child);
    }
    let configs: BTreeMap<&Element, &Child<'_, S>> =
        config.iter().map(|child| (&child.element, child)).collect();
    // Items that both have, in the order of the configuration: where the two lists meet next.
    let mut meeting = config
        .iter()
        .map(|child| &child.element)
        .filter(|element| lives.contains_key(element))
        .peekable();
    let mut items = Vec::with_capacity(live.len().max(config.len()));
    let (mut old, mut new) = (live.iter().peekable(), config.iter().peekable());
    let mut done: std::collections::BTreeSet<&Element> = std::collections::BTreeSet::new();
    loop {
        let (before, after) = (old.peek().copied(), new.peek().copied());
        if let Some(before) = before {
            let element = &before.element;
            match after {
                Some(after) if after.element == *element => {
                    old.next();
                    // It is taken below, as one of the configuration.
                }
                _ if !configs.contains_key(element) => {
                    items.push(before.value.clone());
                    old.next();
                    continue;
                }
                // The configuration has it elsewhere.
                _ if done.contains(element) || meeting.peek() != Some(&element) => {
                    old.next();
                    continue;
                }
                _ => {}
            }
        }
        let Some(after) = new.next() else {
            break;
        };
        let element = &after.element;
        done.insert(element);
        if meeting.peek() == Some(&element) {
            meeting.next();
        }
        items.push(match lives.get(element).map(Vec::as_slice) {
            Some([live]) => merge(live.value, after.value, after.schema),
            // Of items that occur twice nobody knows which one is meant: the configuration replaces them.
            _ => after.value.clone(),
        });
    }
    items
}

/// The value without the fields of a set. `None` if nothing is left of it; a part of which nothing is left is null.
pub fn without<S: Schema>(value: &Value, fields: &FieldSet, schema: S) -> Option<Value> {
    let Some(children) = children(value, schema) else {
        return Some(value.clone());
    };
    let left = children.into_iter().filter_map(|child| {
        let kept = match fields.below.get(&child.element) {
            Some(set) if set.here => None,
            Some(set) => Some(without(child.value, set, child.schema).unwrap_or(Value::Null)),
            None => Some(child.value.clone()),
        };
        Some((child.element, kept?))
    });
    if value.is_array() {
        let left: Vec<Value> = left.map(|(_, value)| value).collect();
        return (!left.is_empty()).then_some(Value::Array(left));
    }
    let mut members = Map::new();
    for (element, value) in left {
        if let Element::Field(name) = element {
            members.insert(name.into(), value);
        }
    }
    (!members.is_empty()).then_some(Value::Object(members))
}
