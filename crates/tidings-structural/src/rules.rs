//! Checks the parts of a schema that `structure` does not check: refused keywords, defaults, list and map types, and the texts
//! of rules.

use tidings_api::FieldError;
use tidings_go as go;

use crate::cel;
use crate::field_path;
use crate::node::{AdditionalProperties, RuleText, SchemaNode};
use crate::text::{FieldPath, json};
use crate::tolerated::ToleratedFaults;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// Errors of a schema and of its rules. They are separate because rules are compiled only where the schema has no errors.
#[derive(Default)]
pub(crate) struct SchemaProblems {
    pub(crate) schema: Vec<FieldError>,
    pub(crate) rules: Vec<FieldError>,
}

impl SchemaProblems {
    fn append(&mut self, mut other: SchemaProblems) {
        self.schema.append(&mut other.schema);
        self.rules.append(&mut other.rules);
    }
}

/// What a node inherits from the nodes above it.
#[derive(Clone, Default)]
struct SchemaContext {
    is_root: bool,
    /// The reason why the node may have no default.
    no_defaults: Option<String>,
    inside_meta: bool,
    /// The path of the topmost ancestor whose elements have no old value in an update, so that rules may not use `oldSelf`.
    uncorrelatable: Option<String>,
}

/// Checks a schema. With a compiler in `rules`, also compiles the rules and stores them in the nodes.
pub(crate) fn check(
    root: &mut SchemaNode,
    path: &FieldPath,
    tolerated: ToleratedFaults,
    rules: Option<&mut cel::RuleCompiler>,
) -> SchemaProblems {
    let place = SchemaContext {
        is_root: true,
        ..SchemaContext::default()
    };
    let scope = rules.as_deref().map(|_| cel::OccurrenceBound::root());
    let mut walk = SchemaChecker {
        tolerated,
        compiler: rules,
    };
    walk.node(root, path, &place, scope)
}

/// Walks a schema and checks each node.
struct SchemaChecker<'a> {
    tolerated: ToleratedFaults,
    compiler: Option<&'a mut cel::RuleCompiler>,
}

