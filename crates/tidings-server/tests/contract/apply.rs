//! Server-side apply (W154–W158): the expected answers are those of kube-apiserver to the same requests.

use serde_json::{Value, json};

use crate::late::LateStore;
use crate::support::{CONFIGMAPS, TestResponse, TestServer, pods_of};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

async fn apply(server: &TestServer, path: &str, query: &str, body: Value) -> TestResponse {
    let headers = [("content-type", "application/apply-patch+yaml")];
    server
        .request_with_headers("PATCH", &format!("{path}?{query}"), &headers, body)
        .await
}

fn configmap(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

fn owners(object: &Value) -> Vec<(String, String)> {
    let entries = object["metadata"]["managedFields"].as_array();
    let entries = entries.map(Vec::as_slice).unwrap_or_default().iter();
    entries
        .map(|entry| {
            let name = entry["manager"].as_str().unwrap_or_default().to_owned();
            (name, entry["fieldsV1"].to_string())
        })
        .collect()
}

fn owner(name: &str, fields: &str) -> (String, String) {
    (name.into(), fields.into())
}

fn deployment(spec: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec})
}

/// Some members are written even if they are empty or zero. An apply that sets them to that value changes nothing.
#[tokio::test]
async fn w136_w154_an_apply_of_unchanged_zero_values_is_no_change() {
    let server = TestServer::start().await;
    let class = |text: &str| {
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "p"},
            "value": 0, "description": text})
    };
    let path = "/apis/scheduling.k8s.io/v1/priorityclasses/p";
    for (text, code) in [("one", 201), ("two", 200), ("two", 200)] {
        let applied = apply(&server, path, "fieldManager=m", class(text)).await;
        assert_eq!(applied.code, code, "{}", applied.text);
        assert_eq!(applied.json()["description"], text);
    }
    let slice = |text: &str| {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "s", "annotations": {"a": text}}, "endpoints": []})
    };
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/s";
    for (text, code) in [("one", 201), ("two", 200)] {
        let applied = apply(&server, path, "fieldManager=m", slice(text)).await;
        assert_eq!(applied.code, code, "{}", applied.text);
        assert_eq!(
            applied.json()["metadata"]["generation"],
            1,
            "{}",
            applied.text
        );
    }
}

/// An apply fills in defaults only for the fields that it changes; the result must equal that of a create.
#[tokio::test]
async fn w154_an_object_applied_in_steps_equals_one_created_at_once() {
    let server = TestServer::start().await;
    let container = |name: &str, more: Value| {
        let mut container = json!({"name": name, "image": "a:1"});
        for (name, value) in more.as_object().unwrap() {
            container[name] = value.clone();
        }
        container
    };
    let spec = |more: Value, pod: Value| {
        let mut spec = json!({"selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}});
        for (name, value) in more.as_object().unwrap() {
            spec[name] = value.clone();
        }
        spec
    };
    let probe = json!({"httpGet": {"port": 1}});
    let (one, two) = (container("one", json!({})), container("two", json!({})));
    let recreate = json!({"strategy": {"type": "Recreate"}});
    let mut scaled = recreate.clone();
    scaled["replicas"] = 3.into();
    let rolling = json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}});
    let from_field = json!({"name": "e", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}});
    let steps = [
        spec(recreate.clone(), json!({"containers": [one]})),
        spec(scaled, json!({"containers": [one]})),
        spec(recreate, json!({"containers": [one, two]})),
        spec(
            rolling.clone(),
            json!({"containers": [two, one], "volumes": [{"name": "v"}]}),
        ),
        spec(
            rolling.clone(),
            json!({"containers": [container("one", json!({"livenessProbe": probe})), two],
                "serviceAccountName": "x", "volumes": [{"name": "w", "secret": {"secretName": "s"}}]}),
        ),
        spec(
            rolling,
            json!({"containers": [container("one", json!({"ports": [{"containerPort": 1}]})), two],
                "serviceAccountName": "x",
                "initContainers": [container("init", json!({"env": [from_field]}))]}),
        ),
    ];
    let path = "/apis/apps/v1/namespaces/default/deployments";
    for (at, spec) in steps.iter().enumerate() {
        let query = "fieldManager=m&force=true";
        let applied = apply(&server, &format!("{path}/d"), query, deployment(spec)).await;
        assert!(matches!(applied.code, 200 | 201), "{at}: {}", applied.text);
        let mut fresh = deployment(spec);
        fresh["metadata"]["name"] = format!("fresh-{at}").into();
        let created = server.request("POST", path, fresh).await;
        assert_eq!(created.code, 201, "{at}: {}", created.text);
        let shown = |answer: &TestResponse| answer.json()["spec"].to_string();
        assert_eq!(shown(&applied), shown(&created), "{at}");
    }
}

