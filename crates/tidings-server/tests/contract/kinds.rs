//! The built-in kinds: each can be created, listed, watched, shown and deleted; scale; views of one store.

use serde_json::{Value, json};

use crate::support::Server;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// All resources, as discovery lists them: path of the collection, kind, apiVersion, verbs.
async fn resources(server: &Server) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    let mut bases = vec!["/api/v1".to_owned()];
    for group in server.get("/apis").await.json()["groups"]
        .as_array()
        .unwrap()
    {
        for version in group["versions"].as_array().unwrap() {
            bases.push(format!(
                "/apis/{}",
                version["groupVersion"].as_str().unwrap()
            ));
        }
    }
    for base in bases {
        let list = server.get(&base).await.json();
        let version = list["groupVersion"].as_str().unwrap().to_owned();
        for resource in list["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            if name.contains('/') {
                continue;
            }
            let place = if resource["namespaced"] == true {
                "/namespaces/default"
            } else {
                ""
            };
            found.push((
                format!("{base}{place}/{name}"),
                resource["kind"].as_str().unwrap().to_owned(),
                version.clone(),
            ));
        }
    }
    found
}

/// A name that every kind takes.
fn name(kind: &str) -> &'static str {
    if kind == "IPAddress" {
        "10.1.2.3"
    } else {
        "a-name"
    }
}

#[tokio::test]
async fn every_kind_lives_a_whole_life() {
    let server = Server::start().await;
    let all = resources(&server).await;
    assert!(all.len() > 50, "{}", all.len());
    for (path, kind, version) in all {
        let name = name(&kind);
        let body = json!({"kind": kind, "apiVersion": version, "metadata": {"name": name}});
        let created = server.request("POST", &path, body).await;
        assert_eq!(created.code, 201, "{path}: {}", created.text);
        let object = created.json();
        assert_eq!(
            (object["kind"].as_str(), object["apiVersion"].as_str()),
            (Some(kind.as_str()), Some(version.as_str())),
            "{path}"
        );
        let item = format!("{path}/{name}");
        assert_eq!(server.get(&item).await.json(), object, "{path}");
        let list = server.get(&path).await.json();
        assert_eq!(list["kind"], format!("{kind}List"), "{path}");
        assert!(
            list["items"]
                .as_array()
                .unwrap()
                .iter()
                .any(|item| item["metadata"]["name"] == name && item.get("kind").is_none()),
            "{path}"
        );
        let mut watch = server
            .watch(&format!(
                "{path}?watch=1&allowWatchBookmarks=1&fieldSelector=metadata.name%3D{name}"
            ))
            .await;
        assert_eq!(
            watch.next().await.unwrap(),
            json!({"type": "ADDED", "object": object}),
            "{path}"
        );
        let end = watch.next().await.unwrap();
        assert_eq!(
            (&end["type"], end["object"]["kind"].as_str()),
            (&json!("BOOKMARK"), Some(kind.as_str())),
            "{path}"
        );
        let table = server.get_as(&item, TABLE).await.json();
        let named = table["columnDefinitions"][0]["name"] == "Name"; // an event's first column is its time
        assert!(!named || table["rows"][0]["cells"][0] == name, "{path}");
        let columns = table["columnDefinitions"].as_array().unwrap().len();
        assert!(
            table["rows"][0]["cells"].as_array().unwrap().len() >= columns,
            "{path}"
        );
        let labelled = server
            .patch(&item, "merge", json!({"metadata": {"labels": {"a": "b"}}}))
            .await;
        assert_eq!(
            (labelled.code, &labelled.json()["metadata"]["labels"]["a"]),
            (200, &json!("b")),
            "{path}"
        );
        let replaced = server.request("PUT", &item, labelled.json()).await;
        assert_eq!(replaced.code, 200, "{path}: {}", replaced.text);
        assert_eq!(
            replaced.version(),
            labelled.version(),
            "W103: nothing changes, {path}"
        );
        let deleted = server
            .request("DELETE", &item, json!({"propagationPolicy": "Background"}))
            .await;
        assert_eq!(deleted.code, 200, "{path}: {}", deleted.text);
    }
}

#[tokio::test]
async fn an_event_is_seen_in_two_groups() {
    let server = Server::start().await;
    let core = "/api/v1/namespaces/default/events";
    let other = "/apis/events.k8s.io/v1/namespaces/default/events";
    let mut watch = server.watch(&format!("{other}?watch=1")).await;
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p"}, "message": "hello", "reason": "Why", "count": 2});
    let created = server.request("POST", core, event).await;
    assert_eq!(created.code, 201, "{}", created.text);
    let seen = watch.next().await.unwrap();
    assert_eq!(
        (
            &seen["object"]["note"],
            &seen["object"]["regarding"]["name"]
        ),
        (&json!("hello"), &json!("p"))
    );
    assert_eq!(seen["object"]["apiVersion"], "events.k8s.io/v1");
    let selected = server
        .get(&format!("{other}?fieldSelector=regarding.name%3Dp"))
        .await;
    assert_eq!(selected.names(), ["e"]);
    let patched = server
        .patch(&format!("{other}/e"), "merge", json!({"note": "changed"}))
        .await;
    assert_eq!(
        (patched.code, &patched.json()["note"]),
        (200, &json!("changed"))
    );
    let back = server.get(&format!("{core}/e")).await.json();
    assert_eq!(
        (&back["message"], &back["count"]),
        (&json!("changed"), &json!(2))
    );
}

