//! Responses in protobuf (W41–W43, W91, W117), compared with the responses in JSON.

use http::Request;
use serde_json::json;
use tidings_schema::FieldKind;
use tidings_schema::protobuf::encode_object;
use tidings_server::{ApiOptions, PluginSet};

use crate::support::{CONFIGMAPS, PROTOBUF, TestResponse, TestServer};

/// The Accept header of the typed clients of client-go.
const TYPED: &str = "application/vnd.kubernetes.protobuf,application/json";
const METADATA: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// Sends a protobuf body and accepts protobuf.
async fn send(server: &TestServer, method: &str, path: &str, body: &[u8]) -> TestResponse {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", PROTOBUF)
        .header("accept", TYPED);
    let body = http_body_util::Full::<bytes::Bytes>::from(body.to_vec());
    server.send(request.body(body).unwrap()).await
}

fn configmap(value: &str) -> Vec<u8> {
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": value}});
    encode_object(object.to_string().as_bytes()).unwrap()
}

fn is_protobuf(answer: &TestResponse) -> bool {
    answer.headers["content-type"] == PROTOBUF && answer.bytes.starts_with(b"k8s\0")
}

#[tokio::test]
async fn w37_w42_every_verb_answers_in_protobuf() {
    let server = TestServer::start().await;
    let path = format!("{CONFIGMAPS}/a");
    let created = send(&server, "POST", CONFIGMAPS, &configmap("1")).await;
    assert_eq!(created.code, 201);
    assert!(is_protobuf(&created));
    assert_eq!(created.json()["data"], json!({"k": "1"}));
    let updated = send(&server, "PUT", &path, &configmap("2")).await;
    assert_eq!(updated.code, 200);
    assert!(is_protobuf(&updated));
    let headers = [
        ("accept", TYPED),
        ("content-type", "application/merge-patch+json"),
    ];
    let patch = r#"{"data":{"text":"é<\"\n"},"binaryData":{"x":"AAEC"}}"#;
    let patched = server
        .request_with_headers("PATCH", &path, &headers, patch)
        .await;
    assert!(is_protobuf(&patched));
    let read = server.get_as(&path, TYPED).await;
    assert!(is_protobuf(&read));
    assert_eq!(read.bytes, patched.bytes);
    let json = server.get(&path).await;
    assert_eq!(read.json(), json.json());
    let deleted = send(&server, "DELETE", &path, b"").await;
    assert!(is_protobuf(&deleted));
    assert_eq!(
        (deleted.code, &deleted.json()["status"]),
        (200, &json!("Success"))
    );
}

#[tokio::test]
async fn w37_protobuf_is_chosen_by_quality_and_order() {
    let server = TestServer::start().await;
    server.create("a", json!({})).await;
    let path = format!("{CONFIGMAPS}/a");
    for (accept, expected) in [
        (PROTOBUF, PROTOBUF),
        (TYPED, PROTOBUF),
        ("application/vnd.kubernetes.protobuf;stream=watch", PROTOBUF),
        ("application/vnd.kubernetes.protobuf;odd=1", PROTOBUF),
        (
            "application/json,application/vnd.kubernetes.protobuf",
            "application/json",
        ),
        (
            "application/vnd.kubernetes.protobuf;q=0.5,application/yaml",
            "application/yaml",
        ),
        ("*/*", "application/json"),
    ] {
        let answer = server.get_as(&path, accept).await;
        assert_eq!(
            (
                answer.code,
                answer.headers["content-type"].to_str().unwrap()
            ),
            (200, expected),
            "{accept}"
        );
    }
}

#[tokio::test]
async fn w37_w70_lists_of_every_resource() {
    let server = TestServer::start().await;
    let mut paths = vec!["/api/v1".to_owned()];
    let groups = server.get("/apis").await.json();
    for group in groups["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            paths.push(format!(
                "/apis/{}",
                version["groupVersion"].as_str().unwrap()
            ));
        }
    }
    let mut count = 0;
    for path in paths {
        let resources = server.get(&path).await.json();
        for resource in resources["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            let verbs = resource["verbs"].as_array().unwrap();
            if !verbs.contains(&"list".into()) {
                continue;
            }
            let list = server.get_as(&format!("{path}/{name}"), PROTOBUF).await;
            assert!(list.code == 200 && is_protobuf(&list), "{path}/{name}");
            let expected = format!("{}List", resource["kind"].as_str().unwrap());
            assert_eq!(list.json()["kind"], expected);
            count += 1;
        }
    }
    assert!(count > 40, "{count} resources");
}