/// The cache may still have an object that has just been deleted.
#[tokio::test]
async fn w145_w154_an_object_deleted_a_moment_ago_is_created_again() {
    let server = TestServer::over(LateStore::new()).await;
    let path = format!("{CONFIGMAPS}/a");
    for _ in 0..2 {
        let applied = apply(&server, &path, "fieldManager=m", configmap(&json!({}))).await;
        assert_eq!(applied.code, 201, "{}", applied.text);
        server.delete("a").await;
    }
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let lease = json!({"metadata": {"name": "l"}, "spec": {}});
    for _ in 0..2 {
        let put = server.request("PUT", path, &lease).await;
        assert_eq!(put.code, 201, "{}", put.text);
        let deleted = server.request("DELETE", path, "").await;
        assert_eq!(deleted.code, 200, "{}", deleted.text);
    }
}

#[tokio::test]
async fn w154_apply_creates_changes_and_removes() {
    let server = TestServer::start().await;
    let path = format!("{CONFIGMAPS}/a");
    let data = json!({"a": "1", "b": "2"});
    let created = apply(&server, &path, "fieldManager=m1", configmap(&data)).await;
    assert_eq!(created.code, 201);
    let created = created.json();
    assert_eq!(
        owners(&created),
        [owner("m1", r#"{"f:data":{"f:a":{},"f:b":{}}}"#)]
    );
    let entry = &created["metadata"]["managedFields"][0];
    assert_eq!(entry["operation"], "Apply");
    let again = apply(&server, &path, "fieldManager=m1", configmap(&data)).await;
    assert_eq!(
        (again.code, again.json()),
        (200, created.clone()),
        "the resourceVersion does not change"
    );
    let shared = apply(
        &server,
        &path,
        "fieldManager=m2",
        configmap(&json!({"b": "2"})),
    )
    .await
    .json();
    assert_ne!(
        shared["metadata"]["resourceVersion"],
        created["metadata"]["resourceVersion"]
    );
    let fewer = apply(
        &server,
        &path,
        "fieldManager=m1",
        configmap(&json!({"c": "3"})),
    )
    .await
    .json();
    assert_eq!(
        fewer["data"],
        json!({"b": "2", "c": "3"}),
        "only m1 owned `a`"
    );
    let none = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}});
    let none = apply(&server, &path, "fieldManager=m1", none).await.json();
    assert_eq!(none["data"], json!({"b": "2"}));
    assert_eq!(owners(&none), [owner("m2", r#"{"f:data":{"f:b":{}}}"#)]);
}

#[tokio::test]
async fn w154_w156_w158_invalid_applies_are_refused() {
    let server = TestServer::start().await;
    let path = format!("{CONFIGMAPS}/a");
    apply(
        &server,
        &path,
        "fieldManager=m",
        configmap(&json!({"a": "1"})),
    )
    .await;
    let with_metadata =
        |metadata: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    let long = format!("fieldManager={}", "x".repeat(129));
    for (query, body, code, message) in [
        (
            "",
            configmap(&json!({})),
            422,
            r#"PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch"#,
        ),
        (
            &*long,
            configmap(&json!({})),
            422,
            r#"PatchOptions.meta.k8s.io "" is invalid: fieldManager: Too long: may not be more than 128 bytes"#,
        ),
        (
            "fieldManager=m",
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}),
            400,
            "invalid object type: /v1, Kind=Secret",
        ),
        (
            "fieldManager=m",
            json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}}),
            400,
            "invalid object type: /v2, Kind=ConfigMap",
        ),
        (
            "fieldManager=m",
            json!({"apiVersion": "apps/v1", "metadata": {"name": "a"}}),
            400,
            "invalid object type: apps/v1, Kind=",
        ),
        (
            "fieldManager=m",
            json!([1]),
            400,
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            "fieldManager=m",
            with_metadata(json!({"name": "b"})),
            400,
            "the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            "fieldManager=m",
            with_metadata(json!({"name": "a", "managedFields": []})),
            400,
            "metadata.managedFields must be nil",
        ),
        (
            "fieldManager=m",
            with_metadata(json!({"namespace": "other"})),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            "fieldManager=m",
            with_metadata(json!({"resourceVersion": "1"})),
            409,
            r#"Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to the latest version and try again"#,
        ),
        (
            "fieldManager=m",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "foo": 1}),
            500,
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .foo: field not declared in schema",
        ),
        (
            "fieldManager=m",
            with_metadata(json!({"name": "a", "finalizers": ["a.b/c", "a.b/c"]})),
            500,
            r#"failed to create typed patch object (/a; /v1, Kind=ConfigMap): .metadata.finalizers: duplicate entries for key [="a.b/c"]"#,
        ),
    ] {
        let reply = apply(&server, &path, query, body.clone()).await;
        assert_eq!(
            (reply.code, reply.json()["message"].as_str()),
            (code, Some(message)),
            "{body}"
        );
    }
    let now = server.get(&path).await.json();
    assert_eq!(now["data"], json!({"a": "1"}), "nothing was stored");
    let uid = with_metadata(json!({"uid": "1"}));
    let absent = apply(&server, &format!("{CONFIGMAPS}/zz"), "fieldManager=m", uid).await;
    let message = r#"Operation cannot be fulfilled on configmaps "zz": uid mismatch: the provided object specified uid 1, and no existing object was found"#;
    assert_eq!(
        (absent.code, absent.json()["message"].as_str()),
        (409, Some(message))
    );
    let status = deployment(&json!({}));
    let path = format!("{DEPLOYMENTS}/nosuch/status");
    let mut status = status;
    status["metadata"]["name"] = "nosuch".into();
    assert_eq!(
        apply(&server, &path, "fieldManager=m", status).await.code,
        404
    );
    let headers = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{CONFIGMAPS}/a?fieldManager=m");
    let bad = server
        .request_with_headers("PATCH", &path, &headers, "a: b: c")
        .await;
    assert_eq!(bad.code, 400);
    assert!(
        bad.json()["message"]
            .as_str()
            .unwrap()
            .starts_with("error decoding YAML: error converting YAML to JSON: yaml: ")
    );
}