#[tokio::test]
async fn replicas_are_scaled() {
    let server = Server::start().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"b": "2", "a": "1"}}});
    server
        .request(
            "POST",
            deployments,
            json!({"metadata": {"name": "d"}, "spec": spec}),
        )
        .await;
    let path = format!("{deployments}/d/scale");
    let scale = server.get(&path).await.json();
    assert_eq!(
        (&scale["kind"], &scale["apiVersion"]),
        (&json!("Scale"), &json!("autoscaling/v1"))
    );
    assert_eq!(
        (&scale["spec"], &scale["status"]),
        (
            &json!({"replicas": 2}),
            &json!({"replicas": 0, "selector": "a=1,b=2"})
        )
    );
    let patched = server
        .patch(&path, "merge", json!({"spec": {"replicas": 5}}))
        .await;
    assert_eq!(
        (patched.code, &patched.json()["spec"]["replicas"]),
        (200, &json!(5))
    );
    let deployment = server.get(&format!("{deployments}/d")).await.json();
    assert_eq!(
        (
            &deployment["spec"]["replicas"],
            &deployment["metadata"]["generation"]
        ),
        (&json!(5), &json!(2))
    );
    let mut wanted = patched.json();
    wanted["spec"]["replicas"] = json!(0);
    let put = server.request("PUT", &path, &wanted).await;
    assert_eq!((put.code, put.json()["spec"].clone()), (200, json!({})));
    assert_eq!(
        server.request("PUT", &path, &wanted).await.code,
        409,
        "the version is not the current one"
    );
    let negative = server
        .patch(&path, "merge", json!({"spec": {"replicas": -1}}))
        .await;
    assert_eq!(negative.code, 422, "{}", negative.text);
    assert!(
        negative
            .message()
            .contains("spec.replicas: Invalid value: -1: must be greater than or equal to 0")
    );
    assert_eq!(
        server
            .get("/api/v1/namespaces/default/configmaps/x/scale")
            .await
            .json()["message"],
        "the server could not find the requested resource"
    );
}

#[tokio::test]
async fn w67_fields_of_kinds() {
    let server = Server::start().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let bad = server.get(&format!("{jobs}?fieldSelector=foo%3Dbar")).await;
    assert_eq!(bad.message(), "field label \"foo\" not supported for Job");
    let bad = server.get("/api/v1/nodes?fieldSelector=foo%3Dbar").await;
    assert_eq!(bad.message(), "field label not supported: foo");
    let bad = server
        .get("/apis/apps/v1/deployments?fieldSelector=foo%3Dbar")
        .await;
    assert_eq!(
        bad.message(),
        "\"foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    );
    for (name, unschedulable) in [("a", json!(null)), ("b", json!(true))] {
        let node = json!({"metadata": {"name": name}, "spec": {"unschedulable": unschedulable}});
        assert_eq!(
            server.request("POST", "/api/v1/nodes", node).await.code,
            201
        );
    }
    let names = async |selector: &str| {
        server
            .get(&format!("/api/v1/nodes?fieldSelector={selector}"))
            .await
            .names()
    };
    assert_eq!(names("spec.unschedulable%3Dtrue").await, ["b"]);
    assert_eq!(names("spec.unschedulable%3Dfalse").await, ["a"]);
}

#[tokio::test]
async fn a_nodes_status_is_kept_when_it_registers() {
    let server = Server::start().await;
    let node = json!({"metadata": {"name": "n"}, "status": {"phase": "Running"}});
    let created = server.request("POST", "/api/v1/nodes", node).await.json();
    assert_eq!(created["status"]["phase"], "Running");
    let pod: Value = server
        .request(
            "POST",
            "/api/v1/namespaces/default/pods",
            json!({"metadata": {"name": "p"}, "status": {"phase": "Running"}}),
        )
        .await
        .json();
    assert_eq!(pod["status"]["phase"], "Pending", "others are not");
}

#[tokio::test]
async fn a_scale_is_a_scale() {
    let server = Server::start().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let body = json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "d"}, "spec": {"replicas": 3}});
    server.request("POST", deployments, &body).await;
    let path = format!("{deployments}/d/scale");
    let wrong = server.request("PUT", &path, &body).await;
    assert_eq!(wrong.code, 400, "{}", wrong.text);
    let elsewhere =
        json!({"metadata": {"name": "d", "namespace": "other"}, "spec": {"replicas": 1}});
    assert_eq!(server.request("PUT", &path, elsewhere).await.code, 400);
    let text = server
        .request(
            "PUT",
            &path,
            json!({"metadata": {"name": "d"}, "spec": {"replicas": "2"}}),
        )
        .await;
    assert!(text.message().ends_with(
        "json: cannot unmarshal string into Go struct field ScaleSpec.spec.replicas of type int32"
    ));
    assert_eq!(server.get(&path).await.json()["spec"]["replicas"], 3);
}

#[tokio::test]
async fn w10_deprecated_kinds_say_so() {
    let server = Server::start().await;
    let warning =
        "299 - \"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\"";
    for path in [
        "/api/v1/endpoints",
        "/api/v1/namespaces/default/endpoints/nosuch",
        "/api/v1/endpoints?watch=1&timeoutSeconds=1",
    ] {
        assert_eq!(server.get(path).await.headers["warning"], warning, "{path}");
    }
}
