//! Checks the parts of a version: deprecation warning, schema, subresources, printer columns and selectable fields.

use tidings_api::{FieldError, FieldErrors};
use tidings_json::Value;

use super::member::{get, text};
use super::spec::VersionParts;
use crate::node::SchemaNode;
use crate::schema::{self, CompileOptions, Schema, check_simple_json_path};
use crate::text::FieldPath;
use crate::tolerated::ToleratedFaults;

/// Bytes of the warning of a deprecated version.
const WARNING_BYTES_MAX: usize = 256;
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];

/// Appends the errors of `deprecationWarning`.
pub(super) fn warning(version: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(warning) = get(version, "deprecationWarning").and_then(Value::as_str) else {
        return;
    };
    let mut refuse = |why: String| {
        let path = path.child("deprecationWarning");
        // Upstream's field is a pointer, and values of pointers are printed as JSON.
        let printed = tidings_go::json_text(warning);
        errors.push(FieldError::invalid_value(path, printed, why));
    };
    if !super::member::flag(version, "deprecated") {
        refuse("can only be set for deprecated versions".into());
        return;
    }
    if warning.len() > WARNING_BYTES_MAX {
        refuse(format!("must be <= {WARNING_BYTES_MAX} characters long"));
    }
    if warning.is_empty() {
        refuse("must not be an empty string".into());
    }
    if let Some((at, _)) = tidings_go::unprintable(warning).next() {
        refuse(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        ));
    }
}

/// Appends the errors of a schema. `path` is the path of the object that contains `openAPIV3Schema`.
pub(super) fn schema(
    parts: &VersionParts<'_>,
    has_status: bool,
    tolerated: ToleratedFaults,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let Some(open_api) = parts.open_api() else {
        return;
    };
    let options = CompileOptions::default()
        .with_status_subresource(has_status)
        .tolerating(tolerated);
    let path = path.child("openAPIV3Schema");
    if let Err(found) = Schema::compile(open_api, path.as_str(), options) {
        errors.extend(found);
    }
}

/// Appends the errors of the scale subresource.
pub(super) fn subresources(parts: &VersionParts<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let scale = parts.subresources.and_then(|all| get(all, "scale"));
    let Some(scale) = scale else {
        return;
    };
    let mut path_below = |member: &str, roots: &[&str], where_to: &str| {
        let value = text(scale, member);
        let path = path.child("scale").child(member);
        if value.is_empty() {
            errors.push(FieldError::required(path, ""));
            return;
        }
        let mut found = FieldErrors::new();
        check_simple_json_path(value, path.as_str(), &mut found);
        if found.is_empty() && !roots.iter().any(|root| value.starts_with(root)) {
            let detail = format!("should be a json path under {where_to}");
            found.push(FieldError::invalid(path, value, detail));
        }
        errors.extend(found);
    };
    for (member, root) in [
        ("specReplicasPath", ".spec"),
        ("statusReplicasPath", ".status"),
    ] {
        path_below(member, &[&format!("{root}.")], root);
    }
    if !text(scale, "labelSelectorPath").is_empty() {
        let roots = [".spec.", ".status."];
        path_below("labelSelectorPath", &roots, "either .spec or .status");
    }
}

/// Appends the errors of printer columns.
pub(super) fn columns(columns: &[Value], path: &FieldPath, errors: &mut FieldErrors) {
    for (index, column) in columns.iter().enumerate() {
        let path = path.index(index);
        if text(column, "name").is_empty() {
            errors.push(FieldError::required(path.child("name"), ""));
        }
        let kind = text(column, "type");
        let detail = format!("must be one of {}", COLUMN_TYPES.join(","));
        if kind.is_empty() {
            errors.push(FieldError::required(path.child("type"), detail));
        } else if !COLUMN_TYPES.contains(&kind) {
            errors.push(FieldError::invalid(path.child("type"), kind, detail));
        }
        let format = text(column, "format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.push(FieldError::invalid(path.child("format"), format, detail));
        }
        let json_path = path.child("JSONPath");
        match text(column, "jsonPath") {
            "" => errors.push(FieldError::required(json_path, "")),
            text => check_simple_json_path(text, json_path.as_str(), errors),
        }
    }
}

/// Appends the errors of selectable fields. Fields are looked up in the schema even if the schema has other errors.
pub(super) fn fields(
    fields: &[Value],
    open_api: &Value,
    path: &FieldPath,
    tolerate_too_many: bool,
    errors: &mut FieldErrors,
) {
    let schema_path = path.child("schema").child("openAPIV3Schema");
    // The errors of a schema that cannot be read have been reported already.
    let Ok(root) = SchemaNode::parse(open_api, &schema_path) else {
        return;
    };
    if let Some(why) = schema::refused(&root) {
        errors.push(FieldError::invalid(schema_path, "", why));
        return;
    }
    let json_paths: Vec<&str> = fields.iter().map(|field| text(field, "jsonPath")).collect();
    let path = path.child("selectableFields");
    let (_, found) =
        schema::selectable_fields(&root, &json_paths, path.as_str(), tolerate_too_many);
    errors.extend(found);
}