impl SchemaChecker<'_> {
    fn node(
        &mut self,
        node: &mut SchemaNode,
        path: &FieldPath,
        place: &SchemaContext,
        scope: Option<cel::OccurrenceBound>,
    ) -> SchemaProblems {
        let mut problems = SchemaProblems::default();
        keywords(node, path, place, self.tolerated, &mut problems.schema);
        if node.unique_items {
            problems.schema.push(FieldError::forbidden(
                path.child("uniqueItems"),
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ));
        }
        let inner = SchemaContext {
            is_root: false,
            ..place.clone()
        };
        let child_scope = scope.map(|scope| scope.below(node));
        let children = self.children(node, path, place, &inner, child_scope);
        problems.append(children);
        extensions(node, path, self.tolerated, &mut problems.schema);
        for (index, rule) in node.rule_texts.iter().enumerate() {
            let path = path.child("x-kubernetes-validations").index(index);
            rule_text(rule, node, &path, &mut problems.schema);
        }
        if problems.schema.is_empty()
            && !node.rule_texts.is_empty()
            && let (Some(compiler), Some(scope)) = (self.compiler.as_deref_mut(), scope)
        {
            let is_resource = place.is_root || node.embedded;
            let forbids_old = place.uncorrelatable.as_deref();
            compiler.compile(
                node,
                path,
                &scope,
                is_resource,
                forbids_old,
                &mut problems.rules,
            );
        }
        problems
    }

    fn children(
        &mut self,
        node: &mut SchemaNode,
        path: &FieldPath,
        place: &SchemaContext,
        inner: &SchemaContext,
        scope: Option<cel::OccurrenceBound>,
    ) -> SchemaProblems {
        let mut problems = SchemaProblems::default();
        let has_properties = !node.properties.is_empty();
        let additional = path.child("additionalProperties");
        if has_properties
            && matches!(
                node.additional,
                AdditionalProperties::Bool(false) | AdditionalProperties::Schema(_)
            )
        {
            problems.schema.push(FieldError::forbidden(
                additional.clone(),
                "additionalProperties and properties are mutual exclusive",
            ));
        }
        if let AdditionalProperties::Schema(schema) = &mut node.additional {
            let mut place = inner.clone();
            if place.inside_meta {
                place.no_defaults =
                    Some("inside additionalProperties applying to object metadata".into());
            }
            problems.append(self.node(schema, &additional, &place, scope));
        }
        let is_correlatable =
            matches!(node.map_type.as_deref(), None | Some("granular" | "atomic"));
        for (name, property) in &mut node.properties {
            let mut place_of = inner.clone();
            if !is_correlatable && place_of.uncorrelatable.is_none() {
                place_of.uncorrelatable = Some(path.text());
            }
            if (place.is_root || node.embedded)
                && ["metadata", "kind", "apiVersion"].contains(&name.as_str())
            {
                place_of.inside_meta = true;
                if place.is_root {
                    place_of.no_defaults = Some(format!("in top-level {name}"));
                }
            }
            let path = path.child("properties").key(name);
            problems.append(self.node(property, &path, &place_of, scope));
        }
        if let Some(not) = &mut node.not {
            problems.append(self.node(not, &path.child("not"), inner, None));
        }
        for (name, branches) in [
            ("allOf", &mut node.all_of),
            ("oneOf", &mut node.one_of),
            ("anyOf", &mut node.any_of),
        ] {
            for (index, branch) in branches.iter_mut().enumerate() {
                problems.append(self.node(branch, &path.child(name).index(index), inner, None));
            }
        }
        for (name, definition) in &mut node.definitions {
            let path = path.child("definitions").key(name);
            problems.append(self.node(definition, &path, inner, None));
        }
        let mut items_place = inner.clone();
        if node.list_type.as_deref() != Some("map") && items_place.uncorrelatable.is_none() {
            items_place.uncorrelatable = Some(path.text());
        }
        let items = path.child("items");
        if let Some(schema) = &mut node.items {
            problems.append(self.node(schema, &items, &items_place, scope));
        }
        for (index, schema) in node.items_list.iter_mut().enumerate() {
            problems.append(self.node(schema, &items.index(index), &items_place, None));
        }
        for (name, dependency) in &mut node.dependencies {
            if let Some(schema) = dependency {
                let path = path.child("dependencies").key(name);
                problems.append(self.node(schema, &path, inner, None));
            }
        }
        problems
    }
}

fn keywords(
    node: &SchemaNode,
    path: &FieldPath,
    place: &SchemaContext,
    tolerated: ToleratedFaults,
    errors: &mut Vec<FieldError>,
) {
    if !tolerated.unknown_types && has_unknown_type(node) {
        errors.push(FieldError::not_supported(
            path.child("type"),
            go::quote(&node.kind),
            &TYPES,
        ));
    }
    if node.default.is_some()
        && let Some(reason) = &place.no_defaults
    {
        errors.push(FieldError::forbidden(
            path.child("default"),
            format!("must not be set {reason}"),
        ));
    }
    for name in [
        "id",
        "additionalItems",
        "patternProperties",
        "definitions",
        "dependencies",
        "$ref",
    ] {
        if node.refused.contains(&name) {
            errors.push(FieldError::forbidden(
                path.child(name),
                format!("{name} is not supported"),
            ));
        }
    }
    if node.kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(path.child("type"), detail));
    }
    if !node.items_list.is_empty() {
        let detail = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(path.child("items"), detail));
    }
    if place.inside_meta && node.embedded {
        let detail = "must not be used inside of resource meta";
        errors.push(FieldError::forbidden(
            path.child("x-kubernetes-embedded-resource"),
            detail,
        ));
    }
}

fn has_unknown_type(node: &SchemaNode) -> bool {
    !node.kind.is_empty() && !TYPES.contains(&node.kind.as_str())
}