#[tokio::test]
async fn w41_w43_failures_are_in_protobuf() {
    let server = TestServer::start().await;
    for (path, code, reason) in [
        (format!("{CONFIGMAPS}/nosuch"), 404, "NotFound"),
        ("/api/v1/nosuch".to_owned(), 404, "NotFound"),
        (format!("{CONFIGMAPS}?continue=x"), 400, "BadRequest"),
        (
            format!("{CONFIGMAPS}?watch=1&fieldSelector=odd%3D1"),
            400,
            "BadRequest",
        ),
    ] {
        let failed = server.get_as(&path, PROTOBUF).await;
        assert!(is_protobuf(&failed), "{path}");
        let status = failed.json();
        assert_eq!(
            (failed.code, &status["reason"]),
            (code, &json!(reason)),
            "{path}"
        );
        assert_eq!(status, server.get(&path).await.json(), "{path}");
    }
    let closed = TestServer::with_token("secret").await;
    let refused = closed.get_as(CONFIGMAPS, PROTOBUF).await;
    assert!(is_protobuf(&refused));
    assert!(matches!(refused.code, 401 | 403), "{}", refused.code);
}

#[tokio::test]
async fn w42_malformed_protobuf_is_refused_and_nothing_is_stored() {
    let server = TestServer::start().await;
    let good = configmap("v");
    // The message inside a valid envelope is cut off: b"\x0a\x05\x0a\x09abc".
    let inside = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x07\x0a\x05\x0a\x09abc";
    let unknown = b"k8s\0\x0a\x0a\x0a\x02v1\x12\x04Nope\x12\x00";
    let (unrecognized, unhandled) = (
        "the object provided is unrecognized (must be of type ConfigMap): ",
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: ",
    );
    let cases: [(&[u8], String); 6] = [
        (b"", format!("{unrecognized}empty data (<empty>)")),
        (b"{}", format!("{unrecognized}provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] (7b7d)")),
        (&good[..3], format!("{unrecognized}provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] (6b3873)")),
        (&good[..good.len() - 6], format!("{unrecognized}unexpected EOF (6b3873000a0f")),
        (inside, format!("{unhandled}unexpected EOF")),
        (unknown, "Nope in version \"v1\" cannot be handled as a ConfigMap: no kind \"Nope\" is registered for version \"v1\"".into()),
    ];
    for (body, message) in cases {
        let answer = send(&server, "POST", CONFIGMAPS, body).await;
        assert!(is_protobuf(&answer));
        let status = answer.json();
        assert_eq!(
            (answer.code, &status["reason"]),
            (400, &json!("BadRequest"))
        );
        let text = status["message"].as_str().unwrap();
        assert!(text.starts_with(&message), "{text}");
    }
    // Without its last four bytes the body is still valid, so it is cut before them.
    for end in 0..good.len() - 4 {
        let cut = send(&server, "POST", CONFIGMAPS, &good[..end]).await;
        assert!(matches!(cut.code, 400 | 422), "{end}: {}", cut.code);
    }
    assert_eq!(server.get(CONFIGMAPS).await.json()["items"], json!([]));
}

#[tokio::test]
async fn w38_w126_there_are_no_tables_in_protobuf() {
    let server = TestServer::start().await;
    server.create("a", json!({})).await;
    let table = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io";
    for path in [
        CONFIGMAPS.to_owned(),
        format!("{CONFIGMAPS}/a"),
        format!("{CONFIGMAPS}?watch=1"),
    ] {
        let refused = server.get_as(&path, table).await;
        assert_eq!(refused.code, 406);
        assert_eq!(refused.headers["content-type"], "application/json");
        assert_eq!(
            refused.message(),
            "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"
        );
    }
    let next = server
        .get_as(CONFIGMAPS, &format!("{table},application/json"))
        .await;
    assert_eq!(next.json()["kind"], "ConfigMapList");
}

#[tokio::test]
async fn w29_discovery_is_json_if_protobuf_is_preferred() {
    let server = TestServer::start().await;
    let answer = server.get_as("/api/v1", TYPED).await;
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(answer.json()["kind"], "APIResourceList");
}

