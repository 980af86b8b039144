//! CREATE, UPDATE, DELETE.

use serde_json::{Value, json};

use crate::support::{CONFIGMAPS, Server};

#[tokio::test]
async fn w7_w132_w135_w138_a_created_object() {
    let server = Server::start().await;
    let body = json!({"data": {"b": "<1>", "a": "2"}, "metadata": {
        "labels": {"z": "1", "a": "2"}, "annotations": {}, "finalizers": [], "name": "x", "uid": "mine", "selfLink": "/x",
        "creationTimestamp": "2001-01-01T00:00:00Z", "deletionTimestamp": "2001-01-01T00:00:00Z", "generation": 7}});
    let answer = server.request("POST", CONFIGMAPS, body).await;
    assert_eq!(answer.code, 201);
    let object = answer.json();
    let meta = object["metadata"].as_object().unwrap();
    let keys: Vec<_> = meta.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "labels"
        ]
    );
    assert_eq!(meta["uid"].as_str().unwrap().len(), 36);
    assert_ne!(meta["creationTimestamp"], "2001-01-01T00:00:00Z");
    assert_eq!(
        meta["generation"], 7,
        "W136: this kind keeps what the client says"
    );
    assert!(
        answer.text.contains(r#""labels":{"a":"2","z":"1"}"#),
        "sorted"
    );
    assert!(
        answer
            .text
            .contains(r#""data":{"a":"2","b":"\u003c1\u003e"}"#),
        "sorted and escaped"
    );
    assert!(
        answer
            .text
            .starts_with(r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x""#)
    );
    assert_eq!(
        server.get(&format!("{CONFIGMAPS}/x")).await.text,
        answer.text,
        "GET returns the same bytes"
    );
}

#[tokio::test]
async fn w132_w133_bodies_that_are_no_such_object() {
    let server = Server::start().await;
    let unrecognized = "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error:";
    let wrong = "cannot be handled as a ConfigMap:";
    for (body, message) in [
        (
            "",
            format!("{unrecognized} unexpected end of JSON input (<empty>)"),
        ),
        ("{bad", format!("{unrecognized} ")),
        (
            "{\"kind\":5}",
            format!(
                "{unrecognized} json: cannot unmarshal number into Go struct field .kind of type string ({{\"kind\":5}})"
            ),
        ),
        (
            r#"{"kind":"Pod","apiVersion":"v1"}"#,
            format!(
                "Pod in version \"v1\" {wrong} converting (v1.Pod) to (core.ConfigMap): unknown conversion"
            ),
        ),
        (
            r#"{"kind":"Foo","apiVersion":"v1"}"#,
            format!(
                "Foo in version \"v1\" {wrong} no kind \"Foo\" is registered for version \"v1\" in scheme"
            ),
        ),
        (
            r#"{"metadata":{"name":"a","labels":{"a":5}}}"#,
            format!(
                "ConfigMap in version \"v1\" {wrong} json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"
            ),
        ),
        (
            r#"{"metadata":"x"}"#,
            format!(
                "ConfigMap in version \"v1\" {wrong} json: cannot unmarshal string into Go struct field ConfigMap.metadata of type v1.ObjectMeta"
            ),
        ),
        (
            r#"{"metadata":{"name":"a"},"data":"x"}"#,
            format!(
                "ConfigMap in version \"v1\" {wrong} json: cannot unmarshal string into Go struct field ConfigMap.data of type map[string]string"
            ),
        ),
    ] {
        let answer = server.request("POST", CONFIGMAPS, body).await;
        assert_eq!(
            (answer.code, answer.json()["reason"].as_str()),
            (400, Some("BadRequest")),
            "{body}"
        );
        assert!(
            answer.message().starts_with(&message),
            "{body}: {}",
            answer.message()
        );
    }
}

#[tokio::test]
async fn w52_w169_w170_w171_what_is_invalid() {
    let server = Server::start().await;
    let check = async |path: &str, body: Value, expected: &[&str]| {
        let answer = server.request("POST", path, &body).await;
        assert_eq!(
            (answer.code, answer.json()["reason"].as_str()),
            (422, Some("Invalid")),
            "{body}: {}",
            answer.text
        );
        let status = answer.json();
        let causes: Vec<String> = status["details"]["causes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|cause| {
                format!(
                    "{}: {}",
                    cause["field"].as_str().unwrap(),
                    cause["message"].as_str().unwrap()
                )
            })
            .collect();
        for (cause, expected) in causes.iter().zip(expected) {
            assert!(cause.starts_with(expected), "{cause}");
        }
        assert_eq!(causes.len(), expected.len(), "{causes:?}");
    };
    check(
        CONFIGMAPS,
        json!({}),
        &["metadata.name: Required value: name or generateName is required"],
    )
    .await;
    let bad_name = "metadata.name: Invalid value: \"Bad_Name\": a lowercase RFC 1123 subdomain must consist of";
    check(
        CONFIGMAPS,
        json!({"metadata": {"name": "Bad_Name"}}),
        &[bad_name],
    )
    .await;
    check(
        CONFIGMAPS,
        json!({"metadata": {"name": "a", "labels": {"-a": "b c"}, "annotations": {"-": ""}, "finalizers": ["x", "a/b"]}}),
        &[
            "metadata.labels: Invalid value: \"-a\": name part must consist of",
            "metadata.labels: Invalid value: \"b c\": a valid label must be",
            "metadata.annotations: Invalid value: \"-\": name part must consist of",
            "metadata.finalizers[0]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified",
        ],
    )
    .await;
    check(
        CONFIGMAPS,
        json!({"metadata": {"name": "a"}, "data": {"a b": ""}}),
        &["data[a b]: Invalid value: \"a b\": a valid config key"],
    )
    .await;
    let huge = json!({"metadata": {"name": "a"}, "data": {"a": "x".repeat(1_048_577)}});
    check(
        CONFIGMAPS,
        huge,
        &["[]: Too long: may not be more than 1048576 bytes"],
    )
    .await;
    let notes = json!({"metadata": {"name": "a", "annotations": {"a": "x".repeat(262_144)}}});
    check(
        CONFIGMAPS,
        notes,
        &["metadata.annotations: Too long: may not be more than 262144 bytes"],
    )
    .await;
    check(
        "/api/v1/namespaces",
        json!({"metadata": {"name": "a.b"}}),
        &["metadata.name: Invalid value: \"a.b\": must not contain dots"],
    )
    .await;
    let answer = server.request("POST", CONFIGMAPS, json!({})).await;
    assert!(
        answer
            .message()
            .starts_with("ConfigMap \"\" is invalid: metadata.name: Required value")
    );
    assert_eq!(
        answer.json()["details"]["kind"],
        "ConfigMap",
        "W45: the kind, not the resource"
    );
}

#[tokio::test]
async fn w50_w134_w140_where_an_object_may_be_created() {
    let server = Server::start().await;
    server.create("a", json!({})).await;
    let again = server
        .request("POST", CONFIGMAPS, json!({"metadata": {"name": "a"}}))
        .await;
    assert_eq!(
        (again.code, again.message().as_str()),
        (409, "configmaps \"a\" already exists")
    );
    let elsewhere = server
        .request(
            "POST",
            CONFIGMAPS,
            json!({"metadata": {"name": "b", "namespace": "other"}}),
        )
        .await;
    let message =
        "the namespace of the provided object does not match the namespace sent on the request";
    assert_eq!(
        (elsewhere.code, elsewhere.message().as_str()),
        (400, message)
    );
    let nowhere = server
        .request(
            "POST",
            "/api/v1/namespaces/nosuch/configmaps",
            json!({"metadata": {"name": "b"}}),
        )
        .await;
    assert_eq!(
        (nowhere.code, nowhere.message().as_str()),
        (404, "namespaces \"nosuch\" not found")
    );
    let versioned = server
        .request(
            "POST",
            CONFIGMAPS,
            json!({"metadata": {"name": "b", "resourceVersion": "5"}}),
        )
        .await;
    let message = "resourceVersion should not be set on objects to be created";
    assert_eq!(
        (versioned.code, versioned.message().as_str()),
        (400, message),
        "W62: upstream says 500"
    );
}

#[tokio::test]
async fn w136_generation_counts_changes_of_the_spec() {
    let server = Server::start().await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let body = |replicas: u64, label: &str| json!({"metadata": {"name": "d", "labels": {"l": label}, "generation": 99}, "spec": {"replicas": replicas}});
    let generation = async |method: &str, path: &str, body: Value| {
        server.request(method, path, body).await.json()["metadata"]["generation"].clone()
    };
    assert_eq!(generation("POST", path, body(1, "a")).await, 1);
    let item = format!("{path}/d");
    assert_eq!(
        generation("PUT", &item, body(1, "b")).await,
        1,
        "metadata does not count"
    );
    assert_eq!(generation("PUT", &item, body(2, "b")).await, 2);
    let status =
        json!({"metadata": {"name": "d"}, "spec": {"replicas": 9}, "status": {"replicas": 2}});
    let answer = server
        .request("PUT", &format!("{item}/status"), status)
        .await
        .json();
    assert_eq!(
        (&answer["spec"]["replicas"], &answer["status"]["replicas"]),
        (&json!(2), &json!(2)),
        "W146"
    );
    assert_eq!(answer["metadata"]["generation"], 2, "status does not count");
    let main = server
        .request(
            "PUT",
            &item,
            json!({"metadata": {"name": "d"}, "spec": {"replicas": 2}, "status": {"replicas": 7}}),
        )
        .await;
    assert_eq!(
        main.json()["status"]["replicas"],
        2,
        "W146: the main resource leaves the status alone"
    );
}

#[tokio::test]
async fn w137_w139_generated_names_and_dry_runs() {
    let server = Server::start().await;
    let generated = server
        .request(
            "POST",
            CONFIGMAPS,
            json!({"metadata": {"generateName": "gen-"}}),
        )
        .await
        .json();
    let name = generated["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("gen-") && name.len() == 9, "{name}");
    let both = server
        .request(
            "POST",
            CONFIGMAPS,
            json!({"metadata": {"name": "n", "generateName": "gen-"}}),
        )
        .await
        .json();
    assert_eq!(
        (&both["metadata"]["name"], &both["metadata"]["generateName"]),
        (&json!("n"), &json!("gen-"))
    );
    let dry = server
        .request(
            "POST",
            &format!("{CONFIGMAPS}?dryRun=All"),
            json!({"metadata": {"name": "dry"}}),
        )
        .await;
    assert_eq!(dry.code, 201);
    assert!(
        dry.json()["metadata"].get("uid").is_some()
            && dry.json()["metadata"].get("resourceVersion").is_none()
    );
    assert_eq!(server.get(&format!("{CONFIGMAPS}/dry")).await.code, 404);
    let wrong = server
        .request(
            "POST",
            &format!("{CONFIGMAPS}?dryRun=foo"),
            json!({"metadata": {"name": "dry"}}),
        )
        .await;
    let message = "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"foo\"]: supported values: \"All\"";
    assert_eq!((wrong.code, wrong.message().as_str()), (422, message));
}

#[tokio::test]
async fn w10_w141_w173_warnings() {
    let server = Server::start().await;
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u1"});
    let body =
        json!({"foo": 1, "metadata": {"name": "a", "bar": 2, "ownerReferences": [owner, owner]}});
    let answer = server.request("POST", CONFIGMAPS, &body).await;
    assert_eq!(answer.code, 201);
    let warnings: Vec<&str> = answer
        .headers
        .get_all("warning")
        .iter()
        .map(|value| value.to_str().unwrap())
        .collect();
    assert_eq!(
        warnings[..2],
        [
            "299 - \"unknown field \\\"metadata.bar\\\"\"",
            "299 - \"unknown field \\\"foo\\\"\""
        ]
    );
    assert!(warnings[2].contains("duplicate UID(s) observed: u1"));
    assert_eq!(
        answer.json()["metadata"]["ownerReferences"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let strict = server
        .request(
            "POST",
            &format!("{CONFIGMAPS}?fieldValidation=Strict"),
            &body,
        )
        .await;
    let expected = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"metadata.bar\", unknown field \"foo\"";
    assert_eq!((strict.code, strict.message().as_str()), (400, expected));
    let ignored = server
        .request(
            "POST",
            &format!("{CONFIGMAPS}?fieldValidation=Ignore"),
            json!({"metadata": {"name": "b"}, "foo": 1}),
        )
        .await;
    assert!(ignored.code == 201 && ignored.headers.get("warning").is_none());
}

#[tokio::test]
async fn w51_w142_w143_w144_w145_updates_that_are_refused() {
    let server = Server::start().await;
    let a = server.create("a", json!({})).await;
    let item = format!("{CONFIGMAPS}/a");
    for (body, code, message) in [
        (
            json!({"name": "b"}),
            400,
            "the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            json!({}),
            400,
            "the name of the object (a based on URL) was undeterminable: name must be provided",
        ),
        (
            json!({"name": "a", "resourceVersion": "1"}),
            409,
            "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again",
        ),
        (
            json!({"name": "a", "resourceVersion": "abc"}),
            400,
            "strconv.ParseUint: parsing \"abc\": invalid syntax",
        ),
        (
            json!({"name": "a", "uid": "bad"}),
            409,
            "Operation cannot be fulfilled on configmaps \"a\": ",
        ),
        (
            json!({"name": "a", "deletionTimestamp": "2001-01-01T00:00:00Z"}),
            422,
            "ConfigMap \"a\" is invalid: metadata.deletionTimestamp: Invalid value",
        ),
    ] {
        let answer = server
            .request("PUT", &item, json!({ "metadata": body }))
            .await;
        assert!(
            answer.code == code && answer.message().starts_with(message),
            "{body}: {}",
            answer.text
        );
    }
    let conflict = server
        .request(
            "PUT",
            &item,
            json!({"metadata": {"name": "a", "uid": "bad"}}),
        )
        .await
        .message();
    assert!(
        conflict.contains("Precondition failed: UID in precondition: bad"),
        "W144"
    );
    let missing = server
        .request(
            "PUT",
            &format!("{CONFIGMAPS}/x"),
            json!({"metadata": {"name": "x"}}),
        )
        .await;
    assert_eq!(missing.code, 404);
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    assert_eq!(
        server
            .request("PUT", lease, json!({"metadata": {"name": "l"}}))
            .await
            .code,
        201,
        "W145"
    );
    let right = server
        .request(
            "PUT",
            &item,
            json!({"metadata": {"name": "a", "resourceVersion": a.to_string()}}),
        )
        .await;
    assert_eq!(right.code, 200, "W143");
}

#[tokio::test]
async fn w148_unconditional_updates_do_not_conflict() {
    let server = Server::start().await;
    server.create("a", json!({})).await;
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let server = Server {
                api: server.api.clone(),
            };
            tokio::spawn(async move {
                for number in 0..20 {
                    server
                        .update("a", json!({}), &format!("{writer}-{number}"))
                        .await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

#[tokio::test]
async fn w143_of_concurrent_conditional_updates_one_wins() {
    let server = Server::start().await;
    for round in 0..20 {
        let name = format!("a{round}");
        let at = server.create(&name, json!({})).await;
        let item = format!("{CONFIGMAPS}/{name}");
        let tries: Vec<_> = (0..6)
            .map(|writer| {
                let (server, item, name) = (Server { api: server.api.clone() }, item.clone(), name.clone());
                tokio::spawn(async move {
                    let body = json!({"metadata": {"name": name, "resourceVersion": at.to_string()}, "data": {"k": format!("by {writer}")}});
                    server.request("PUT", &item, body).await.code
                })
            })
            .collect();
        let mut codes = Vec::new();
        for one in tries {
            codes.push(one.await.unwrap());
        }
        codes.sort_unstable();
        assert_eq!(codes, [200, 409, 409, 409, 409, 409]);
    }
}

#[tokio::test]
async fn immutable_objects_stay_as_they_are() {
    let server = Server::start().await;
    let body = json!({"metadata": {"name": "a"}, "data": {"k": "1"}, "immutable": true});
    server.request("POST", CONFIGMAPS, &body).await;
    let answer = server
        .request(
            "PUT",
            &format!("{CONFIGMAPS}/a"),
            json!({"metadata": {"name": "a"}, "data": {"k": "2"}}),
        )
        .await;
    assert_eq!(
        answer.message(),
        "ConfigMap \"a\" is invalid: [immutable: Forbidden: field is immutable when `immutable` is set, data: Forbidden: field is immutable when `immutable` is set]"
    );
}

#[tokio::test]
async fn w160_w163_w165_deleting() {
    let server = Server::start().await;
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
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": []}});
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
    let server = Server::start().await;
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
        "again the same"
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
async fn w161_policies_hold_an_object_with_finalizers() {
    let server = Server::start().await;
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
async fn w162_pods_that_run_go_gracefully() {
    let server = Server::start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": []}});
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
        "never longer"
    );
    assert_eq!(
        grace("?gracePeriodSeconds=5").await,
        (json!(5), json!(2)),
        "but shorter"
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
async fn w174_namespaces_are_there_from_the_start() {
    let server = Server::start().await;
    assert_eq!(
        server.get("/api/v1/namespaces").await.names(),
        ["default", "kube-node-lease", "kube-public", "kube-system"]
    );
    let made = server
        .request(
            "POST",
            "/api/v1/namespaces",
            json!({"metadata": {"name": "n"}}),
        )
        .await
        .json();
    assert_eq!(
        made["metadata"]["labels"],
        json!({"kubernetes.io/metadata.name": "n"})
    );
    assert_eq!(
        (&made["spec"], &made["status"]),
        (
            &json!({"finalizers": ["kubernetes"]}),
            &json!({"phase": "Active"})
        )
    );
    let refused = server
        .request("DELETE", "/api/v1/namespaces/default", "")
        .await;
    assert_eq!(
        (refused.code, refused.message().as_str()),
        (
            403,
            "namespaces \"default\" is forbidden: this namespace may not be deleted"
        )
    );
}

#[tokio::test]
async fn secrets_take_text_and_keep_bytes() {
    let server = Server::start().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let made = server
        .request(
            "POST",
            secrets,
            json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}}),
        )
        .await
        .json();
    assert_eq!(
        (&made["data"], &made["type"]),
        (&json!({"a": "Yg=="}), &json!("Opaque"))
    );
    assert!(made.get("stringData").is_none());
    let changed = server
        .request(
            "PUT",
            &format!("{secrets}/s"),
            json!({"metadata": {"name": "s"}, "type": "other"}),
        )
        .await;
    assert_eq!(
        changed.message(),
        "Secret \"s\" is invalid: type: Invalid value: \"other\": field is immutable"
    );
    assert_eq!(
        server
            .get(&format!("{secrets}?fieldSelector=type%3DOpaque"))
            .await
            .names(),
        ["s"]
    );
}

#[tokio::test]
async fn w159_a_body_that_is_no_delete_options_deletes_nothing() {
    let server = Server::start().await;
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
        "any group's will do"
    );
}

#[tokio::test]
async fn w143_w145_what_put_does_depends_on_the_kind() {
    let server = Server::start().await;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let body = json!({"metadata": {"name": "l"}});
    let at = server.request("PUT", lease, &body).await.version();
    let blind = server.request("PUT", lease, &body).await;
    let message = "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    assert_eq!((blind.code, blind.message().as_str()), (422, message));
    let seeing = json!({"metadata": {"name": "l", "resourceVersion": at.to_string()}, "spec": {"holderIdentity": "me"}});
    assert_eq!(server.request("PUT", lease, seeing).await.code, 200);
    let service = "/api/v1/namespaces/default/services/s";
    assert_eq!(
        server
            .request("PUT", service, json!({"metadata": {"name": "s"}}))
            .await
            .code,
        201
    );
    let event = "/api/v1/namespaces/default/events";
    let named = server
        .request("POST", event, json!({"metadata": {"name": "Any_Thing"}}))
        .await;
    assert_eq!(
        named.code, 201,
        "W169: events may be called anything that fits into a path: {}",
        named.text
    );
}

#[tokio::test]
async fn w161_a_later_policy_takes_the_place_of_an_earlier_one() {
    let server = Server::start().await;
    let item = format!("{CONFIGMAPS}/a");
    server
        .request(
            "POST",
            CONFIGMAPS,
            json!({"metadata": {"name": "a", "finalizers": ["x.y/z"]}}),
        )
        .await;
    let finalizers = async |options: Value| {
        server.request("DELETE", &item, options).await.json()["metadata"]["finalizers"].clone()
    };
    assert_eq!(
        finalizers(json!({"propagationPolicy": "Foreground"})).await,
        json!(["x.y/z", "foregroundDeletion"])
    );
    assert_eq!(
        finalizers(json!({"propagationPolicy": "Orphan"})).await,
        json!(["x.y/z", "orphan"])
    );
    assert_eq!(
        finalizers(json!({})).await,
        json!(["x.y/z", "orphan"]),
        "silence changes nothing"
    );
    let accepted = server
        .request("DELETE", &item, json!({"orphanDependents": false}))
        .await;
    assert_eq!(
        (accepted.code, &accepted.json()["metadata"]["finalizers"]),
        (202, &json!(["x.y/z"]))
    );
}
