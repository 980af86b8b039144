//! The public API of a compiled schema: [`Schema`].

use std::collections::HashSet;

use tidings_api::{FieldError, FieldErrors};
use tidings_go as go;
use tidings_json::Value;

use crate::cel;
use crate::correlate::UpdatePair;
use crate::defaults::{self, DefaultsCheck};
use crate::field_path;
use crate::json_path::JsonPath;
use crate::lists;
use crate::meta;
use crate::node::{AdditionalProperties, SchemaNode};
use crate::printed;
use crate::rules;
use crate::shape::{self, Pruner};
use crate::structure;
use crate::text::FieldPath;
use crate::tolerated::ToleratedFaults;
use crate::value;
use crate::view::SchemaView;

/// The maximum number of selectable fields of a version.
pub(crate) const SELECTABLE_FIELDS_MAX: usize = 8;

/// A structural schema, compiled once from `openAPIV3Schema`.
#[derive(Debug)]
pub struct Schema {
    root: SchemaNode,
}

/// What the compiler needs to know about the definition that contains the schema.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct CompileOptions {
    /// True if the version has a status subresource. Then only few keywords are allowed at the root of the schema.
    pub status_subresource: bool,
    /// Faults that are not reported, because the stored definition has them.
    pub(crate) tolerated: ToleratedFaults,
}

impl CompileOptions {
    /// Sets whether the version has a status subresource.
    pub fn with_status_subresource(mut self, has_status: bool) -> CompileOptions {
        self.status_subresource = has_status;
        self
    }

    /// Sets the faults that are not reported.
    pub(crate) fn tolerating(mut self, tolerated: ToleratedFaults) -> CompileOptions {
        self.tolerated = tolerated;
        self
    }
}

/// What to do with metadata of the wrong type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// Refuse it, for an object of a request.
    Refuse,
    /// Drop it, for a stored object.
    Drop,
}

impl Schema {
    /// Compiles a schema. `path` is its path in errors, such as `spec.versions[0].schema.openAPIV3Schema`.
    ///
    /// # Errors
    /// All errors of the schema, each with its path: it is not structural, uses refused keywords, has invalid defaults, or has
    /// rules that do not compile or cost too much.
    pub fn compile(
        schema: &Value,
        path: &str,
        options: CompileOptions,
    ) -> Result<Schema, FieldErrors> {
        let path = FieldPath::new(path);
        let mut root = SchemaNode::parse(schema, &path)?;
        let mut errors = Vec::new();
        if options.status_subresource {
            errors.extend(check_root(schema, &root, &path));
        }
        if root.nullable {
            let detail = "nullable cannot be true at the root";
            errors.push(FieldError::forbidden(path.child("nullable"), detail));
        }
        let tolerated = options.tolerated;
        let refused = refused(&root).filter(|_| !tolerated.not_structural);
        let mut compiler = None;
        if refused.is_none() && !tolerated.not_structural {
            let mut found = structure::check(&root, &path);
            if found.is_empty() {
                root.seal();
                let against = DefaultsCheck::Schema {
                    unpruned: tolerated.unpruned_defaults,
                };
                found = defaults::check(&root, &path, against);
            }
            if found.is_empty() {
                compiler = Some(cel::RuleCompiler::new(tolerated.rule_costs));
            }
            errors.extend(found);
        }
        let problems = rules::check(&mut root, &path, tolerated, compiler.as_mut());
        errors.extend(problems.schema);
        errors.extend(problems.rules);
        if errors.is_empty() {
            errors.extend(refused.map(|why| FieldError::invalid(path.clone(), "", why)));
        }
        errors.extend(
            compiler
                .map(|compiler| compiler.finish(&path))
                .unwrap_or_default(),
        );
        if errors.is_empty() {
            root.seal();
            if !tolerated.not_structural {
                errors = defaults::check(&root, &path, DefaultsCheck::Rules);
            }
        }
        if errors.is_empty() {
            Ok(Schema { root })
        } else {
            Err(errors.into_iter().collect())
        }
    }

    /// True if the schema has defaults. Without them [`Schema::default`] does nothing and need not be called.
    pub fn has_defaults(&self) -> bool {
        self.root.below.defaults
    }

    /// True if the schema has rules.
    pub fn has_rules(&self) -> bool {
        self.root.below.rules
    }

    /// Sets defaults where fields are absent, or null and not nullable. The server does this on write and on read.
    pub fn default(&self, object: &mut Value) {
        shape::default(object, &self.root);
    }

