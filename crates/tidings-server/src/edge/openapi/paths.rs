//! The paths of a kind in OpenAPI: operations with their parameters, bodies and responses.

use tidings_json::{Map, Value, json};

use super::{OpenApiVersion, base, custom, group_version_kind, schemas};
use crate::edge::discovery::{ListedSubresource, subresources};
use crate::edge::media_types::{
    APPLY_PATCH, JSON, JSON_PATCH, JSON_STREAM, MERGE_PATCH, PROTOBUF, PROTOBUF_STREAM,
    STRATEGIC_MERGE_PATCH, YAML,
};
use tidings_registry::Kind;

/// The media types of responses and of patches.
const PRODUCED: [&str; 3] = [JSON, YAML, PROTOBUF];
const PRODUCED_BY_LISTS: [&str; 5] = [JSON, YAML, PROTOBUF, JSON_STREAM, PROTOBUF_STREAM];
const PATCHES: [&str; 4] = [JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH];

/// The parameters: location, name, type and description.
const PARAMETERS: [(&str, &str, &str, &str); 22] = [
    (
        "query",
        "allowWatchBookmarks",
        "boolean",
        "Whether a watch sends bookmarks.",
    ),
    (
        "query",
        "continue",
        "string",
        "The token of the previous page of a list, which asks for the next page.",
    ),
    (
        "query",
        "dryRun",
        "string",
        "All: the request is checked and answered, but nothing is stored.",
    ),
    (
        "query",
        "fieldManager",
        "string",
        "The name under which fields are owned.",
    ),
    (
        "query",
        "fieldSelector",
        "string",
        "Selects objects by their fields.",
    ),
    (
        "query",
        "fieldValidation",
        "string",
        "How unknown and duplicate fields are treated: Ignore, Warn or Strict.",
    ),
    (
        "query",
        "force",
        "boolean",
        "Whether an apply takes over fields that other managers own.",
    ),
    (
        "query",
        "gracePeriodSeconds",
        "integer",
        "How many seconds the object may take to terminate.",
    ),
    (
        "query",
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Whether an object that cannot be read is deleted.",
    ),
    (
        "query",
        "labelSelector",
        "string",
        "Selects objects by their labels.",
    ),
    (
        "query",
        "limit",
        "integer",
        "How many objects a page of a list has at most.",
    ),
    ("path", "name", "string", "The name of the object."),
    (
        "path",
        "namespace",
        "string",
        "The namespace of the object.",
    ),
    (
        "query",
        "orphanDependents",
        "boolean",
        "Deprecated: use propagationPolicy.",
    ),
    ("query", "pretty", "string", "If true, JSON is indented."),
    (
        "query",
        "propagationPolicy",
        "string",
        "What becomes of dependents: Orphan, Background or Foreground.",
    ),
    (
        "query",
        "resourceVersion",
        "string",
        "The version that the response must have reached, or after which a watch starts.",
    ),
    (
        "query",
        "resourceVersionMatch",
        "string",
        "How resourceVersion applies to a list: Exact or NotOlderThan.",
    ),
    (
        "query",
        "sendInitialEvents",
        "boolean",
        "Whether a watch starts with the objects that exist.",
    ),
    (
        "query",
        "shardSelector",
        "string",
        "Selects a shard of the objects.",
    ),
    (
        "query",
        "timeoutSeconds",
        "integer",
        "How long a list or watch may take.",
    ),
    (
        "query",
        "watch",
        "boolean",
        "Watch for changes instead of listing objects.",
    ),
];

const LIST: [&str; 11] = [
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
];
const WRITE: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];
const PATCH: [&str; 4] = ["dryRun", "fieldManager", "fieldValidation", "force"];
const DELETE: [&str; 5] = [
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];
const DELETE_COLLECTION: [&str; 14] = [
    "continue",
    "dryRun",
    "fieldSelector",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "labelSelector",
    "limit",
    "orphanDependents",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
];

