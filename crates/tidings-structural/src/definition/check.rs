//! Checks a definition. All errors are reported together, in upstream's order and words.

use std::collections::HashSet;

use tidings_api::{FieldError, FieldErrors, validate};
use tidings_go as go;
use tidings_json::Value;

use super::member::{flag, get, text, texts};
use super::ratchet::{DefinitionDemands, has_defaults};
use super::spec::{DefinitionSpec, SpecVersion, VersionParts};
use super::{approval, conversion, form, names, version};
use crate::node::SchemaNode;
use crate::text::{FieldPath, json};

/// Appends the errors of a new definition, whose defaults [`super::fill_in`] has set. Its metadata is checked elsewhere, except
/// that its name must be made of its plural and its group.
pub fn validate(crd: &Value, errors: &mut FieldErrors) {
    if has_wrong_form(crd, errors) {
        return;
    }
    let spec = DefinitionSpec::of(crd);
    let name = get(crd, "metadata").map_or("", |metadata| text(metadata, "name"));
    if name != format!("{}.{}", text(spec.names, "plural"), spec.group) {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", name, detail));
    }
    check_spec(&spec, &DefinitionDemands::all(), errors);
    check_status(crd, errors);
    check_stored_versions(crd, &spec, errors);
    errors.extend(approval::check(crd, None));
    check_preserving(&spec, None, errors);
}

/// Appends the errors of an update of a definition. Old errors may stay where upstream allows it.
pub fn validate_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    if has_wrong_form(new, errors) {
        return;
    }
    let (spec, old_spec) = (DefinitionSpec::of(new), DefinitionSpec::of(old));
    let demands = DefinitionDemands::of_update(new, old);
    check_spec(&spec, &demands, errors);
    let mut fixed = |path: &str, new: &str, old: &str| {
        if new != old {
            errors.push(FieldError::invalid(path, new, "field is immutable"));
        }
    };
    if demands.fixed_names {
        fixed("spec.scope", spec.scope, old_spec.scope);
        let (new, old) = (text(spec.names, "kind"), text(old_spec.names, "kind"));
        fixed("spec.names.kind", new, old);
    }
    fixed("spec.group", spec.group, old_spec.group);
    let (new_plural, old_plural) = (text(spec.names, "plural"), text(old_spec.names, "plural"));
    fixed("spec.names.plural", new_plural, old_plural);
    check_status(new, errors);
    check_stored_versions(new, &spec, errors);
    errors.extend(approval::check(new, Some(old)));
    check_preserving(&spec, Some(&old_spec), errors);
}

/// Appends the errors of an update of the status of a definition.
pub fn validate_status_update(new: &Value, _old: &Value, errors: &mut FieldErrors) {
    if !has_wrong_form(new, errors) {
        check_status(new, errors);
    }
}

/// Appends the errors of members that have the wrong type. True if there are any.
fn has_wrong_form(crd: &Value, errors: &mut FieldErrors) -> bool {
    let found = form::check(crd);
    let is_wrong = !found.is_empty();
    errors.extend(found);
    is_wrong
}

fn check_spec(
    spec: &DefinitionSpec<'_>,
    demands: &DefinitionDemands<'_>,
    errors: &mut FieldErrors,
) {
    let path = FieldPath::new("spec");
    check_group(spec.group, errors);
    match spec.scope {
        "" => errors.push(FieldError::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => errors.push(FieldError::not_supported(
            "spec.scope",
            go::quote(other),
            &["Cluster", "Namespaced"],
        )),
    }
    check_schemas_are_there(spec, demands, errors);
    let uses_defaults = || {
        let mut roots = spec
            .schemas()
            .filter_map(|schema| SchemaNode::parse(schema, &path).ok());
        roots.any(|root| has_defaults(&root))
    };
    if spec.preserves_unknown && uses_defaults() {
        let detail = "must be false in order to use defaults in the schema";
        let path = "spec.preserveUnknownFields";
        errors.push(FieldError::invalid_value(path, true, detail));
    }
    check_versions(spec, demands, errors);

    let names_path = path.child("names");
    for member in ["plural", "singular", "kind", "listKind"] {
        if text(spec.names, member).is_empty() {
            errors.push(FieldError::required(names_path.child(member), ""));
        }
    }
    names::check(spec.names, &names_path, errors);

    let common = &spec.common;
    let first = spec.versions.first().map_or("", |version| version.name);
    let tolerated = demands.tolerated(first, spec);
    let schema_path = path.child("validation");
    version::schema(
        common,
        spec.has_any_status(),
        tolerated,
        &schema_path,
        errors,
    );
    version::subresources(common, &path.child("subresources"), errors);
    version::columns(
        common.columns,
        &path.child("additionalPrinterColumns"),
        errors,
    );
    if !common.fields.is_empty() && common.schema.is_none() {
        let path = path.child("selectableFields");
        let detail = "may only be set when validations.schema is included";
        errors.push(FieldError::invalid(path, "", detail));
    } else {
        check_fields(common, &path, demands.tolerates_too_many_fields(""), errors);
    }

    if let Some(conversion) = spec.conversion {
        let strategy = text(conversion, "strategy");
        let path = path.child("conversion");
        if strategy != "None" && spec.preserves_unknown {
            let detail = "must be None if spec.preserveUnknownFields is true";
            errors.push(FieldError::invalid(
                path.child("strategy"),
                strategy,
                detail,
            ));
        }
        conversion::check(conversion, demands.conversion, &path, errors);
    }
}

fn check_group(group: &str, errors: &mut FieldErrors) {
    let path = "spec.group";
    let why = validate::dns1123_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !why.is_empty() {
        errors.push(FieldError::invalid(path, group, why.join(",")));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.push(FieldError::invalid(path, group, detail));
    }
}

fn check_schemas_are_there(
    spec: &DefinitionSpec<'_>,
    demands: &DefinitionDemands<'_>,
    errors: &mut FieldErrors,
) {
    if spec.common.open_api().is_some() || (!demands.schemas && spec.preserves_unknown) {
        return;
    }
    for (index, version) in spec.versions.iter().enumerate() {
        if version.own.open_api().is_some() {
            continue;
        }
        let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
        if demands.schemas {
            errors.push(FieldError::required(path, ""));
        } else if flag(version.json, "served") {
            let detail = "because otherwise all fields are pruned";
            errors.push(FieldError::required(path, detail));
        }
    }
}

fn check_versions(
    spec: &DefinitionSpec<'_>,
    demands: &DefinitionDemands<'_>,
    errors: &mut FieldErrors,
) {
    let path = FieldPath::new("spec.versions");
    for (index, version) in spec.versions.iter().enumerate() {
        let path = path.index(index);
        let why = validate::dns1035_label(version.name);
        if !why.is_empty() {
            let path = path.child("name");
            errors.push(FieldError::invalid(path, version.name, why.join(",")));
        }
        check_version(spec, version, demands, &path, errors);
    }
    let names: HashSet<&str> = spec.versions.iter().map(|version| version.name).collect();
    if names.len() < spec.versions.len() {
        let detail = "must contain unique version names";
        let printed = spec.printed_versions();
        errors.push(FieldError::invalid_value(path.clone(), printed, detail));
    }
    let stored = spec.versions.iter().filter(|v| flag(v.json, "storage"));
    if stored.count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        let printed = spec.printed_versions();
        errors.push(FieldError::invalid_value(path, printed, detail));
    }
    // Upstream's internal struct also has the name of the first version in `spec.version`.
    if let Some(first) = spec.versions.first().filter(|first| !first.name.is_empty()) {
        let why = validate::dns1035_label(first.name);
        if !why.is_empty() {
            let why = why.join(",");
            errors.push(FieldError::invalid("spec.version", first.name, why));
        }
    }
}

