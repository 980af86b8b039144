//! One node of a schema: `JSONSchemaProps`, parsed from JSON.

use std::collections::BTreeMap;

use kube_cel::cel::IdedExpr;
use regex::Regex;
use tidings_api::FieldError;
use tidings_json::{Map, Value};

use crate::format::Format;
use crate::pattern::go_regex;
use crate::printed;
use crate::text::{FieldPath, bad_value};

/// The maximum nesting of a schema, so that recursive walks do not run out of stack. Upstream has no such bound; schemas in use
/// are about twenty levels deep.
const DEPTH_MAX: usize = 64;

/// The keyword `additionalProperties`: the schema of fields that `properties` does not name.
#[derive(Debug, Default)]
pub(crate) enum AdditionalProperties {
    #[default]
    Unset,
    Bool(bool),
    Schema(Box<SchemaNode>),
}

impl AdditionalProperties {
    pub(crate) fn is_set(&self) -> bool {
        !matches!(self, AdditionalProperties::Unset)
    }

    pub(crate) fn schema(&self) -> Option<&SchemaNode> {
        match self {
            AdditionalProperties::Schema(node) => Some(node),
            _ => None,
        }
    }
}

/// An entry of `x-kubernetes-validations`, not compiled.
#[derive(Debug, Clone, Default)]
pub(crate) struct RuleText {
    pub(crate) rule: String,
    pub(crate) message: String,
    pub(crate) message_expression: String,
    pub(crate) reason: Option<String>,
    pub(crate) field_path: String,
    pub(crate) optional_old_self: Option<bool>,
}

/// A compiled entry of `x-kubernetes-validations`.
#[derive(Debug)]
pub(crate) struct CompiledRule {
    pub(crate) text: RuleText,
    pub(crate) expr: IdedExpr,
    pub(crate) message: Option<IdedExpr>,
    pub(crate) uses_old: bool,
    pub(crate) field_path: String,
}

impl RuleText {
    /// The rule as errors print it: upstream's internal struct as JSON.
    pub(crate) fn printed(&self) -> String {
        let mut object = Map::new();
        object.insert("Rule".into(), self.rule.clone().into());
        object.insert("Message".into(), self.message.clone().into());
        object.insert(
            "MessageExpression".into(),
            self.message_expression.clone().into(),
        );
        object.insert("Reason".into(), self.reason.clone().into());
        object.insert("FieldPath".into(), self.field_path.clone().into());
        object.insert("OptionalOldSelf".into(), self.optional_old_self.into());
        tidings_go::json(&Value::Object(object))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }
}

/// A schema. [`crate::rules`] and [`crate::structure`] check where which keyword is allowed.
#[derive(Debug, Default)]
pub(crate) struct SchemaNode {
    pub(crate) kind: String,
    pub(crate) nullable: bool,
    pub(crate) default: Option<Value>,
    pub(crate) has_title: bool,
    pub(crate) has_description: bool,
    pub(crate) has_docs: bool,
    pub(crate) has_example: bool,
    pub(crate) properties: BTreeMap<String, SchemaNode>,
    pub(crate) additional: AdditionalProperties,
    pub(crate) items: Option<Box<SchemaNode>>,
    /// `items` if it is a list of schemas, which is not allowed.
    pub(crate) items_list: Vec<SchemaNode>,
    /// `items_list` as errors print it.
    pub(crate) items_printed: String,

    pub(crate) format_text: String,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) max_length: Option<i64>,
    pub(crate) min_length: Option<i64>,
    pub(crate) pattern: String,
    pub(crate) max_items: Option<i64>,
    pub(crate) min_items: Option<i64>,
    pub(crate) unique_items: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) enumeration: Vec<Value>,
    pub(crate) max_properties: Option<i64>,
    pub(crate) min_properties: Option<i64>,
    pub(crate) required: Vec<String>,
    pub(crate) all_of: Vec<SchemaNode>,
    pub(crate) any_of: Vec<SchemaNode>,
    pub(crate) one_of: Vec<SchemaNode>,
    pub(crate) not: Option<Box<SchemaNode>>,

    pub(crate) preserve_unknown: Option<bool>,
    pub(crate) embedded: bool,
    pub(crate) int_or_string: bool,
    pub(crate) list_type: Option<String>,
    pub(crate) list_map_keys: Vec<String>,
    pub(crate) map_type: Option<String>,
    pub(crate) rule_texts: Vec<RuleText>,

    /// Keywords of JSON schema that definitions may not use.
    pub(crate) refused: Vec<&'static str>,
    pub(crate) definitions: BTreeMap<String, SchemaNode>,
    pub(crate) dependencies: BTreeMap<String, Option<SchemaNode>>,

    // Set by `seal`; `rules` by the compiler of rules.
    pub(crate) format: Option<Format>,
    pub(crate) regex: Option<Regex>,
    pub(crate) rules: Vec<CompiledRule>,
    pub(crate) below: SubtreeFlags,
}