/// The faults of a schema that an update may keep.
pub(crate) fn faults(node: &SchemaNode) -> ToleratedFaults {
    let nowhere = FieldPath::default();
    let mut found = Vec::new();
    if node.list_type.as_deref() == Some("set")
        && let Some(items) = &node.items
    {
        set_items(items, &nowhere, &mut found);
    }
    let set_elements = !found.is_empty();
    found.clear();
    if matches!(node.list_type.as_deref(), Some("set" | "map")) {
        unique_items(node, &nowhere, &mut found);
    }
    let own = ToleratedFaults {
        unknown_types: has_unknown_type(node),
        set_elements,
        list_keys: !found.is_empty(),
        ..ToleratedFaults::default()
    };
    node.children()
        .map(faults)
        .fold(own, |all, one| ToleratedFaults {
            unknown_types: all.unknown_types || one.unknown_types,
            set_elements: all.set_elements || one.set_elements,
            list_keys: all.list_keys || one.list_keys,
            ..all
        })
}

fn must_be(kind: &str, node: &SchemaNode, path: &FieldPath, keyword: &str) -> FieldError {
    let path = path.child("type");
    let detail = format!("must be {kind} if {keyword} is specified");
    if node.kind.is_empty() {
        FieldError::required(path, detail)
    } else {
        FieldError::invalid(path, &node.kind, detail)
    }
}

fn extensions(
    node: &SchemaNode,
    path: &FieldPath,
    tolerated: ToleratedFaults,
    errors: &mut Vec<FieldError>,
) {
    if node.preserve_unknown == Some(false) {
        let path = path.child("x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid_value(
            path,
            false,
            "must be true or undefined",
        ));
    }
    if let Some(map_type) = &node.map_type {
        if node.kind != "object" {
            errors.push(must_be("object", node, path, "x-kubernetes-map-type"));
        }
        if map_type != "atomic" && map_type != "granular" {
            let path = path.child("x-kubernetes-map-type");
            errors.push(FieldError::not_supported(
                path,
                go::quote(map_type),
                &["atomic", "granular"],
            ));
        }
    }
    if let Some(list_type) = &node.list_type {
        if node.kind != "array" {
            errors.push(must_be("array", node, path, "x-kubernetes-list-type"));
        } else if list_type == "set"
            && !tolerated.set_elements
            && let Some(items) = &node.items
        {
            set_items(items, &path.child("items"), errors);
        }
        if !["atomic", "set", "map"].contains(&list_type.as_str()) {
            let path = path.child("x-kubernetes-list-type");
            errors.push(FieldError::not_supported(
                path,
                go::quote(list_type),
                &["atomic", "set", "map"],
            ));
        }
    }
    if !node.list_map_keys.is_empty() && !node.is_list_map() {
        let path = path.child("x-kubernetes-list-type");
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match &node.list_type {
            None => FieldError::required(path, detail),
            Some(list_type) => FieldError::invalid(path, list_type, detail),
        });
    }
    if node.is_list_map() {
        list_map(node, path, errors);
    }
    if !tolerated.list_keys && matches!(node.list_type.as_deref(), Some("set" | "map")) {
        unique_items(node, path, errors);
    }
}

/// Checks that the elements of a set are scalars or atomic, because sets compare elements as a whole.
fn set_items(items: &SchemaNode, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let printed = || {
        items
            .list_type
            .as_deref()
            .map_or_else(|| "null".to_owned(), go::quote)
    };
    match items.kind.as_str() {
        "array" if !matches!(items.list_type.as_deref(), None | Some("atomic")) => {
            let path = path.child("x-kubernetes-list-type");
            errors.push(FieldError::invalid_value(path, printed(), detail));
        }
        "object" if items.map_type.as_deref() != Some("atomic") => {
            let path = path.child("x-kubernetes-map-type");
            errors.push(FieldError::invalid_value(path, printed(), detail));
        }
        _ => {}
    }
}

