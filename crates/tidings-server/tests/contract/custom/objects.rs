//! Objects of custom resources: validation, pruning, defaults, subresources, apply and deletion.

use serde_json::{Value, json};

use super::{
    WIDGETS, change_versions, define, next_event, properties, version, warnings, widget, widgets,
    with_widgets,
};
use crate::support::{PROTOBUF, TestServer};

#[tokio::test]
async fn w179_all_validation_errors_are_reported_together() {
    let server = with_widgets().await;
    let spec = json!({"size": 0, "color": "green", "ports": [{"port": "x"}, {}]});
    let refused = server.request("POST", WIDGETS, widget("a", &spec)).await;
    assert_eq!(refused.code, 422, "{}", refused.text);
    let causes = &refused.json()["details"]["causes"];
    let reports = |field: &str, reason: &str| {
        let mut causes = causes.as_array().into_iter().flatten();
        causes.any(|cause| cause["field"] == field && cause["reason"] == reason)
    };
    assert!(reports("spec.size", "FieldValueInvalid"), "{causes}");
    assert!(reports("spec.color", "FieldValueNotSupported"), "{causes}");
    assert!(
        reports("spec.ports[0].port", "FieldValueTypeInvalid"),
        "{causes}"
    );
    assert!(
        reports("spec.ports[1].port", "FieldValueRequired"),
        "{causes}"
    );
    assert_eq!(server.get(&format!("{WIDGETS}/a")).await.code, 404);
}

#[tokio::test]
async fn w132_a_body_must_have_the_kind_and_api_version_of_the_url() {
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
async fn w173_w180_unknown_fields_are_pruned_with_a_warning() {
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
async fn w180_w181_a_create_replaces_the_status_by_its_defaults() {
    let server = TestServer::start().await;
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
async fn w136_w181_only_the_subresource_changes_the_status() {
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
    assert_eq!(ignored, changed, "the status is ignored");
    // Without the subresource, the status is a member like any other.
    change_versions(&server, &[version("v1", true, &properties())]).await;
    let patch = json!({"status": {"ready": false}});
    let changed = server.patch(&path, merge, patch).await.json();
    assert_eq!(changed["status"], json!({"ready": false}));
    assert_eq!(changed["metadata"]["generation"], 3);
    assert_eq!(server.get(&format!("{path}/status")).await.code, 404);
}

#[tokio::test]
async fn w143_an_update_must_have_a_resource_version() {
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
    let server = TestServer::start().await;
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
async fn w184_columns_and_selectable_fields() {
    let server = TestServer::start().await;
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
    // A watch with a field selector sees an object enter and leave its selection.
    let mut watch = server.watch(&format!("{selected}&watch=true")).await;
    assert_eq!(next_event(&mut watch).await, "ADDED b");
    let merge = "merge";
    let paint = |color: &str| json!({"spec": {"color": color}});
    let path = format!("{WIDGETS}/b");
    server.patch(&path, merge, paint("red")).await;
    assert_eq!(next_event(&mut watch).await, "DELETED b");
}

#[tokio::test]
async fn w149_w185_unsupported_requests_for_custom_resources() {
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
            .request_with_headers("PATCH", &path, &headers, widget("a", &spec))
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
async fn w175_custom_resources_are_deleted_with_their_namespace() {
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
async fn dependents_of_a_custom_resource_are_collected() {
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
    assert_eq!(next_event(&mut watch).await, "ADDED owned");
    let path = format!("{WIDGETS}/a");
    assert_eq!(server.request("DELETE", &path, "").await.code, 200);
    assert_eq!(next_event(&mut watch).await, "DELETED owned");
}

#[tokio::test]
async fn w170_unqualified_finalizers_of_custom_resources_give_a_warning() {
    let server = with_widgets().await;
    let mut body = widget("a", &json!({"size": 1}));
    body["metadata"]["finalizers"] = json!(["x", "a.b", "ex.com/y"]);
    let created = server.request("POST", WIDGETS, &body).await;
    assert_eq!(created.code, 201, "{}", created.text);
    let warning = |name: &str, how: &str| {
        format!(
            "299 - \"metadata.finalizers: \\\"{name}\\\": prefer a domain-qualified finalizer name {how}to avoid accidental \
             conflicts with other finalizer writers\""
        )
    };
    assert_eq!(
        warnings(&created),
        [warning("a.b", "including a path (/) "), warning("x", "")]
    );
}

#[tokio::test]
async fn whole_floats_are_written_as_integers() {
    let server = with_widgets().await;
    let whole = widget("a", &json!({"size": 2.0}));
    let created = server.request("POST", WIDGETS, whole).await;
    assert!(
        created.text.contains(r#""spec":{"color":"red","size":2}"#),
        "{}",
        created.text
    );
}

#[tokio::test]
async fn w157_preserved_unknown_fields_have_managers() {
    let server = TestServer::start().await;
    let keep = json!({"keep": {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"a": {"type": "string"}},
    }});
    define(&server, &widgets(&[version("v1", true, &keep)])).await;
    let headers = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{WIDGETS}/a?fieldManager=m");
    let body = widget("a", &json!({"keep": {"z": {"y": 1}, "a": "s"}}));
    let applied = server
        .request_with_headers("PATCH", &path, &headers, body)
        .await
        .json();
    assert_eq!(
        applied["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:spec": {"f:keep": {"f:a": {}, "f:z": {".": {}, "f:y": {}}}}})
    );
}

#[tokio::test]
async fn w156_applying_an_unknown_field_inside_a_list_is_refused() {
    let server = TestServer::start().await;
    let list = json!({"list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}}});
    define(&server, &widgets(&[version("v1", true, &list)])).await;
    let headers = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{WIDGETS}/a?fieldManager=m");
    let body = widget("a", &json!({"list": [{"zz": 1}]}));
    let refused = server
        .request_with_headers("PATCH", &path, &headers, body)
        .await;
    assert_eq!(refused.code, 500);
    assert!(
        refused
            .message()
            .ends_with(": .spec.list[0].zz: field not declared in schema"),
        "{}",
        refused.message()
    );
    assert_eq!(server.get(&format!("{WIDGETS}/a")).await.code, 404);
}
