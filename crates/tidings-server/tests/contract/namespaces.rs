//! Creation and deletion of namespaces (W174, W175), and deletion of collections.

use std::time::Duration;

use serde_json::json;

use crate::support::{CONFIGMAPS, TestServer, pods_of};

async fn until_gone(server: &TestServer, path: &str) {
    tokio::time::timeout(Duration::from_secs(20), async {
        let mut watch = server.watch("/api/v1/namespaces?watch=1").await;
        while server.get(path).await.code != 404 {
            watch.next().await;
        }
    })
    .await
    .expect("the namespace goes within 20 s");
}

async fn make(server: &TestServer, name: &str) -> String {
    let body = json!({"metadata": {"name": name}});
    assert_eq!(
        server
            .request("POST", "/api/v1/namespaces", body)
            .await
            .code,
        201
    );
    format!("/api/v1/namespaces/{name}")
}

#[tokio::test]
async fn w174_a_new_namespace() {
    let server = TestServer::start().await;
    make(&server, "a").await;
    let namespace = server.get("/api/v1/namespaces/a").await.json();
    assert_eq!(
        namespace["metadata"]["labels"],
        json!({"kubernetes.io/metadata.name": "a"})
    );
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(namespace["status"]["phase"], "Active");
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        assert_eq!(
            server.get(&format!("/api/v1/namespaces/{name}")).await.code,
            200,
            "{name}"
        );
    }
    let service = server
        .get("/api/v1/namespaces/default/services/kubernetes")
        .await
        .json();
    assert_eq!(service["metadata"]["labels"]["component"], "apiserver");
}

/// Deviation: a deleted namespace is emptied by the server itself
#[tokio::test]
async fn w175_a_deleted_namespace_goes_after_its_content() {
    let server = TestServer::start().await;
    let path = make(&server, "a").await;
    for (resource, name) in [
        ("api/v1", "configmaps"),
        ("api/v1", "secrets"),
        ("apis/apps/v1", "deployments"),
    ] {
        let body = json!({"metadata": {"name": "x"}, "spec": pods_of(json!({}))});
        let created = server
            .request(
                "POST",
                &format!("/{resource}/namespaces/a/{name}?fieldValidation=Ignore"),
                body,
            )
            .await;
        assert_eq!(created.code, 201, "{}", created.text);
    }
    let deleted = server.request("DELETE", &path, "").await;
    assert_eq!(
        (deleted.code, &deleted.json()["status"]["phase"]),
        (200, &json!("Terminating"))
    );
    until_gone(&server, &path).await;
    for list in [
        "/api/v1/configmaps",
        "/api/v1/secrets",
        "/apis/apps/v1/deployments",
    ] {
        assert_eq!(
            server.get(list).await.names(),
            Vec::<String>::new(),
            "{list}"
        );
    }
    make(&server, "a").await;
}

#[tokio::test]
async fn w175_an_object_with_a_finalizer_holds_its_namespace() {
    let server = TestServer::start().await;
    let path = make(&server, "a").await;
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    assert_eq!(
        server
            .request("POST", "/api/v1/namespaces/a/configmaps", held)
            .await
            .code,
        201
    );
    let mut watch = server.watch("/api/v1/watch/namespaces/a").await;
    assert_eq!(watch.next().await.unwrap()["type"], "ADDED");
    server.request("DELETE", &path, "").await;
    loop {
        let event = watch.next().await.expect("the namespace says why it stays");
        let conditions = event["object"]["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let remaining = conditions
            .iter()
            .find(|condition| condition["type"] == "NamespaceFinalizersRemaining");
        if let Some(remaining) = remaining {
            assert_eq!(remaining["status"], "True");
            assert!(
                remaining["message"]
                    .as_str()
                    .unwrap()
                    .contains("example.com/hold in 1 resource instances")
            );
            break;
        }
    }
    let refused = server
        .request(
            "POST",
            "/api/v1/namespaces/a/configmaps",
            json!({"metadata": {"name": "b"}}),
        )
        .await;
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.message(),
        "configmaps \"b\" is forbidden: unable to create new content in namespace a because it is being terminated"
    );
    assert_eq!(
        refused.json()["details"]["causes"][0]["reason"],
        "NamespaceTerminating"
    );
    let free = json!({"metadata": {"finalizers": null}});
    assert_eq!(
        server
            .patch("/api/v1/namespaces/a/configmaps/held", "merge", free)
            .await
            .code,
        200
    );
    until_gone(&server, &path).await;
}

#[tokio::test]
async fn w175_finalizers_of_other_controllers_are_kept() {
    let server = TestServer::start().await;
    let body = json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes", "example.com/mine"]}});
    assert_eq!(
        server
            .request("POST", "/api/v1/namespaces", body)
            .await
            .code,
        201
    );
    let mut watch = server.watch("/api/v1/watch/namespaces/a").await;
    server.request("DELETE", "/api/v1/namespaces/a", "").await;
    loop {
        let event = watch.next().await.expect("an event");
        if event["object"]["spec"]["finalizers"] == json!(["example.com/mine"]) {
            break;
        }
    }
    let finalized = json!({"metadata": {"name": "a"}, "spec": {}});
    assert_eq!(
        server
            .request("PUT", "/api/v1/namespaces/a/finalize", finalized)
            .await
            .code,
        200
    );
    assert_eq!(server.get("/api/v1/namespaces/a").await.code, 404);
}

#[tokio::test]
async fn w167_namespaces_have_no_deletecollection() {
    let server = TestServer::start().await;
    assert_eq!(
        server
            .request("DELETE", "/api/v1/namespaces", "")
            .await
            .code,
        405
    );
}

#[tokio::test]
async fn w65_w167_a_collection_is_deleted_one_by_one() {
    let server = TestServer::start().await;
    for (name, label) in [("a", "1"), ("b", "1"), ("c", "2")] {
        server.create(name, json!({"l": label})).await;
    }
    let before = server.get(CONFIGMAPS).await;
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"], "labels": {"l": "1"}}});
    server.request("POST", CONFIGMAPS, held).await;
    let dry = server
        .request("DELETE", &format!("{CONFIGMAPS}?dryRun=All"), "")
        .await;
    assert_eq!((dry.code, dry.names().len()), (200, 4));
    let deleted = server
        .request(
            "DELETE",
            &format!("{CONFIGMAPS}?labelSelector=l%3D1&watch=true"),
            "",
        )
        .await;
    assert_eq!(
        (deleted.code, deleted.json()["kind"].clone()),
        (200, json!("ConfigMapList"))
    );
    assert_eq!(
        deleted.names(),
        ["a", "b", "held"],
        "the answer lists the objects"
    );
    assert_eq!(
        deleted.json()["items"][0],
        before.json()["items"][0],
        "the answer has the state before the deletion"
    );
    assert_eq!(server.get(CONFIGMAPS).await.names(), ["c", "held"]);
    let matrix = server
        .request(
            "DELETE",
            &format!("{CONFIGMAPS}?resourceVersionMatch=Exact"),
            "",
        )
        .await;
    assert_eq!(matrix.code, 422, "W65: {}", matrix.text);
    assert_eq!(
        server
            .request("DELETE", "/api/v1/configmaps", "")
            .await
            .code,
        405,
        "W16"
    );
}