/// The parameters to which operations in OpenAPI 2 refer.
pub(super) fn shared_parameters() -> Value {
    let all = PARAMETERS.iter();
    let all = all.map(|(_, name, ..)| ((*name).to_owned(), parameter(name, OpenApiVersion::V2)));
    Value::Object(all.collect())
}

fn parameter(name: &str, version: OpenApiVersion) -> Value {
    let found = PARAMETERS.iter().find(|(_, known, ..)| *known == name);
    let Some((place, name, type_name, description)) = found else {
        return Value::Null;
    };
    let mut parameter = json!({"name": name, "in": place, "description": description});
    let schema = json!({"type": type_name, "uniqueItems": true});
    if *place == "path" {
        parameter["required"] = true.into();
    }
    match (version, &mut parameter, schema) {
        (OpenApiVersion::V3, parameter, schema) => parameter["schema"] = schema,
        (OpenApiVersion::V2, Value::Object(parameter), Value::Object(schema)) => {
            parameter.extend(schema)
        }
        _ => {}
    }
    parameter
}

fn parameters(names: &[&str], version: OpenApiVersion) -> Vec<Value> {
    let one = |name: &&str| match version {
        OpenApiVersion::V2 => json!({"$ref": format!("#/parameters/{name}")}),
        OpenApiVersion::V3 => parameter(name, version),
    };
    names.iter().map(one).collect()
}

/// An operation on a path.
struct OpenApiOperation<'a> {
    /// The first word of the operation id, from which generators make function names.
    verb: &'a str,
    action: &'a str,
    description: String,
    parameters: &'a [&'a str],
    /// The full name of the schema of the body.
    body: Option<&'a str>,
    /// The full name of the schema of the response.
    answer: &'a str,
    codes: &'a [&'a str],
}

/// Builds the operations of a kind on one path.
struct OperationBuilder<'a> {
    kind: &'a Kind,
    /// The last part of the operation id: `NamespacedDeployment`.
    function: String,
    group_version_kind: Value,
    version: OpenApiVersion,
}

