//! Reads a stored definition into a [`Definition`].

use tidings_api::Object;
use tidings_json::{Value, json};

use super::conversion;
use super::lazy_schema::{LazySchema, compile, has_status};
use super::member::{at, flag, get, list, text, texts};
use super::order::compare_versions;
use super::{Column, DefinedVersion, Definition, MemberPath, Names, Scale, SelectableField};
use crate::json_path::JsonPath;
use crate::schema::Schema;

/// Reads a definition. Its schemas are compiled, and dropped again if there is a `source` to compile them from later.
pub(super) fn read(crd: &Value, source: Option<&Object>) -> Result<Definition, String> {
    let spec = get(crd, "spec").ok_or("spec is missing")?;
    let versions = list(spec, "versions");
    if text(spec, "group").is_empty() {
        return Err("spec.group is empty".into());
    }
    if flag(spec, "preserveUnknownFields") {
        return Err(
            "spec.preserveUnknownFields is true, which is not supported by this server: use x-kubernetes-preserve-unknown-fields in \
             the schema"
                .into(),
        );
    }
    if versions.iter().filter(|v| flag(v, "storage")).count() != 1 {
        return Err("spec.versions must have exactly one storage version".into());
    }
    let names = names(crd, spec);
    if names.plural.is_empty() || names.kind.is_empty() {
        return Err("spec.names must have a plural and a kind".into());
    }
    let mut read = Vec::with_capacity(versions.len());
    for (index, version) in versions.iter().enumerate() {
        let warning = flag(version, "deprecated").then(|| warning(version, spec));
        read.push(read_version(version, index, warning, source)?);
    }
    Ok(Definition {
        group: text(spec, "group").to_owned(),
        names,
        namespaced: text(spec, "scope") == "Namespaced",
        webhook: get(spec, "conversion")
            .filter(|conversion| conversion::is_webhook(Some(conversion)))
            .cloned(),
        versions: read,
    })
}

/// The accepted names. While no names are accepted the definition is not served, so the requested names do no harm.
fn names(crd: &Value, spec: &Value) -> Names {
    let accepted = at(crd, &["status", "acceptedNames"]);
    let names = accepted
        .filter(|names| !text(names, "plural").is_empty() && !text(names, "kind").is_empty())
        .or_else(|| get(spec, "names"))
        .unwrap_or(&Value::Null);
    let owned = |member| {
        let texts = texts(names, member);
        texts.into_iter().map(str::to_owned).collect()
    };
    Names {
        plural: text(names, "plural").to_owned(),
        singular: text(names, "singular").to_owned(),
        kind: text(names, "kind").to_owned(),
        list_kind: text(names, "listKind").to_owned(),
        short_names: owned("shortNames"),
        categories: owned("categories"),
    }
}

/// The warning of a deprecated version: its own text, or a text that names a better version.
fn warning(version: &Value, spec: &Value) -> String {
    if let Some(own) = get(version, "deprecationWarning").and_then(Value::as_str) {
        return own.to_owned();
    }
    let name = text(version, "name");
    let group = text(spec, "group");
    let kind = get(spec, "names").map_or("", |names| text(names, "kind"));
    let better = list(spec, "versions")
        .iter()
        .filter(|other| flag(other, "served") && !flag(other, "deprecated"))
        .map(|other| text(other, "name"))
        .filter(|other| compare_versions(name, other).is_lt())
        .max_by(|left, right| compare_versions(left, right));
    let advice = better.map_or(String::new(), |better| {
        format!("; use {group}/{better} {kind}")
    });
    format!("{group}/{name} {kind} is deprecated{advice}")
}

fn read_version(
    version: &Value,
    index: usize,
    warning: Option<String>,
    source: Option<&Object>,
) -> Result<DefinedVersion, String> {
    let schema = compile(version, index)?;
    let fields = fields(&schema, version, index)?;
    Ok(DefinedVersion {
        name: text(version, "name").to_owned(),
        served: flag(version, "served"),
        storage: flag(version, "storage"),
        warning,
        schema: match source {
            Some(source) => LazySchema::of_source(source, index),
            None => LazySchema::kept(schema),
        },
        status: has_status(version),
        scale: at(version, &["subresources", "scale"]).map(scale),
        columns: columns(list(version, "additionalPrinterColumns")),
        fields,
    })
}

fn fields(schema: &Schema, version: &Value, index: usize) -> Result<Vec<SelectableField>, String> {
    let written = list(version, "selectableFields");
    let json_paths: Vec<&str> = written
        .iter()
        .map(|field| text(field, "jsonPath"))
        .collect();
    let path = format!("spec.versions[{index}].selectableFields");
    let (fields, errors) = schema.lenient_selectable_fields(&json_paths, &path);
    if !errors.is_empty() {
        return Err(errors.to_string());
    }
    let fields = fields.into_iter();
    Ok(fields
        .map(|(name, path)| SelectableField { name, path })
        .collect())
}

fn scale(scale: &Value) -> Scale {
    let path = |member: &str| MemberPath::of(text(scale, member));
    let selector = text(scale, "labelSelectorPath");
    Scale {
        spec_replicas: path("specReplicasPath"),
        status_replicas: path("statusReplicasPath"),
        label_selector: (!selector.is_empty()).then(|| path("labelSelectorPath")),
    }
}

impl MemberPath {
    fn of(text: &str) -> MemberPath {
        let members = text.strip_prefix('.').unwrap_or(text).split('.');
        MemberPath {
            text: text.to_owned(),
            members: members.map(str::to_owned).collect(),
        }
    }
}

/// The printer columns up to the first whose path cannot be read. A version without columns gets the column `Age`.
fn columns(written: &[Value]) -> Vec<Column> {
    let age = json!([{
        "name": "Age",
        "type": "date",
        "description": "Time since the object was created.",
        "jsonPath": ".metadata.creationTimestamp",
    }]);
    let written = match (written, &age) {
        ([], Value::Array(age)) => age,
        _ => written,
    };
    written.iter().map_while(column).collect()
}

fn column(written: &Value) -> Option<Column> {
    let path = text(written, "jsonPath");
    let description = match text(written, "description") {
        "" => format!("Custom resource definition column (in JSONPath format): {path}"),
        text => text.to_owned(),
    };
    let priority = get(written, "priority").and_then(Value::as_i64);
    Some(Column {
        name: text(written, "name").to_owned(),
        kind: text(written, "type").to_owned(),
        format: text(written, "format").to_owned(),
        description,
        priority: priority
            .and_then(|int| i32::try_from(int).ok())
            .unwrap_or(0),
        text: path.to_owned(),
        path: JsonPath::parse(path).ok()?,
    })
}
