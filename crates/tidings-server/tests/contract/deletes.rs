//! DELETE: immediate deletion, finalizers, propagation policies and preconditions.

use serde_json::{Value, json};

use crate::support::{CONFIGMAPS, TestServer, job_of, named_with};

#[tokio::test]
async fn w160_w163_w165_deletes_with_preconditions_and_dry_runs() {
    let server = TestServer::start().await;
    let a = server.create("a", json!({})).await;
    let item = format!("{CONFIGMAPS}/a");
    let uid = server.get(&item).await.json()["metadata"]["uid"]
        .as_str()
        .unwrap()
        .to_owned();
    for (precondition, message) in [
        (
            json!({"uid": "bad"}),
            format!(
                "the UID in the precondition (bad) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            ),
        ),
        (
            json!({"resourceVersion": "1"}),
            format!(
                "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({a}). The object might have been modified"
            ),
        ),
    ] {
        let answer = server
            .request("DELETE", &item, json!({ "preconditions": precondition }))
            .await;
        assert_eq!(
            (answer.code, answer.message()),
            (
                409,
                format!("Operation cannot be fulfilled on ConfigMap \"a\": {message}")
            )
        );
        assert_eq!(answer.json()["details"]["kind"], "ConfigMap");
    }
    assert_eq!(
        server
            .request("DELETE", &format!("{item}?dryRun=All"), "")
            .await
            .code,
        200
    );
    assert_eq!(
        server.get(&item).await.code,
        200,
        "W165: nothing is removed"
    );
    let bad = server
        .request("DELETE", &item, json!({"propagationPolicy": "Foo"}))
        .await;
    assert_eq!(
        (bad.code, bad.message().as_str()),
        (
            422,
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Foo\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
        ),
        "W164"
    );
    let done = server
        .request("DELETE", &item, json!({"preconditions": {"uid": uid}}))
        .await;
    assert_eq!(
        done.text,
        format!(
            "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Success\",\"details\":{{\"name\":\"a\",\"kind\":\"configmaps\",\"uid\":\"{uid}\"}}}}\n"
        )
    );
    assert_eq!(server.request("DELETE", &item, "").await.code, 404);
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    server
        .request("POST", "/api/v1/namespaces/default/pods", pod)
        .await;
    let deleted = server
        .request("DELETE", "/api/v1/namespaces/default/pods/p", "")
        .await
        .json();
    assert_eq!(
        (
            &deleted["kind"],
            &deleted["metadata"]["deletionGracePeriodSeconds"]
        ),
        (&json!("Pod"), &json!(0)),
        "W160, W162"
    );
}

#[tokio::test]
async fn w147_w161_w166_finalizers_hold_an_object() {
    let server = TestServer::start().await;
    let item = format!("{CONFIGMAPS}/a");
    let with = |finalizers: Value| json!({"metadata": {"name": "a", "finalizers": finalizers}});
    let created = server
        .request("POST", CONFIGMAPS, with(json!(["a/b"])))
        .await
        .version();
    let mut watch = server
        .watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={created}"))
        .await;
    let marked = server.request("DELETE", &item, "").await;
    assert_eq!(marked.code, 200);
    assert!(marked.json()["metadata"].get("deletionTimestamp").is_some());
    assert_eq!(marked.json()["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(
        server.request("DELETE", &item, "").await.text,
        marked.text,
        "a second DELETE gives the same answer"
    );
    let exists = server.request("POST", CONFIGMAPS, with(json!([]))).await;
    assert_eq!(
        exists.message(),
        "object is being deleted: configmaps \"a\" already exists",
        "W50"
    );
    let more = server
        .request("PUT", &item, with(json!(["a/b", "c/d"])))
        .await;
    assert!(more.message().ends_with("no new finalizers can be added if the object is being deleted, found new finalizers []string{\"c/d\"}"));
    let last = server.request("PUT", &item, with(json!([]))).await;
    assert_eq!((last.code, last.version()), (200, marked.version()));
    assert_eq!(server.get(&item).await.code, 404);
    assert_eq!(
        watch.brief().await,
        format!("MODIFIED a@{}", marked.version())
    );
    assert_eq!(
        watch.brief().await,
        format!("DELETED a@{}", marked.version() + 1)
    );
}

#[tokio::test]
async fn w161_propagation_policies_are_finalizers() {
    let server = TestServer::start().await;
    for (name, options, finalizer) in [
        (
            "a",
            json!({"propagationPolicy": "Foreground"}),
            "foregroundDeletion",
        ),
        ("b", json!({"propagationPolicy": "Orphan"}), "orphan"),
        ("c", json!({"orphanDependents": true}), "orphan"),
    ] {
        server.create(name, json!({})).await;
        let answer = server
            .request("DELETE", &format!("{CONFIGMAPS}/{name}"), options)
            .await;
        assert_eq!(answer.json()["metadata"]["finalizers"], json!([finalizer]));
    }
}

#[tokio::test]
async fn w162_scheduled_pods_are_deleted_gracefully() {
    let server = TestServer::start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    let created = server.request("POST", pods, pod).await.version();
    let mut watch = server
        .watch(&format!("{pods}?watch=1&resourceVersion={created}"))
        .await;
    let grace = async |query: &str| {
        let answer = server
            .request("DELETE", &format!("{pods}/p{query}"), "")
            .await
            .json();
        (
            answer["metadata"]["deletionGracePeriodSeconds"].clone(),
            answer["metadata"]["generation"].clone(),
        )
    };
    assert_eq!(grace("").await, (json!(30), json!(2)));
    assert_eq!(
        grace("?gracePeriodSeconds=60").await,
        (json!(30), json!(2)),
        "the grace period is never extended"
    );
    assert_eq!(
        grace("?gracePeriodSeconds=5").await,
        (json!(5), json!(2)),
        "the grace period can be shortened"
    );
    assert_eq!(grace("?gracePeriodSeconds=0").await, (json!(0), json!(2)));
    assert_eq!(server.get(&format!("{pods}/p")).await.code, 404);
    let types: Vec<String> = [
        watch.brief().await,
        watch.brief().await,
        watch.brief().await,
        watch.brief().await,
    ]
    .map(|event| event.split(' ').next().unwrap().to_owned())
    .to_vec();
    assert_eq!(types, ["MODIFIED", "MODIFIED", "MODIFIED", "DELETED"]);
}

#[tokio::test]
async fn w159_a_body_that_is_not_delete_options_is_refused() {
    let server = TestServer::start().await;
    server.create("a", json!({})).await;
    let item = format!("{CONFIGMAPS}/a");
    for (body, message) in [
        (
            r#"{"kind":"Foo","apiVersion":"v1"}"#,
            "no kind \"Foo\" is registered for version \"v1\" in scheme",
        ),
        (
            r#"{"kind":"Foo"}"#,
            "no kind \"Foo\" is registered for version \"meta.k8s.io/v1\" in scheme",
        ),
        (
            "[]",
            "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value",
        ),
        ("{bad", "couldn't get version/kind; json parse error: "),
    ] {
        let answer = server.request("DELETE", &item, body).await;
        assert_eq!(answer.code, 400, "{body}");
        assert!(
            answer.message().starts_with(message),
            "{body}: {}",
            answer.message()
        );
    }
    assert_eq!(
        server
            .request("DELETE", &format!("{item}?uid=x"), "")
            .await
            .code,
        409
    );
    let options = json!({"kind": "DeleteOptions", "apiVersion": "apps/v1"});
    assert_eq!(
        server.request("DELETE", &item, options).await.code,
        200,
        "DeleteOptions of any group are accepted"
    );
}

#[tokio::test]
async fn w161_a_later_policy_replaces_an_earlier_one() {
    let server = TestServer::start().await;
    let item = format!("{CONFIGMAPS}/a");
    let held = json!({"metadata": {"name": "a", "finalizers": ["x.y/z"]}});
    let owner = server.request("POST", CONFIGMAPS, held).await.json();
    // The object waits for a dependent that is not deleted, so that the garbage collector does not remove its finalizer.
    let owner = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": true,
    });
    let dependent =
        json!({"metadata": {"name": "b", "finalizers": ["x.y/z"], "ownerReferences": [owner]}});
    server.request("POST", CONFIGMAPS, dependent).await;
    let finalizers = async |options: Value| {
        server.request("DELETE", &item, options).await.json()["metadata"]["finalizers"].clone()
    };
    assert_eq!(
        finalizers(json!({"propagationPolicy": "Foreground"})).await,
        json!(["x.y/z", "foregroundDeletion"])
    );
    assert_eq!(
        finalizers(json!({})).await,
        json!(["x.y/z", "foregroundDeletion"]),
        "options without a policy change nothing"
    );
    assert_eq!(
        finalizers(json!({"propagationPolicy": "Orphan"})).await,
        json!(["x.y/z", "orphan"])
    );
    let accepted = server
        .request("DELETE", &item, json!({"orphanDependents": false}))
        .await;
    assert_eq!(
        (accepted.code, &accepted.json()["metadata"]["finalizers"]),
        (202, &json!(["x.y/z"]))
    );
}

