//! managedFields of created and updated objects (W157).

use serde_json::{Value, json};

use crate::support::{CONFIGMAPS, TestServer};

fn entries(object: &Value) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entries = object["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let entries = entries.iter();
    entries
        .map(|entry| {
            (
                text(&entry["manager"]),
                text(&entry["subresource"]),
                entry["fieldsV1"].to_string(),
            )
        })
        .collect()
}

fn entry(manager: &str, subresource: &str, fields: &str) -> (String, String, String) {
    (manager.into(), subresource.into(), fields.into())
}

#[tokio::test]
async fn w157_the_manager_is_the_parameter_or_the_user_agent() {
    let server = TestServer::start().await;
    let body = |name: &str| json!({"metadata": {"name": name}, "data": {"a": "1"}});
    let agent = [("user-agent", "kubectl-edit/v1.36.4 (linux/amd64)")];
    let created = server
        .request_with_headers("POST", CONFIGMAPS, &agent, body("one"))
        .await
        .json();
    let entry = &created["metadata"]["managedFields"][0];
    let keys: Vec<_> = entry
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        keys,
        [
            "manager",
            "operation",
            "apiVersion",
            "time",
            "fieldsType",
            "fieldsV1"
        ]
    );
    assert_eq!(
        (&entry["manager"], &entry["operation"]),
        (&json!("kubectl-edit"), &json!("Update"))
    );
    assert_eq!(
        (&entry["apiVersion"], &entry["fieldsType"]),
        (&json!("v1"), &json!("FieldsV1"))
    );
    assert_eq!(
        entry["fieldsV1"].to_string(),
        r#"{"f:data":{".":{},"f:a":{}}}"#
    );
    let path = format!("{CONFIGMAPS}?fieldManager=me");
    let named = server
        .request_with_headers("POST", &path, &agent, body("two"))
        .await
        .json();
    assert_eq!(named["metadata"]["managedFields"][0]["manager"], "me");
}

#[tokio::test]
async fn w157_fields_belong_to_their_last_writer() {
    let server = TestServer::start().await;
    let body = json!({"metadata": {"name": "x", "labels": {"l": "1"}, "finalizers": ["example.com/f"]}, "data": {"a": "1", "b": "1"}});
    server
        .request("POST", &format!("{CONFIGMAPS}?fieldManager=one"), body)
        .await;
    let path = format!("{CONFIGMAPS}/x?fieldManager=two");
    let changed = server
        .patch(&path, "merge", json!({"data": {"a": "2"}}))
        .await
        .json();
    let one = r#"{"f:data":{".":{},"f:b":{}},"f:metadata":{"f:finalizers":{".":{},"v:\"example.com/f\"":{}},"f:labels":{".":{},"f:l":{}}}}"#;
    assert_eq!(
        entries(&changed),
        [
            entry("one", "", one),
            entry("two", "", r#"{"f:data":{"f:a":{}}}"#)
        ]
    );
    let cleared = server
        .patch(&path, "merge", json!({"metadata": {"managedFields": [{}]}}))
        .await
        .json();
    assert_eq!(cleared["metadata"].get("managedFields"), None);
}

#[tokio::test]
async fn w157_entries_name_the_subresource() {
    let server = TestServer::start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    server
        .request("POST", &format!("{pods}?fieldManager=one"), pod)
        .await;
    let status = json!({"status": {"phase": "Running"}});
    let changed = server
        .patch(
            &format!("{pods}/p/status?fieldManager=kubelet"),
            "merge",
            status,
        )
        .await
        .json();
    let expected = [
        entry("kubelet", "status", r#"{"f:status":{"f:phase":{}}}"#),
        entry(
            "one",
            "",
            r#"{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:nodeName":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}"#,
        ),
    ];
    let mut found = entries(&changed);
    found.sort();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn w157_updates_of_an_untracked_object_add_no_entries() {
    let server = TestServer::start().await;
    let body = json!({"metadata": {"name": "x"}});
    let created = server.request("POST", CONFIGMAPS, body).await.json();
    assert_eq!(
        created["metadata"].get("managedFields"),
        None,
        "no field was set"
    );
    let path = format!("{CONFIGMAPS}/x");
    let changed = server
        .patch(&path, "merge", json!({"data": {"a": "1"}}))
        .await
        .json();
    assert_eq!(changed["metadata"].get("managedFields"), None);
    let broken = json!([{"manager": "m", "operation": "Foo"}]);
    let body = json!({"metadata": {"name": "y", "managedFields": broken}, "data": {"a": "1"}});
    let created = server.request("POST", CONFIGMAPS, body).await.json();
    assert_eq!(
        entries(&created).len(),
        1,
        "invalid entries are ignored: {created}"
    );
}

#[tokio::test]
async fn w157_defaults_belong_to_the_writer() {
    let server = TestServer::start().await;
    let namespace = json!({"metadata": {"name": "a"}});
    let created = server
        .request("POST", "/api/v1/namespaces?fieldManager=me", namespace)
        .await
        .json();
    let labels = r#"{"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/metadata.name":{}}}}"#;
    assert_eq!(entries(&created), [entry("me", "", labels)]);
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}});
    let created = server
        .request(
            "POST",
            "/api/v1/namespaces/default/secrets?fieldManager=me",
            secret,
        )
        .await
        .json();
    assert_eq!(
        entries(&created),
        [entry(
            "me",
            "",
            r#"{"f:data":{".":{},"f:a":{}},"f:type":{}}"#
        )]
    );
}

