//! What is demanded of a definition. A new one has to obey all rules; an update may keep what was wrong before, because rules
//! have become stricter over time.

use std::collections::{HashMap, HashSet};

use tidings_api::{FieldError, FieldErrors, go};
use tidings_json::Value;

use super::conversion;
use super::member::{get, list};
use super::spec::Spec;
use super::status::has_condition;
use crate::defaults;
use crate::format::Format;
use crate::node::Node;
use crate::rules;
use crate::schema::{self, SELECTABLE_FIELDS_MAX, Tolerated};
use crate::structure;
use crate::text::Path;

pub(super) struct Demands<'a> {
    /// Every version needs a schema.
    pub(super) schemas: bool,
    /// Scope and kind may not change any more.
    pub(super) fixed_names: bool,
    /// A webhook must be asked in a version that is known.
    pub(super) known_review: bool,
    /// What schemas may do wrong.
    tolerated: Tolerated,
    /// Versions whose schema is as it was.
    unchanged: HashSet<&'a str>,
    /// Versions that have too many selectable fields and had them before; the empty name for those of all versions.
    too_many_fields: HashSet<&'a str>,
}

impl<'a> Demands<'a> {
    /// Of a new definition.
    pub(super) fn all() -> Demands<'a> {
        Demands {
            schemas: true,
            fixed_names: false,
            known_review: true,
            tolerated: Tolerated::default(),
            unchanged: HashSet::new(),
            too_many_fields: HashSet::new(),
        }
    }

    /// Of an update.
    pub(super) fn of_update(new: &'a Value, old: &'a Value) -> Demands<'a> {
        let (spec, old_spec) = (Spec::of(new), Spec::of(old));
        let mut tolerated = Tolerated::default();
        for schema in old_spec.schemas() {
            let faults = faults(schema);
            tolerated = Tolerated {
                unknown_types: tolerated.unknown_types || faults.unknown_types,
                not_structural: tolerated.not_structural || faults.not_structural,
                unpruned_defaults: tolerated.unpruned_defaults || faults.unpruned_defaults,
                set_elements: tolerated.set_elements || faults.set_elements,
                list_keys: tolerated.list_keys || faults.list_keys,
                rule_costs: false,
            };
        }
        let old_versions = get(old, "spec").map_or(&[][..], |spec| list(spec, "versions"));
        let has_schema = |version: &Value| {
            get(version, "schema").is_some_and(|schema| get(schema, "openAPIV3Schema").is_some())
        };
        let old_schemas = Schemas::of(&old_spec);
        let new_schemas = Schemas::of(&spec);
        let unchanged = spec.versions.iter().filter(|version| {
            let new = new_schemas.get(version.name);
            new.is_some() && new == old_schemas.get(version.name)
        });
        let old_fields: HashMap<&str, &[Value]> = old_spec
            .versions
            .iter()
            .map(|version| (version.name, version.own.fields))
            .collect();
        let mut too_many_fields = HashSet::new();
        let is_kept =
            |new: &[Value], old: &[Value]| old.len() > SELECTABLE_FIELDS_MAX && new == old;
        if is_kept(spec.common.fields, old_spec.common.fields) {
            too_many_fields.insert("");
        }
        for version in &spec.versions {
            let before = old_fields.get(version.name);
            if before.is_some_and(|before| is_kept(version.own.fields, before)) {
                too_many_fields.insert(version.name);
            }
        }
        Demands {
            schemas: old_versions.iter().all(has_schema),
            fixed_names: has_condition(old, "Established"),
            known_review: conversion::has_known_review(old_spec.conversion),
            tolerated,
            unchanged: unchanged.map(|version| version.name).collect(),
            too_many_fields,
        }
    }

    /// What the schema of a version may do wrong.
    pub(super) fn tolerated(&self, version: &str, spec: &Spec<'_>) -> Tolerated {
        // Whoever prunes, defaults or uses extensions needs a structural schema, whatever was before.
        let needs_structure = || {
            let uses_structure = |root: Node| has_defaults(&root) || has_extensions(&root);
            !spec.preserves_unknown || spec.schemas().filter_map(parse).any(uses_structure)
        };
        Tolerated {
            not_structural: self.tolerated.not_structural && !needs_structure(),
            rule_costs: self.unchanged.contains(version),
            ..self.tolerated
        }
    }

    pub(super) fn tolerates_too_many_fields(&self, version: &str) -> bool {
        self.too_many_fields.contains(version)
    }
}