    /// Drops fields that the schema does not specify, and nulls that are neither allowed nor replaced by a default. Returns the
    /// paths of the unknown fields, sorted.
    ///
    /// apiVersion, kind and metadata of the object itself stay unchanged.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut pruner = Pruner::default();
        pruner.prune(object, Some(&self.root), true);
        shape::drop_nulls(object, &self.root);
        pruner.pruned.sort();
        pruner.pruned
    }

    /// Drops unknown fields of the metadata of embedded resources. Returns their paths, sorted.
    ///
    /// # Errors
    /// If apiVersion, kind or metadata of an embedded resource has the wrong type and may not be dropped.
    pub fn coerce(
        &self,
        object: &mut Value,
        malformed: Malformed,
    ) -> Result<Vec<String>, FieldError> {
        let mut unknown = Vec::new();
        let drop_malformed = malformed == Malformed::Drop;
        meta::coerce(
            object,
            &self.root,
            false,
            drop_malformed,
            &FieldPath::default(),
            &mut unknown,
        )?;
        unknown.sort();
        Ok(unknown)
    }

    /// Appends the errors of an object that is to be created, or to replace `old`.
    ///
    /// Errors in values that `old` has unchanged are not reported. Rules are evaluated only if neither `errors` nor the checks
    /// here contain an error that makes their results meaningless.
    pub fn validate(&self, new: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
        let nowhere = FieldPath::default();
        let mut found = Vec::new();
        value::check(new, &self.root, self.pair(new, old), &nowhere, &mut found);
        meta::check(new, &self.root, false, &nowhere, &mut found);
        self.lists_and_rules(new, old, found, errors);
    }

    /// Appends the errors of an update of the status of an object.
    pub fn validate_status(&self, new: &Value, old: &Value, errors: &mut FieldErrors) {
        let mut found = Vec::new();
        if let (Some(status), Some(node)) = (new.get("status"), self.root.properties.get("status"))
        {
            let pair = self
                .pair(new, Some(old))
                .and_then(|pair| pair.field("status"));
            value::check(status, node, pair, &FieldPath::new("status"), &mut found);
        }
        self.lists_and_rules(new, Some(old), found, errors);
    }

    fn pair<'a>(&'a self, new: &'a Value, old: Option<&'a Value>) -> Option<UpdatePair<'a>> {
        Some(UpdatePair {
            new,
            old: old?,
            node: &self.root,
        })
    }

    fn lists_and_rules(
        &self,
        new: &Value,
        old: Option<&Value>,
        mut found: Vec<FieldError>,
        errors: &mut FieldErrors,
    ) {
        let mut repeated = Vec::new();
        lists::check(new, &self.root, &mut FieldPath::default(), &mut repeated);
        if let (Some(old), false) = (old, repeated.is_empty()) {
            let mut before = Vec::new();
            lists::check(old, &self.root, &mut FieldPath::default(), &mut before);
            if !before.is_empty() {
                repeated.clear();
            }
        }
        found.append(&mut repeated);
        if self.has_rules() {
            if errors.iter().chain(&found).any(blocks_rules) {
                found.push(FieldError::invalid_value(
                    "<nil>",
                    "null",
                    "some validation rules were not checked because the object was invalid; correct the existing errors to complete \
                     validation",
                ));
            } else {
                cel::validate(
                    new,
                    old,
                    &self.root,
                    &FieldPath::default(),
                    true,
                    cel::Ratcheting::On,
                    &mut found,
                );
            }
        }
        errors.extend(found);
    }

    /// The root of the schema, for merging objects in server-side apply.
    pub fn view(&self) -> SchemaView<'_> {
        SchemaView::new(&self.root)
    }

    /// Parses the paths of selectable fields. `path` is their path in errors, such as `spec.versions[0].selectableFields`.
    /// Returns the name of each field in field selectors, with its path.
    ///
    /// # Errors
    /// If a path leads to no field of the schema or into metadata, if a field is neither text nor an integer nor a boolean, or
    /// if it occurs twice.
    pub fn selectable_fields(
        &self,
        json_paths: &[&str],
        path: &str,
    ) -> Result<Vec<(String, JsonPath)>, FieldErrors> {
        let (fields, errors) = selectable_fields(&self.root, json_paths, path, false);
        if errors.is_empty() {
            Ok(fields)
        } else {
            Err(errors)
        }
    }

    /// As [`Schema::selectable_fields`], for fields of a stored definition, which may have more than the allowed number.
    pub(crate) fn lenient_selectable_fields(
        &self,
        json_paths: &[&str],
        path: &str,
    ) -> (Vec<(String, JsonPath)>, FieldErrors) {
        selectable_fields(&self.root, json_paths, path, true)
    }
}

