//! Checks that a schema is structural: every field must be specified, with a type, outside of the junctors `allOf`, `anyOf`,
//! `oneOf` and `not`, and junctors may only restrict values.

use tidings_api::FieldError;

use crate::node::{AdditionalProperties, SchemaNode};
use crate::pattern::go_regex;
use crate::text::FieldPath;

/// The position of a node, which decides the text of some errors.
#[derive(Clone, Copy, PartialEq)]
enum SchemaLevel {
    Root,
    Item,
    Field,
}

/// All violations, sorted by their text.
pub(crate) fn check(node: &SchemaNode, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    invariants(node, SchemaLevel::Root, path, &mut errors);
    complete_junctors(node, Some(node), path, path, &mut errors);
    errors.sort_by_key(FieldError::to_string);
    errors
}

fn invariants(
    node: &SchemaNode,
    level: SchemaLevel,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    if node.kind == "array" && node.items.is_none() {
        errors.push(FieldError::required(
            path.child("items"),
            "must be specified",
        ));
    }
    if let Some(items) = &node.items {
        invariants(items, SchemaLevel::Item, &path.child("items"), errors);
    }
    let properties = path.child("properties");
    for (name, property) in &node.properties {
        invariants(property, SchemaLevel::Field, &properties.key(name), errors);
    }
    let additional = path.child("additionalProperties");
    if node.additional.is_set() && level == SchemaLevel::Root {
        errors.push(FieldError::forbidden(
            additional.clone(),
            "must not be used at the root",
        ));
    }
    if let AdditionalProperties::Schema(schema) = &node.additional {
        invariants(schema, SchemaLevel::Field, &additional, errors);
    }

    if node.int_or_string {
        for (name, set) in [
            (
                "x-kubernetes-preserve-unknown-fields",
                node.preserves_unknown(),
            ),
            ("x-kubernetes-embedded-resource", node.embedded),
        ] {
            if set {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                errors.push(FieldError::invalid_value(path.child(name), true, detail));
            }
        }
    }

    let skip_any_of = is_int_or_string(&node.any_of);
    let skip_first_all_of = node
        .all_of
        .first()
        .is_some_and(|first| is_int_or_string(&first.any_of));
    junctors(node, skip_any_of, skip_first_all_of, path, errors);

    let kind = path.child("type");
    if node.embedded && node.kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if node.kind.is_empty() {
            FieldError::required(kind.clone(), detail)
        } else {
            FieldError::invalid(kind.clone(), &node.kind, detail)
        });
    } else if node.kind.is_empty() && !node.int_or_string && !node.preserves_unknown() {
        let detail = match level {
            SchemaLevel::Root => "must not be empty at the root",
            SchemaLevel::Item => "must not be empty for specified array items",
            SchemaLevel::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(kind.clone(), detail));
    }
    if node.embedded && node.additional.is_set() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(additional, detail));
    }
    if level == SchemaLevel::Root && !node.kind.is_empty() && node.kind != "object" {
        errors.push(FieldError::invalid(
            kind,
            &node.kind,
            "must be object at the root",
        ));
    }

    let is_resource = level == SchemaLevel::Root || node.embedded;
    for name in ["kind", "apiVersion"] {
        if let Some(property) = node.properties.get(name)
            && is_resource
            && property.kind != "string"
        {
            let path = properties.key(name).child("type");
            errors.push(FieldError::invalid(path, &property.kind, "must be string"));
        }
    }
    if let Some(metadata) = node.properties.get("metadata") {
        let path = properties.key("metadata");
        if is_resource && metadata.kind != "object" {
            errors.push(FieldError::invalid(
                path.child("type"),
                &metadata.kind,
                "must be object",
            ));
        }
        if level == SchemaLevel::Root && !restricts_names_only(metadata) {
            errors.push(FieldError::forbidden(
                path,
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            ));
        }
    }
    if node.embedded && !node.preserves_unknown() && node.properties.is_empty() {
        errors.push(FieldError::required(
            properties,
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ));
    }
}

fn restricts_names_only(metadata: &SchemaNode) -> bool {
    let names_only = metadata
        .properties
        .keys()
        .all(|name| name == "name" || name == "generateName");
    names_only
        && metadata.items.is_none()
        && !metadata.additional.is_set()
        && !has_generics(metadata)
        && !has_validations(metadata)
        && !has_extensions(metadata)
        && metadata.rule_texts.is_empty()
}

/// The pattern `anyOf: [{type: integer}, {type: string}]`, the only types that a junctor may name.
fn is_int_or_string(any_of: &[SchemaNode]) -> bool {
    let is_only = |node: &SchemaNode, kind: &str| {
        node.kind == kind
            && node.properties.is_empty()
            && !node.additional.is_set()
            && node.items.is_none()
            && node.default.is_none()
            && !has_generics(node)
            && !has_validations(node)
            && !has_extensions(node)
            && node.rule_texts.is_empty()
    };
    matches!(any_of, [first, second] if is_only(first, "integer") && is_only(second, "string"))
}

fn has_generics(node: &SchemaNode) -> bool {
    node.has_title || node.has_description || node.nullable || node.has_docs || node.has_example
}

fn has_extensions(node: &SchemaNode) -> bool {
    node.preserves_unknown()
        || node.embedded
        || node.int_or_string
        || !node.list_map_keys.is_empty()
        || node.list_type.is_some()
        || node.map_type.is_some()
}

