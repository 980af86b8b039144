//! CustomResourceDefinitions: validation, establishing, discovery and OpenAPI, deletion.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tidings_server::{Api, ApiOptions};
use tidings_storage::{Embedded, EmbeddedOptions};

use super::{
    DEFINITIONS, WIDGETS, change_versions, condition, define, next_event, properties, until,
    until_condition, version, warnings, widget, widgets, with_widgets,
};
use crate::late::LateStore;
use crate::support::TestServer;

#[tokio::test]
async fn w177_w178_a_definition_is_completed_established_and_served() {
    let server = TestServer::start().await;
    let missing = server.get(WIDGETS).await;
    assert_eq!(
        (missing.code, missing.text.as_str()),
        (404, "404 page not found\n")
    );
    let definition = widgets(&[version("v1", true, &properties())]);
    let created = server.request("POST", DEFINITIONS, &definition).await;
    assert_eq!(created.code, 201, "{}", created.text);
    let created = created.json();
    let names = &created["spec"]["names"];
    assert_eq!(names["singular"], "widget");
    assert_eq!(names["listKind"], "WidgetList");
    assert_eq!(created["spec"]["conversion"], json!({"strategy": "None"}));
    let status = json!({
        "conditions": null,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": ["v1"],
    });
    assert_eq!(created["status"], status);
    let established = until_condition(&server, "widgets.ex.com", "Established").await;
    assert_eq!(established["status"]["acceptedNames"], *names);
    let accepted = condition(&established, "NamesAccepted");
    assert_eq!(accepted["reason"], "NoConflicts");
    // A client that sees the condition Established can use the resource at once.
    let created = server
        .request("POST", WIDGETS, widget("a", &json!({"size": 1})))
        .await;
    assert_eq!(created.code, 201, "{}", created.text);
    let shape = r#"{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"creationTimestamp":"#;
    assert!(created.text.starts_with(shape), "{}", created.text);
    let created = created.json();
    assert_eq!(created["spec"], json!({"color": "red", "size": 1}));
    assert_eq!(created["metadata"]["generation"], 1);
    let got = server.get(&format!("{WIDGETS}/a")).await;
    assert_eq!(got.json(), created);
    let list = server.get(WIDGETS).await;
    assert_eq!(list.json()["items"][0], created, "W70");
    assert_eq!(list.json()["kind"], "WidgetList");
    let end = r#""kind":"WidgetList","metadata":{"continue":"","resourceVersion":""#;
    assert!(list.text.contains(end), "{}", list.text);
}

