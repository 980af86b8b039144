//! Joins the sources into the table.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};

use crate::golang::{self, Structs};
use crate::openapi::{self, OpenApi};
use crate::proto::{self, Label, Messages};

const META: &str = "k8s.io.apimachinery.pkg.apis.meta.v1";

/// Types of meta/v1 that no kind of the OpenAPI documents leads to, or that belong to every group.
const META_TYPES: [&str; 9] = [
    "CreateOptions",
    "DeleteOptions",
    "GetOptions",
    "ListOptions",
    "PartialObjectMetadata",
    "PartialObjectMetadataList",
    "PatchOptions",
    "Status",
    "UpdateOptions",
];

const HEADER: &str = "\
# The built-in Kubernetes types, made from VERSIONS by:
#   cd tools/schema && cargo run -- API_DIR APIMACHINERY_DIR APIEXTENSIONS_DIR KUBERNETES_DIR OUT_DIR
# Do not edit. The arguments are described in tools/schema/src/main.rs.
#
# package NAME APIVERSION      what follows is of this package
# kind NAME | type NAME        with kind and apiVersion in JSON, or without; `atomic` if replaced as a whole
#  JSONNAME NUMBER TYPE WORD*  a field, in the order of its JSON; `-` for a name: members of the type around it
#
# TYPE is `*T` a pointer, `[]T` a list, `{}T` a map of strings to T. A type of another package has its package before it.
# `T|bool`, `T|list` and `T|strings` are a T or, in its place, true or false, a list of T, a list of strings.
# WORDs: keep: written even if empty; required; list type: listatomic, set, keys=A,B; map type: atomic, granular;
# patch strategy: merge, retainKeys, replace; mergekey=NAME; go=TYPE: what Go calls the type, if TYPE does not say it;
# default=JSON to the end of the line.
";

/// The whole table as text.
pub(crate) fn write(
    messages: &Messages,
    structs: &Structs,
    openapi: &OpenApi,
    versions: &[String],
) -> Result<String> {
    let (api_versions, kinds) = kinds(messages, openapi)?;
    let reachable = reachable(kinds, messages)?;

    let mut text = HEADER.replace("VERSIONS", &versions.join(", "));
    let mut package = "";
    for (name, Message { fields, outer }) in &reachable {
        let (own, short) = split(name)?;
        if own != package {
            package = own;
            let api_version = api_versions.get(own).context("a package without kinds")?;
            writeln!(text, "\npackage {} {api_version}", short_package(own))?;
        }
        let go = structs.get(name);
        let go = go.with_context(|| format!("no struct {name}"))?;
        let schema = openapi.get(name);
        let map_type = schema.and_then(|schema| openapi::text(schema, "x-kubernetes-map-type"));
        let keyword = if go.has_type_meta { "kind" } else { "type" };
        let atomic = if map_type == Some("atomic") {
            " atomic"
        } else {
            ""
        };
        writeln!(text, "{keyword} {short}{atomic}")?;
        let described = schema.or_else(|| openapi.get(outer));
        for field in &go.fields {
            let wire = fields.iter().find(|wire| wire.number == field.number);
            let wire = wire.with_context(|| format!("{name}: no number {}", field.number))?;
            let line = line(package, field, wire, described, messages)
                .with_context(|| format!("{name}.{}", wire.name))?;
            writeln!(text, " {line}")?;
        }
    }
    Ok(text)
}

/// The types of the table and those that its items have instead of messages: their names in the table, and their full names.
pub(crate) fn names(messages: &Messages, openapi: &OpenApi) -> Result<Vec<(String, String)>> {
    let (_, kinds) = kinds(messages, openapi)?;
    let mut names: Vec<String> = reachable(kinds, messages)?.into_keys().collect();
    names.extend(
        messages
            .keys()
            .filter(|name| special(name).is_some())
            .cloned(),
    );
    names
        .into_iter()
        .map(|full| {
            let (package, name) = split(&full)?;
            Ok((format!("{}.{name}", short_package(package)), full))
        })
        .collect()
}

