//! Are the defaults of a schema right? A default must be pruned, and must be valid where it will stand.

use tidings_api::FieldError;
use tidings_json::{Map, Value, json};

use crate::cel;
use crate::node::Node;
use crate::shape::Pruner;
use crate::text::{Path, bad_value};
use crate::{meta, value};

/// What is checked.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Against {
    /// The schema without its rules. `unpruned` defaults may have unknown fields.
    Schema { unpruned: bool },
    /// The rules, once everything else is right.
    Rules,
}

/// Where a default is inside the resource around it.
#[derive(Clone)]
enum Step {
    Field(String),
    Element,
}

/// Appends what is wrong with the defaults of a schema.
pub(crate) fn check(root: &Node, path: &Path, against: Against) -> Vec<FieldError> {
    let mut walk = Walk {
        against,
        errors: Vec::new(),
    };
    walk.node(root, path, Some(root), &mut Vec::new(), false);
    walk.errors
}

struct Walk {
    against: Against,
    errors: Vec<FieldError>,
}

impl Walk {
    fn node(
        &mut self,
        node: &Node,
        path: &Path,
        root: Option<&Node>,
        steps: &mut Vec<Step>,
        inside_meta: bool,
    ) {
        if !node.below.defaults {
            return;
        }
        let mut own_steps = Vec::new();
        let (resource, steps, inside_meta) = match root {
            Some(root) if std::ptr::eq(root, node) => (node, steps, inside_meta),
            _ if node.embedded => (node, &mut own_steps, false),
            Some(root) => (root, steps, inside_meta),
            None => (node, steps, inside_meta),
        };
        let is_resource = std::ptr::eq(resource, node);
        if let Some(default) = &node.default {
            let path = path.child("default");
            let errors = match self.against {
                Against::Schema { unpruned } => check_default(
                    default,
                    node,
                    &path,
                    unpruned,
                    inside_meta.then_some((resource, steps.as_slice())),
                ),
                Against::Rules => check_rules(default, node, is_resource, &path),
            };
            self.errors.extend(errors);
        }
        if let Some(items) = &node.items {
            steps.push(Step::Element);
            self.node(
                items,
                &path.child("items"),
                Some(resource),
                steps,
                inside_meta,
            );
            steps.pop();
        }
        for (name, property) in &node.properties {
            let is_meta =
                is_resource && ["metadata", "apiVersion", "kind"].contains(&name.as_str());
            steps.push(Step::Field(name.clone()));
            let path = path.child("properties").key(name);
            self.node(
                property,
                &path,
                Some(resource),
                steps,
                inside_meta || is_meta,
            );
            steps.pop();
        }
    }
}

fn check_default(
    default: &Value,
    node: &Node,
    path: &Path,
    may_be_unpruned: bool,
    around: Option<(&Node, &[Step])>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match around {
        Some((resource, steps)) => {
            let mut object = surround(default.clone(), steps);
            let nowhere = Path::default();
            let mut found = Vec::new();
            let why = match meta::coerce(
                &mut object,
                resource,
                true,
                false,
                &nowhere,
                &mut Vec::new(),
            ) {
                Err(error) => Some(error.to_string()),
                Ok(()) => {
                    meta::check(&object, resource, true, &nowhere, &mut found);
                    let texts: Vec<String> = found.iter().map(FieldError::to_string).collect();
                    match texts.as_slice() {
                        [] => None,
                        [only] => Some(only.clone()),
                        several => Some(format!("[{}]", several.join(", "))),
                    }
                }
            };
            if let Some(why) = why {
                let detail = format!("must result in valid metadata: {why}");
                errors.push(FieldError::invalid_value(
                    path.clone(),
                    bad_value(default),
                    detail,
                ));
                return errors;
            }
        }
        None => {
            let mut coerced = default.clone();
            let embedded = node.embedded;
            let result = meta::coerce(&mut coerced, node, embedded, false, path, &mut Vec::new());
            // The default is printed as it is after its metadata was put in order.
            if !may_be_unpruned && !is_pruned(default, node) {
                let detail = "must not have unknown fields";
                let printed = bad_value(&coerced);
                errors.push(FieldError::invalid_value(path.clone(), printed, detail));
            }
            let mut found = Vec::new();
            match result {
                Err(error) => found.push(error),
                Ok(()) => meta::check(&coerced, node, embedded, path, &mut found),
            }
            if found.is_empty() {
                value::check(&coerced, node, None, path, &mut errors);
            }
            errors.extend(found);
            return errors;
        }
    }
    value::check(default, node, None, path, &mut errors);
    errors
}

fn is_pruned(default: &Value, node: &Node) -> bool {
    let mut pruned = default.clone();
    Pruner::default().prune(&mut pruned, Some(node), node.embedded);
    pruned == *default
}

/// True if a schema has a default with unknown fields.
pub(crate) fn has_unpruned(node: &Node) -> bool {
    let has_own = node
        .default
        .as_ref()
        .is_some_and(|default| !is_pruned(default, node));
    has_own
        || node
            .properties
            .values()
            .chain(node.additional.schema())
            .chain(node.items.as_deref())
            .any(has_unpruned)
}

/// A default must satisfy the rules when it comes, and when it was there before.
fn check_rules(default: &Value, node: &Node, is_resource: bool, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    cel::validate(
        default,
        Some(default),
        node,
        path,
        is_resource,
        cel::Ratcheting::Off,
        &mut errors,
    );
    if errors.is_empty() {
        cel::validate(
            default,
            None,
            node,
            path,
            is_resource,
            cel::Ratcheting::Off,
            &mut errors,
        );
    }
    errors
}

/// A resource that has nothing but a value at a place.
fn surround(value: Value, steps: &[Step]) -> Value {
    let nested = steps.iter().rev().fold(value, |inner, step| match step {
        Step::Field(name) => {
            let mut object = Map::new();
            object.insert(name.clone(), inner);
            Value::Object(object)
        }
        Step::Element => Value::Array(vec![inner]),
    });
    let mut resource = json!({"apiVersion": "validation/v1", "kind": "Validation"});
    if let (Value::Object(resource), Value::Object(nested)) = (&mut resource, nested) {
        resource.extend(nested);
    }
    resource
}