/// As [`Schema::selectable_fields`], for a schema that may have other errors.
pub(crate) fn selectable_fields(
    root: &SchemaNode,
    json_paths: &[&str],
    path: &str,
    tolerate_too_many: bool,
) -> (Vec<(String, JsonPath)>, FieldErrors) {
    let list = FieldPath::new(path);
    let mut errors = FieldErrors::new();
    let mut fields: Vec<(String, JsonPath)> = Vec::new();
    let mut names_seen = HashSet::new();
    for (index, text) in json_paths.iter().enumerate() {
        let path = list.index(index).child("jsonPath");
        if text.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        let (names, node) = match field_path::resolve(text, root, false) {
            Ok((_, names, node)) => (names, node),
            Err(why) => {
                errors.push(FieldError::invalid(
                    path,
                    text,
                    format!("is an invalid path: {why}"),
                ));
                continue;
            }
        };
        if names.first().is_some_and(|name| name == "metadata") {
            errors.push(FieldError::invalid(
                path.clone(),
                text,
                "must not point to fields in metadata",
            ));
        }
        if !["string", "boolean", "integer"].contains(&node.kind.as_str()) {
            errors.push(FieldError::invalid(
                path.clone(),
                text,
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
            ));
        }
        let name = names.join(".");
        if !names_seen.insert(name.clone()) {
            errors.push(FieldError::duplicate(path, text));
            continue;
        }
        match JsonPath::parse(text) {
            Ok(parsed) => fields.push((name, parsed)),
            Err(why) => errors.push(FieldError::invalid(
                path,
                text,
                format!("is an invalid path: {why}"),
            )),
        }
    }
    if fields.len() > SELECTABLE_FIELDS_MAX && !tolerate_too_many {
        errors.push(FieldError::too_many(
            list,
            fields.len(),
            SELECTABLE_FIELDS_MAX,
        ));
    }
    (fields, errors)
}

/// True for errors that would make rules fail for the same reason.
fn blocks_rules(error: &FieldError) -> bool {
    matches!(
        error.reason(),
        "FieldValueNotSupported"
            | "FieldValueRequired"
            | "FieldValueTooLong"
            | "FieldValueTooMany"
            | "FieldValueTypeInvalid"
    )
}

/// Checks the root of a schema with a status subresource. The status is validated with the schema of `status` alone, so only few
/// keywords are allowed at the root.
fn check_root(schema: &Value, root: &SchemaNode, path: &FieldPath) -> Option<FieldError> {
    const ALLOWED: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern \
                           MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example \
                           XPreserveUnknownFields XValidations]";
    let says_first = ["id", "$schema", "$ref"];
    let is_odd = root.refused.iter().any(|name| says_first.contains(name));
    if !is_odd && !root.kind.is_empty() && root.kind != "object" {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return Some(FieldError::invalid(path.child("type"), &root.kind, detail));
    }
    let says_more = root.nullable
        || root.default.is_some()
        || root.additional.is_set()
        || !root.enumeration.is_empty()
        || root.max_properties.is_some()
        || root.min_properties.is_some()
        || !root.all_of.is_empty()
        || !root.any_of.is_empty()
        || !root.one_of.is_empty()
        || root.not.is_some()
        || root.embedded
        || root.int_or_string
        || root.list_type.is_some()
        || !root.list_map_keys.is_empty()
        || root.map_type.is_some()
        || !root.refused.is_empty();
    says_more.then(|| {
        let detail = format!("only {ALLOWED} fields are allowed at the root of the schema if the status subresource is enabled");
        FieldError::invalid_value(path.clone(), printed::schema(schema), detail)
    })
}

/// The error for the first keyword of a schema that a structural schema cannot have.
pub(crate) fn refused(node: &SchemaNode) -> Option<String> {
    if let Some(name) = node.refused.first() {
        let name = name.trim_start_matches('$');
        let name = if name == "ref" { "$ref" } else { name };
        return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
    }
    if !node.items_list.is_empty() {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".into());
    }
    if node.preserve_unknown == Some(false) {
        return Some(
            "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
                .into(),
        );
    }
    let additional = match &node.additional {
        AdditionalProperties::Schema(schema) => Some(&**schema),
        _ => None,
    };
    node.properties
        .values()
        .chain(additional)
        .chain(node.items.as_deref())
        .chain(&node.all_of)
        .chain(&node.any_of)
        .chain(&node.one_of)
        .chain(node.not.as_deref())
        .find_map(refused)
}

/// Appends the errors of a path of a printer column or of the scale subresource.
pub fn check_simple_json_path(text: &str, path: &str, errors: &mut FieldErrors) {
    if text.is_empty() {
        errors.push(FieldError::invalid_value(
            path,
            go::quote(text),
            "must not be empty",
        ));
    } else if !text.starts_with('.') {
        errors.push(FieldError::invalid(
            path,
            text,
            "must be a simple json path starting with .",
        ));
    }
}
