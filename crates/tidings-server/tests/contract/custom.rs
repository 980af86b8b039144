//! Custom resources (W177–W187): definitions and their objects.

use std::sync::Arc;

use serde_json::{Value, json};
use tidings_server::{Api, ApiOptions};
use tidings_storage::{Embedded, EmbeddedOptions};

use crate::late::LateStore;
use crate::support::{Answer, PROTOBUF, Server, Watch};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/ex.com/v1/namespaces/default/widgets";

/// A version whose spec has these properties.
fn version(name: &str, storage: bool, properties: &Value) -> Value {
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

fn widgets(versions: &[Value]) -> Value {
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
fn properties() -> Value {
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

fn widget(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "ex.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

/// The next event whose object is as wanted.
async fn until(watch: &mut Watch, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let event = watch.next().await.expect("the watch goes on");
        if wanted(&event["object"]) {
            return event["object"].clone();
        }
    }
}

/// The next event in short: `ADDED a`.
async fn seen(watch: &mut Watch) -> String {
    let event = watch.brief().await;
    event.split('@').next().unwrap_or_default().to_owned()
}

fn condition<'a>(definition: &'a Value, kind: &str) -> &'a Value {
    let conditions = definition["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == kind);
    found.unwrap_or(&Value::Null)
}

/// Waits until a definition has a condition.
async fn settled(server: &Server, name: &str, kind: &str) -> Value {
    let path = format!("{DEFINITIONS}?watch=true&fieldSelector=metadata.name%3D{name}");
    let mut watch = server.watch(&path).await;
    let has = |definition: &Value| condition(definition, kind)["status"] == "True";
    until(&mut watch, has).await
}

/// Creates a definition and waits until it is served.
async fn define(server: &Server, definition: &Value) -> Value {
    let answer = server.request("POST", DEFINITIONS, definition).await;
    assert_eq!(answer.code, 201, "{}", answer.text);
    let name = definition["metadata"]["name"].as_str().unwrap();
    settled(server, name, "Established").await
}

async fn with_widgets() -> Server {
    let server = Server::start().await;
    let mut version = version("v1", true, &properties());
    version["subresources"] = json!({"status": {}});
    define(&server, &widgets(&[version])).await;
    server
}

/// Changes a definition and waits until the change is served: discovery says so, since it is made anew with what is served.
async fn redefine(server: &Server, patch: &Value, served: impl Fn(&str) -> bool) {
    let path = format!("{DEFINITIONS}/widgets.ex.com");
    let answer = server.patch(&path, "merge", patch).await;
    assert_eq!(answer.code, 200, "{}", answer.text);
    while !served(&server.get("/apis/ex.com/v1").await.text) {
        tokio::task::yield_now().await;
    }
}

/// A change of the versions, with another category to tell that it is served.
async fn reversion(server: &Server, versions: &[Value]) {
    let patch = json!({"spec": {"versions": versions, "names": {"categories": ["changed"]}}});
    redefine(server, &patch, |text| text.contains("changed")).await;
}

fn warnings(answer: &Answer) -> Vec<&str> {
    let all = answer.headers.get_all("warning").into_iter();
    all.map(|warning| warning.to_str().unwrap()).collect()
}

#[tokio::test]
async fn w177_w178_a_definition_is_completed_established_and_served() {
    let server = Server::start().await;
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
    let established = settled(&server, "widgets.ex.com", "Established").await;
    assert_eq!(established["status"]["acceptedNames"], *names);
    let accepted = condition(&established, "NamesAccepted");
    assert_eq!(accepted["reason"], "NoConflicts");
    // Whoever sees it established can use it at once.
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
async fn w10_w177_formats_that_nobody_checks_are_told() {
    let server = Server::start().await;
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
async fn w177_names_that_are_taken_are_not_accepted() {
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
    // When the other goes, the name is free.
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
async fn w177_a_definition_that_makes_no_sense_is_refused_and_not_stored() {
    let server = Server::start().await;
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
                webhook["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
                    "conversionReviewVersions": ["v1"],
                    "clientConfig": {"url": "https://example.com/convert"},
                }});
                webhook
            },
            "spec.conversion.strategy",
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
async fn w179_all_that_is_wrong_with_an_object_is_told_at_once() {
    let server = with_widgets().await;
    let spec = json!({"size": 0, "color": "green", "ports": [{"port": "x"}, {}]});
    let refused = server.request("POST", WIDGETS, widget("a", &spec)).await;
    assert_eq!(refused.code, 422, "{}", refused.text);
    let causes = &refused.json()["details"]["causes"];
    let told = |field: &str, reason: &str| {
        let mut causes = causes.as_array().into_iter().flatten();
        causes.any(|cause| cause["field"] == field && cause["reason"] == reason)
    };
    assert!(told("spec.size", "FieldValueInvalid"), "{causes}");
    assert!(told("spec.color", "FieldValueNotSupported"), "{causes}");
    assert!(
        told("spec.ports[0].port", "FieldValueTypeInvalid"),
        "{causes}"
    );
    assert!(told("spec.ports[1].port", "FieldValueRequired"), "{causes}");
    assert_eq!(server.get(&format!("{WIDGETS}/a")).await.code, 404);
}

#[tokio::test]
async fn w132_an_object_says_what_it_is() {
    let server = with_widgets().await;
    let body = json!({"metadata": {"name": "a"}, "spec": {}});
    let answer = server.request("POST", WIDGETS, &body).await;
    assert_eq!(answer.code, 400);
    assert!(
        answer.message().contains("Object 'Kind' is missing"),
        "{}",
        answer.message()
    );
    let mut other = widget("a", &json!({}));
    other["apiVersion"] = "ex.com/v2".into();
    let answer = server.request("POST", WIDGETS, &other).await;
    assert_eq!(
        answer.message(),
        "the API version in the data (ex.com/v2) does not match the expected API version (ex.com/v1)"
    );
    let mut other = widget("a", &json!({}));
    other["kind"] = "Gadget".into();
    let answer = server.request("POST", WIDGETS, &other).await;
    assert_eq!(
        (answer.code, answer.message().as_str()),
        (
            422,
            r#"Gadget.ex.com "a" is invalid: kind: Invalid value: "Gadget": must be Widget"#
        )
    );
}

#[tokio::test]
async fn w139_a_dry_run_stores_nothing() {
    let server = with_widgets().await;
    let tried = server
        .request(
            "POST",
            &format!("{WIDGETS}?dryRun=All"),
            widget("a", &json!({"size": 1})),
        )
        .await;
    assert_eq!(tried.code, 201, "{}", tried.text);
    let tried = tried.json();
    assert_eq!(tried["spec"]["color"], "red");
    let metadata = tried["metadata"].as_object().unwrap();
    assert!(!metadata.contains_key("resourceVersion"), "{tried}");
    assert!(metadata.contains_key("uid"), "{tried}");
    assert_eq!(server.get(&format!("{WIDGETS}/a")).await.code, 404);
}

#[tokio::test]
async fn w173_w180_unknown_fields_are_dropped_and_told() {
    let server = with_widgets().await;
    let mut body = widget("a", &json!({"size": 1, "junk": {"x": 1}}));
    body["metadata"]["odd"] = 1.into();
    let created = server.request("POST", WIDGETS, &body).await;
    assert_eq!(created.code, 201, "{}", created.text);
    assert_eq!(
        warnings(&created),
        [
            r#"299 - "unknown field \"metadata.odd\"""#,
            r#"299 - "unknown field \"spec.junk\"""#
        ]
    );
    assert_eq!(created.json()["spec"], json!({"color": "red", "size": 1}));
    let strict = format!("{WIDGETS}?fieldValidation=Strict");
    let refused = server.request("POST", &strict, &body).await;
    assert_eq!(
        (refused.code, refused.message().as_str()),
        (
            400,
            "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \
             \"metadata.odd\", unknown field \"spec.junk\""
        )
    );
}

#[tokio::test]
async fn w180_a_default_that_comes_later_is_read_from_objects_that_were_there() {
    let server = with_widgets().await;
    let created = server
        .request("POST", WIDGETS, widget("a", &json!({"size": 1})))
        .await
        .json();
    let mut more = properties();
    more["shape"] = json!({"type": "string", "default": "round"});
    reversion(&server, &[version("v1", true, &more)]).await;
    let read = server.get(&format!("{WIDGETS}/a")).await.json();
    assert_eq!(
        read["spec"],
        json!({"color": "red", "shape": "round", "size": 1})
    );
    let resource_version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    assert_eq!(resource_version(&read), resource_version(&created));
    assert_eq!(server.get(WIDGETS).await.json()["items"][0], read);
    // And without the field, what was stored of it is gone.
    let patch = json!({"spec": {"shape": "flat"}});
    let path = format!("{WIDGETS}/a");
    let changed = server.patch(&path, "merge", patch).await;
    assert_eq!(changed.json()["spec"]["shape"], "flat");
    let patch = json!({"spec": {
        "versions": [version("v1", true, &properties())],
        "names": {"categories": ["again"]},
    }});
    redefine(&server, &patch, |text| text.contains("again")).await;
    let read = server.get(&path).await.json();
    assert_eq!(read["spec"], json!({"color": "red", "size": 1}));
}

#[tokio::test]
async fn w180_w181_a_status_that_is_dropped_has_its_defaults() {
    let server = Server::start().await;
    let mut version = version("v1", true, &properties());
    version["subresources"] = json!({"status": {}});
    let waiting = json!({"phase": "Waiting"});
    version["schema"]["openAPIV3Schema"]["properties"]["status"] = json!({
        "type": "object",
        "default": waiting,
        "properties": {"phase": {"type": "string"}},
    });
    define(&server, &widgets(&[version])).await;
    let mut body = widget("a", &json!({"size": 1}));
    body["status"] = json!({"phase": "Done"});
    let created = server.request("POST", WIDGETS, &body).await.json();
    assert_eq!(created["status"], waiting);
    let read = server.get(&format!("{WIDGETS}/a")).await.json();
    assert_eq!(read, created);
}

#[tokio::test]
async fn w136_w181_the_status_is_changed_by_its_subresource_only() {
    let server = with_widgets().await;
    let mut body = widget("a", &json!({"size": 1}));
    body["status"] = json!({"ready": true});
    let created = server.request("POST", WIDGETS, &body).await.json();
    assert!(created.get("status").is_none(), "{created}");
    let merge = "merge";
    let path = format!("{WIDGETS}/a");
    let patch =
        json!({"spec": {"size": 9}, "status": {"ready": true}, "metadata": {"labels": {"a": "b"}}});
    let status = server.patch(&format!("{path}/status"), merge, &patch).await;
    let status = status.json();
    assert_eq!(status["status"], json!({"ready": true}));
    assert_eq!(status["spec"], json!({"color": "red", "size": 1}));
    assert_eq!(status["metadata"]["labels"], Value::Null);
    assert_eq!(status["metadata"]["generation"], 1);
    let changed = server.patch(&path, merge, &patch).await.json();
    assert_eq!(changed["spec"]["size"], 9);
    assert_eq!(changed["metadata"]["generation"], 2);
    let patch = json!({"status": {"ready": false}});
    let ignored = server.patch(&path, merge, patch).await.json();
    assert_eq!(ignored, changed, "nothing changes");
    // Without the subresource, the status is a member like others.
    reversion(&server, &[version("v1", true, &properties())]).await;
    let patch = json!({"status": {"ready": false}});
    let changed = server.patch(&path, merge, patch).await.json();
    assert_eq!(changed["status"], json!({"ready": false}));
    assert_eq!(changed["metadata"]["generation"], 3);
    assert_eq!(server.get(&format!("{path}/status")).await.code, 404);
}

#[tokio::test]
async fn w143_an_update_names_the_version_that_it_replaces() {
    let server = with_widgets().await;
    let path = format!("{WIDGETS}/a");
    let mut body = widget("a", &json!({"size": 1}));
    let created = server.request("POST", WIDGETS, &body).await.json();
    let refused = server.request("PUT", &path, &body).await;
    assert_eq!(
        (refused.code, refused.message().as_str()),
        (
            422,
            "widgets.ex.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        )
    );
    body["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
    body["spec"]["size"] = 2.into();
    let changed = server.request("PUT", &path, &body).await;
    assert_eq!(changed.code, 200, "{}", changed.text);
    assert_eq!(server.request("PUT", &path, &body).await.code, 409);
}

#[tokio::test]
async fn w182_the_scale_of_a_custom_resource() {
    let server = Server::start().await;
    let mut scaled = version("v1", true, &json!({"copies": {"type": "integer"}}));
    scaled["subresources"] = json!({"status": {}, "scale": {
        "specReplicasPath": ".spec.copies",
        "statusReplicasPath": ".status.copies",
        "labelSelectorPath": ".status.selector",
    }});
    define(&server, &widgets(&[scaled])).await;
    let path = format!("{WIDGETS}/a/scale");
    server
        .request("POST", WIDGETS, widget("a", &json!({})))
        .await;
    let missing = server.get(&path).await;
    assert_eq!(
        (missing.code, missing.message().as_str()),
        (
            500,
            "Internal error occurred: the spec replicas field \".spec.copies\" does not exist"
        )
    );
    let scale = json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "a"}, "spec": {"replicas": 4}});
    let scaled = server.request("PUT", &path, &scale).await;
    assert_eq!(scaled.code, 200, "{}", scaled.text);
    assert_eq!(scaled.json()["spec"]["replicas"], 4);
    let status = json!({"status": {"copies": 3, "selector": "app=a"}});
    let merge = "merge";
    server
        .patch(&format!("{WIDGETS}/a/status"), merge, status)
        .await;
    let read = server.get(&path).await.json();
    assert_eq!(read["status"], json!({"replicas": 3, "selector": "app=a"}));
    let patched = server
        .patch(&path, merge, json!({"spec": {"replicas": 5}}))
        .await;
    assert_eq!(patched.json()["spec"]["replicas"], 5);
    let object = server.get(&format!("{WIDGETS}/a")).await.json();
    assert_eq!(object["spec"], json!({"copies": 5}));
}

#[tokio::test]
async fn w183_every_version_shows_the_same_objects() {
    let server = Server::start().await;
    let mut old = version("v1beta1", false, &json!({"size": {"type": "integer"}}));
    old["deprecated"] = true.into();
    let both = [version("v1", true, &properties()), old];
    define(&server, &widgets(&both)).await;
    let old_path = WIDGETS.replace("/v1/", "/v1beta1/");
    let created = server
        .request("POST", WIDGETS, widget("a", &json!({"size": 1})))
        .await;
    assert!(warnings(&created).is_empty());
    let warning = r#"299 - "ex.com/v1beta1 Widget is deprecated; use ex.com/v1 Widget""#;
    let read = server.get(&format!("{old_path}/a")).await;
    assert_eq!(warnings(&read), [warning]);
    let object = read.json();
    assert_eq!(object["apiVersion"], "ex.com/v1beta1");
    assert_eq!(object["spec"], json!({"size": 1}), "it has no colour");
    let list = server.get(&old_path).await.json();
    assert_eq!(list["apiVersion"], "ex.com/v1beta1");
    assert_eq!(list["items"], json!([object]));
    let mut watch = server.watch(&format!("{old_path}?watch=true")).await;
    let seen = watch.next().await.unwrap();
    assert_eq!(seen["object"], object);
    let mut body = widget("b", &json!({"size": 2}));
    body["apiVersion"] = "ex.com/v1beta1".into();
    let created = server.request("POST", &old_path, &body).await;
    assert_eq!(created.code, 201, "{}", created.text);
    assert_eq!(created.json()["apiVersion"], "ex.com/v1beta1");
    assert_eq!(
        watch.next().await.unwrap()["object"]["apiVersion"],
        "ex.com/v1beta1"
    );
    let new = server.get(&format!("{WIDGETS}/b")).await.json();
    assert_eq!(new["apiVersion"], "ex.com/v1");
    assert_eq!(new["spec"], json!({"color": "red", "size": 2}));
    // The other one becomes the one that is stored.
    let (mut new, mut old) = (both[0].clone(), both[1].clone());
    new["storage"] = false.into();
    old["storage"] = true.into();
    reversion(&server, &[new, old]).await;
    let definition = server.get(&format!("{DEFINITIONS}/widgets.ex.com")).await;
    assert_eq!(
        definition.json()["status"]["storedVersions"],
        json!(["v1", "v1beta1"])
    );
    let list = server.get(&old_path).await.json();
    assert_eq!(list["items"][0], object);
    let read = server.get(&format!("{WIDGETS}/a")).await.json();
    assert_eq!(read["apiVersion"], "ex.com/v1");
    assert_eq!(read["spec"]["size"], 1);
}

#[tokio::test]
async fn w184_columns_and_selectable_fields() {
    let server = Server::start().await;
    let mut shown = version("v1", true, &properties());
    shown["additionalPrinterColumns"] = json!([
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "how big"},
        {"name": "Port", "type": "string", "jsonPath": ".spec.ports[0].name", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]);
    shown["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
    define(&server, &widgets(&[shown])).await;
    let blue = json!({"size": 2, "color": "blue", "ports": [{"port": 1, "name": "http"}]});
    server
        .request("POST", WIDGETS, widget("a", &json!({"size": 1})))
        .await;
    server.request("POST", WIDGETS, widget("b", &blue)).await;
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let table = server.get_as(WIDGETS, table).await.json();
    let names: Vec<&Value> = table["columnDefinitions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|column| &column["name"])
        .collect();
    assert_eq!(names, ["Name", "Size", "Port", "Age"]);
    assert_eq!(table["columnDefinitions"][1]["description"], "how big");
    assert_eq!(table["columnDefinitions"][2]["priority"], 1);
    let cells = |row: usize| table["rows"][row]["cells"].as_array().unwrap()[..3].to_vec();
    assert_eq!(cells(0), [json!("a"), json!(1), Value::Null]);
    assert_eq!(cells(1), [json!("b"), json!(2), json!("http")]);
    let selected = format!("{WIDGETS}?fieldSelector=spec.color%3Dblue");
    assert_eq!(server.get(&selected).await.names(), ["b"]);
    let refused = server
        .get(&format!("{WIDGETS}?fieldSelector=spec.size%3D1"))
        .await;
    assert_eq!(
        (refused.code, refused.message().as_str()),
        (400, "field label not supported: spec.size")
    );
    // A watch with a selector sees an object come and go.
    let mut watch = server.watch(&format!("{selected}&watch=true")).await;
    assert_eq!(seen(&mut watch).await, "ADDED b");
    let merge = "merge";
    let paint = |color: &str| json!({"spec": {"color": color}});
    let path = format!("{WIDGETS}/b");
    server.patch(&path, merge, paint("red")).await;
    assert_eq!(seen(&mut watch).await, "DELETED b");
}

#[tokio::test]
async fn w149_w185_what_custom_resources_do_not_have() {
    let server = with_widgets().await;
    for path in [
        "/apis/ex.com/v1/widgets/a",
        "/apis/ex.com/v1/namespaces/default/nosuch",
        "/apis/ex.com/v2/namespaces/default/widgets",
        "/apis/ex.com/v2",
    ] {
        let missing = server.get(path).await;
        assert_eq!(
            (missing.code, missing.text.as_str()),
            (404, "404 page not found\n"),
            "{path}"
        );
    }
    server
        .request("POST", WIDGETS, widget("a", &json!({"size": 1})))
        .await;
    let path = format!("{WIDGETS}/a");
    let part = server.get(&format!("{path}/scale")).await;
    assert_eq!(
        (part.code, part.message().as_str()),
        (404, "widgets.ex.com \"a\" not found")
    );
    let strategic = "strategic-merge";
    let refused = server.patch(&path, strategic, json!({})).await;
    assert_eq!(refused.code, 415);
    let accepted =
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
    assert!(refused.message().ends_with(accepted), "{}", refused.text);
    assert_eq!(server.get_as(&path, PROTOBUF).await.code, 406, "W43");
    let either = format!("{PROTOBUF},application/json");
    let read = server.get_as(&path, &either).await;
    assert_eq!(read.headers["content-type"], "application/json", "W43");
    let metadata = format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    assert_eq!(
        server.get_as(&path, &metadata).await.json()["metadata"]["name"],
        "a"
    );
}

#[tokio::test]
async fn w154_apply_merges_lists_by_their_keys() {
    let server = with_widgets().await;
    let path = format!("{WIDGETS}/a");
    let apply = async |manager: &str, spec: Value| {
        let path = format!("{path}?fieldManager={manager}");
        let headers = [("content-type", "application/apply-patch+yaml")];
        server
            .ask("PATCH", &path, &headers, widget("a", &spec))
            .await
    };
    let one = json!({"size": 1, "ports": [{"port": 80, "name": "http"}]});
    assert_eq!(apply("one", one).await.code, 201);
    let two = apply("two", json!({"ports": [{"port": 443, "name": "https"}]})).await;
    assert_eq!(two.code, 200, "{}", two.text);
    let ports = json!([{"port": 80, "name": "http"}, {"port": 443, "name": "https"}]);
    assert_eq!(two.json()["spec"]["ports"], ports);
    let refused = apply("two", json!({"size": 2})).await;
    assert_eq!(
        (refused.code, refused.message().as_str()),
        (
            409,
            r#"Apply failed with 1 conflict: conflict with "one": .spec.size"#
        )
    );
    let gone = apply("two", json!({})).await.json();
    assert_eq!(gone["spec"]["ports"], json!([{"port": 80, "name": "http"}]));
    let odd = apply("two", json!({"junk": 1})).await;
    assert_eq!(odd.code, 500);
    assert!(
        odd.message()
            .ends_with(".spec.junk: field not declared in schema"),
        "{}",
        odd.message()
    );
}

#[tokio::test]
async fn a_watch_goes_on_when_the_definition_changes() {
    let server = with_widgets().await;
    let mut watch = server.watch(&format!("{WIDGETS}?watch=true")).await;
    server
        .request("POST", WIDGETS, widget("a", &json!({"size": 1})))
        .await;
    assert_eq!(seen(&mut watch).await, "ADDED a");
    let mut more = properties();
    more["shape"] = json!({"type": "string", "default": "round"});
    reversion(&server, &[version("v1", true, &more)]).await;
    assert!(watch.is_quiet().await, "the objects have not changed");
    let b = widget("b", &json!({"size": 1}));
    server.request("POST", WIDGETS, b).await;
    let seen = watch.next().await.unwrap();
    assert_eq!(seen["object"]["spec"]["shape"], "round");
}

#[tokio::test]
async fn w186_a_definition_goes_when_its_objects_are_gone() {
    let server = with_widgets().await;
    let mut held = widget("held", &json!({"size": 1}));
    held["metadata"]["finalizers"] = json!(["ex.com/hold"]);
    server.request("POST", WIDGETS, &held).await;
    let plain = widget("plain", &json!({"size": 1}));
    server.request("POST", WIDGETS, &plain).await;
    let mut watch = server.watch(&format!("{WIDGETS}?watch=true")).await;
    assert_eq!(seen(&mut watch).await, "ADDED held");
    assert_eq!(seen(&mut watch).await, "ADDED plain");
    let path = format!("{DEFINITIONS}/widgets.ex.com");
    let mut definitions = server.watch(&format!("{DEFINITIONS}?watch=true")).await;
    let deleted = server.request("DELETE", &path, "").await;
    assert_eq!(deleted.code, 200, "{}", deleted.text);
    let deleted = deleted.json();
    let finalizer = "customresourcecleanup.apiextensions.k8s.io";
    assert_eq!(deleted["metadata"]["finalizers"], json!([finalizer]));
    let terminating = condition(&deleted, "Terminating");
    assert_eq!(terminating["reason"], "InstanceDeletionPending");
    assert_eq!(seen(&mut watch).await, "MODIFIED held");
    assert_eq!(seen(&mut watch).await, "DELETED plain");
    // What a finalizer holds can still be read and changed, but nothing new comes.
    let refused = server.request("POST", WIDGETS, &plain).await;
    assert_eq!(
        (refused.code, refused.message().as_str()),
        (
            405,
            "create not allowed while custom resource definition is terminating"
        )
    );
    let free = json!({"metadata": {"finalizers": null}});
    let merge = "merge";
    let freed = server.patch(&format!("{WIDGETS}/held"), merge, free).await;
    assert_eq!(freed.code, 200, "{}", freed.text);
    assert_eq!(seen(&mut watch).await, "DELETED held");
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
    // The names are free for something else.
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
    reversion(&server, &more).await;
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
        "kubectl looks for it before it leaves validation to the server"
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
    reversion(&server, &[version("v1", true, &more)]).await;
    let index = server.get("/openapi/v3").await.json();
    let changed = &index["paths"]["apis/ex.com/v1"]["serverRelativeURL"];
    assert_ne!(*changed, url);
    let document = server.get(changed.as_str().unwrap()).await.json();
    let widget = &document["components"]["schemas"]["com.ex.v1.Widget"];
    assert!(widget["properties"]["spec"]["properties"]["shape"].is_object());
    assert_ne!(server.get("/openapi/v2").await.headers["etag"], tag);
}

#[tokio::test]
async fn w187_openapi_knows_objects_in_objects_null_and_selectable_fields() {
    let server = Server::start().await;
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
    // Version 2 has no word for null, and clients refuse what is open and has properties.
    let old = spec(&v2["definitions"]);
    assert_eq!(old["properties"]["maybe"], json!({}));
    let inner = &old["properties"]["inner"];
    assert!(
        inner["properties"].is_null() && inner["type"].is_null(),
        "{inner}"
    );
}

#[tokio::test]
async fn custom_resources_are_served_from_the_start() {
    let store = Arc::new(Embedded::ephemeral(EmbeddedOptions::default()));
    let options = ApiOptions::default;
    let first = Server {
        api: Api::start(store.clone(), options()).await.unwrap(),
    };
    define(&first, &widgets(&[version("v1", true, &properties())])).await;
    let body = widget("a", &json!({"size": 1}));
    first.request("POST", WIDGETS, body).await;
    let second = Server::over(LateStore::of(store)).await;
    assert_eq!(second.get(WIDGETS).await.names(), ["a"]);
    // What one server defines, the other serves as well, though it may hear of it later.
    let mut other = widgets(&[version("v1", true, &properties())]);
    other["metadata"]["name"] = "gadgets.ex.com".into();
    other["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget"});
    define(&first, &other).await;
    let gadgets = "/apis/ex.com/v1/namespaces/default/gadgets";
    assert_eq!(second.get(gadgets).await.code, 200);
}

#[tokio::test]
async fn w175_a_namespace_takes_its_custom_resources_with_it() {
    let server = with_widgets().await;
    let namespace = json!({"metadata": {"name": "n"}});
    server
        .request("POST", "/api/v1/namespaces", namespace)
        .await;
    let widgets = WIDGETS.replace("default", "n");
    let body = widget("a", &json!({"size": 1}));
    assert_eq!(server.request("POST", &widgets, body).await.code, 201);
    let mut watch = server
        .watch("/api/v1/namespaces?watch=true&fieldSelector=metadata.name%3Dn")
        .await;
    server.request("DELETE", "/api/v1/namespaces/n", "").await;
    while watch.next().await.unwrap()["type"] != "DELETED" {}
    assert_eq!(server.get("/apis/ex.com/v1/widgets").await.names(), [""; 0]);
}

#[tokio::test]
async fn what_a_custom_resource_owns_goes_with_it() {
    let server = with_widgets().await;
    let body = widget("a", &json!({"size": 1}));
    let owner = server.request("POST", WIDGETS, body).await.json();
    let owned = json!({"metadata": {"name": "owned", "ownerReferences": [{
        "apiVersion": "ex.com/v1",
        "kind": "Widget",
        "name": "a",
        "uid": owner["metadata"]["uid"],
    }]}});
    let configmaps = "/api/v1/namespaces/default/configmaps";
    server.request("POST", configmaps, owned).await;
    let mut watch = server
        .watch(&format!(
            "{configmaps}?watch=true&fieldSelector=metadata.name%3Downed"
        ))
        .await;
    assert_eq!(seen(&mut watch).await, "ADDED owned");
    let path = format!("{WIDGETS}/a");
    assert_eq!(server.request("DELETE", &path, "").await.code, 200);
    assert_eq!(seen(&mut watch).await, "DELETED owned");
}