/// The schemas of a definition by version. What all versions have in common is there for versions that do not exist, too: so a
/// version that comes with the schema of all others is not new.
struct Schemas<'a> {
    own: HashMap<&'a str, Option<&'a Value>>,
    common: Option<Option<&'a Value>>,
}

impl<'a> Schemas<'a> {
    fn of(spec: &Spec<'a>) -> Schemas<'a> {
        let has_own = spec.versions.iter().any(|v| v.own.schema.is_some());
        Schemas {
            own: spec
                .versions
                .iter()
                .map(|version| (version.name, version.own.schema))
                .collect(),
            common: (!has_own).then_some(spec.common.schema),
        }
    }

    fn get(&self, version: &str) -> Option<Option<&'a Value>> {
        self.common.or_else(|| self.own.get(version).copied())
    }
}

fn parse(schema: &Value) -> Option<Node> {
    Node::parse(schema, &Path::default()).ok()
}

fn faults(schema: &Value) -> Tolerated {
    let Some(mut root) = parse(schema) else {
        return Tolerated {
            not_structural: true,
            ..Tolerated::default()
        };
    };
    let is_structural =
        schema::refused(&root).is_none() && structure::check(&root, &Path::default()).is_empty();
    let mut faults = rules::faults(&root);
    faults.not_structural = !is_structural;
    if is_structural {
        root.seal();
        faults.unpruned_defaults = defaults::has_unpruned(&root);
    }
    faults
}

/// Why the schemas of a definition are not structural, as its condition tells it.
pub(super) fn violations(spec: &Spec<'_>) -> Result<FieldErrors, String> {
    let mut found = FieldErrors::new();
    if spec.preserves_unknown {
        let path = "spec.preserveUnknownFields";
        found.push(FieldError::invalid_value(path, true, "must be false"));
    }
    for (index, version) in spec.versions.iter().enumerate() {
        let open_api = version.own.open_api().or_else(|| spec.common.open_api());
        let path = Path::new(&format!("spec.versions[{index}].schema.openAPIV3Schema"));
        let Some(open_api) = open_api else { continue };
        let root = Node::parse(open_api, &path).map_err(|error| error.to_string());
        let refused = root.and_then(|root| match schema::refused(&root) {
            Some(why) => Err(why),
            None => Ok(root),
        });
        match refused {
            Ok(root) => found.extend(structure::check(&root, &path)),
            Err(why) => {
                let name = version.name;
                return Err(format!(
                    "failed to check validation schema for version {name}: {why}"
                ));
            }
        }
    }
    Ok(found)
}

/// True if there is a default anywhere in a schema.
pub(super) fn has_defaults(node: &Node) -> bool {
    node.default.is_some() || node.children().any(has_defaults)
}

fn has_extensions(node: &Node) -> bool {
    node.embedded
        || node.preserve_unknown.is_some()
        || node.int_or_string
        || !node.list_map_keys.is_empty()
        || node.list_type.is_some()
        || !node.rule_texts.is_empty()
        || node.children().any(has_extensions)
}

/// What the author of a definition is warned of: formats that nobody checks, if they were not there before.
pub fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let known: HashSet<String> = old.map(unknown_formats).into_iter().flatten().collect();
    let found = unknown_formats(new).into_iter();
    found
        .filter(|format| !known.contains(format))
        .map(|format| format!("unrecognized format {}", go::quote(&format)))
        .collect()
}

fn unknown_formats(crd: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for root in Spec::of(crd).schemas().filter_map(parse) {
        collect_unknown_formats(&root, &mut found);
    }
    found
}

fn collect_unknown_formats(node: &Node, found: &mut Vec<String>) {
    let kind = node.kind.as_str();
    let types = if kind.is_empty() {
        &[][..]
    } else {
        &[kind][..]
    };
    if !node.format_text.is_empty() && Format::of(&node.format_text, types).is_none() {
        found.push(node.format_text.clone());
    }
    for child in node.children() {
        collect_unknown_formats(child, found);
    }
}