/// True for each feature that a node or any node below it uses, so that walks skip subtrees without it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SubtreeFlags {
    pub(crate) defaults: bool,
    pub(crate) rules: bool,
    pub(crate) list_keys: bool,
    pub(crate) embedded: bool,
}

impl SchemaNode {
    /// Parses a schema.
    pub(crate) fn parse(json: &Value, path: &FieldPath) -> Result<SchemaNode, FieldError> {
        parse(json, path, 0).map(|node| *node)
    }

    pub(crate) fn preserves_unknown(&self) -> bool {
        self.preserve_unknown == Some(true)
    }

    /// The schema of a field, from `properties` or `additionalProperties`.
    pub(crate) fn field(&self, name: &str) -> Option<&SchemaNode> {
        self.properties
            .get(name)
            .or_else(|| self.additional.schema())
    }

    /// The types that a value may have; int-or-string has two.
    pub(crate) fn types(&self) -> &[&str] {
        if self.int_or_string {
            return &["integer", "string"];
        }
        match self.kind.as_str() {
            "object" => &["object"],
            "array" => &["array"],
            "string" => &["string"],
            "integer" => &["integer"],
            "number" => &["number"],
            "boolean" => &["boolean"],
            _ => &[],
        }
    }

    pub(crate) fn is_list_map(&self) -> bool {
        self.list_type.as_deref() == Some("map")
    }

    /// All direct children of this node, including junctors (`allOf`, `anyOf`, `oneOf`, `not`) and refused keywords.
    pub(crate) fn children(&self) -> impl Iterator<Item = &SchemaNode> {
        self.properties
            .values()
            .chain(self.additional.schema())
            .chain(self.items.as_deref())
            .chain(&self.items_list)
            .chain(&self.all_of)
            .chain(&self.any_of)
            .chain(&self.one_of)
            .chain(self.not.as_deref())
            .chain(self.definitions.values())
            .chain(self.dependencies.values().flatten())
    }

    /// The direct children of this node, including junctors but not refused keywords.
    pub(crate) fn children_mut(&mut self) -> impl Iterator<Item = &mut SchemaNode> {
        let additional = match &mut self.additional {
            AdditionalProperties::Schema(node) => Some(&mut **node),
            _ => None,
        };
        self.properties
            .values_mut()
            .chain(additional)
            .chain(self.items.as_deref_mut())
            .chain(&mut self.all_of)
            .chain(&mut self.any_of)
            .chain(&mut self.one_of)
            .chain(self.not.as_deref_mut())
    }

    /// Compiles formats and patterns and sets the flags of all subtrees. The schema must be valid.
    pub(crate) fn seal(&mut self) {
        self.format = Format::of(&self.format_text, self.types());
        if !self.pattern.is_empty() {
            self.regex = go_regex(&self.pattern).ok();
        }
        let mut below = SubtreeFlags {
            defaults: self.default.is_some(),
            rules: !self.rules.is_empty(),
            list_keys: matches!(self.list_type.as_deref(), Some("set" | "map")),
            embedded: self.embedded,
        };
        for child in self.children_mut() {
            child.seal();
        }
        let structural = self
            .properties
            .values()
            .chain(self.additional.schema())
            .chain(self.items.as_deref());
        for child in structural {
            below.defaults |= child.below.defaults;
            below.rules |= child.below.rules;
            below.list_keys |= child.below.list_keys;
            below.embedded |= child.below.embedded;
        }
        self.below = below;
    }
}

