//! The schema as others use it.

use std::collections::HashSet;

use tidings_api::{FieldError, FieldErrors, go};
use tidings_json::Value;

use crate::cel;
use crate::correlate::Pair;
use crate::defaults::{self, Against};
use crate::field_path;
use crate::json_path::JsonPath;
use crate::lists;
use crate::meta;
use crate::node::{Additional, Node};
use crate::printed;
use crate::rules;
use crate::shape::{self, Pruner};
use crate::structure;
use crate::text::Path;
use crate::value;
use crate::view::View;

/// The most fields by which resources can be selected.
pub(crate) const SELECTABLE_FIELDS_MAX: usize = 8;

/// A structural schema, compiled once from `openAPIV3Schema`.
#[derive(Debug)]
pub struct Schema {
    root: Node,
}

/// What the definition around a schema says.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct CompileOptions {
    /// The version has a status subresource: then the root of the schema may say little.
    pub status_subresource: bool,
    /// What is not complained about, because it was there before.
    pub(crate) tolerated: Tolerated,
}

/// Faults of a schema that an update may keep: rules have become stricter over time, and what was stored must stay writable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tolerated {
    /// Types that do not exist.
    pub(crate) unknown_types: bool,
    /// It is not structural. What is compiled then is of no use to objects.
    pub(crate) not_structural: bool,
    /// Defaults with unknown fields.
    pub(crate) unpruned_defaults: bool,
    /// Sets whose elements are not atomic.
    pub(crate) set_elements: bool,
    /// Keys of lists that may be absent or null.
    pub(crate) list_keys: bool,
    /// Rules that cost too much, each by itself.
    pub(crate) rule_costs: bool,
}

impl Tolerated {
    /// For a schema that was accepted before: everything without which it can still be used.
    pub(crate) const WHAT_CAN_BE_SERVED: Tolerated = Tolerated {
        unknown_types: true,
        not_structural: false,
        unpruned_defaults: true,
        set_elements: true,
        list_keys: true,
        rule_costs: true,
    };
}

impl CompileOptions {
    /// Whether the version has a status subresource.
    pub fn with_status_subresource(mut self, has_status: bool) -> CompileOptions {
        self.status_subresource = has_status;
        self
    }

    /// What is let through.
    pub(crate) fn tolerating(mut self, tolerated: Tolerated) -> CompileOptions {
        self.tolerated = tolerated;
        self
    }
}

/// What to do with metadata of the wrong type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// Refuse it, as for a request.
    Refuse,
    /// Drop it, as for what was stored.
    Drop,
}

impl Schema {
    /// Compiles a schema that stands at `path`, such as `spec.versions[0].schema.openAPIV3Schema`.
    ///
    /// # Errors
    /// All that is wrong with it, each with its path: it is not structural, says what a definition may not say, has defaults
    /// that are not valid, or rules that do not compile or cost too much.
    pub fn compile(
        schema: &Value,
        path: &str,
        options: CompileOptions,
    ) -> Result<Schema, FieldErrors> {
        let path = Path::new(path);
        let mut root = Node::parse(schema, &path)?;
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
                let against = Against::Schema {
                    unpruned: tolerated.unpruned_defaults,
                };
                found = defaults::check(&root, &path, against);
            }
            if found.is_empty() {
                compiler = Some(cel::Compiler::new(tolerated.rule_costs));
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
                errors = defaults::check(&root, &path, Against::Rules);
            }
        }
        if errors.is_empty() {
            Ok(Schema { root })
        } else {
            Err(errors.into_iter().collect())
        }
    }

    /// True if there are defaults: if not, [`Schema::default`] does nothing and need not be called for each object of a list.
    pub fn has_defaults(&self) -> bool {
        self.root.below.defaults
    }

    /// True if there are rules.
    pub fn has_rules(&self) -> bool {
        self.root.below.rules
    }

    /// Sets defaults where fields are absent, or null and not nullable. This is done on write and on read.
    pub fn default(&self, object: &mut Value) {
        shape::default(object, &self.root);
    }

    /// Drops fields that the schema does not specify, and null where it is neither allowed nor replaced by a default. Returns
    /// the paths of the unknown fields, sorted.
    ///
    /// Type and metadata of the object itself are left alone.
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
    /// If embedded type or metadata has the wrong type and is not to be dropped.
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
            &Path::default(),
            &mut unknown,
        )?;
        unknown.sort();
        Ok(unknown)
    }

    /// Appends all that is wrong with an object that is to be created, or to replace `old`.
    ///
    /// What was wrong with the old object and has not changed is let through. Rules are only evaluated if nothing was found,
    /// here or before in `errors`, that makes their result meaningless.
    pub fn validate(&self, new: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
        let nowhere = Path::default();
        let mut found = Vec::new();
        value::check(new, &self.root, self.pair(new, old), &nowhere, &mut found);
        meta::check(new, &self.root, false, &nowhere, &mut found);
        self.lists_and_rules(new, old, found, errors);
    }

    /// Appends all that is wrong with an update of the status of an object.
    pub fn validate_status(&self, new: &Value, old: &Value, errors: &mut FieldErrors) {
        let mut found = Vec::new();
        if let (Some(status), Some(node)) = (new.get("status"), self.root.properties.get("status"))
        {
            let pair = self
                .pair(new, Some(old))
                .and_then(|pair| pair.field("status"));
            value::check(status, node, pair, &Path::new("status"), &mut found);
        }
        self.lists_and_rules(new, Some(old), found, errors);
    }

    fn pair<'a>(&'a self, new: &'a Value, old: Option<&'a Value>) -> Option<Pair<'a>> {
        Some(Pair {
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
        lists::check(new, &self.root, &mut Path::default(), &mut repeated);
        if let (Some(old), false) = (old, repeated.is_empty()) {
            let mut before = Vec::new();
            lists::check(old, &self.root, &mut Path::default(), &mut before);
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
                    &Path::default(),
                    true,
                    cel::Ratcheting::On,
                    &mut found,
                );
            }
        }
        errors.extend(found);
    }

    /// The root, for those who merge objects by their schema.
    pub fn view(&self) -> View<'_> {
        View::new(&self.root)
    }

    /// Reads the paths of selectable fields, which stand at `path`, such as `spec.versions[0].selectableFields`. Returns the
    /// name of each in field selectors with its path.
    ///
    /// # Errors
    /// If one of them is no field of the schema, is in metadata, is neither text nor a number nor a boolean, or occurs twice.
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

    /// As [`Schema::selectable_fields`], for fields that were accepted before: there may be more of them than are allowed now.
    pub(crate) fn lenient_selectable_fields(
        &self,
        json_paths: &[&str],
        path: &str,
    ) -> (Vec<(String, JsonPath)>, FieldErrors) {
        selectable_fields(&self.root, json_paths, path, true)
    }
}

/// What [`Schema::selectable_fields`] does, for a schema that need not be right in other respects.
pub(crate) fn selectable_fields(
    root: &Node,
    json_paths: &[&str],
    path: &str,
    tolerate_too_many: bool,
) -> (Vec<(String, JsonPath)>, FieldErrors) {
    let list = Path::new(path);
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

/// Errors after which rules would stumble over the same thing again.
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

/// The status is validated with its own part of the schema, so the root may only say what holds without it.
fn check_root(schema: &Value, root: &Node, path: &Path) -> Option<FieldError> {
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

/// The first construct of a schema that no structural schema can have.
pub(crate) fn refused(node: &Node) -> Option<String> {
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
        Additional::Schema(schema) => Some(&**schema),
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

/// Appends what is wrong with the path of a printer column or of the scale subresource.
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