#[tokio::test]
async fn w154_the_body_may_be_yaml() {
    let server = TestServer::start().await;
    let yaml =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y # a comment\ndata:\n  a: \"1\"\n";
    let headers = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{CONFIGMAPS}/y?fieldManager=m");
    let reply = server
        .request_with_headers("PATCH", &path, &headers, yaml)
        .await;
    assert_eq!(
        (reply.code, reply.json()["data"].clone()),
        (201, json!({"a": "1"}))
    );
}

#[tokio::test]
async fn w155_conflicts_name_the_owners_and_fields() {
    let server = TestServer::start().await;
    let path = format!("{CONFIGMAPS}/a");
    apply(
        &server,
        &path,
        "fieldManager=m1",
        configmap(&json!({"a": "1", "b": "2"})),
    )
    .await;
    apply(
        &server,
        &path,
        "fieldManager=m2",
        configmap(&json!({"b": "2"})),
    )
    .await;
    let body = configmap(&json!({"a": "3", "b": "3"}));
    let refused = apply(&server, &path, "fieldManager=m3", body.clone()).await;
    assert_eq!(refused.code, 409);
    let refused = refused.json();
    assert_eq!(
        refused["message"],
        "Apply failed with 3 conflicts: conflicts with \"m1\":\n- .data.a\n- .data.b\nconflicts with \"m2\":\n- .data.b"
    );
    assert_eq!(refused["reason"], "Conflict");
    assert_eq!(
        refused["details"]["causes"][0],
        json!({"reason": "FieldManagerConflict", "message": "conflict with \"m1\"", "field": ".data.a"})
    );
    let taken = apply(&server, &path, "fieldManager=m3&force=true", body)
        .await
        .json();
    assert_eq!(
        owners(&taken),
        [owner("m3", r#"{"f:data":{"f:a":{},"f:b":{}}}"#)]
    );
    let up = server
        .patch(
            &format!("{path}?fieldManager=up"),
            "merge",
            json!({"data": {"u": "1"}}),
        )
        .await;
    assert_eq!(up.code, 200);
    let refused = apply(
        &server,
        &path,
        "fieldManager=m4",
        configmap(&json!({"u": "2"})),
    )
    .await
    .json();
    assert_eq!(
        refused["message"],
        "Apply failed with 1 conflict: conflict with \"up\" using v1: .data.u"
    );
}

#[tokio::test]
async fn w157_subresources_have_their_own_manager_entries() {
    let server = TestServer::start().await;
    let path = format!("{DEPLOYMENTS}/d");
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let spec =
        json!({"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    let mut body = deployment(&spec);
    body["status"] = json!({"replicas": 7});
    let created = apply(&server, &path, "fieldManager=m1", body).await.json();
    let (_, fields) = &owners(&created)[0];
    assert!(!fields.contains("f:status"), "{fields}");
    assert!(
        fields
            .contains(r#""f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:name":{}}}"#),
        "{fields}"
    );
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 5}});
    let scaled = format!("{path}/scale");
    let refused = apply(&server, &scaled, "fieldManager=sc", scale.clone())
        .await
        .json();
    assert_eq!(
        refused["message"],
        "Apply failed with 1 conflict: conflict with \"m1\": .spec.replicas"
    );
    let answer = apply(&server, &scaled, "fieldManager=sc&force=true", scale)
        .await
        .json();
    assert_eq!(
        (&answer["kind"], &answer["spec"]),
        (&json!("Scale"), &json!({"replicas": 5}))
    );
    let mut status = deployment(&json!({"replicas": 9}));
    status["status"] = json!({"replicas": 2});
    status["metadata"]["labels"] = json!({"x": "y"});
    let changed = apply(
        &server,
        &format!("{path}/status"),
        "fieldManager=st",
        status,
    )
    .await
    .json();
    assert_eq!(changed["spec"]["replicas"], 5);
    assert_eq!(changed["status"]["replicas"], 2);
    let owners = owners(&changed);
    assert!(
        owners.contains(&owner("sc", r#"{"f:spec":{"f:replicas":{}}}"#)),
        "{owners:?}"
    );
    assert!(
        owners.contains(&owner("st", r#"{"f:status":{"f:replicas":{}}}"#)),
        "{owners:?}"
    );
}

#[tokio::test]
async fn w157_fields_without_a_manager_belong_to_before_first_apply() {
    let server = TestServer::start().await;
    let path = format!("{CONFIGMAPS}/a");
    let body = json!({"metadata": {"name": "a"}, "data": {"b": "2"}});
    server.request("POST", CONFIGMAPS, body).await;
    server
        .patch(&path, "merge", json!({"metadata": {"managedFields": []}}))
        .await;
    let applied = apply(
        &server,
        &path,
        "fieldManager=m1",
        configmap(&json!({"b": "2"})),
    )
    .await
    .json();
    assert_eq!(
        owners(&applied),
        [
            owner("m1", r#"{"f:data":{"f:b":{}}}"#),
            owner("before-first-apply", r#"{"f:data":{".":{},"f:b":{}}}"#)
        ]
    );
}

#[tokio::test]
async fn w157_kubectl_takes_over_fields_from_client_side_apply() {
    let server = TestServer::start().await;
    let path = format!("{CONFIGMAPS}/a");
    let last = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{},"name":"a","namespace":"default"},"data":{"a":"1","b":"1"}}"#;
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let body = json!({"metadata": {"name": "a", "annotations": {annotation: last}}, "data": {"a": "1", "b": "1"}});
    let created = server
        .request(
            "POST",
            &format!("{CONFIGMAPS}?fieldManager=kubectl-client-side-apply"),
            body,
        )
        .await;
    assert_eq!(created.code, 201);
    let config = configmap(&json!({"a": "2", "b": "1"}));
    let other = apply(&server, &path, "fieldManager=other", config.clone()).await;
    assert_eq!(other.code, 409, "only kubectl may take over");
    let taken = apply(&server, &path, "fieldManager=kubectl", config.clone()).await;
    assert_eq!(taken.code, 200);
    let taken = taken.json();
    assert_eq!(taken["data"], json!({"a": "2", "b": "1"}));
    let kept = taken["metadata"]["annotations"][annotation]
        .as_str()
        .unwrap();
    assert_eq!(serde_json::from_str::<Value>(kept).unwrap(), config);
    // A field that another manager has changed since is a conflict even for kubectl.
    server
        .patch(
            &format!("{path}?fieldManager=up"),
            "merge",
            json!({"data": {"b": "9"}}),
        )
        .await;
    let refused = apply(&server, &path, "fieldManager=kubectl", config)
        .await
        .json();
    assert_eq!(
        refused["message"],
        "Apply failed with 1 conflict: conflict with \"up\" using v1: .data.b"
    );
}

#[tokio::test]
async fn w154_dry_runs_store_nothing() {
    let server = TestServer::start().await;
    let path = format!("{CONFIGMAPS}/a");
    let dry = apply(
        &server,
        &path,
        "fieldManager=m&dryRun=All",
        configmap(&json!({"a": "1"})),
    )
    .await;
    assert_eq!(dry.code, 201);
    assert_eq!(dry.json()["metadata"].get("resourceVersion"), None);
    assert_eq!(server.get(&path).await.code, 404);
    let nowhere = "/api/v1/namespaces/nosuch/configmaps/a";
    let refused = apply(&server, nowhere, "fieldManager=m", configmap(&json!({}))).await;
    assert_eq!(
        (refused.code, refused.json()["message"].clone()),
        (404, json!("namespaces \"nosuch\" not found"))
    );
}

#[tokio::test]
async fn w156_concurrent_applies_do_not_lose_fields() {
    let server = std::sync::Arc::new(TestServer::start().await);
    let path = format!("{CONFIGMAPS}/a");
    let tasks: Vec<_> = (0..8)
        .map(|number| {
            let (server, path) = (server.clone(), path.clone());
            tokio::spawn(async move {
                let body = configmap(&json!({format!("k{number}"): "1"}));
                apply(&server, &path, &format!("fieldManager=m{number}"), body)
                    .await
                    .code
            })
        })
        .collect();
    for task in tasks {
        let status = task.await.unwrap();
        assert!(status == 200 || status == 201, "{status}");
    }
    let object = server.get(&path).await.json();
    assert_eq!(object["data"].as_object().unwrap().len(), 8);
    assert_eq!(owners(&object).len(), 8);
}

/// A server with a Deployment whose Pod template has an affinity.
struct DeploymentWithAffinity {
    server: TestServer,
}

impl DeploymentWithAffinity {
    async fn of(affinity: Value) -> DeploymentWithAffinity {
        let server = TestServer::start().await;
        let mut deployment = json!({"metadata": {"name": "d"}, "spec": pods_of(json!({}))});
        deployment["spec"]["template"]["spec"]["affinity"] = affinity;
        let deployments = "/apis/apps/v1/namespaces/default/deployments?fieldManager=u";
        let created = server.request("POST", deployments, deployment).await;
        assert_eq!(created.code, 201, "{}", created.text);
        DeploymentWithAffinity { server }
    }

    /// Applies a Pod spec as the manager `m`. Returns the affinity afterwards, and the fields of the Pod spec that `m` owns.
    async fn apply(&self, pod: Value) -> (Option<Value>, Value) {
        let path = "/apis/apps/v1/namespaces/default/deployments/d?fieldManager=m";
        let config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"template": {"spec": pod}}});
        let headers = [("content-type", "application/apply-patch+yaml")];
        let answer = self
            .server
            .request_with_headers("PATCH", path, &headers, config)
            .await;
        assert_eq!(answer.code, 200, "{}", answer.text);
        let object = answer.json();
        let entries = object["metadata"]["managedFields"].as_array().unwrap();
        let own = entries.iter().find(|entry| entry["manager"] == "m");
        let own = own.map(|own| own["fieldsV1"]["f:spec"]["f:template"]["f:spec"].clone());
        let affinity = object["spec"]["template"]["spec"].get("affinity").cloned();
        (affinity, own.unwrap_or_default())
    }
}

fn preferred() -> Value {
    let term = json!({"matchExpressions": [{"key": "k", "operator": "Exists"}]});
    json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}})
}

