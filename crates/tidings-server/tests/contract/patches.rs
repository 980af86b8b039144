//! PATCH (W149–W153, W172, W173).

use serde_json::json;

use crate::support::{CONFIGMAPS, TestServer, pods_of};

async fn with_object() -> (TestServer, String) {
    let server = TestServer::start().await;
    server.create("x", json!({"a": "1"})).await;
    (server, format!("{CONFIGMAPS}/x"))
}

#[tokio::test]
async fn w149_three_kinds_of_patches() {
    let (server, path) = with_object().await;
    let merge = server
        .patch(&path, "merge", json!({"data": {"m": "1", "k": null}}))
        .await;
    assert_eq!(
        (merge.code, merge.json()["data"].clone()),
        (200, json!({"m": "1"}))
    );
    let ops = json!([{"op": "add", "path": "/data/j", "value": "1"}, {"op": "test", "path": "/data/m", "value": "1"}]);
    let patched = server.patch(&path, "json", ops).await;
    assert_eq!(patched.code, 200, "{}", patched.text);
    assert_eq!(
        (patched.code, patched.json()["data"].clone()),
        (200, json!({"j": "1", "m": "1"}))
    );
    let strategic = server
        .patch(
            &path,
            "strategic-merge",
            json!({"data": {"$patch": "replace", "s": "1"}}),
        )
        .await;
    assert_eq!(
        (strategic.code, strategic.json()["data"].clone()),
        (200, json!({"s": "1"}))
    );
    let charset = [(
        "content-type",
        "application/merge-patch+json; charset=utf-8",
    )];
    assert_eq!(
        server
            .request_with_headers("PATCH", &path, &charset, "{}")
            .await
            .code,
        200
    );
    for other in [
        "application/json",
        "text/plain",
        "application/foo-patch+json",
    ] {
        let answer = server
            .request_with_headers("PATCH", &path, &[("content-type", other)], "{}")
            .await;
        assert_eq!(
            (answer.code, answer.message().as_str()),
            (415, "415: Unsupported Media Type")
        );
    }
}

#[tokio::test]
async fn w150_json_patches_that_fail() {
    let (server, path) = with_object().await;
    for ops in [
        json!([{"op": "test", "path": "/data/k", "value": "other"}]),
        json!([{"op": "remove", "path": "/data/nosuch"}]),
        json!([{"op": "turn", "path": "/data/k"}]),
    ] {
        let answer = server.patch(&path, "json", &ops).await;
        assert_eq!(
            (answer.code, answer.json()["reason"].as_str().unwrap()),
            (422, "Invalid"),
            "{ops}"
        );
        assert_eq!(
            answer.message(),
            "the server rejected our request due to an error in our request"
        );
        assert_eq!(answer.json()["details"], json!({}));
    }
    let object = server.patch(&path, "json", "{}").await;
    assert_eq!(object.code, 400);
    assert!(
        object.message().starts_with("error decoding patch: "),
        "{}",
        object.text
    );
    let many: Vec<_> = (0..10_001)
        .map(|_| json!({"op": "test", "path": "/data/k", "value": "0"}))
        .collect();
    assert_eq!(server.patch(&path, "json", json!(many)).await.code, 413);
}

#[tokio::test]
async fn w150_absent_members_can_be_replaced_tested_and_copied() {
    let (server, path) = with_object().await;
    let ops = json!([
        {"op": "replace", "path": "/data/new", "value": "1"},
        {"op": "test", "path": "/data/nosuch", "value": null},
        {"op": "copy", "from": "/metadata/nosuch", "path": "/metadata/labels/a"},
    ]);
    let answer = server.patch(&path, "json", ops).await;
    assert_eq!(answer.code, 200, "{}", answer.text);
    assert_eq!(answer.json()["data"], json!({"k": "0", "new": "1"}));
}