/// What packages are called in `apiVersion`, and the kinds that the table starts with.
fn kinds<'a>(
    messages: &Messages,
    openapi: &'a OpenApi,
) -> Result<(BTreeMap<&'a str, String>, Vec<String>)> {
    let mut api_versions = BTreeMap::from([(META, "meta.k8s.io/v1".to_owned())]);
    let mut kinds: Vec<String> = META_TYPES
        .iter()
        .map(|name| format!("{META}.{name}"))
        .collect();
    for (name, api_version) in openapi.kinds() {
        let (package, _) = split(name)?;
        if is_stable(package) && package != META && messages.contains_key(name) {
            api_versions.insert(package, api_version);
            kinds.push(name.to_owned());
        }
    }
    Ok((api_versions, kinds))
}

/// A message that a kind leads to.
struct Message<'a> {
    fields: &'a [proto::Field],
    /// A type that has a field of it. Types that are only ever embedded have no schema: that of the type around them
    /// describes their members.
    outer: String,
}

/// The messages of these names and all that they are made of.
fn reachable(names: Vec<String>, messages: &Messages) -> Result<BTreeMap<String, Message<'_>>> {
    let mut found = BTreeMap::new();
    let mut pending: Vec<(String, String)> = names
        .into_iter()
        .map(|name| (name, String::new()))
        .collect();
    while let Some((name, outer)) = pending.pop() {
        if found.contains_key(&name) {
            continue;
        }
        let fields = messages.get(&name);
        let fields = fields.with_context(|| format!("no message {name}"))?;
        for field in fields.iter().filter(|field| is_struct(field, messages)) {
            pending.push((field.kind.clone(), name.clone()));
        }
        found.insert(name, Message { fields, outer });
    }
    Ok(found)
}

fn line(
    package: &str,
    field: &golang::Field,
    wire: &proto::Field,
    schema: Option<&Value>,
    messages: &Messages,
) -> Result<String> {
    let inline = field.json_name.is_empty();
    let item = item(package, &wire.kind, messages)?;
    // What Go's omitempty never leaves out.
    let is_go_struct = !SCALARS.contains(&item.as_str());
    let (shape, always) = match wire.label {
        Label::Repeated => ("[]", false),
        Label::Map => ("{}", false),
        Label::Optional if field.pointer => ("*", false),
        Label::Optional => ("", is_go_struct),
    };
    let name = if inline { "-" } else { &field.json_name };
    let mut line = format!("{name} {} {shape}{item}", wire.number);
    if inline {
        return Ok(line);
    }
    if !field.omit_zero && (always || !field.omit_empty) {
        line.push_str(" keep");
    }
    let plain = plain_go_type(package, wire.label, &item);
    if plain.is_some_and(|plain| plain != field.go_type) {
        write!(line, " go={}", field.go_type)?;
    }
    if let Some(schema) = schema {
        if openapi::requires(schema, name) {
            line.push_str(" required");
        }
        if let Some(property) = openapi::property(schema, name) {
            line.push_str(&words(property)?);
        }
    }
    Ok(line)
}

/// What the OpenAPI schema of a property adds.
fn words(property: &Map<String, Value>) -> Result<String> {
    let text = |key: &str| property.get(key).and_then(Value::as_str);
    let mut words = String::new();
    match text("x-kubernetes-list-type") {
        Some("atomic") => words.push_str(" listatomic"),
        Some("set") => words.push_str(" set"),
        Some("map") => {
            let keys = property
                .get("x-kubernetes-list-map-keys")
                .and_then(Value::as_array);
            let keys: Vec<&str> = keys
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            write!(words, " keys={}", keys.join(","))?;
        }
        Some(other) => bail!("list type {other}"),
        None => {}
    }
    if let Some(map_type) = text("x-kubernetes-map-type") {
        write!(words, " {map_type}")?;
    }
    for strategy in text("x-kubernetes-patch-strategy")
        .into_iter()
        .flat_map(|all| all.split(','))
    {
        write!(words, " {strategy}")?;
    }
    if let Some(key) = text("x-kubernetes-patch-merge-key") {
        write!(words, " mergekey={key}")?;
    }
    if let Some(default) = property.get("default") {
        write!(words, " default={default}")?;
    }
    Ok(words)
}