#[tokio::test]
async fn w70_w81_lists_and_their_pages() {
    let server = TestServer::start().await;
    let empty = server.get_as(CONFIGMAPS, PROTOBUF).await;
    assert!(is_protobuf(&empty));
    assert_eq!(empty.json()["items"], json!(null));
    for at in 0..5 {
        server
            .create(&format!("c{at}"), json!({"at": at.to_string()}))
            .await;
    }
    let list = server.get_as(CONFIGMAPS, PROTOBUF).await;
    assert_eq!(list.json(), server.get(CONFIGMAPS).await.json());
    let first = server
        .get_as(&format!("{CONFIGMAPS}?limit=2"), PROTOBUF)
        .await;
    assert_eq!(first.names(), ["c0", "c1"]);
    let meta = first.json()["metadata"].clone();
    assert_eq!(meta["remainingItemCount"], 3);
    let token = meta["continue"].as_str().unwrap();
    let rest = format!("{CONFIGMAPS}?continue={token}");
    assert_eq!(
        server.get_as(&rest, PROTOBUF).await.names(),
        ["c2", "c3", "c4"]
    );
    let selected = server
        .get_as(&format!("{CONFIGMAPS}?labelSelector=at%3D3"), PROTOBUF)
        .await;
    assert_eq!(selected.names(), ["c3"]);
}

/// The list is longer than the part that is kept while it is measured (`KEPT_BYTES_MAX`), so its end is encoded twice.
#[tokio::test]
async fn w8_w70_long_lists_are_complete_with_and_without_gzip() {
    let server = TestServer::start().await;
    for at in 0..40 {
        let data = json!({"k": "x".repeat(70_000 + at)});
        let body = json!({"metadata": {"name": format!("big{at}")}, "data": data});
        assert_eq!(server.request("POST", CONFIGMAPS, body).await.code, 201);
    }
    let json = server.get(CONFIGMAPS).await.json();
    let plain = server.get_as(CONFIGMAPS, PROTOBUF).await;
    assert!(plain.bytes.len() > 2_800_000);
    assert_eq!(plain.json(), json);
    let headers = [("accept", PROTOBUF), ("accept-encoding", "gzip")];
    let packed = server
        .request_with_headers("GET", CONFIGMAPS, &headers, "")
        .await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert_eq!(packed.bytes, plain.bytes);
    let one = json!({"metadata": {"name": "one"}, "data": {"k": "y".repeat(200_000)}});
    let created = server
        .request_with_headers("POST", CONFIGMAPS, &headers, one)
        .await;
    assert_eq!(
        (
            created.code,
            created.headers["content-encoding"].to_str().unwrap()
        ),
        (201, "gzip")
    );
    assert_eq!(created.json()["metadata"]["name"], "one");
}

#[tokio::test]
async fn w43_w131_metadata_of_objects_lists_and_watches() {
    let server = TestServer::start().await;
    server.create("a", json!({"l": "1"})).await;
    let path = format!("{CONFIGMAPS}/a");
    let json = server
        .get_as(
            &path,
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        )
        .await
        .json();
    let object = server.get_as(&path, METADATA).await;
    assert!(is_protobuf(&object));
    assert_eq!(object.json(), json);
    let list = server.get_as(CONFIGMAPS, METADATA_LIST).await;
    assert!(is_protobuf(&list));
    assert_eq!(list.json()["kind"], "PartialObjectMetadataList");
    assert_eq!(
        list.json()["items"],
        json!([{"metadata": json["metadata"]}])
    );
    assert_eq!(server.get_as(CONFIGMAPS, METADATA).await.code, 406);
    let mut watch = server
        .watch_as(&format!("{CONFIGMAPS}?watch=1"), METADATA)
        .await;
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]), (&json!("ADDED"), &json));
    server.update("a", json!({"l": "2"}), "1").await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(event["object"]["metadata"]["labels"]["l"], "2");
    let old =
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io";
    let named = String::from_utf8_lossy(&server.get_as(&path, old).await.bytes).into_owned();
    assert!(named.contains("meta.k8s.io/v1beta1"), "{named}");
}