#[tokio::test]
async fn w154_applying_null_removes_nothing() {
    let deployment = DeploymentWithAffinity::of(preferred()).await;
    let (affinity, own) = deployment
        .apply(json!({"affinity": null, "volumes": null}))
        .await;
    assert_eq!(affinity, Some(preferred()));
    assert_eq!(own, json!({"f:affinity": {}, "f:volumes": {}}));
}

#[tokio::test]
async fn w154_an_object_whose_last_applied_field_is_removed_goes_too() {
    let deployment = DeploymentWithAffinity::of(json!({})).await;
    let (affinity, _) = deployment.apply(json!({"affinity": preferred()})).await;
    assert_eq!(affinity, Some(preferred()));
    let (affinity, own) = deployment.apply(json!({"nodeSelector": {"x": "y"}})).await;
    assert_eq!(affinity, None);
    assert_eq!(own, json!({"f:nodeSelector": {}}));
}

#[tokio::test]
async fn w154_an_object_that_another_manager_owns_stays_when_its_content_goes() {
    let deployment = DeploymentWithAffinity::of(json!({"nodeAffinity": {}})).await;
    deployment.apply(json!({"affinity": preferred()})).await;
    let (affinity, own) = deployment.apply(json!({"affinity": {}})).await;
    assert_eq!(affinity, Some(json!({})));
    assert_eq!(own, json!({"f:affinity": {}}));
}