#[tokio::test]
async fn w10_w177_unknown_formats_give_a_warning() {
    let server = TestServer::start().await;
    let odd = json!({"size": {"type": "string", "format": "odd"}});
    let definition = widgets(&[version("v1", true, &odd)]);
    let created = server.request("POST", DEFINITIONS, &definition).await;
    assert_eq!(created.code, 201, "{}", created.text);
    assert_eq!(
        warnings(&created),
        [r#"299 - "unrecognized format \"odd\"""#]
    );
}

#[tokio::test]
async fn w177_names_of_another_definition_are_not_accepted() {
    let server = with_widgets().await;
    let mut other = widgets(&[version("v1", true, &properties())]);
    other["metadata"]["name"] = "gadgets.ex.com".into();
    other["spec"]["names"] = json!({"plural": "gadgets", "kind": "Widget", "listKind": "Gadgets"});
    let created = server.request("POST", DEFINITIONS, &other).await;
    assert_eq!(created.code, 201, "{}", created.text);
    let path = format!("{DEFINITIONS}?watch=true&fieldSelector=metadata.name%3Dgadgets.ex.com");
    let mut watch = server.watch(&path).await;
    let refused = until(&mut watch, |definition| {
        condition(definition, "NamesAccepted")["status"] == "False"
    })
    .await;
    let reason = &condition(&refused, "NamesAccepted")["reason"];
    assert_eq!(reason, "KindConflict");
    assert_eq!(condition(&refused, "Established")["status"], "False");
    let missing = server
        .get("/apis/ex.com/v1/namespaces/default/gadgets")
        .await;
    assert_eq!(missing.code, 404);
    // When the other definition is deleted, its names are free.
    let path = format!("{DEFINITIONS}/widgets.ex.com");
    assert_eq!(server.request("DELETE", &path, "").await.code, 200);
    until(&mut watch, |definition| {
        condition(definition, "Established")["status"] == "True"
    })
    .await;
    let served = server
        .get("/apis/ex.com/v1/namespaces/default/gadgets")
        .await;
    assert_eq!(served.code, 200, "{}", served.text);
}

#[tokio::test]
async fn w177_an_invalid_definition_is_refused_and_not_stored() {
    let server = TestServer::start().await;
    let mut typeless = widgets(&[version("v1", true, &json!({"size": {"minimum": 1}}))]);
    let cases = [
        (
            typeless.clone(),
            "properties[spec].properties[size].type: Required value: must not be empty for specified object fields",
        ),
        (
            {
                typeless["spec"]["versions"][0]["schema"] = Value::Null;
                typeless
            },
            "spec.versions[0].schema.openAPIV3Schema: Required value",
        ),
        (
            widgets(&[version("v1", false, &properties())]),
            "must have exactly one version marked as storage version",
        ),
        (
            {
                let mut named = widgets(&[version("v1", true, &properties())]);
                named["metadata"]["name"] = "gadgets.ex.com".into();
                named
            },
            r#"metadata.name: Invalid value: "gadgets.ex.com": must be spec.names.plural+"."+spec.group"#,
        ),
        (
            {
                let mut webhook = widgets(&[version("v1", true, &properties())]);
                webhook["spec"]["conversion"] = json!({"strategy": "Webhook"});
                webhook
            },
            "spec.conversion.webhookClientConfig: Required value",
        ),
    ];
    for (definition, why) in cases {
        let refused = server.request("POST", DEFINITIONS, &definition).await;
        assert_eq!(refused.code, 422, "{}", refused.text);
        let message = refused.message();
        assert!(message.contains(why), "{message}\ndoes not contain\n{why}");
    }
    let list = server.get(DEFINITIONS).await;
    assert_eq!(list.json()["items"], json!([]));
}

#[tokio::test]
async fn a_watch_continues_when_the_definition_changes() {
    let server = with_widgets().await;
    let mut watch = server.watch(&format!("{WIDGETS}?watch=true")).await;
    server
        .request("POST", WIDGETS, widget("a", &json!({"size": 1})))
        .await;
    assert_eq!(next_event(&mut watch).await, "ADDED a");
    let mut more = properties();
    more["shape"] = json!({"type": "string", "default": "round"});
    change_versions(&server, &[version("v1", true, &more)]).await;
    assert!(watch.is_quiet().await, "the objects have not changed");
    let b = widget("b", &json!({"size": 1}));
    server.request("POST", WIDGETS, b).await;
    let seen = watch.next().await.unwrap();
    assert_eq!(seen["object"]["spec"]["shape"], "round");
}

#[tokio::test]
async fn w186_a_deleted_definition_goes_after_its_objects() {
    let server = with_widgets().await;
    let mut held = widget("held", &json!({"size": 1}));
    held["metadata"]["finalizers"] = json!(["ex.com/hold"]);
    server.request("POST", WIDGETS, &held).await;
    let plain = widget("plain", &json!({"size": 1}));
    server.request("POST", WIDGETS, &plain).await;
    let mut watch = server.watch(&format!("{WIDGETS}?watch=true")).await;
    assert_eq!(next_event(&mut watch).await, "ADDED held");
    assert_eq!(next_event(&mut watch).await, "ADDED plain");
    let path = format!("{DEFINITIONS}/widgets.ex.com");
    let mut definitions = server.watch(&format!("{DEFINITIONS}?watch=true")).await;
    let deleted = server.request("DELETE", &path, "").await;
    assert_eq!(deleted.code, 200, "{}", deleted.text);
    let deleted = deleted.json();
    let finalizer = "customresourcecleanup.apiextensions.k8s.io";
    assert_eq!(deleted["metadata"]["finalizers"], json!([finalizer]));
    let terminating = condition(&deleted, "Terminating");
    assert_eq!(terminating["reason"], "InstanceDeletionPending");
    assert_eq!(next_event(&mut watch).await, "MODIFIED held");
    assert_eq!(next_event(&mut watch).await, "DELETED plain");
    // Objects held by a finalizer can still be read and changed, but none can be created.
    let refused = server.request("POST", WIDGETS, &plain).await;
    assert_eq!(
        (refused.code, refused.message().as_str()),
        (
            403,
            "widgets.ex.com \"plain\" is forbidden: create not allowed while custom resource definition is terminating"
        )
    );
    let apply = format!("{WIDGETS}/applied?fieldManager=m");
    let headers = [("content-type", "application/apply-patch+yaml")];
    let body = widget("applied", &json!({"size": 1}));
    let refused = server
        .request_with_headers("PATCH", &apply, &headers, body)
        .await;
    assert_eq!(refused.code, 403, "{}", refused.text);
    let definition = server.get(&path).await.json();
    assert_eq!(
        condition(&definition, "Terminating")["reason"],
        "InstanceDeletionInProgress"
    );
    let free = json!({"metadata": {"finalizers": null}});
    let merge = "merge";
    let freed = server.patch(&format!("{WIDGETS}/held"), merge, free).await;
    assert_eq!(freed.code, 200, "{}", freed.text);
    assert_eq!(next_event(&mut watch).await, "DELETED held");
    assert_eq!(watch.next().await, None, "the watch ends");
    loop {
        let event = definitions.next().await.unwrap();
        if event["type"] == "DELETED" {
            break;
        }
    }
    while server.get(WIDGETS).await.code != 404 {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.get("/apis/ex.com").await.code, 404);
    // The names can be used by another definition.
    let mut other = widgets(&[version("v1", true, &json!({"other": {"type": "string"}}))]);
    other["spec"]["scope"] = "Cluster".into();
    define(&server, &other).await;
    let path = "/apis/ex.com/v1/widgets";
    let created = server
        .request("POST", path, widget("a", &json!({"other": "x"})))
        .await;
    assert_eq!(created.code, 201, "{}", created.text);
    assert_eq!(server.get(path).await.names(), ["a"]);
}

#[tokio::test]
async fn w27_w187_discovery_follows_definitions() {
    let server = with_widgets().await;
    let list = server.get("/apis/ex.com/v1").await.json();
    let widgets = &list["resources"][0];
    assert_eq!(widgets["name"], "widgets");
    assert_eq!(widgets["singularName"], "widget");
    assert_eq!(widgets["shortNames"], json!(["wd"]));
    let verbs = json!([
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "create",
        "update",
        "watch"
    ]);
    assert_eq!(widgets["verbs"], verbs);
    assert_eq!(list["resources"][1]["name"], "widgets/status");
    let groups = server.get("/apis").await.json();
    let last = groups["groups"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["name"], "ex.com");
    assert_eq!(last["preferredVersion"]["version"], "v1");
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let groups = server.get_as("/apis", aggregated).await;
    let tag = groups.headers["etag"].clone();
    let items = groups.json()["items"].clone();
    let last = items.as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["metadata"]["name"], "ex.com");
    assert_eq!(last["versions"][0]["resources"][0]["resource"], "widgets");
    let more = [
        version("v1", true, &properties()),
        version("v2", false, &properties()),
    ];
    change_versions(&server, &more).await;
    let groups = server.get_as("/apis", aggregated).await;
    assert_ne!(groups.headers["etag"], tag);
    let group = server.get("/apis/ex.com").await.json();
    assert_eq!(group["preferredVersion"]["version"], "v2");
}