#[tokio::test]
async fn w91_w112_w117_json_and_protobuf_watches_have_equal_events() {
    let server = TestServer::start().await;
    server.create("a", json!({"l": "1"})).await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&labelSelector=l%3D1";
    let path = format!("{CONFIGMAPS}?{query}");
    let mut json = server.watch(&path).await;
    let mut frames = server
        .watch_as(&path, &format!("{PROTOBUF};stream=watch"))
        .await;
    server.create("b", json!({"l": "1"})).await;
    server.update("b", json!({"l": "1"}), "1").await;
    // The object leaves the selection, enters it again, and is deleted.
    server.update("b", json!({"l": "2"}), "2").await;
    server.update("b", json!({"l": "1"}), "3").await;
    server.delete("b").await;
    let mut seen = Vec::new();
    for _ in 0..7 {
        let (line, frame) = (json.next().await.unwrap(), frames.next().await.unwrap());
        assert_eq!(frame, line);
        seen.push(frame["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(
        seen,
        [
            "ADDED", "BOOKMARK", "ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"
        ]
    );
}

/// The expected bytes are those that kube-apiserver 1.36.4 sends at the end of the initial events, except for the resourceVersion.
#[tokio::test]
async fn w109_w117_a_bookmark_has_the_bytes_of_kube_apiserver() {
    // Without plugins fewer objects are created at the start.
    let mut options = ApiOptions::default();
    options.plugins = PluginSet::none();
    let server = TestServer::with(options).await;
    let query =
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = server
        .watch_as(&format!("{CONFIGMAPS}?{query}"), PROTOBUF)
        .await;
    let version = server.get(CONFIGMAPS).await.version().to_string();
    assert_eq!(version.len(), 1, "the lengths below are for one digit");
    let expected = [
        b"\0\0\0\x5f\x0a\x08BOOKMARK\x12\x53\x0a\x51k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x36\x0a\x34\
          \x0a\0\x12\0\x1a\0\x22\0\x2a\0\x32\x01",
        version.as_bytes(),
        b"\x38\0\x42\0\x62\x21\x0a\x19k8s.io/initial-events-end\x12\x04true\x1a\0\x22\0",
    ]
    .concat();
    assert_eq!(watch.chunk().await, expected);
}

#[tokio::test]
async fn w96_w114_failures_of_a_watch_are_protobuf_frames() {
    let server = TestServer::start().await;
    tokio::time::pause();
    let path = format!(
        "{CONFIGMAPS}?watch=1&resourceVersion=999999&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    let mut watch = server.watch_as(&path, PROTOBUF).await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "ERROR");
    let status = &event["object"];
    assert_eq!(
        (&status["kind"], &status["code"]),
        (&json!("Status"), &json!(504))
    );
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn w117_watches_share_encoded_events() {
    let server = TestServer::start().await;
    let path = format!("{CONFIGMAPS}?watch=1");
    let mut watches = Vec::new();
    for _ in 0..100 {
        watches.push(server.watch_as(&path, PROTOBUF).await);
        watches.push(server.watch_as(&path, METADATA).await);
    }
    for name in ["a", "b"] {
        server.create(name, json!({})).await;
        let mut chunks = Vec::new();
        for watch in &mut watches {
            chunks.push(watch.chunk().await);
        }
        assert_ne!(chunks[0], chunks[1]);
        // The watches share the same memory, not only equal bytes.
        for pair in chunks.chunks(2) {
            assert_eq!(pair[0].as_ptr(), chunks[0].as_ptr());
            assert_eq!(pair[1].as_ptr(), chunks[1].as_ptr());
        }
    }
}

/// An idle watch drops encoded events with its next bookmark; a watch that comes later encodes them again.
#[tokio::test]
async fn w110_w117_idle_watches_drop_encoded_events() {
    let server = TestServer::start().await;
    let before = server.create("a", json!({})).await;
    let path = format!("{CONFIGMAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={before}");
    let mut first = server.watch_as(&path, PROTOBUF).await;
    server.create("b", json!({})).await;
    let sent = first.chunk().await;
    let soon = server.watch_as(&path, PROTOBUF).await.chunk().await;
    assert_eq!(soon.as_ptr(), sent.as_ptr());
    // Time is paused only now: while the store writes on its own thread, paused time would run ahead.
    tokio::time::pause();
    let bookmark = first.chunk().await;
    assert!(bookmark[4..].starts_with(b"\x0a\x08BOOKMARK"));
    let late = server.watch_as(&path, PROTOBUF).await.chunk().await;
    assert_eq!(late, sent);
    assert_ne!(late.as_ptr(), sent.as_ptr());
}

#[tokio::test]
async fn views_are_encoded_in_the_version_that_they_show() {
    let server = TestServer::start().await;
    let events = "/api/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "message": "told", "count": 2,
        "firstTimestamp": "2026-01-02T03:04:05Z"});
    let created = server.request("POST", events, event).await;
    assert_eq!(created.code, 201, "{}", created.text);
    let autoscalers = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let target = json!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
    let body = json!({"metadata": {"name": "e"}, "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 2,
        "targetCPUUtilizationPercentage": 50}, "status": {"currentReplicas": 1, "desiredReplicas": 2}});
    for (method, path, code) in [
        ("POST", autoscalers.to_owned(), 201),
        ("PUT", format!("{autoscalers}/e/status"), 200),
    ] {
        let answer = server.request(method, &path, &body).await;
        assert_eq!(answer.code, code, "{}", answer.text);
    }
    let newer = "/apis/events.k8s.io/v1/namespaces/default/events";
    for path in [events, newer, autoscalers] {
        for path in [path.to_owned(), format!("{path}/e")] {
            let answer = server.get_as(&path, PROTOBUF).await;
            assert!(is_protobuf(&answer));
            assert_eq!(answer.json(), server.get(&path).await.json(), "{path}");
        }
        let state =
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let watched = format!("{path}?watch=1&{state}");
        let mut json = server.watch(&watched).await;
        let mut frames = server.watch_as(&watched, PROTOBUF).await;
        for _ in 0..2 {
            assert_eq!(frames.next().await, json.next().await);
        }
    }
}

#[tokio::test]
async fn scales_are_encoded_as_scales() {
    let server = TestServer::start().await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let labels = json!({"app": "d"});
    let body = json!({"metadata": {"name": "d"}, "spec": {"replicas": 3, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    assert_eq!(server.request("POST", path, body).await.code, 201);
    let scale = server.get_as(&format!("{path}/d/scale"), PROTOBUF).await;
    assert!(is_protobuf(&scale));
    assert_eq!(scale.json()["kind"], "Scale");
    assert_eq!(
        scale.json(),
        server.get(&format!("{path}/d/scale")).await.json()
    );
    let whole = server.get_as(&format!("{path}/d"), PROTOBUF).await.json();
    assert_eq!(whole["spec"]["replicas"], 3);
    assert_eq!(
        whole["spec"]["template"]["spec"]["containers"][0]["image"],
        "i"
    );
}

/// Every accepted object can be encoded. Otherwise one object would break every list that contains it.
#[tokio::test]
async fn w133_odd_values_are_refused_or_encoded() {
    let server = TestServer::start().await;
    let odd = [
        json!(0),
        json!(-1),
        json!(1.5),
        json!(4_294_967_296_i64),
        json!(u64::MAX),
        json!(true),
        json!(""),
        json!("x"),
        json!("1"),
        json!("AA=="),
        json!("2026-01-02T03:04:05Z"),
        json!("2026-01-02T03:04:05.000006+02:00"),
        json!([]),
        json!([null]),
        json!([1, "x"]),
        json!(["x", null]),
        json!({}),
        json!({"a": null}),
        json!({"a": 1}),
        json!({"a": "x"}),
        json!({"a": ["x", null]}),
    ];
    let (mut refused, mut encoded) = (0, 0);
    for (path, group, version, kind) in [
        ("/api/v1/namespaces/default/pods", "", "v1", "Pod"),
        ("/api/v1/namespaces/default/events", "", "v1", "Event"),
        ("/api/v1/namespaces/default/secrets", "", "v1", "Secret"),
        ("/api/v1/nodes", "", "v1", "Node"),
        ("/api/v1/persistentvolumes", "", "v1", "PersistentVolume"),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            "apps",
            "v1",
            "Deployment",
        ),
        (
            "/apis/apps/v1/namespaces/default/controllerrevisions",
            "apps",
            "v1",
            "ControllerRevision",
        ),
        (
            "/apis/batch/v1/namespaces/default/cronjobs",
            "batch",
            "v1",
            "CronJob",
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            "coordination.k8s.io",
            "v1",
            "Lease",
        ),
        (
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            "certificates.k8s.io",
            "v1",
            "CertificateSigningRequest",
        ),
        (
            "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities",
            "storage.k8s.io",
            "v1",
            "CSIStorageCapacity",
        ),
    ] {
        let path = format!("{path}?dryRun=All&fieldValidation=Ignore");
        let of = tidings_schema::find(group, version, kind).unwrap();
        for field in of
            .members()
            .filter(|field| field.number != 0 && field.name != "metadata")
        {
            // The field itself, and the members of its type.
            let inner = field
                .struct_type()
                .into_iter()
                .flat_map(|inner| inner.members());
            for inner in std::iter::once(None).chain(inner.map(|inner| Some(inner.name))) {
                for value in &odd {
                    let value = match (inner, field.kind) {
                        (None, _) => value.clone(),
                        (Some(name), FieldKind::List(_)) => json!([{name: value}]),
                        (Some(name), FieldKind::Map(_)) => json!({"k": {name: value}}),
                        (Some(name), FieldKind::One(_)) => json!({name: value}),
                    };
                    let body = json!({"metadata": {"name": "x"}, field.name: value});
                    let answer = server
                        .request_with_headers("POST", &path, &[("accept", PROTOBUF)], &body)
                        .await;
                    match answer.code {
                        201 => encoded += 1,
                        400 | 403 | 422 => refused += 1,
                        code => panic!("{code}: {}: {body}", answer.text),
                    }
                }
            }
        }
    }
    assert!(refused > 1000 && encoded > 500, "{refused} {encoded}");
}
