//! Decides which checks a definition must pass. A new definition must pass all; an update may keep errors that the stored
//! definition has, because the checks have become stricter over time.

use std::collections::{HashMap, HashSet};

use tidings_api::{FieldError, FieldErrors};
use tidings_go as go;
use tidings_json::Value;

use super::conditions::has_condition;
use super::conversion::{self, ConversionDemands};
use super::member::{get, list};
use super::spec::DefinitionSpec;
use crate::defaults;
use crate::format::Format;
use crate::node::SchemaNode;
use crate::rules;
use crate::schema::{self, SELECTABLE_FIELDS_MAX};
use crate::structure;
use crate::text::FieldPath;
use crate::tolerated::ToleratedFaults;

/// The checks that a definition must pass.
pub(super) struct DefinitionDemands<'a> {
    /// Every version needs a schema.
    pub(super) schemas: bool,
    /// Scope and kind are immutable.
    pub(super) fixed_names: bool,
    pub(super) conversion: ConversionDemands,
    /// Faults that schemas may have.
    tolerated: ToleratedFaults,
    /// Versions whose schema has not changed.
    unchanged: HashSet<&'a str>,
    /// Versions that may keep too many selectable fields. The empty name stands for the fields common to all versions.
    too_many_fields: HashSet<&'a str>,
}

impl<'a> DefinitionDemands<'a> {
    /// The demands on a new definition.
    pub(super) fn all() -> DefinitionDemands<'a> {
        DefinitionDemands {
            schemas: true,
            fixed_names: false,
            conversion: ConversionDemands {
                known_review: true,
                ca_bundle: false, // a definition with others is not established
            },
            tolerated: ToleratedFaults::default(),
            unchanged: HashSet::new(),
            too_many_fields: HashSet::new(),
        }
    }

    /// The demands on an update.
    pub(super) fn of_update(new: &'a Value, old: &'a Value) -> DefinitionDemands<'a> {
        let (spec, old_spec) = (DefinitionSpec::of(new), DefinitionSpec::of(old));
        let mut tolerated = ToleratedFaults::default();
        for schema in old_spec.schemas() {
            let faults = faults(schema);
            tolerated = ToleratedFaults {
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
        let old_schemas = VersionSchemas::of(&old_spec);
        let new_schemas = VersionSchemas::of(&spec);
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
        DefinitionDemands {
            schemas: old_versions.iter().all(has_schema),
            fixed_names: has_condition(old, "Established"),
            conversion: ConversionDemands {
                known_review: conversion::has_known_review(old_spec.conversion),
                ca_bundle: has_condition(old, "Established")
                    && conversion::has_ca_bundle(old_spec.conversion),
            },
            tolerated,
            unchanged: unchanged.map(|version| version.name).collect(),
            too_many_fields,
        }
    }

    /// The faults that the schema of a version may have.
    pub(super) fn tolerated(&self, version: &str, spec: &DefinitionSpec<'_>) -> ToleratedFaults {
        // Pruning, defaults and extensions need a structural schema, also if the stored one is not structural.
        let needs_structure = || {
            let uses_structure = |root: SchemaNode| has_defaults(&root) || has_extensions(&root);
            !spec.preserves_unknown || spec.schemas().filter_map(parse).any(uses_structure)
        };
        ToleratedFaults {
            not_structural: self.tolerated.not_structural && !needs_structure(),
            rule_costs: self.unchanged.contains(version),
            ..self.tolerated
        }
    }

    pub(super) fn tolerates_too_many_fields(&self, version: &str) -> bool {
        self.too_many_fields.contains(version)
    }
}

/// The schemas of a definition by version. A schema that all versions share applies to any version name, so a version that is
/// added with the shared schema counts as unchanged.
struct VersionSchemas<'a> {
    own: HashMap<&'a str, Option<&'a Value>>,
    common: Option<Option<&'a Value>>,
}

impl<'a> VersionSchemas<'a> {
    fn of(spec: &DefinitionSpec<'a>) -> VersionSchemas<'a> {
        let has_own = spec.versions.iter().any(|v| v.own.schema.is_some());
        VersionSchemas {
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

fn parse(schema: &Value) -> Option<SchemaNode> {
    SchemaNode::parse(schema, &FieldPath::default()).ok()
}

fn faults(schema: &Value) -> ToleratedFaults {
    let Some(mut root) = parse(schema) else {
        return ToleratedFaults {
            not_structural: true,
            ..ToleratedFaults::default()
        };
    };
    let is_structural = schema::refused(&root).is_none()
        && structure::check(&root, &FieldPath::default()).is_empty();
    let mut faults = rules::faults(&root);
    faults.not_structural = !is_structural;
    if is_structural {
        root.seal();
        faults.unpruned_defaults = defaults::has_unpruned(&root);
    }
    faults
}

/// Why the schemas of a definition are not structural, for the condition `NonStructuralSchema`.
pub(super) fn violations(spec: &DefinitionSpec<'_>) -> Result<FieldErrors, String> {
    let mut found = FieldErrors::new();
    if spec.preserves_unknown {
        let path = "spec.preserveUnknownFields";
        found.push(FieldError::invalid_value(path, true, "must be false"));
    }
    for (index, version) in spec.versions.iter().enumerate() {
        let open_api = version.own.open_api().or_else(|| spec.common.open_api());
        let path = FieldPath::new(&format!("spec.versions[{index}].schema.openAPIV3Schema"));
        let Some(open_api) = open_api else { continue };
        let root = SchemaNode::parse(open_api, &path).map_err(|error| error.to_string());
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
pub(super) fn has_defaults(node: &SchemaNode) -> bool {
    node.default.is_some() || node.children().any(has_defaults)
}

fn has_extensions(node: &SchemaNode) -> bool {
    node.embedded
        || node.preserve_unknown.is_some()
        || node.int_or_string
        || !node.list_map_keys.is_empty()
        || node.list_type.is_some()
        || !node.rule_texts.is_empty()
        || node.children().any(has_extensions)
}

/// Warnings for the author of a definition: one for each unknown format that the old definition does not have.
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
    for root in DefinitionSpec::of(crd).schemas().filter_map(parse) {
        collect_unknown_formats(&root, &mut found);
    }
    found
}

fn collect_unknown_formats(node: &SchemaNode, found: &mut Vec<String>) {
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
