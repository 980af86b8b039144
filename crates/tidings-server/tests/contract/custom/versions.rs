//! Versions of a definition, and what becomes of objects when it changes.

use serde_json::{Value, json};

use super::{
    DEFINITIONS, WIDGETS, define, properties, redefine, reversion, version, warnings, widget,
    widgets, with_widgets,
};
use crate::support::Server;

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
