//! Custom resources (W177–W187).

mod definitions;
mod objects;
mod type_errors;
mod versions;

use serde_json::{Value, json};

use crate::support::{TestResponse, TestServer, TestWatch};

pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(super) const WIDGETS: &str = "/apis/ex.com/v1/namespaces/default/widgets";

/// A version of a definition, whose `spec` has these properties.
pub(super) fn version(name: &str, storage: bool, properties: &Value) -> Value {
    json!({
        "name": name,
        "served": true,
        "storage": storage,
        "schema": {"openAPIV3Schema": {
            "type": "object",
            "properties": {
                "spec": {"type": "object", "properties": properties},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            },
        }},
    })
}

pub(super) fn widgets(versions: &[Value]) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.ex.com"},
        "spec": {
            "group": "ex.com",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "scope": "Namespaced",
            "versions": versions,
        },
    })
}

/// The properties that most tests need.
pub(super) fn properties() -> Value {
    json!({
        "size": {"type": "integer", "minimum": 1},
        "color": {"type": "string", "default": "red", "enum": ["red", "blue"]},
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port"],
            "items": {"type": "object", "required": ["port"], "properties": {
                "port": {"type": "integer"},
                "name": {"type": "string"},
            }},
        },
    })
}

pub(super) fn widget(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "ex.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

/// The object of the next event that meets a condition.
pub(super) async fn until(watch: &mut TestWatch, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let event = watch.next().await.expect("the watch goes on");
        if wanted(&event["object"]) {
            return event["object"].clone();
        }
    }
}

/// The type and name of the next event: `ADDED a`.
pub(super) async fn next_event(watch: &mut TestWatch) -> String {
    let event = watch.brief().await;
    event.split('@').next().unwrap_or_default().to_owned()
}

pub(super) fn condition<'a>(definition: &'a Value, kind: &str) -> &'a Value {
    let conditions = definition["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == kind);
    found.unwrap_or(&Value::Null)
}

/// Waits until a definition has a condition.
pub(super) async fn until_condition(server: &TestServer, name: &str, kind: &str) -> Value {
    let path = format!("{DEFINITIONS}?watch=true&fieldSelector=metadata.name%3D{name}");
    let mut watch = server.watch(&path).await;
    let has = |definition: &Value| condition(definition, kind)["status"] == "True";
    until(&mut watch, has).await
}

/// Creates a definition and waits until it is served.
pub(super) async fn define(server: &TestServer, definition: &Value) -> Value {
    let answer = server.request("POST", DEFINITIONS, definition).await;
    assert_eq!(answer.code, 201, "{}", answer.text);
    let name = definition["metadata"]["name"].as_str().unwrap();
    until_condition(server, name, "Established").await
}

/// A server with the definition of widgets.
pub(super) async fn with_widgets() -> TestServer {
    let server = TestServer::start().await;
    let mut version = version("v1", true, &properties());
    version["subresources"] = json!({"status": {}});
    define(&server, &widgets(&[version])).await;
    server
}

/// Changes a definition and waits until discovery shows the change: the discovery documents are made from the served set.
pub(super) async fn redefine(server: &TestServer, patch: &Value, served: impl Fn(&str) -> bool) {
    let path = format!("{DEFINITIONS}/widgets.ex.com");
    let answer = server.patch(&path, "merge", patch).await;
    assert_eq!(answer.code, 200, "{}", answer.text);
    while !served(&server.get("/apis/ex.com/v1").await.text) {
        tokio::task::yield_now().await;
    }
}

/// Changes the versions of a definition. Also changes its categories, in which discovery shows that the change is served.
pub(super) async fn change_versions(server: &TestServer, versions: &[Value]) {
    let patch = json!({"spec": {"versions": versions, "names": {"categories": ["changed"]}}});
    redefine(server, &patch, |text| text.contains("changed")).await;
}

pub(super) fn warnings(answer: &TestResponse) -> Vec<&str> {
    let all = answer.headers.get_all("warning").into_iter();
    all.map(|warning| warning.to_str().unwrap()).collect()
}