fn list_map(node: &SchemaNode, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let keys = path.child("x-kubernetes-list-map-keys");
    if node.list_map_keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(keys.clone(), detail));
    }
    let Some(items) = &node.items else {
        if node.items_list.is_empty() {
            let detail = "must have a schema if x-kubernetes-list-type is map";
            errors.push(FieldError::required(path.child("items"), detail));
        } else {
            let detail = "must only have a single schema if x-kubernetes-list-type is map";
            let printed = &node.items_printed;
            errors.push(FieldError::invalid_value(
                path.child("items"),
                printed,
                detail,
            ));
        }
        return;
    };
    let items_path = path.child("items");
    if items.kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(
            items_path.child("type"),
            &items.kind,
            detail,
        ));
        return;
    }
    let printed = json(&node.list_map_keys.clone().into());
    for (index, key) in node.list_map_keys.iter().enumerate() {
        match items.properties.get(key) {
            Some(property) if property.kind == "array" || property.kind == "object" => {
                let path = items_path.child("properties").key(key).child("type");
                let detail =
                    "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.push(FieldError::invalid(path, &items.kind, detail));
            }
            Some(_) => {}
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid_value(keys.clone(), &printed, detail));
            }
        }
        if node.list_map_keys[..index].contains(key) {
            let detail = "must not contain duplicate entries";
            errors.push(FieldError::invalid_value(keys.clone(), &printed, detail));
        }
    }
}

fn unique_items(node: &SchemaNode, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(items) = &node.items else {
        return;
    };
    let path = path.child("items");
    if items.nullable {
        let list_type = node.list_type.as_deref().unwrap_or_default();
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(path.child("nullable"), detail));
    }
    if !node.is_list_map() {
        return;
    }
    for key in &node.list_map_keys {
        let Some(property) = items.properties.get(key) else {
            continue;
        };
        let path = path.child("properties").key(key);
        if !items.required.contains(key) && property.default.is_none() {
            errors.push(FieldError::required(
                path.child("default"),
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ));
        }
        if property.nullable {
            errors.push(FieldError::forbidden(
                path.child("nullable"),
                "this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
            ));
        }
    }
}

fn has_line_breaks(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

fn rule_text(rule: &RuleText, node: &SchemaNode, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let message = rule.message.trim();
    let message_path = path.child("message");
    if rule.rule.trim().is_empty() {
        errors.push(FieldError::required(
            path.child("rule"),
            "rule is not specified",
        ));
    } else if !rule.message.is_empty() && message.is_empty() {
        errors.push(FieldError::invalid(
            message_path,
            &rule.message,
            "must be non-empty if specified",
        ));
    } else if has_line_breaks(message) {
        errors.push(FieldError::invalid(
            message_path,
            &rule.message,
            "must not contain line breaks",
        ));
    } else if has_line_breaks(rule.rule.trim()) && message.is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(message_path, detail));
    }
    if !rule.message_expression.is_empty() && rule.message_expression.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(
            path.child("messageExpression"),
            detail,
        ));
    }
    if let Some(reason) = &rule.reason
        && !REASONS.contains(&reason.as_str())
    {
        errors.push(FieldError::not_supported(
            path.child("reason"),
            go::quote(reason),
            &REASONS,
        ));
    }
    let field_path = path.child("fieldPath");
    if !rule.field_path.is_empty() && rule.field_path.trim().is_empty() {
        let detail = "must be non-empty if specified";
        errors.push(FieldError::invalid(
            field_path.clone(),
            &rule.field_path,
            detail,
        ));
    }
    if has_line_breaks(&rule.field_path) {
        let detail = "must not contain line breaks";
        errors.push(FieldError::invalid(
            field_path.clone(),
            &rule.field_path,
            detail,
        ));
    }
    if !rule.field_path.is_empty() && field_path::resolve(&rule.field_path, node, true).is_err() {
        errors.push(FieldError::invalid(
            field_path,
            &rule.field_path,
            "must be a valid path",
        ));
    }
}