/// The items that are scalars or lists in Go. The others are structs.
const SCALARS: [&str; 7] = [
    "string", "bytes", "bool", "int32", "int64", "double", "strings",
];

/// The Go type of a field that has no name of its own for it, as the reader of the table derives it. `None` if Go's messages
/// never have the type of the field, because the type has a decoder of its own.
fn plain_go_type(package: &str, label: Label, item: &str) -> Option<String> {
    let version = |package: &str| package.rsplit(['.', '/']).next().unwrap_or_default().to_owned();
    let item = match item {
        "bytes" => "[]uint8".to_owned(),
        "double" => "float64".to_owned(),
        "strings" => "v1.ExtraValue".to_owned(),
        "quantity" => "resource.Quantity".to_owned(),
        "intorstring" => "intstr.IntOrString".to_owned(),
        "raw" | "time" | "microtime" | "fields" => return None,
        either if either.contains('|') => return None,
        scalar if SCALARS.contains(&scalar) => scalar.to_owned(),
        item => match item.split_once('.') {
            Some((package, name)) => format!("{}.{name}", version(package)),
            None => format!("{}.{item}", version(package)),
        },
    };
    match label {
        Label::Optional if matches!(&*item, "resource.Quantity" | "intstr.IntOrString") => None,
        Label::Optional => Some(item),
        Label::Repeated => Some(format!("[]{item}")),
        Label::Map => Some(format!("map[string]{item}")),
    }
}

const APIEXTENSIONS: &str = "k8s.io.apiextensions-apiserver.pkg.apis.apiextensions.v1.";

/// Messages whose JSON is not an object of their fields.
fn special(kind: &str) -> Option<&'static str> {
    if let Some(name) = kind.strip_prefix(APIEXTENSIONS) {
        return Some(match name {
            "JSON" => "raw",
            "JSONSchemaPropsOrArray" => "JSONSchemaProps|list",
            "JSONSchemaPropsOrBool" => "JSONSchemaProps|bool",
            "JSONSchemaPropsOrStringArray" => "JSONSchemaProps|strings",
            _ => return None,
        });
    }
    Some(match kind.strip_prefix("k8s.io.apimachinery.pkg.")? {
        "api.resource.Quantity" => "quantity",
        "apis.meta.v1.FieldsV1" => "fields",
        "apis.meta.v1.MicroTime" => "microtime",
        "apis.meta.v1.Time" => "time",
        "runtime.RawExtension" => "raw",
        "util.intstr.IntOrString" => "intorstring",
        _ => return None,
    })
}

/// How the table writes what a field holds.
fn item(package: &str, kind: &str, messages: &Messages) -> Result<String> {
    if let Some(special) = special(kind) {
        return Ok(special.to_owned());
    }
    let Some(fields) = messages.get(kind) else {
        if SCALARS.contains(&kind) {
            return Ok(kind.to_owned());
        }
        bail!("unknown type {kind}");
    };
    if is_string_list(fields) {
        return Ok("strings".to_owned());
    }
    let (own, short) = split(kind)?;
    Ok(if own == package {
        short.to_owned()
    } else {
        format!("{}.{short}", short_package(own))
    })
}

fn is_struct(field: &proto::Field, messages: &Messages) -> bool {
    special(&field.kind).is_none()
        && messages
            .get(&field.kind)
            .is_some_and(|fields| !is_string_list(fields))
}

/// Whether a message only wraps a list of strings, which Go writes as the bare list: a map of lists needs it.
fn is_string_list(fields: &[proto::Field]) -> bool {
    matches!(fields, [only] if only.name == "items" && only.kind == "string")
}

fn split(name: &str) -> Result<(&str, &str)> {
    name.rsplit_once('.')
        .with_context(|| format!("{name} has no package"))
}

/// `core/v1` for `k8s.io.api.core.v1`.
fn short_package(package: &str) -> String {
    let mut parts = package.rsplit('.');
    let version = parts.next().unwrap_or_default();
    format!("{}/{version}", parts.next().unwrap_or_default())
}

fn is_stable(package: &str) -> bool {
    let version = package.rsplit('.').next().unwrap_or_default();
    !version.contains("alpha") && !version.contains("beta")
}