#[tokio::test]
async fn w149_w152_malformed_patches_are_refused() {
    let (server, path) = with_object().await;
    for (kind, body, why) in [
        (
            "merge",
            "[]",
            "json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        ("merge", "{", "unexpected end of JSON input"),
        (
            "strategic-merge",
            "1",
            "json: cannot unmarshal number into Go value of type map[string]interface {}",
        ),
        (
            "json",
            "{}",
            "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
    ] {
        let answer = server.patch(&path, kind, body).await;
        assert_eq!(
            (answer.code, answer.message()),
            (400, format!("error decoding patch: {why}"))
        );
        let missing = server
            .patch(&format!("{CONFIGMAPS}/nosuch"), kind, body)
            .await;
        assert_eq!(missing.code, 404, "404 comes before errors in the patch");
    }
    let kind = server
        .patch(&path, "strategic-merge", json!({"kind": "Foo"}))
        .await;
    assert_eq!(
        (kind.code, kind.json()["kind"].clone()),
        (200, json!("ConfigMap"))
    );
    let kind = server.patch(&path, "merge", json!({"apiVersion": 1})).await;
    assert_eq!(kind.code, 422, "{}", kind.text);
}

#[tokio::test]
async fn w150_the_size_of_copies_is_limited() {
    let (server, path) = with_object().await;
    let mut ops = vec![json!({"op": "add", "path": "/data/0", "value": "x".repeat(100_000)})];
    for at in 1..10 {
        // Each copy doubles the data.
        ops.push(json!({"op": "copy", "from": "/data", "path": format!("/data/{at}")}));
    }
    let answer = server.patch(&path, "json", json!(ops)).await;
    assert_eq!(answer.code, 422, "{}", answer.text);
    assert_eq!(server.get(&path).await.json()["data"], json!({"k": "0"}));
}

#[tokio::test]
async fn w151_a_patch_whose_result_is_invalid_is_refused() {
    let (server, path) = with_object().await;
    let answer = server
        .patch(&path, "merge", json!({"data": {"k": 1}}))
        .await;
    assert_eq!(
        (answer.code, answer.json()["reason"].as_str().unwrap()),
        (422, "Invalid")
    );
    let message = answer.message();
    assert!(
        message.starts_with(" \"\" is invalid: patch: Invalid value: \"{"),
        "{message}"
    );
    assert!(
        message
            .contains("cannot unmarshal number into Go struct field ConfigMap.data of type string"),
        "{message}"
    );
}

#[tokio::test]
async fn w152_preconditions_of_a_patch() {
    let (server, path) = with_object().await;
    let version = server.get(&path).await.version();
    let stale = server
        .patch(
            &path,
            "merge",
            json!({"metadata": {"resourceVersion": "1"}, "data": {"k": "2"}}),
        )
        .await;
    assert_eq!(
        (stale.code, stale.json()["reason"].as_str().unwrap()),
        (409, "Conflict")
    );
    let fresh = json!({"metadata": {"resourceVersion": version.to_string()}, "data": {"k": "2"}});
    assert_eq!(server.patch(&path, "merge", fresh).await.code, 200);
    let renamed = server
        .patch(&path, "merge", json!({"metadata": {"name": "y"}}))
        .await;
    assert_eq!(
        renamed.message(),
        "the name of the object (y) does not match the name on the URL (x)"
    );
    assert_eq!(
        server
            .patch(&format!("{CONFIGMAPS}/nosuch"), "merge", "{}")
            .await
            .code,
        404
    );
    let uid = server
        .patch(&path, "merge", json!({"metadata": {"uid": "other"}}))
        .await;
    assert_eq!(uid.code, 422, "{}", uid.text);
    assert!(
        uid.message()
            .ends_with("metadata.uid: Invalid value: \"other\": field is immutable")
    );
}

/// The message must not show the rest of the object, which may be a Secret.
#[tokio::test]
async fn w151_the_error_of_a_strategic_patch_shows_only_the_patch() {
    let (server, path) = with_object().await;
    let patch = json!({"data": {"b": 1, "a": null}});
    let answer = server.patch(&path, "strategic-merge", patch).await;
    assert_eq!(answer.code, 422, "{}", answer.text);
    assert_eq!(
        answer.message(),
        " \"\" is invalid: patch: Invalid value: \"map[data:map[a:<nil> b:1]]\": json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    );
    let strict = format!("{path}?fieldValidation=Strict");
    let odd = json!({"nosuch": [true]});
    let answer = server.patch(&strict, "strategic-merge", odd).await;
    assert_eq!(
        answer.message(),
        " \"\" is invalid: patch: Invalid value: \"map[nosuch:[true]]\": strict decoding error: unknown field \"nosuch\""
    );
}

#[tokio::test]
async fn w103_a_patch_that_changes_nothing_writes_nothing() {
    let (server, path) = with_object().await;
    let version = server.get(&path).await.version();
    let same = server
        .patch(&path, "merge", json!({"data": {"k": "0"}}))
        .await;
    assert_eq!((same.code, same.version()), (200, version));
}

#[tokio::test]
async fn w148_concurrent_patches_do_not_conflict() {
    let (server, path) = with_object().await;
    let patches = (0..20).map(|at| {
        let patch = json!({"data": {format!("k{at}"): "1"}});
        let (server, path) = (&server, &path);
        async move { server.patch(path, "merge", patch).await.code }
    });
    // All patches start before the first one is finished.
    let codes = futures_util::future::join_all(patches).await;
    assert_eq!(codes, [200; 20]);
    assert_eq!(
        server.get(&path).await.json()["data"]
            .as_object()
            .unwrap()
            .len(),
        21
    );
}

#[tokio::test]
async fn deeply_nested_values_are_refused() {
    let server = TestServer::start().await;
    let revisions = "/apis/apps/v1/namespaces/default/controllerrevisions";
    server
        .request(
            "POST",
            revisions,
            json!({"metadata": {"name": "r"}, "data": {}}),
        )
        .await;
    let path = format!("{revisions}/r");
    // Each group of operations moves the data one level down.
    let ops: Vec<_> = (0..2_000)
        .flat_map(|_| {
            [
                json!({"op": "move", "from": "/data", "path": "/metadata/annotations"}),
                json!({"op": "add", "path": "/data", "value": {}}),
                json!({"op": "move", "from": "/metadata/annotations", "path": "/data/a"}),
            ]
        })
        .collect();
    assert_eq!(server.patch(&path, "json", json!(ops)).await.code, 422);
    let nested = |depth: usize| format!("{{\"data\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(server.patch(&path, "merge", nested(110)).await.code, 400);
    assert_eq!(server.patch(&path, "merge", nested(90)).await.code, 200);
    let body = format!(
        "{{\"metadata\":{{\"name\":\"s\"}},\"data\":{}{}}}",
        "[".repeat(120),
        "]".repeat(120)
    );
    assert_eq!(server.request("POST", revisions, body).await.code, 400);
    let body = format!(
        "{{\"metadata\":{{\"name\":\"s\"}},\"data\":{}{}}}",
        "[".repeat(5000),
        "]".repeat(5000)
    );
    assert_eq!(server.request("POST", revisions, body).await.code, 400);
    assert_eq!(server.get_as(&path, "application/yaml").await.code, 200);
    assert_eq!(server.request("DELETE", &path, "").await.code, 200);
}

/// The CPU time of this thread, which also runs the server. Unlike wall-clock time it does not depend on the load of the machine.
fn thread_cpu() -> std::time::Duration {
    let figures = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = figures.split_whitespace().next().unwrap();
    std::time::Duration::from_nanos(nanoseconds.parse().unwrap())
}

/// A patch of a few hundred kilobytes must not occupy a thread for long. With a quadratic algorithm each of these took seconds.
#[tokio::test]
async fn large_patches_take_little_time() {
    let server = TestServer::start().await;
    let pods = "/apis/apps/v1/namespaces/default/deployments";
    let env = |from: usize| -> Vec<_> {
        (from..from + 10_000)
            .map(|at| json!({"name": format!("n{at}")}))
            .collect()
    };
    let mut pod = json!({"metadata": {"name": "p"}, "spec": pods_of(json!({}))});
    pod["spec"]["template"]["spec"]["containers"][0]["env"] = env(0).into();
    assert_eq!(server.request("POST", pods, pod).await.code, 201);
    let started = thread_cpu();
    let order: Vec<_> = env(5_000).into_iter().rev().collect();
    let container = json!({"name": "c", "env": order, "$setElementOrder/env": order});
    let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    assert_eq!(
        server
            .patch(&format!("{pods}/p"), "strategic-merge", patch)
            .await
            .code,
        200
    );
    let finalizers: Vec<_> = (0..20_000).map(|at| format!("example.com/f{at}")).collect();
    let gone = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": finalizers}});
    assert_eq!(
        server
            .patch(&format!("{pods}/p"), "strategic-merge", gone)
            .await
            .code,
        200
    );
    let many: Vec<_> = (0..8_000).map(|at| json!({"manager": format!("m{at}"), "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:a": {}}, "time": "2026-01-01T00:00:00Z"})).collect();
    let managed = server
        .patch(
            &format!("{pods}/p"),
            "merge",
            json!({"metadata": {"managedFields": many, "labels": {"a": "b"}}}),
        )
        .await;
    assert!(
        managed.json()["metadata"]["managedFields"]
            .as_array()
            .unwrap()
            .len()
            <= 11
    );
    let owners: Vec<_> = (0..8_000)
        .map(|at| json!({"apiVersion": "v1", "kind": "A", "name": "a", "uid": at.to_string()}))
        .collect();
    assert_eq!(
        server
            .patch(
                &format!("{pods}/p"),
                "merge",
                json!({"metadata": {"ownerReferences": owners}})
            )
            .await
            .code,
        200
    );
    let took = thread_cpu() - started;
    assert!(took.as_secs() < 10, "{took:?}");
}

#[tokio::test]
async fn w153_list_elements_are_merged_by_their_key() {
    let server = TestServer::start().await;
    let mut deployment = json!({"metadata": {"name": "p"}, "spec": pods_of(json!({}))});
    let containers = json!([{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]);
    deployment["spec"]["template"]["spec"]["containers"] = containers;
    let pods = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(server.request("POST", pods, deployment).await.code, 201);
    let patch = json!({"spec": {"template": {"spec": {
        "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
        "containers": [{"name": "a", "image": "2"}],
    }}}});
    let patched = server
        .patch(&format!("{pods}/p"), "strategic-merge", patch)
        .await;
    let containers = patched.json()["spec"]["template"]["spec"]["containers"].clone();
    let of = |at: usize| {
        (
            containers[at]["name"].clone(),
            containers[at]["image"].clone(),
        )
    };
    assert_eq!(of(0), (json!("b"), json!("1")));
    assert_eq!(of(1), (json!("a"), json!("2")));
}

#[tokio::test]
async fn w158_w172_w173_options_of_a_patch() {
    let (server, path) = with_object().await;
    let force = server
        .patch(&format!("{path}?force=true"), "merge", "{}")
        .await;
    assert_eq!(force.code, 422);
    assert!(
        force
            .message()
            .contains("force: Forbidden: may not be specified for non-apply patch"),
        "{}",
        force.text
    );
    let unknown = json!({"foo": 1});
    let warned = server.patch(&path, "merge", &unknown).await;
    assert_eq!(
        warned.headers["warning"],
        "299 - \"unknown field \\\"foo\\\"\""
    );
    let strict = server
        .patch(&format!("{path}?fieldValidation=Strict"), "merge", &unknown)
        .await;
    assert_eq!(strict.code, 422);
    assert!(
        strict
            .message()
            .contains("strict decoding error: unknown field \"foo\""),
        "{}",
        strict.text
    );
    let dry = server
        .patch(
            &format!("{path}?dryRun=All"),
            "merge",
            json!({"data": {"d": "1"}}),
        )
        .await;
    assert_eq!(
        (dry.code, dry.json()["data"]["d"].clone()),
        (200, json!("1"))
    );
    assert_eq!(server.get(&path).await.json()["data"], json!({"k": "0"}));
    let long = server
        .patch(
            &format!("{path}?fieldManager={}", "m".repeat(129)),
            "merge",
            "{}",
        )
        .await;
    assert!(
        long.message()
            .contains("fieldManager: Too long: may not be more than 128 bytes"),
        "{}",
        long.text
    );
}

#[tokio::test]
async fn the_status_is_patched_through_its_subresource() {
    let server = TestServer::start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(server.request("POST", pods, pod).await.code, 201);
    let patch = json!({"status": {"phase": "Running"}, "spec": {"nodeName": "n"}});
    let status = server
        .patch(&format!("{pods}/p/status"), "merge", &patch)
        .await
        .json();
    assert_eq!(
        (&status["status"]["phase"], &status["spec"]["nodeName"]),
        (&json!("Running"), &json!(null))
    );
    let spec = server
        .patch(
            &format!("{pods}/p"),
            "merge",
            &json!({"status": {"phase": "Failed"}, "spec": {"activeDeadlineSeconds": 5}}),
        )
        .await
        .json();
    assert_eq!(
        (
            &spec["status"]["phase"],
            &spec["spec"]["activeDeadlineSeconds"]
        ),
        (&json!("Running"), &json!(5))
    );
}

#[tokio::test]
async fn w141_duplicate_owners_after_a_patch_give_a_warning() {
    let server = TestServer::start().await;
    let node = json!({"metadata": {"name": "n"}});
    let node = server.request("POST", "/api/v1/nodes", node).await.json();
    let uid = &node["metadata"]["uid"];
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid});
    let again = json!({"uid": uid, "name": "n", "kind": "Node", "apiVersion": "v1"});
    server.create("a", json!({})).await;
    let item = format!("{CONFIGMAPS}/a");
    for (kind, patch) in [
        (
            "merge",
            json!({"metadata": {"ownerReferences": [owner, again, owner]}}),
        ),
        (
            "json",
            json!([
                {"op": "add", "path": "/metadata/ownerReferences/-", "value": again},
                {"op": "add", "path": "/metadata/ownerReferences/-", "value": owner},
            ]),
        ),
    ] {
        let answer = server.patch(&item, kind, patch).await;
        assert_eq!(
            answer.json()["metadata"]["ownerReferences"],
            json!([owner]),
            "{kind}"
        );
        let warning = answer.headers["warning"].to_str().unwrap();
        let uid = uid.as_str().unwrap();
        assert_eq!(
            warning,
            format!(
                "299 - \".metadata.ownerReferences contains duplicate entries after mutating admission happens; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {uid}, {uid}\""
            ),
            "{kind}"
        );
    }
    // A strategic merge patch merges owners by uid, so there are no duplicates.
    let patch = json!({"metadata": {"ownerReferences": [owner, again]}});
    let merged = server.patch(&item, "strategic-merge", patch).await;
    assert_eq!(merged.json()["metadata"]["ownerReferences"], json!([owner]));
    assert!(merged.headers.get("warning").is_none());
}

#[tokio::test]
async fn w153_invalid_strategic_patches_are_refused() {
    let server = TestServer::start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(server.request("POST", pods, pod).await.code, 201);
    for (spec, code, why) in [
        (
            json!({"containers": [{"image": "x"}]}),
            500,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            json!({"containers": [{"name": "c", "$patch": "merge"}]}),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"securityContext": {"$patch": "turn"}}),
            500,
            "unknown patch type: turn in map: map[$patch:turn]",
        ),
        (
            json!({"$setElementOrder/containers": "x"}),
            500,
            "expected a []interface {}, but received a string",
        ),
        (
            json!({"$retainKeys": ["nodeName"], "hostname": "h"}),
            400,
            "invalid patch format of retainKeys",
        ),
    ] {
        let patch = json!({"spec": spec});
        let answer = server
            .patch(&format!("{pods}/p"), "strategic-merge", patch)
            .await;
        assert_eq!((answer.code, answer.message().as_str()), (code, why));
        assert_eq!(answer.json().get("reason").is_some(), code == 400, "{why}");
    }
}

#[tokio::test]
async fn w153_a_selector_is_replaced_and_not_merged() {
    let server = TestServer::start().await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let selector = json!({"matchLabels": {"a": "1"}});
    let budget =
        json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": selector}});
    assert_eq!(server.request("POST", budgets, budget).await.code, 201);
    let selector = json!({"matchLabels": {"b": "1"}});
    let patch = json!({"spec": {"selector": selector}});
    let patched = server
        .patch(&format!("{budgets}/b"), "strategic-merge", patch)
        .await;
    assert_eq!(
        patched.json()["spec"]["selector"],
        selector,
        "{}",
        patched.text
    );
}