fn check_version(
    spec: &DefinitionSpec<'_>,
    version: &SpecVersion<'_>,
    demands: &DefinitionDemands<'_>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    version::warning(version.json, path, errors);
    let own = &version.own;
    let tolerated = demands.tolerated(version.name, spec);
    version::schema(
        own,
        spec.has_status(version),
        tolerated,
        &path.child("schema"),
        errors,
    );
    version::subresources(own, &path.child("subresources"), errors);
    version::columns(own.columns, &path.child("additionalPrinterColumns"), errors);
    if !own.fields.is_empty() && own.open_api().is_none() {
        let path = path.child("selectableFields");
        // Upstream's message has a `not` too many; clients know it so.
        let detail = "may only be set when `version.schema.openAPIV3Schema` is not included";
        errors.push(FieldError::invalid(path, "", detail));
    } else {
        let tolerate_too_many = demands.tolerates_too_many_fields(version.name);
        check_fields(own, path, tolerate_too_many, errors);
    }
}

fn check_fields(
    parts: &VersionParts<'_>,
    path: &FieldPath,
    tolerate_too_many: bool,
    errors: &mut FieldErrors,
) {
    if let (Some(open_api), false) = (parts.open_api(), parts.fields.is_empty()) {
        version::fields(parts.fields, open_api, path, tolerate_too_many, errors);
    }
}

fn check_status(crd: &Value, errors: &mut FieldErrors) {
    let accepted = get(crd, "status").and_then(|status| get(status, "acceptedNames"));
    if let Some(accepted) = accepted {
        names::check(accepted, &FieldPath::new("status.acceptedNames"), errors);
    }
}

fn check_stored_versions(crd: &Value, spec: &DefinitionSpec<'_>, errors: &mut FieldErrors) {
    let path = FieldPath::new("status.storedVersions");
    let status = get(crd, "status").unwrap_or(&Value::Null);
    let stored = texts(status, "storedVersions");
    let printed = json(status.get("storedVersions").unwrap_or(&Value::Null));
    if stored.is_empty() {
        let detail = "must have at least one stored version";
        errors.push(FieldError::invalid_value(path, printed, detail));
        return;
    }
    let stored_names: HashSet<&str> = stored.iter().copied().collect();
    for version in &spec.versions {
        if flag(version.json, "storage") && !stored_names.contains(version.name) {
            let detail = format!("must have the storage version {}", version.name);
            errors.push(FieldError::invalid_value(path.clone(), &printed, detail));
        }
    }
    let known: HashSet<&str> = spec.versions.iter().map(|version| version.name).collect();
    let mut told = HashSet::new();
    let mut lost = Vec::new();
    // Upstream reports a version that is listed twice at its last index.
    for (index, name) in stored.iter().enumerate().rev() {
        if !known.contains(name) && told.insert(*name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage \
                 migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            lost.push(FieldError::invalid(path.index(index), name, detail));
        }
    }
    errors.extend(lost.into_iter().rev());
}

/// `preserveUnknownFields: true` is allowed only if the stored definition has it already.
fn check_preserving(
    spec: &DefinitionSpec<'_>,
    old: Option<&DefinitionSpec<'_>>,
    errors: &mut FieldErrors,
) {
    if spec.preserves_unknown && !old.is_some_and(|old| old.preserves_unknown) {
        errors.push(FieldError::invalid_value(
            "spec.preserveUnknownFields",
            true,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
}