/// Parses one node. Nodes are boxed to keep stack frames small, because this function recurses as deep as the schema.
fn parse(json: &Value, path: &FieldPath, depth: usize) -> Result<Box<SchemaNode>, FieldError> {
    let Value::Object(object) = json else {
        return Err(wrong(path, json, "v1.JSONSchemaProps"));
    };
    if depth > DEPTH_MAX {
        let detail = format!("must not be nested deeper than {DEPTH_MAX} schemas");
        return Err(FieldError::invalid_omitted(path.clone(), detail));
    }
    let mut node = Box::<SchemaNode>::default();
    for (name, value) in object {
        if !value.is_null() && !keyword(&mut node, name, value, path)? {
            nested(&mut node, name, value, path, depth + 1)?;
        }
    }
    Ok(node)
}

/// Parses a keyword that contains no schema. Returns false for all other keywords.
fn keyword(
    node: &mut SchemaNode,
    name: &str,
    value: &Value,
    path: &FieldPath,
) -> Result<bool, FieldError> {
    let at = || path.child(name);
    match name {
        "type" => node.kind = text(value, &at())?,
        "nullable" => node.nullable = boolean(value, &at())?,
        "default" => node.default = Some(value.clone()),
        "title" => node.has_title = !text(value, &at())?.is_empty(),
        "description" => node.has_description = !text(value, &at())?.is_empty(),
        "externalDocs" => node.has_docs = true,
        "example" => node.has_example = true,
        "format" => node.format_text = text(value, &at())?,
        "maximum" => node.maximum = Some(number(value, &at())?),
        "exclusiveMaximum" => node.exclusive_maximum = boolean(value, &at())?,
        "minimum" => node.minimum = Some(number(value, &at())?),
        "exclusiveMinimum" => node.exclusive_minimum = boolean(value, &at())?,
        "maxLength" => node.max_length = Some(integer(value, &at())?),
        "minLength" => node.min_length = Some(integer(value, &at())?),
        "pattern" => node.pattern = text(value, &at())?,
        "maxItems" => node.max_items = Some(integer(value, &at())?),
        "minItems" => node.min_items = Some(integer(value, &at())?),
        "uniqueItems" => node.unique_items = boolean(value, &at())?,
        "multipleOf" => node.multiple_of = Some(number(value, &at())?),
        "enum" => match value {
            Value::Array(values) => node.enumeration = values.clone(),
            value => return Err(wrong(&at(), value, "[]v1.JSON")),
        },
        "maxProperties" => node.max_properties = Some(integer(value, &at())?),
        "minProperties" => node.min_properties = Some(integer(value, &at())?),
        "required" => node.required = texts(value, &at())?,
        "x-kubernetes-preserve-unknown-fields" => {
            node.preserve_unknown = Some(boolean(value, &at())?)
        }
        "x-kubernetes-embedded-resource" => node.embedded = boolean(value, &at())?,
        "x-kubernetes-int-or-string" => node.int_or_string = boolean(value, &at())?,
        "x-kubernetes-list-type" => node.list_type = Some(text(value, &at())?),
        "x-kubernetes-list-map-keys" => node.list_map_keys = texts(value, &at())?,
        "x-kubernetes-map-type" => node.map_type = Some(text(value, &at())?),
        "x-kubernetes-validations" => node.rule_texts = rules(value, &at())?,
        "id" if value != "" => node.refused.push("id"),
        "$schema" if value != "" => node.refused.push("$schema"),
        "$ref" => node.refused.push("$ref"),
        "patternProperties" if is_filled(value) => node.refused.push("patternProperties"),
        "additionalItems" => node.refused.push("additionalItems"),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Parses a keyword that contains schemas.
fn nested(
    node: &mut SchemaNode,
    name: &str,
    value: &Value,
    path: &FieldPath,
    depth: usize,
) -> Result<(), FieldError> {
    let path = path.child(name);
    match name {
        "properties" => schemas(value, &path, depth, &mut node.properties),
        "items" if value.is_array() => {
            node.items_printed = printed::items(value);
            list(value, &path, depth, &mut node.items_list)
        }
        "allOf" => list(value, &path, depth, &mut node.all_of),
        "anyOf" => list(value, &path, depth, &mut node.any_of),
        "oneOf" => list(value, &path, depth, &mut node.one_of),
        "additionalProperties" if value.is_boolean() => {
            node.additional = AdditionalProperties::Bool(value == &Value::Bool(true));
            Ok(())
        }
        "definitions" if is_filled(value) => {
            node.refused.push("definitions");
            schemas(value, &path, depth, &mut node.definitions)
        }
        "dependencies" => {
            node.refused.push("dependencies");
            dependencies(value, &path, depth, &mut node.dependencies)
        }
        "items" | "additionalProperties" | "not" => {
            let schema = parse(value, &path, depth)?;
            match name {
                "items" => node.items = Some(schema),
                "not" => node.not = Some(schema),
                _ => node.additional = AdditionalProperties::Schema(schema),
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn is_filled(value: &Value) -> bool {
    value.as_object().is_none_or(|object| !object.is_empty())
}

fn schemas(
    value: &Value,
    path: &FieldPath,
    depth: usize,
    found: &mut BTreeMap<String, SchemaNode>,
) -> Result<(), FieldError> {
    let Value::Object(entries) = value else {
        return Err(wrong(path, value, "map[string]v1.JSONSchemaProps"));
    };
    for (key, entry) in entries {
        let node = parse(entry, &path.key(key), depth)?;
        found.insert(key.clone(), *node);
    }
    Ok(())
}

fn list(
    value: &Value,
    path: &FieldPath,
    depth: usize,
    found: &mut Vec<SchemaNode>,
) -> Result<(), FieldError> {
    let Value::Array(entries) = value else {
        return Err(wrong(path, value, "[]v1.JSONSchemaProps"));
    };
    for (index, entry) in entries.iter().enumerate() {
        let node = parse(entry, &path.index(index), depth)?;
        found.push(*node);
    }
    Ok(())
}

fn dependencies(
    value: &Value,
    path: &FieldPath,
    depth: usize,
    found: &mut BTreeMap<String, Option<SchemaNode>>,
) -> Result<(), FieldError> {
    for (key, entry) in value.as_object().into_iter().flatten() {
        let node = match entry {
            Value::Object(_) => Some(*parse(entry, &path.key(key), depth)?),
            _ => None,
        };
        found.insert(key.clone(), node);
    }
    Ok(())
}

fn rules(value: &Value, path: &FieldPath) -> Result<Vec<RuleText>, FieldError> {
    let Value::Array(entries) = value else {
        return Err(wrong(path, value, "v1.ValidationRules"));
    };
    let mut rules = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let path = path.index(index);
        let Value::Object(entry) = entry else {
            return Err(wrong(&path, entry, "v1.ValidationRule"));
        };
        let mut rule = RuleText::default();
        for (name, value) in entry.iter().filter(|(_, value)| !value.is_null()) {
            let path = path.child(name);
            match name.as_str() {
                "rule" => rule.rule = text(value, &path)?,
                "message" => rule.message = text(value, &path)?,
                "messageExpression" => rule.message_expression = text(value, &path)?,
                "reason" => rule.reason = Some(text(value, &path)?),
                "fieldPath" => rule.field_path = text(value, &path)?,
                "optionalOldSelf" => rule.optional_old_self = Some(boolean(value, &path)?),
                _ => {}
            }
        }
        rules.push(rule);
    }
    Ok(rules)
}

fn text(value: &Value, path: &FieldPath) -> Result<String, FieldError> {
    value
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| wrong(path, value, "string"))
}

fn texts(value: &Value, path: &FieldPath) -> Result<Vec<String>, FieldError> {
    let Value::Array(entries) = value else {
        return Err(wrong(path, value, "[]string"));
    };
    entries.iter().map(|entry| text(entry, path)).collect()
}

fn boolean(value: &Value, path: &FieldPath) -> Result<bool, FieldError> {
    value.as_bool().ok_or_else(|| wrong(path, value, "bool"))
}

fn number(value: &Value, path: &FieldPath) -> Result<f64, FieldError> {
    value.as_f64().ok_or_else(|| wrong(path, value, "float64"))
}

fn integer(value: &Value, path: &FieldPath) -> Result<i64, FieldError> {
    value.as_i64().ok_or_else(|| wrong(path, value, "int64"))
}

/// The error of Go's JSON decoder for a value of the wrong type.
fn wrong(path: &FieldPath, value: &Value, wanted: &str) -> FieldError {
    let detail = tidings_go::mismatch_value(value, wanted);
    FieldError::invalid_value(path.clone(), bad_value(value), detail)
}