#[tokio::test]
async fn w157_list_elements_are_named_by_their_keys() {
    let server = TestServer::start().await;
    let owner = json!({"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1"});
    let spec = json!({
        "replicas": 1,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]},
        },
    });
    let body = json!({"metadata": {"name": "d", "ownerReferences": [owner]}, "spec": spec});
    let created = server
        .request(
            "POST",
            "/apis/apps/v1/namespaces/default/deployments?fieldManager=me",
            body,
        )
        .await
        .json();
    let fields = &created["metadata"]["managedFields"][0]["fieldsV1"];
    assert_eq!(
        fields["f:metadata"],
        json!({"f:ownerReferences": {".": {}, "k:{\"uid\":\"1\"}": {}}})
    );
    assert_eq!(
        (
            &fields["f:spec"]["f:replicas"],
            &fields["f:spec"]["f:selector"]
        ),
        (&json!({}), &json!({}))
    );
    let container = &fields["f:spec"]["f:template"]["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"];
    let port = json!({".": {}, "f:containerPort": {}, "f:protocol": {}});
    let ports = json!({".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": port});
    assert_eq!(
        container,
        &json!({
            ".": {},
            "f:image": {},
            "f:imagePullPolicy": {},
            "f:name": {},
            "f:ports": ports,
            "f:resources": {},
            "f:terminationMessagePath": {},
            "f:terminationMessagePolicy": {},
        })
    );
}

/// A JSON patch with paths below managedFields is applied to an object that has them; other patches are applied to the object without them.
#[tokio::test]
async fn w157_json_patches_can_read_and_change_managed_fields() {
    let server = TestServer::start().await;
    let body = json!({"metadata": {"name": "x"}, "data": {"a": "1"}});
    let path = format!("{CONFIGMAPS}/x?fieldManager=two");
    let posted = format!("{CONFIGMAPS}?fieldManager=one");
    assert_eq!(server.request("POST", &posted, body).await.code, 201);
    let data = r#"{"f:data":{".":{},"f:a":{}}}"#;
    let label = r#"{"f:metadata":{"f:labels":{".":{},"f:l":{}}}}"#;
    let owners = [entry("one", "", data), entry("two", "", label)];
    // Each case: the patch, the status code, the entries afterwards.
    for (patch, code, expected) in [
        (
            json!([{"op": "add", "path": "/metadata/labels", "value": {"l": "1"}}]),
            200,
            &owners[..],
        ),
        (
            json!([{"op": "test", "path": "/metadata/managedFields/0/manager", "value": "one"}]),
            200,
            &owners,
        ),
        (
            json!([{"op": "test", "path": "/metadata/managedFields/0/manager", "value": "three"}]),
            422,
            &owners,
        ),
        (
            json!([{"op": "copy", "from": "/metadata/managedFields/0/manager", "path": "/metadata/labels/l"}]),
            200,
            &owners,
        ),
        (
            json!([{"op": "remove", "path": "/metadata/managedFields"}]),
            200,
            &owners,
        ),
        (
            json!([{"op": "remove", "path": "/metadata/managedFields/1"}]),
            200,
            &owners[..1],
        ),
        (
            json!([{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]),
            200,
            &[],
        ),
    ] {
        let patched = server.patch(&path, "json", patch.clone()).await;
        assert_eq!(patched.code, code, "{patch}: {}", patched.text);
        let now = server.get(&path).await.json();
        let mut found = entries(&now);
        found.sort();
        assert_eq!(found, expected, "{patch}");
    }
    let now = server.get(&path).await.json();
    assert_eq!(
        now["metadata"]["labels"]["l"], "one",
        "the copied manager name"
    );
}