/// A Secret stores `stringData` as `data`.
#[tokio::test]
async fn w103_w154_applying_the_same_string_data_again_changes_nothing() {
    let server = TestServer::start().await;
    let path = "/api/v1/namespaces/default/secrets/a";
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"k": "v"}});
    let mut object = apply(&server, path, "fieldManager=m1", secret.clone())
        .await
        .json();
    // Sets an old time, to see whether the next apply changes it.
    let long_ago = json!("2020-01-01T00:00:00Z");
    object["metadata"]["managedFields"][0]["time"] = long_ago.clone();
    object["metadata"]["labels"] = json!({"a": "b"});
    let before = server.request("PUT", path, object).await.json();
    assert_eq!(before["metadata"]["managedFields"][0]["time"], long_ago);
    let again = apply(&server, path, "fieldManager=m1", secret.clone()).await;
    assert_eq!((again.code, again.json()), (200, before.clone()));
    let dry = apply(&server, path, "fieldManager=m1&dryRun=All", secret).await;
    assert_eq!(dry.json(), before);
    let changed = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"k": "w"}});
    let changed = apply(&server, path, "fieldManager=m1", changed)
        .await
        .json();
    assert_ne!(changed["metadata"]["managedFields"][0]["time"], long_ago);
}

#[tokio::test]
async fn w157_keys_in_field_sets_are_escaped_as_by_kube_apiserver() {
    let server = TestServer::start().await;
    let env = json!([{"name": "A<B&", "value": "x"}]);
    let pods = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i", "env": env}]}});
    let body = deployment(&json!({"selector": {"matchLabels": {"a": "b"}}, "template": pods}));
    let path = format!("{DEPLOYMENTS}/d");
    let created = apply(&server, &path, "fieldManager=m", body.clone()).await;
    assert_eq!(created.code, 201, "{}", created.text);
    let written =
        r#""f:env":{"k:{\"name\":\"A\\u003cB\\u0026\"}":{".":{},"f:name":{},"f:value":{}}}"#;
    assert!(created.text.contains(written), "{}", created.text);
    let again = apply(&server, &path, "fieldManager=m", body.clone()).await;
    assert_eq!(again.text, created.text);
    // Another manager changes the element and owns it then, so the apply conflicts.
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "env": [{"name": "A<B&", "value": "y"}]}]}}}});
    let patched = server.patch(&path, "strategic-merge", patch).await;
    assert_eq!(patched.code, 200, "{}", patched.text);
    let refused = apply(&server, &path, "fieldManager=m", body).await;
    assert_eq!(refused.code, 409, "{}", refused.text);
    assert!(
        refused.message().contains(r#".env[name="A<B&"].value"#),
        "{}",
        refused.text
    );
}
