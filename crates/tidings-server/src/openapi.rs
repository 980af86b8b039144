//! OpenAPI documents (W32–W34): what kubectl needs to validate, create, apply, edit and explain.
//!
//! They describe metadata in full, and of the rest of an object which members it has. What is in `spec` and `status` is not
//! described yet. Strategic merge patches are not named, so that kubectl takes their rules from its own types.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Map, Value, json};
use tidings_api::Status;

use crate::discovery::Tagged;
use crate::registry::{KINDS, Kind, Shape};
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

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

static V2: LazyLock<Tagged> = LazyLock::new(|| {
    let mut definitions = meta_schemas("#/definitions/");
    for kind in KINDS.iter() {
        definitions.insert(schema_name(kind), schema(kind, "#/definitions/"));
    }
    Tagged::new(&json!({
        "swagger": "2.0",
        "info": info(),
        "paths": {},
        "definitions": definitions,
    }))
});

static V3: LazyLock<BTreeMap<String, Tagged>> = LazyLock::new(|| {
    let mut by_version: BTreeMap<String, Vec<&'static Kind>> = BTreeMap::new();
    for kind in KINDS.iter().copied() {
        by_version.entry(base(kind)).or_default().push(kind);
    }
    let document = |kinds: Vec<&'static Kind>| {
        let mut schemas = meta_schemas("#/components/schemas/");
        let mut paths = Map::new();
        for kind in kinds {
            schemas.insert(schema_name(kind), schema(kind, "#/components/schemas/"));
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
        Document::V2 => Ok(V2.answer(&parts.headers)),
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

fn schema_name(kind: &Kind) -> String {
    let group = match kind.group.split('.').next() {
        None | Some("") => "core",
        Some(first) => first,
    };
    format!("io.k8s.api.{group}.{}.{}", kind.version, kind.kind)
}

fn gvk(kind: &Kind) -> Value {
    json!({"group": kind.group, "kind": kind.kind, "version": kind.version})
}

fn schema(kind: &Kind, refs: &str) -> Value {
    let mut properties = Map::new();
    let text = |description: &str| json!({"type": "string", "description": description});
    properties.insert(
        "apiVersion".into(),
        text("The group and version that this object is written in."),
    );
    properties.insert("kind".into(), text("What the object is."));
    properties.insert(
        "metadata".into(),
        json!({"description": "What every object has.", "default": {}, "allOf": [{"$ref": format!("{refs}{META}.ObjectMeta")}]}),
    );
    for member in kind.members {
        let mut property = shape(member.shape);
        if let Some(members) = property.as_object_mut() {
            let description = match member.name {
                "spec" => "How the object is to be.".to_owned(),
                "status" => "How the object was last seen to be.".to_owned(),
                name => format!("The {name} of the {}.", kind.kind),
            };
            members.insert("description".into(), description.into());
        }
        properties.insert(member.name.into(), property);
    }
    json!({
        "description": format!("{} of {}.", kind.kind, kind.group_version()),
        "type": "object",
        "properties": properties,
        "x-kubernetes-group-version-kind": [gvk(kind)],
    })
}

fn shape(shape: Shape) -> Value {
    match shape {
        Shape::Object(_) => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        Shape::Array(_) => {
            json!({"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}})
        }
        Shape::Number(format) => json!({"type": "integer", "format": format}),
        Shape::Strings => json!({"type": "object", "additionalProperties": {"type": "string"}}),
        Shape::Bytes => {
            json!({"type": "object", "additionalProperties": {"type": "string", "format": "byte"}})
        }
        Shape::Bool | Shape::Flag => json!({"type": "boolean"}),
        Shape::String | Shape::Named(_) => json!({"type": "string"}),
        Shape::Any => json!({"x-kubernetes-preserve-unknown-fields": true}),
    }
}

/// What stands in the metadata of every object.
fn meta_schemas(refs: &str) -> Map<String, Value> {
    let text = |description: &str| json!({"type": "string", "description": description});
    let time = |description: &str| json!({"type": "string", "format": "date-time", "description": description});
    let number = |description: &str| json!({"type": "integer", "format": "int64", "description": description});
    let strings = |description: &str| json!({"type": "object", "additionalProperties": {"type": "string"}, "description": description});
    let list = |description: &str, of: &str| {
        let items = json!({"allOf": [{"$ref": format!("{refs}{META}.{of}")}]});
        json!({"type": "array", "items": items, "description": description})
    };
    let object_meta = json!({
        "description": "What every object has.",
        "type": "object",
        "properties": {
            "annotations": strings("Text that tools keep with the object; it is not used to select objects."),
            "creationTimestamp": time("When the server made the object."),
            "deletionGracePeriodSeconds": number("How long the object lives on after it was asked to go."),
            "deletionTimestamp": time("When the object goes, if it was asked to."),
            "finalizers": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Who must let the object go before it is removed.",
                "x-kubernetes-list-type": "set",
                "x-kubernetes-patch-strategy": "merge",
            },
            "generateName": text("A prefix from which the server makes a unique name."),
            "generation": number("Counts the changes of what the object is to be."),
            "labels": strings("Text by which objects are selected."),
            "managedFields": list("Who wrote which fields.", "ManagedFieldsEntry"),
            "name": text("The name, unique among the objects of a kind in a namespace."),
            "namespace": text("The namespace that the object is in."),
            "ownerReferences": list("What the object belongs to.", "OwnerReference"),
            "resourceVersion": text("The version of the object; it only grows."),
            "selfLink": text("Not used any more."),
            "uid": text("The identity of the object; another object of the same name has another."),
        },
    });
    let managed = json!({
        "description": "The fields that one writer wrote.",
        "type": "object",
        "properties": {
            "apiVersion": text("The version that the fields are named in."),
            "fieldsType": text("Always FieldsV1."),
            "fieldsV1": {"type": "object", "description": "The fields, nested."},
            "manager": text("The writer."),
            "operation": text("Apply or Update."),
            "subresource": text("What was written to, if not the object itself."),
            "time": time("When the fields were last written."),
        },
    });
    let owner = json!({
        "description": "An object that another one belongs to.",
        "type": "object",
        "required": ["apiVersion", "kind", "name", "uid"],
        "properties": {
            "apiVersion": text("The owner's group and version."),
            "blockOwnerDeletion": {"type": "boolean", "description": "The owner cannot go before this object in a foreground deletion."},
            "controller": {"type": "boolean", "description": "The owner manages this object."},
            "kind": text("The owner's kind."),
            "name": text("The owner's name."),
            "uid": text("The owner's uid."),
        },
    });
    let schemas = [
        ("ObjectMeta", object_meta),
        ("ManagedFieldsEntry", managed),
        ("OwnerReference", owner),
    ];
    let schemas = schemas.into_iter();
    schemas
        .map(|(name, schema)| (format!("{META}.{name}"), schema))
        .collect()
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
