//! Versions of a definition, and what happens to objects when the definition changes.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::StreamExt;
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::{Value, json};

use super::{
    DEFINITIONS, WIDGETS, change_versions, define, next_event, properties, redefine, version,
    warnings, widget, widgets, with_widgets,
};
use crate::support::TestServer;

#[tokio::test]
async fn w180_existing_objects_show_a_default_that_is_added_later() {
    let server = with_widgets().await;
    let created = server
        .request("POST", WIDGETS, widget("a", &json!({"size": 1})))
        .await
        .json();
    let mut more = properties();
    more["shape"] = json!({"type": "string", "default": "round"});
    change_versions(&server, &[version("v1", true, &more)]).await;
    let read = server.get(&format!("{WIDGETS}/a")).await.json();
    assert_eq!(
        read["spec"],
        json!({"color": "red", "shape": "round", "size": 1})
    );
    let resource_version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    assert_eq!(resource_version(&read), resource_version(&created));
    assert_eq!(server.get(WIDGETS).await.json()["items"][0], read);
    // When the field is removed from the schema, objects no longer show its stored value.
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
async fn w183_every_version_shows_the_same_objects() {
    let server = TestServer::start().await;
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
    assert_eq!(object["spec"], json!({"size": 1}), "v1beta1 has no color");
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
    // The other version becomes the storage version.
    let (mut new, mut old) = (both[0].clone(), both[1].clone());
    new["storage"] = false.into();
    old["storage"] = true.into();
    change_versions(&server, &[new, old]).await;
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

/// A definition may remove a field and add it again, and change defaults: stored values are not lost, and defaults are not stored.
#[tokio::test]
async fn w180_a_field_removed_from_the_schema_returns_with_it() {
    let server = with_widgets().await;
    let path = format!("{WIDGETS}/a");
    let blue = widget("a", &json!({"size": 1, "color": "blue"}));
    server.request("POST", WIDGETS, blue).await;
    let change = async |properties: &Value, marker: &str| {
        let versions = [version("v1", true, properties)];
        let patch = json!({"spec": {"versions": versions, "names": {"categories": [marker]}}});
        redefine(&server, &patch, |text| text.contains(marker)).await;
        server.get(&path).await.json()["spec"].clone()
    };
    let mut less = properties();
    less.as_object_mut().unwrap().shift_remove("color");
    assert_eq!(change(&less, "one").await, json!({"size": 1}));
    let again = change(&properties(), "two").await;
    assert_eq!(again, json!({"color": "blue", "size": 1}));
    let mut more = properties();
    more["shape"] = json!({"type": "string", "default": "round"});
    assert_eq!(change(&more, "three").await["shape"], "round");
    more["shape"]["default"] = "flat".into();
    assert_eq!(change(&more, "four").await["shape"], "flat");
    let plain = change(&properties(), "five").await;
    assert_eq!(plain, json!({"color": "blue", "size": 1}));
}

/// A stored object is read with the schema of the version in which it is stored.
#[tokio::test]
async fn w183_objects_keep_their_fields_when_the_storage_version_changes() {
    let server = with_widgets().await;
    let blue = widget("a", &json!({"size": 1, "color": "blue"}));
    server.request("POST", WIDGETS, blue).await;
    let before = server.get(WIDGETS).await.json()["metadata"]["resourceVersion"].clone();
    let small = json!({"size": {"type": "integer"}, "depth": {"type": "integer", "default": 2}});
    let versions = [
        version("v1", false, &properties()),
        version("v2", true, &small),
    ];
    change_versions(&server, &versions).await;
    let newer = WIDGETS.replace("/v1/", "/v2/");
    let old = server.get(&format!("{WIDGETS}/a")).await.json();
    assert_eq!(old["spec"], json!({"color": "blue", "size": 1}));
    let new = server.get(&format!("{newer}/a")).await.json();
    assert_eq!(
        (new["apiVersion"].as_str(), &new["spec"]),
        (Some("ex.com/v2"), &json!({"size": 1}))
    );
    // Older revisions are shown in the requested version too.
    let before = before.as_str().unwrap();
    let exact = format!("{newer}?resourceVersion={before}&resourceVersionMatch=Exact");
    for item in server.get(&exact).await.json()["items"].as_array().unwrap() {
        assert_eq!(item["apiVersion"], "ex.com/v2");
    }
    // A write stores the object in the new storage version.
    let patched = server
        .patch(
            &format!("{newer}/a"),
            "merge",
            json!({"spec": {"depth": 3}}),
        )
        .await;
    assert_eq!(patched.json()["spec"], json!({"depth": 3, "size": 1}));
    let old = server.get(&format!("{WIDGETS}/a")).await.json();
    assert_eq!(old["spec"], json!({"size": 1}), "v1 has no depth");
}

/// The answer to a write does not have fields that the storage version lacks.
#[tokio::test]
async fn w183_the_answer_to_a_write_has_only_fields_of_the_storage_version() {
    let server = TestServer::start().await;
    let small = json!({"size": {"type": "integer"}});
    let versions = [
        version("v1", false, &properties()),
        version("v2", true, &small),
    ];
    define(&server, &widgets(&versions)).await;
    let blue = widget("a", &json!({"size": 1, "color": "blue"}));
    let created = server.request("POST", WIDGETS, blue).await.json();
    assert_eq!(created["spec"], json!({"size": 1}));
    let read = server.get(&format!("{WIDGETS}/a")).await.json();
    assert_eq!(read, created);
}

/// Under a changed definition a field selector may select other objects. The watch ends, so that its client lists again.
#[tokio::test]
async fn w184_a_watch_with_a_field_selector_ends_when_the_definition_changes() {
    let server = TestServer::start().await;
    let mut selectable = version("v1", true, &json!({"color": {"type": "string"}}));
    selectable["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
    define(&server, &widgets(std::slice::from_ref(&selectable))).await;
    let body = widget("a", &json!({}));
    let created = server.request("POST", WIDGETS, body).await;
    let colourless = format!("{WIDGETS}?watch=true&fieldSelector=spec.color%3D");
    let mut selected = server.watch(&colourless).await;
    let mut whole = server.watch(&format!("{WIDGETS}?watch=true")).await;
    assert_eq!(next_event(&mut selected).await, "ADDED a");
    assert_eq!(next_event(&mut whole).await, "ADDED a");
    let schema = &mut selectable["schema"]["openAPIV3Schema"]["properties"]["spec"];
    schema["default"] = json!({});
    schema["properties"]["color"]["default"] = "red".into();
    change_versions(&server, &[selectable]).await;
    assert_eq!(selected.next().await, None, "the watch ends");
    let version = created.version();
    let since = format!("{colourless}&resourceVersion={version}");
    let event = server.watch(&since).await.next().await.unwrap();
    assert_eq!(event["object"]["code"], 410, "{event}");
    server.request("DELETE", &format!("{WIDGETS}/a"), "").await;
    assert_eq!(
        next_event(&mut whole).await,
        "DELETED a",
        "other watches continue"
    );
}

/// A write whose version is removed while its body is read gets 404, rather than being stored where no version shows it.
#[tokio::test]
async fn a_create_is_refused_if_its_version_is_removed_while_the_body_is_read() {
    let server = TestServer::start().await;
    let (old, new) = (
        version("v1", false, &properties()),
        version("v2", true, &properties()),
    );
    define(&server, &widgets(&[old, new.clone()])).await;
    let (send, rest) = tokio::sync::oneshot::channel::<Bytes>();
    let body = futures_util::stream::once(rest)
        .map(|bytes| Ok::<_, Infallible>(Frame::data(bytes.unwrap())));
    let request = http::Request::post(WIDGETS)
        .header("content-type", "application/json")
        .body(StreamBody::new(body))
        .unwrap();
    let created = server.send(request);
    let removed = async {
        let patch = json!({"spec": {"versions": [new]}});
        let path = format!("{DEFINITIONS}/widgets.ex.com");
        let answer = server.patch(&path, "merge", patch).await;
        assert_eq!(answer.code, 200, "{}", answer.text);
        while server.get("/apis/ex.com/v1").await.code != 404 {
            tokio::task::yield_now().await;
        }
        let body = widget("a", &json!({"size": 1})).to_string();
        send.send(body.into()).unwrap();
    };
    let (created, ()) = tokio::join!(created, removed);
    assert_eq!(created.code, 404, "{}", created.text);
    let newer = WIDGETS.replace("/v1/", "/v2/");
    assert_eq!(server.get(&newer).await.names(), [""; 0]);
}
