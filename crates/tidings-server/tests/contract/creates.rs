//! POST: the created object, and the requests that are refused.

use serde_json::{Value, json};

use crate::support::{CONFIGMAPS, TestServer};

#[tokio::test]
async fn w7_w132_w135_w138_metadata_and_member_order_of_a_created_object() {
    let server = TestServer::start().await;
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
            "labels",
            "managedFields"
        ]
    );
    assert_eq!(meta["uid"].as_str().unwrap().len(), 36);
    assert_ne!(meta["creationTimestamp"], "2001-01-01T00:00:00Z");
    assert_eq!(
        meta["generation"], 7,
        "W136: this kind keeps the generation that the client sends"
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
async fn w132_w133_bodies_that_are_not_an_object_of_the_kind_are_refused() {
    let server = TestServer::start().await;
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
async fn w52_w169_w170_w171_invalid_objects_are_refused() {
    let server = TestServer::start().await;
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
async fn w50_w134_w140_creates_with_a_wrong_name_namespace_or_version_are_refused() {
    let server = TestServer::start().await;
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
    // Deviation W62: 400 with the same text for a create that has a resourceVersion
    assert_eq!(
        (versioned.code, versioned.message().as_str()),
        (400, message),
        "W62: upstream says 500"
    );
}

#[tokio::test]
async fn w137_w139_generated_names_and_dry_runs() {
    let server = TestServer::start().await;
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
async fn w10_w141_w173_warnings_for_unknown_fields_and_duplicate_owners() {
    let server = TestServer::start().await;
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
            "299 - \"unknown field \\\"foo\\\"\"",
            "299 - \"unknown field \\\"metadata.bar\\\"\""
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
    let expected = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"foo\", unknown field \"metadata.bar\"";
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
async fn w174_default_namespaces_exist_from_the_start() {
    let server = TestServer::start().await;
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
async fn secrets_store_string_data_as_base64_data() {
    let server = TestServer::start().await;
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
