//! OpenAPI documents (W32–W34): what kubectl needs to validate, create, apply, edit and explain.
//!
//! They say which fields there are and what they hold, not what they mean. Strategic merge patches are not named, so that kubectl
//! takes their rules from its own types.

mod protobuf;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Map, Value, json};
use tidings_api::Status;
use tidings_schema::{Field, FieldKind, Item, ListKind, PatchStrategy, Type};

use crate::discovery::Tagged;
use crate::registry::{KINDS, Kind};
use crate::request::Query;
use crate::respond::{self, ResponseBody};

/// A document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Document {
    /// `/openapi/v2`.
    V2,
    /// `/openapi/v3`: which documents there are.
    V3Index,
    /// `/openapi/v3/{path}`: of one group and version.
    V3(String),
}

fn v2() -> Value {
    let definitions = schemas(&KINDS, "#/definitions/");
    json!({"swagger": "2.0", "info": info(), "paths": {}, "definitions": definitions})
}

static V2: LazyLock<Tagged> = LazyLock::new(|| Tagged::new(&v2()));
static V2_PROTOBUF: LazyLock<Tagged> =
    LazyLock::new(|| Tagged::of_bytes(protobuf::document(&v2())));

/// What kubectl asks for, and what it is told that it got.
const PROTOBUF_ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const PROTOBUF_SENT: HeaderValue =
    HeaderValue::from_static("application/com.github.proto-openapi.spec.v2.v1.0+protobuf");

static V3: LazyLock<BTreeMap<String, Tagged>> = LazyLock::new(|| {
    let mut by_version: BTreeMap<String, Vec<&'static Kind>> = BTreeMap::new();
    for kind in KINDS.iter().copied() {
        by_version.entry(base(kind)).or_default().push(kind);
    }
    let document = |kinds: Vec<&'static Kind>| {
        let schemas = schemas(&kinds, "#/components/schemas/");
        let mut paths = Map::new();
        for kind in kinds {
            put_paths(&mut paths, kind);
        }
        Tagged::new(&json!({
            "openapi": "3.0.0",
            "info": info(),
            "paths": paths,
            "components": {"schemas": schemas},
        }))
    };
    let documents = by_version.into_iter();
    documents
        .map(|(path, kinds)| (path, document(kinds)))
        .collect()
});