impl OperationBuilder<'_> {
    fn operation(&self, operation: &OpenApiOperation<'_>) -> Value {
        let version = self.version;
        let group = group_words(&self.kind.group);
        let api_version = &self.kind.version;
        let mut made = Map::new();
        made.insert("description".into(), operation.description.clone().into());
        let tag = format!("{}_{api_version}", uncapitalized(&group));
        made.insert("tags".into(), json!([tag]));
        let id = format!(
            "{}{group}{}{}",
            operation.verb,
            capitalized(api_version),
            self.function
        );
        made.insert("operationId".into(), id.into());
        let mut all = parameters(operation.parameters, version);
        // Protobuf and strategic merge patches need a built-in type.
        let fits = |media_type: &&&str| {
            self.kind.schema.is_some()
                || !(media_type.contains("protobuf") || media_type.contains("strategic"))
        };
        let consumed: &[&str] = match operation.action {
            "patch" => &PATCHES,
            _ => &["*/*"],
        };
        let consumed: Vec<&str> = consumed.iter().filter(fits).copied().collect();
        let produced: &[&str] = match operation.action {
            "list" => &PRODUCED_BY_LISTS,
            _ => &PRODUCED,
        };
        let produced: Vec<&str> = produced.iter().filter(fits).copied().collect();
        // The body of a deletion is optional.
        let required = !operation.action.starts_with("delete");
        let body = operation.body.map(|name| reference(name, version));
        match (version, body) {
            (OpenApiVersion::V2, body) => {
                if let Some(schema) = body {
                    let mut body = json!({"name": "body", "in": "body", "schema": schema});
                    if required {
                        body["required"] = true.into();
                    }
                    all.insert(0, body);
                }
                made.insert("schemes".into(), json!(["https"]));
                made.insert("consumes".into(), consumed.into());
                made.insert("produces".into(), produced.as_slice().into());
            }
            (OpenApiVersion::V3, Some(schema)) => {
                let mut body = json!({ "content": content(&consumed, &schema) });
                if required {
                    body["required"] = true.into();
                }
                made.insert("requestBody".into(), body);
            }
            (OpenApiVersion::V3, None) => {}
        }
        if !all.is_empty() {
            made.insert("parameters".into(), all.into());
        }
        made.insert("responses".into(), self.responses(operation, &produced));
        made.insert("x-kubernetes-action".into(), operation.action.into());
        made.insert(
            "x-kubernetes-group-version-kind".into(),
            self.group_version_kind.clone(),
        );
        made.into()
    }

    fn responses(&self, operation: &OpenApiOperation<'_>, produced: &[&str]) -> Value {
        let schema = reference(operation.answer, self.version);
        let mut responses = Map::new();
        for code in operation.codes {
            let description = match *code {
                "200" => "OK",
                "201" => "Created",
                _ => "Accepted",
            };
            let response = match self.version {
                OpenApiVersion::V2 => json!({"description": description, "schema": schema}),
                OpenApiVersion::V3 => {
                    json!({"description": description, "content": content(produced, &schema)})
                }
            };
            responses.insert((*code).to_owned(), response);
        }
        responses.insert("401".into(), json!({"description": "Unauthorized"}));
        responses.into()
    }

    /// The HTTP method and the operation for a verb on one object or on a subresource.
    fn item(&self, verb: &str, object: &str, of: &str) -> (&'static str, Value) {
        let (method, operation) = match verb {
            "get" => (
                "get",
                OpenApiOperation {
                    verb: "read",
                    action: "get",
                    description: format!("read {of}"),
                    parameters: &[],
                    body: None,
                    answer: object,
                    codes: &["200"],
                },
            ),
            "create" => (
                "post",
                OpenApiOperation {
                    verb: "create",
                    action: "post",
                    description: format!("create {of}"),
                    parameters: &WRITE,
                    body: Some(object),
                    answer: object,
                    codes: &["200", "201", "202"],
                },
            ),
            "update" => (
                "put",
                OpenApiOperation {
                    verb: "replace",
                    action: "put",
                    description: format!("replace {of}"),
                    parameters: &WRITE,
                    body: Some(object),
                    answer: object,
                    codes: &["200", "201"],
                },
            ),
            "patch" => (
                "patch",
                OpenApiOperation {
                    verb: "patch",
                    action: "patch",
                    description: format!("change a part of {of}"),
                    parameters: &PATCH,
                    body: Some(schemas::PATCH),
                    answer: object,
                    codes: &["200", "201"],
                },
            ),
            _ => (
                "delete",
                OpenApiOperation {
                    verb: "delete",
                    action: "delete",
                    description: format!("delete {of}"),
                    parameters: &DELETE,
                    body: Some(DELETE_OPTIONS),
                    answer: if self.kind.returns_deleted {
                        object
                    } else {
                        STATUS
                    },
                    codes: &["200", "202"],
                },
            ),
        };
        (method, self.operation(&operation))
    }
}