fn has_validations(node: &SchemaNode) -> bool {
    !node.format_text.is_empty()
        || node.maximum.is_some()
        || node.exclusive_maximum
        || node.minimum.is_some()
        || node.exclusive_minimum
        || node.max_length.is_some()
        || node.min_length.is_some()
        || !node.pattern.is_empty()
        || node.max_items.is_some()
        || node.min_items.is_some()
        || node.unique_items
        || node.multiple_of.is_some()
        || !node.enumeration.is_empty()
        || node.max_properties.is_some()
        || node.min_properties.is_some()
        || !node.required.is_empty()
        || !node.all_of.is_empty()
        || !node.any_of.is_empty()
        || !node.one_of.is_empty()
        || node.not.is_some()
}

fn junctors(
    node: &SchemaNode,
    skip_any_of: bool,
    skip_first_all_of: bool,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    if !skip_any_of {
        for (index, branch) in node.any_of.iter().enumerate() {
            nested(branch, false, &path.child("anyOf").index(index), errors);
        }
    }
    for (index, branch) in node.all_of.iter().enumerate() {
        nested(
            branch,
            skip_first_all_of && index == 0,
            &path.child("allOf").index(index),
            errors,
        );
    }
    for (index, branch) in node.one_of.iter().enumerate() {
        nested(branch, false, &path.child("oneOf").index(index), errors);
    }
    if let Some(branch) = &node.not {
        nested(branch, false, &path.child("not"), errors);
    }
    if !node.pattern.is_empty()
        && let Err(why) = go_regex(&node.pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(
            path.child("pattern"),
            &node.pattern,
            detail,
        ));
    }
}

fn nested(node: &SchemaNode, skip_any_of: bool, path: &FieldPath, errors: &mut Vec<FieldError>) {
    junctors(node, skip_any_of, false, path, errors);
    if let Some(items) = &node.items {
        nested(items, false, &path.child("items"), errors);
    }
    for (name, property) in &node.properties {
        nested(property, false, &path.child("properties").key(name), errors);
    }
    let allows_more = matches!(
        node.additional,
        AdditionalProperties::Schema(_) | AdditionalProperties::Bool(true)
    );
    for (name, set, detail) in [
        (
            "type",
            !node.kind.is_empty(),
            "must be empty to be structural",
        ),
        (
            "additionalProperties",
            allows_more,
            "must be undefined to be structural",
        ),
        (
            "default",
            node.default.is_some(),
            "must be undefined to be structural",
        ),
        ("title", node.has_title, "must be empty to be structural"),
        (
            "description",
            node.has_description,
            "must be empty to be structural",
        ),
        ("nullable", node.nullable, "must be false to be structural"),
        (
            "x-kubernetes-preserve-unknown-fields",
            node.preserves_unknown(),
            "must be false to be structural",
        ),
        (
            "x-kubernetes-embedded-resource",
            node.embedded,
            "must be false to be structural",
        ),
        (
            "x-kubernetes-int-or-string",
            node.int_or_string,
            "must be false to be structural",
        ),
        (
            "x-kubernetes-list-map-keys",
            !node.list_map_keys.is_empty(),
            "must be empty to be structural",
        ),
        (
            "x-kubernetes-list-type",
            node.list_type.is_some(),
            "must be undefined to be structural",
        ),
        (
            "x-kubernetes-map-type",
            node.map_type.is_some(),
            "must be undefined to be structural",
        ),
        (
            "x-kubernetes-validations",
            !node.rule_texts.is_empty(),
            "must be empty to be structural",
        ),
    ] {
        if set {
            errors.push(FieldError::forbidden(path.child(name), detail));
        }
    }
    if node.properties.contains_key("metadata") {
        errors.push(FieldError::forbidden(
            path.child("properties").key("metadata"),
            "must not be specified in a nested context",
        ));
    }
}

/// Checks that every field inside a junctor is also specified outside of it.
fn complete_junctors(
    node: &SchemaNode,
    structural: Option<&SchemaNode>,
    at: &FieldPath,
    defined_in: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let mut branch =
        |branch: &SchemaNode, path: FieldPath| complete(branch, structural, at, &path, errors);
    if let Some(not) = &node.not {
        branch(not, defined_in.child("not"));
    }
    for (name, branches) in [
        ("allOf", &node.all_of),
        ("anyOf", &node.any_of),
        ("oneOf", &node.one_of),
    ] {
        for (index, nested) in branches.iter().enumerate() {
            branch(nested, defined_in.child(name).index(index));
        }
    }
}

fn complete(
    node: &SchemaNode,
    structural: Option<&SchemaNode>,
    at: &FieldPath,
    defined_in: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let Some(own) = structural else {
        let detail = format!("because it is defined in {}", defined_in.text());
        errors.push(FieldError::required(at.clone(), detail));
        return;
    };
    complete_junctors(node, Some(own), at, defined_in, errors);
    if let Some(items) = &node.items {
        let defined_in = defined_in.child("items");
        complete(
            items,
            own.items.as_deref(),
            &at.child("items"),
            &defined_in,
            errors,
        );
    }
    for (name, property) in &node.properties {
        let at = at.child("properties").key(name);
        let defined_in = defined_in.child("properties").key(name);
        complete(property, own.properties.get(name), &at, &defined_in, errors);
    }
}