/// Answers with a document.
pub(crate) fn answer(
    document: &Document,
    parts: &Parts,
    query: &Query,
) -> Result<Response<ResponseBody>, Status> {
    match document {
        Document::V2 => {
            let accept = parts
                .headers
                .get(ACCEPT)
                .and_then(|value| value.to_str().ok());
            let asked = accept.unwrap_or_default().split(',').next();
            if asked.is_some_and(|asked| asked.trim().starts_with(PROTOBUF_ASKED)) {
                let mut response = V2_PROTOBUF.answer(&parts.headers);
                response.headers_mut().insert(CONTENT_TYPE, PROTOBUF_SENT);
                return Ok(response);
            }
            Ok(V2.answer(&parts.headers))
        }
        Document::V3Index => {
            let entry = |(path, document): (&String, &Tagged)| {
                let url = format!("/openapi/v3/{path}?hash={}", document.hash);
                (path.clone(), json!({"serverRelativeURL": url}))
            };
            let paths: Map<String, Value> = V3.iter().map(entry).collect();
            let text = json!({ "paths": paths }).to_string();
            let mut response = respond::text(StatusCode::OK, text);
            let plain = HeaderValue::from_static("text/plain; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, plain);
            response.headers_mut().remove(respond::NOSNIFF);
            Ok(response)
        }
        Document::V3(path) => {
            let Some(document) = V3.get(path) else {
                return Ok(respond::page_not_found());
            };
            let mut response = document.answer(&parts.headers);
            if query.get("hash") == Some(&document.hash) {
                let forever = HeaderValue::from_static("public, immutable");
                response.headers_mut().insert(CACHE_CONTROL, forever);
            }
            Ok(response)
        }
    }
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": "1.36"})
}

/// `api/v1` or `apis/{group}/{version}`.
fn base(kind: &Kind) -> String {
    match kind.group {
        "" => format!("api/{}", kind.version),
        group => format!("apis/{group}/{}", kind.version),
    }
}

fn schema_name(kind: &'static Kind) -> String {
    kind.schema().map(type_name).unwrap_or_default()
}

fn gvk(kind: &Kind) -> Value {
    json!({"group": kind.group, "kind": kind.kind, "version": kind.version})
}

/// The schemas of kinds and of all types that they are made of.
fn schemas(kinds: &[&'static Kind], refs: &str) -> Map<String, Value> {
    let mut schemas = Map::new();
    for kind in kinds {
        if let Some(of) = kind.schema() {
            put_type(&mut schemas, of, refs);
        }
        if let Some(Value::Object(schema)) = schemas.get_mut(&schema_name(kind)) {
            schema.insert("x-kubernetes-group-version-kind".into(), json!([gvk(kind)]));
        }
    }
    schemas
}

fn type_name(of: &Type) -> String {
    let package = of.package.replace('/', ".");
    match of.package {
        "meta/v1" => format!("io.k8s.apimachinery.pkg.apis.{package}.{}", of.name),
        "apiextensions/v1" => format!(
            "io.k8s.apiextensions-apiserver.pkg.apis.{package}.{}",
            of.name
        ),
        _ => format!("io.k8s.api.{package}.{}", of.name),
    }
}

fn put_type(schemas: &mut Map<String, Value>, of: &'static Type, refs: &str) {
    let name = type_name(of);
    if schemas.contains_key(&name) {
        return;
    }
    schemas.insert(name.clone(), Value::Null); // types may hold themselves
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in of.members() {
        if let Some(inner) = field.struct_type() {
            put_type(schemas, inner, refs);
        }
        properties.insert(field.name.to_owned(), property(field, refs));
        if field.required {
            required.push(field.name);
        }
    }
    let mut schema = Map::new();
    let description = format!("{} of {}.", of.name, of.package);
    schema.insert("description".into(), description.into());
    schema.insert("type".into(), "object".into());
    schema.insert("properties".into(), properties.into());
    if !required.is_empty() {
        schema.insert("required".into(), required.into());
    }
    schemas.insert(name, schema.into());
}

fn property(field: &Field, refs: &str) -> Value {
    let item = item(field.item(), refs);
    let mut property = match field.kind {
        FieldKind::One(_) => item,
        FieldKind::List(_) => json!({"type": "array", "items": item}),
        FieldKind::Map(_) => json!({"type": "object", "additionalProperties": item}),
    };
    if let Some(members) = property.as_object_mut() {
        if let Some(default) = field
            .default
            .and_then(|text| serde_json::from_str(text).ok())
        {
            members.insert("default".into(), default);
        }
        match &field.list {
            _ if !matches!(field.kind, FieldKind::List(_)) => {}
            ListKind::Atomic => {
                drop(members.insert("x-kubernetes-list-type".into(), "atomic".into()))
            }
            ListKind::Set => drop(members.insert("x-kubernetes-list-type".into(), "set".into())),
            ListKind::Map(keys) => {
                members.insert("x-kubernetes-list-type".into(), "map".into());
                members.insert("x-kubernetes-list-map-keys".into(), keys.to_vec().into());
            }
        }
        if let Some(key) = field.merge_key {
            members.insert("x-kubernetes-patch-merge-key".into(), key.into());
        }
        let PatchStrategy {
            merge,
            retain_keys,
            replace,
        } = field.patch_strategy;
        let strategies = [
            (merge, "merge"),
            (retain_keys, "retainKeys"),
            (replace, "replace"),
        ];
        let strategies: Vec<&str> = strategies
            .iter()
            .filter_map(|(is, name)| is.then_some(*name))
            .collect();
        if !strategies.is_empty() {
            let strategies = strategies.join(",");
            members.insert("x-kubernetes-patch-strategy".into(), strategies.into());
        }
    }
    property
}

fn item(item: Item, refs: &str) -> Value {
    match item {
        Item::String | Item::Quantity => json!({"type": "string"}),
        Item::Bytes => json!({"type": "string", "format": "byte"}),
        Item::Bool => json!({"type": "boolean"}),
        Item::Int32 => json!({"type": "integer", "format": "int32"}),
        Item::Int64 => json!({"type": "integer", "format": "int64"}),
        Item::Double => json!({"type": "number", "format": "double"}),
        Item::Time | Item::MicroTime => json!({"type": "string", "format": "date-time"}),
        Item::IntOrString => json!({"type": "string", "format": "int-or-string"}),
        Item::Raw => json!({"x-kubernetes-preserve-unknown-fields": true}),
        Item::Fields => json!({"type": "object"}),
        Item::Strings => json!({"type": "array", "items": {"type": "string"}}),
        Item::Either(..) => json!({}),
        // Version 3 knows what stands beside a reference only around it.
        Item::Struct(of) if refs.starts_with("#/components") => {
            json!({"allOf": [{"$ref": format!("{refs}{}", type_name(of))}]})
        }
        Item::Struct(of) => json!({"$ref": format!("{refs}{}", type_name(of))}),
    }
}

/// The paths of a kind, with the parameters that clients look for.
fn put_paths(paths: &mut Map<String, Value>, kind: &Kind) {
    let place = if kind.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    let collection = format!("/{}{place}/{}", base(kind), kind.plural);
    let operation = |action: &str, parameters: &[&str]| {
        let parameters: Vec<Value> = parameters
            .iter()
            .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
            .collect();
        json!({
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk(kind),
            "parameters": parameters,
            "responses": {"200": {"description": "OK"}},
        })
    };
    let write = ["dryRun", "fieldManager", "fieldValidation", "pretty"];
    let read = [
        "fieldSelector",
        "labelSelector",
        "limit",
        "continue",
        "resourceVersion",
        "watch",
    ];
    let content: Map<String, Value> = [
        "application/json-patch+json",
        "application/merge-patch+json",
    ]
    .map(|media_type| (media_type.to_owned(), json!({"schema": {"type": "object"}})))
    .into_iter()
    .collect();
    if kind.review.is_some() {
        paths.insert(collection, json!({ "post": operation("post", &write) }));
        return;
    }
    let mut patch = operation("patch", &write);
    if let Some(patch) = patch.as_object_mut() {
        patch.insert("requestBody".into(), json!({ "content": content }));
    }
    paths.insert(
        collection.clone(),
        json!({"get": operation("list", &read), "post": operation("post", &write)}),
    );
    paths.insert(
        format!("{collection}/{{name}}"),
        json!({
            "get": operation("get", &["pretty"]),
            "put": operation("put", &write),
            "patch": patch,
            "delete": operation("delete", &["dryRun", "gracePeriodSeconds", "propagationPolicy"]),
        }),
    );
}