const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// Adds the paths of a kind.
pub(super) fn put_paths(paths: &mut Map, kind: &Kind, version: OpenApiVersion) {
    let (inside, scope) = if kind.namespaced {
        ("/namespaces/{namespace}", "Namespaced")
    } else {
        ("", "")
    };
    let builder = |function: String| OperationBuilder {
        kind,
        function,
        group_version_kind: group_version_kind(&kind.group, &kind.version, &kind.kind),
        version,
    };
    let (object, list) = match &kind.custom {
        Some(custom) => (custom::name(kind), custom::list_name(kind, custom)),
        None => {
            let object = kind.schema.map(schemas::type_name).unwrap_or_default();
            (object.clone(), format!("{object}List"))
        }
    };
    let name = &*kind.kind;
    let root = format!("/{}", base(kind));
    let collection = format!("{root}{inside}/{}", kind.plural);
    let namespace: &[&str] = if kind.namespaced { &["namespace"] } else { &[] };
    let path = |operations: Vec<(&str, Value)>, names: &[&str]| {
        let operations = operations.into_iter();
        let mut path: Map = operations
            .map(|(method, operation)| (method.to_owned(), operation))
            .collect();
        let names = [names, namespace, &["pretty"]].concat();
        path.insert("parameters".into(), parameters(&names, version).into());
        Value::Object(path)
    };

    let here = builder(format!("{scope}{name}"));
    let create = here.operation(&OpenApiOperation {
        verb: "create",
        action: "post",
        description: format!("create an object of kind {name}"),
        parameters: &WRITE,
        body: Some(&object),
        answer: &object,
        codes: &["200", "201", "202"],
    });
    if kind.review.is_some() {
        paths.insert(collection, path(vec![("post", create)], &[]));
        return;
    }
    let listing = |function: String| {
        builder(function).operation(&OpenApiOperation {
            verb: "list",
            action: "list",
            description: format!("list or watch objects of kind {name}"),
            parameters: &LIST,
            body: None,
            answer: &list,
            codes: &["200"],
        })
    };
    let mut operations = vec![("get", listing(format!("{scope}{name}"))), ("post", create)];
    if kind.collection_delete {
        let delete = builder(format!("Collection{scope}{name}")).operation(&OpenApiOperation {
            verb: "delete",
            action: "deletecollection",
            description: format!("delete objects of kind {name}"),
            parameters: &DELETE_COLLECTION,
            body: Some(DELETE_OPTIONS),
            answer: STATUS,
            codes: &["200"],
        });
        operations.push(("delete", delete));
    }
    paths.insert(collection.clone(), path(operations, &[]));
    if kind.namespaced {
        let everywhere = listing(format!("{name}ForAllNamespaces"));
        let pretty = parameters(&["pretty"], version);
        paths.insert(
            format!("{root}/{}", kind.plural),
            json!({"get": everywhere, "parameters": pretty}),
        );
    }
    let verbs = ["get", "update", "patch", "delete"];
    let of = format!("an object of kind {name}");
    let operations = verbs.map(|verb| here.item(verb, &object, &of));
    paths.insert(
        format!("{collection}/{{name}}"),
        path(operations.into(), &["name"]),
    );
    for part in subresources(kind) {
        let ListedSubresource {
            name: part,
            other_kind,
            verbs,
        } = part;
        let mut builder = builder(format!("{scope}{name}{}", capitalized(part)));
        let mut object = object.clone();
        if let Some(other) = other_kind {
            builder.group_version_kind = group_version_kind(other.group, other.version, other.kind);
            object = tidings_schema::find(other.group, other.version, other.kind)
                .map(schemas::type_name)
                .unwrap_or_default();
        }
        let of = format!("the {part} of {of}");
        let operations = verbs.iter().map(|verb| builder.item(verb, &object, &of));
        paths.insert(
            format!("{collection}/{{name}}/{part}"),
            path(operations.collect(), &["name"]),
        );
    }
}

fn reference(name: &str, version: OpenApiVersion) -> Value {
    json!({"$ref": version.reference(name)})
}

fn content(media_types: &[&str], schema: &Value) -> Map {
    let types = media_types.iter();
    types
        .map(|media_type| ((*media_type).to_owned(), json!({ "schema": schema })))
        .collect()
}

/// A group as a part of operation ids: `RbacAuthorization`.
fn group_words(group: &str) -> String {
    let group = if group.is_empty() { "core" } else { group };
    let group = group.strip_suffix(".k8s.io").unwrap_or(group);
    group.split(['.', '-']).map(capitalized).collect()
}

fn capitalized(word: &str) -> String {
    let mut characters = word.chars();
    let first = characters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(characters).collect()
}

fn uncapitalized(word: &str) -> String {
    let mut characters = word.chars();
    let first = characters.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(characters).collect()
}