#[tokio::test]
async fn w161_some_kinds_orphan_without_a_policy() {
    let server = TestServer::start().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    for name in ["a", "b"] {
        server
            .request("POST", jobs, named_with(name, &job_of(json!({}))))
            .await;
    }
    let held = server.request("DELETE", &format!("{jobs}/a"), "").await;
    assert_eq!(held.json()["metadata"]["finalizers"], json!(["orphan"]));
    let warning = held.headers["warning"].to_str().unwrap();
    assert!(
        warning.contains("child pods are preserved by default when jobs are deleted"),
        "{warning}"
    );
    let gone = server
        .request(
            "DELETE",
            &format!("{jobs}/b?propagationPolicy=Background"),
            "",
        )
        .await;
    assert_eq!(
        (gone.code, gone.json()["status"].clone()),
        (200, json!("Success"))
    );
    assert!(!gone.headers.contains_key("warning"));
}

#[tokio::test]
async fn w163_preconditions_in_the_query() {
    let server = TestServer::start().await;
    server.create("x", json!({})).await;
    let path = format!("{CONFIGMAPS}/x");
    for query in ["resourceVersion=1", "uid=other"] {
        let answer = server
            .request("DELETE", &format!("{path}?{query}"), "")
            .await;
        assert_eq!(answer.code, 409, "{query}: {}", answer.text);
    }
    let version = server.get(&path).await.version();
    let answer = server
        .request("DELETE", &format!("{path}?resourceVersion={version}"), "")
        .await;
    assert_eq!(answer.code, 200);
}