#[tokio::test]
async fn w32_w187_openapi_follows_definitions() {
    let server = with_widgets().await;
    let index = server.get("/openapi/v3").await.json();
    let url = index["paths"]["apis/ex.com/v1"]["serverRelativeURL"].clone();
    let document = server.get(url.as_str().unwrap()).await.json();
    let schemas = &document["components"]["schemas"];
    let widget = &schemas["com.ex.v1.Widget"];
    let named = json!([{"group": "ex.com", "kind": "Widget", "version": "v1"}]);
    assert_eq!(widget["x-kubernetes-group-version-kind"], named);
    let spec = &widget["properties"]["spec"]["properties"];
    assert_eq!(spec["size"], json!({"type": "integer", "minimum": 1}));
    let meta = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(
        widget["properties"]["metadata"]["allOf"],
        json!([{ "$ref": meta }])
    );
    assert!(schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"].is_object());
    let items = &schemas["com.ex.v1.WidgetList"]["properties"]["items"]["items"];
    assert_eq!(items["$ref"], "#/components/schemas/com.ex.v1.Widget");
    let item = "/apis/ex.com/v1/namespaces/{namespace}/widgets/{name}";
    let patch = &document["paths"][item]["patch"];
    let patches = patch["requestBody"]["content"].as_object().unwrap();
    assert!(!patches.contains_key("application/strategic-merge-patch+json"));
    let parameters = patch["parameters"].as_array().unwrap();
    let validates = |parameter: &Value| parameter["name"] == "fieldValidation";
    assert!(
        parameters.iter().any(validates),
        "kubectl looks for fieldValidation before it leaves validation to the server"
    );
    let status = format!("{item}/status");
    assert!(document["paths"][&status].is_object());
    let v2 = server.get("/openapi/v2").await;
    let tag = v2.headers["etag"].clone();
    let definition = &v2.json()["definitions"]["com.ex.v1.Widget"];
    assert_eq!(
        definition["properties"]["status"],
        json!({
            "x-kubernetes-preserve-unknown-fields": true,
        })
    );
    let mut more = properties();
    more["shape"] = json!({"type": "string"});
    change_versions(&server, &[version("v1", true, &more)]).await;
    let index = server.get("/openapi/v3").await.json();
    let changed = &index["paths"]["apis/ex.com/v1"]["serverRelativeURL"];
    assert_ne!(*changed, url);
    let document = server.get(changed.as_str().unwrap()).await.json();
    let widget = &document["components"]["schemas"]["com.ex.v1.Widget"];
    assert!(widget["properties"]["spec"]["properties"]["shape"].is_object());
    assert_ne!(server.get("/openapi/v2").await.headers["etag"], tag);
    let url = changed.as_str().unwrap();
    let answer = server.get(url).await;
    let tag = answer.headers["etag"]
        .to_str()
        .unwrap()
        .trim_matches('"')
        .to_owned();
    assert!(url.ends_with(&tag), "{url} {tag}");
    // Another definition, and a status, change nothing of these documents.
    let other = widgets(&[version("v1", true, &json!({}))]).to_string();
    let other = other
        .replace("ex.com", "other.com")
        .replace("\"wd\"", "\"wo\"");
    define(&server, &serde_json::from_str(&other).unwrap()).await;
    let index = server.get("/openapi/v3").await.json();
    assert!(index["paths"]["apis/other.com/v1"].is_object());
    assert_eq!(index["paths"]["apis/ex.com/v1"]["serverRelativeURL"], url);
}

#[tokio::test]
async fn w187_openapi_shows_embedded_resources_nullable_and_selectable_fields() {
    let server = TestServer::start().await;
    let mut properties = properties();
    properties["inner"] = json!({
        "type": "object",
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    });
    properties["maybe"] = json!({"type": "string", "nullable": true});
    let mut version = version("v1", true, &properties);
    let spec = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["required"] = json!(["maybe", "size"]);
    version["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
    define(&server, &widgets(&[version])).await;
    let v3 = server.get("/openapi/v3/apis/ex.com/v1").await.json();
    let v2 = server.get("/openapi/v2").await.json();
    let selectable = json!([{"fieldPath": "spec.color"}]);
    for (schemas, required) in [
        (&v3["components"]["schemas"], json!(["maybe", "size"])),
        (&v2["definitions"], json!(["size"])),
    ] {
        let widget = &schemas["com.ex.v1.Widget"];
        assert_eq!(widget["x-kubernetes-selectable-fields"], selectable);
        assert_eq!(widget["properties"]["spec"]["required"], required);
    }
    let spec = |schemas: &Value| schemas["com.ex.v1.Widget"]["properties"]["spec"].clone();
    let new = spec(&v3["components"]["schemas"]);
    let inner = &new["properties"]["inner"];
    assert_eq!(inner["required"], json!(["kind", "apiVersion"]));
    let meta = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(inner["properties"]["metadata"]["allOf"][0]["$ref"], meta);
    assert_eq!(inner["properties"]["kind"]["type"], "string");
    // OpenAPI 2 cannot express null, and clients reject a schema that preserves unknown fields and has properties.
    let old = spec(&v2["definitions"]);
    assert_eq!(old["properties"]["maybe"], json!({}));
    let inner = &old["properties"]["inner"];
    assert!(
        inner["properties"].is_null() && inner["type"].is_null(),
        "{inner}"
    );
}

#[tokio::test]
async fn custom_resources_are_served_right_after_a_start() {
    let store = Arc::new(Embedded::ephemeral(EmbeddedOptions::default()));
    let options = ApiOptions::default;
    let first = TestServer {
        api: Api::start(store.clone(), options()).await.unwrap(),
    };
    define(&first, &widgets(&[version("v1", true, &properties())])).await;
    let body = widget("a", &json!({"size": 1}));
    first.request("POST", WIDGETS, body).await;
    let second = TestServer::over(LateStore::of(store)).await;
    assert_eq!(second.get(WIDGETS).await.names(), ["a"]);
    // A definition created on one server is served by the other one too, whose watch delivers it late.
    let mut other = widgets(&[version("v1", true, &properties())]);
    other["metadata"]["name"] = "gadgets.ex.com".into();
    other["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget"});
    define(&first, &other).await;
    let gadgets = "/apis/ex.com/v1/namespaces/default/gadgets";
    assert_eq!(second.get(gadgets).await.code, 200);
}

#[tokio::test]
async fn the_status_of_a_definition_is_written_when_the_store_is_back() {
    let store = LateStore::new();
    let refuses = store.refuses();
    let server = TestServer::over(store).await;
    refuses.store(true, Ordering::Relaxed);
    let definition = widgets(&[version("v1", true, &properties())]);
    let created = server.request("POST", DEFINITIONS, &definition).await;
    assert_eq!(created.code, 201, "{}", created.text);
    // The resource is served before the status says so.
    while server.get(WIDGETS).await.code != 200 {
        tokio::task::yield_now().await;
    }
    let path = format!("{DEFINITIONS}/widgets.ex.com");
    assert_eq!(
        server.get(&path).await.json()["status"]["conditions"],
        Value::Null
    );
    refuses.store(false, Ordering::Relaxed);
    until_condition(&server, "widgets.ex.com", "Established").await;
}
