//! Checks the defaults of a schema: a default must have no unknown fields and must be valid at its place.

use tidings_api::FieldError;
use tidings_json::{Map, Value, json};

use crate::cel;
use crate::node::SchemaNode;
use crate::shape::Pruner;
use crate::text::{FieldPath, bad_value};
use crate::{meta, value};

/// What defaults are checked against.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum DefaultsCheck {
    /// The schema without its rules. With `unpruned`, defaults may have unknown fields.
    Schema { unpruned: bool },
    /// The rules. This check needs a schema without other errors.
    Rules,
}

/// One step of the path from a resource to a default in it.
#[derive(Clone)]
enum DefaultStep {
    Field(String),
    Element,
}

/// Returns the errors of the defaults of a schema.
pub(crate) fn check(
    root: &SchemaNode,
    path: &FieldPath,
    against: DefaultsCheck,
) -> Vec<FieldError> {
    let mut walk = DefaultsChecker {
        against,
        errors: Vec::new(),
    };
    walk.node(root, path, Some(root), &mut Vec::new(), false);
    walk.errors
}

/// Walks a schema and collects the errors of its defaults.
struct DefaultsChecker {
    against: DefaultsCheck,
    errors: Vec<FieldError>,
}

impl DefaultsChecker {
    fn node(
        &mut self,
        node: &SchemaNode,
        path: &FieldPath,
        root: Option<&SchemaNode>,
        steps: &mut Vec<DefaultStep>,
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
                DefaultsCheck::Schema { unpruned } => check_default(
                    default,
                    node,
                    &path,
                    unpruned,
                    inside_meta.then_some((resource, steps.as_slice())),
                ),
                DefaultsCheck::Rules => check_rules(default, node, is_resource, &path),
            };
            self.errors.extend(errors);
        }
        if let Some(items) = &node.items {
            steps.push(DefaultStep::Element);
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
            steps.push(DefaultStep::Field(name.clone()));
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
    node: &SchemaNode,
    path: &FieldPath,
    may_be_unpruned: bool,
    around: Option<(&SchemaNode, &[DefaultStep])>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match around {
        Some((resource, steps)) => {
            let mut object = surround(default.clone(), steps);
            let nowhere = FieldPath::default();
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
            // Upstream prints the default after coercion of its metadata.
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

fn is_pruned(default: &Value, node: &SchemaNode) -> bool {
    let mut pruned = default.clone();
    Pruner::default().prune(&mut pruned, Some(node), node.embedded);
    pruned == *default
}

/// True if a schema has a default with unknown fields.
pub(crate) fn has_unpruned(node: &SchemaNode) -> bool {
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

/// Checks the rules on a default twice: as an unchanged value, and as a new value without `oldSelf`.
fn check_rules(
    default: &Value,
    node: &SchemaNode,
    is_resource: bool,
    path: &FieldPath,
) -> Vec<FieldError> {
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

/// A resource that contains only `value`, at the path `steps`.
fn surround(value: Value, steps: &[DefaultStep]) -> Value {
    let nested = steps.iter().rev().fold(value, |inner, step| match step {
        DefaultStep::Field(name) => {
            let mut object = Map::new();
            object.insert(name.clone(), inner);
            Value::Object(object)
        }
        DefaultStep::Element => Value::Array(vec![inner]),
    });
    let mut resource = json!({"apiVersion": "validation/v1", "kind": "Validation"});
    if let (Value::Object(resource), Value::Object(nested)) = (&mut resource, nested) {
        resource.extend(nested);
    }
    resource
}
