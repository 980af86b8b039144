//! Media types, tables, metadata, compression (W4–W8, W10, W37–W41, W126–W131).

use serde_json::{Value, json};

use crate::support::{CONFIGMAPS, TestServer};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

#[tokio::test]
async fn w4_w5_w6_json_is_compact_unless_pretty_is_asked_for() {
    let server = TestServer::start().await;
    server.create("x", json!({})).await;
    let path = format!("{CONFIGMAPS}/x");
    let compact = server.get(&path).await;
    assert_eq!(compact.headers["content-type"], "application/json");
    assert!(compact.text.ends_with("}\n") && compact.text.matches('\n').count() == 1);
    for (path, headers) in [
        (format!("{path}?pretty=true"), vec![]),
        (path.clone(), vec![("user-agent", "curl/8")]),
        (path.clone(), vec![("accept", "application/json;pretty=1")]),
    ] {
        let pretty = server
            .request_with_headers("GET", &path, &headers, "")
            .await;
        assert!(
            pretty.text.starts_with("{\n  \"kind\": \"ConfigMap\",\n"),
            "{}",
            pretty.text
        );
        assert!(pretty.text.ends_with("\n}"), "no line break at the end");
        assert_eq!(pretty.json(), compact.json());
    }
    let curl = [("user-agent", "curl/8")];
    let list = server
        .request_with_headers("GET", CONFIGMAPS, &curl, "")
        .await;
    assert!(
        list.text.contains("\n  \"items\": [\n    {\n"),
        "{}",
        list.text
    );
    let missing = server
        .request_with_headers("GET", "/api/v1/nosuch", &curl, "")
        .await;
    assert!(missing.text.starts_with("{\n  \"kind\": \"Status\""));
}

#[tokio::test]
async fn w6_watches_are_never_pretty() {
    let server = TestServer::start().await;
    let created = server.create("x", json!({})).await;
    let mut watch = server
        .watch(&format!("{CONFIGMAPS}?watch=1&pretty=true"))
        .await;
    let expected = format!("ADDED x@{created}");
    assert_eq!(watch.brief().await, expected);
}

#[tokio::test]
async fn w8_large_responses_are_compressed_if_the_client_accepts_it() {
    let server = TestServer::start().await;
    for at in 0..4 {
        let body =
            json!({"metadata": {"name": format!("big{at}")}, "data": {"k": "x".repeat(50_000)}});
        assert_eq!(server.request("POST", CONFIGMAPS, body).await.code, 201);
    }
    let gzip = [("accept-encoding", "deflate, gzip")];
    let plain = server.get(CONFIGMAPS).await;
    let packed = server
        .request_with_headers("GET", CONFIGMAPS, &gzip, "")
        .await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert_eq!(packed.headers["vary"], "Accept-Encoding");
    assert_eq!(packed.text, plain.text);
    let small = server
        .request_with_headers("GET", &format!("{CONFIGMAPS}?limit=1"), &gzip, "")
        .await;
    assert!(!small.headers.contains_key("content-encoding"));
    let one = json!({"metadata": {"name": "huge"}, "data": {"k": "y".repeat(200_000)}});
    let created = server
        .request_with_headers("POST", CONFIGMAPS, &gzip, one)
        .await;
    assert_eq!(
        (
            created.code,
            created.headers["content-encoding"].to_str().unwrap()
        ),
        (201, "gzip")
    );
    assert_eq!(created.json()["metadata"]["name"], "huge");
}

#[tokio::test]
async fn w37_w40_w41_yaml_in_and_out() {
    let server = TestServer::start().await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\ndata:\n  a: \"1\"\n";
    let headers = [
        ("content-type", "application/yaml"),
        ("accept", "application/yaml"),
    ];
    let created = server
        .request_with_headers("POST", CONFIGMAPS, &headers, yaml)
        .await;
    assert_eq!(created.code, 201, "{}", created.text);
    assert_eq!(created.headers["content-type"], "application/yaml");
    assert!(
        created
            .text
            .starts_with("apiVersion: v1\ndata:\n  a: \"1\"\nkind: ConfigMap\n"),
        "{}",
        created.text
    );
    let list = server.get_as(CONFIGMAPS, "application/yaml").await;
    assert!(list.text.contains("\nitems:\n- data:\n"), "{}", list.text);
    let missing = server
        .get_as(&format!("{CONFIGMAPS}/nosuch"), "application/yaml")
        .await;
    assert_eq!(
        (
            missing.code,
            missing.headers["content-type"].to_str().unwrap()
        ),
        (404, "application/yaml")
    );
    assert!(
        missing.text.contains("\nreason: NotFound\n"),
        "{}",
        missing.text
    );
    let bad = server
        .request_with_headers("POST", CONFIGMAPS, &headers[..1], "a: b: c")
        .await;
    assert_eq!(bad.code, 400);
    assert!(
        bad.message()
            .starts_with("the object provided is unrecognized (must be of type ConfigMap): yaml: ")
    );
    let path = format!("{CONFIGMAPS}/yaml");
    let options = "kind: DeleteOptions\napiVersion: v1\npropagationPolicy: Background\n";
    assert_eq!(
        server
            .request_with_headers("DELETE", &path, &headers, options)
            .await
            .code,
        200
    );
}

#[tokio::test]
async fn w38_w40_w91_unsupported_media_types_are_refused() {
    let server = TestServer::start().await;
    for accept in ["text/html", "application/cbor", "application/*"] {
        let answer = server.get_as(CONFIGMAPS, accept).await;
        assert_eq!(
            (answer.code, answer.json()["reason"].as_str().unwrap()),
            (406, "NotAcceptable")
        );
        assert!(
            answer.message().starts_with(
                "406: Not Acceptable\n\nAvailable representations: application/json, "
            )
        );
        assert_eq!(answer.json()["details"], json!({}));
    }
    let watch = server
        .get_as(&format!("{CONFIGMAPS}?watch=1"), "application/yaml")
        .await;
    assert_eq!(watch.code, 406);
    assert!(
        watch.text.contains("application/json;stream=watch")
            && watch
                .text
                .contains("application/vnd.kubernetes.protobuf;stream=watch"),
        "{}",
        watch.text
    );
    let media = [("content-type", "text/plain")];
    let body = server
        .request_with_headers("POST", CONFIGMAPS, &media, "{}")
        .await;
    assert_eq!(
        (body.code, body.json()["reason"].as_str().unwrap()),
        (415, "UnsupportedMediaType")
    );
    assert!(
        body.message()
            .starts_with("the body of the request was in an unknown format")
    );
}

#[tokio::test]
async fn w126_w127_w128_a_table_of_configmaps() {
    let server = TestServer::start().await;
    server.create("one", json!({})).await;
    let last = server.create("two", json!({"a": "b"})).await;
    let table = server.get_as(CONFIGMAPS, TABLE).await.json();
    assert_eq!(
        (&table["kind"], &table["apiVersion"]),
        (&json!("Table"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(
        table["metadata"],
        json!({"resourceVersion": last.to_string()})
    );
    let columns: Vec<_> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| {
            (
                column["name"].as_str().unwrap(),
                column["type"].as_str().unwrap(),
                column["format"].as_str().unwrap(),
                column["priority"].as_i64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        columns,
        [
            ("Name", "string", "name", 0),
            ("Data", "string", "", 0),
            ("Age", "string", "", 0)
        ]
    );
    let row = &table["rows"][1];
    assert_eq!(row["cells"][0], "two");
    assert_eq!(row["cells"][1], 1, "a number");
    assert!(row["cells"][2].as_str().unwrap().ends_with('s'));
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(row["object"]["metadata"]["labels"], json!({"a": "b"}));
    let one = server
        .get_as(&format!("{CONFIGMAPS}/two"), TABLE)
        .await
        .json();
    assert_eq!(one["metadata"]["resourceVersion"], last.to_string());
    assert_eq!(one["rows"].as_array().unwrap().len(), 1);
    let page = server
        .get_as(&format!("{CONFIGMAPS}?limit=1"), TABLE)
        .await
        .json();
    assert_eq!(page["metadata"]["remainingItemCount"], 1);
    assert!(page["metadata"]["continue"].is_string());
    let beta = server
        .get_as(
            CONFIGMAPS,
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
        )
        .await
        .json();
    assert_eq!(beta["apiVersion"], "meta.k8s.io/v1beta1");
    let yaml = server
        .get_as(CONFIGMAPS, "application/yaml;as=Table;v=v1;g=meta.k8s.io")
        .await;
    assert!(yaml.text.contains("kind: Table"), "{}", yaml.text);
}

#[tokio::test]
async fn w129_include_object_decides_what_a_row_contains() {
    let server = TestServer::start().await;
    server.create("x", json!({})).await;
    let object = async |include: &str| {
        let answer = server
            .get_as(&format!("{CONFIGMAPS}?includeObject={include}"), TABLE)
            .await;
        (
            answer.code,
            answer.json()["rows"][0]["object"].clone(),
            answer,
        )
    };
    assert_eq!(object("None").await.1, Value::Null);
    assert_eq!(object("").await.1["kind"], "PartialObjectMetadata");
    let (_, whole, _) = object("Object").await;
    assert_eq!(
        (&whole["kind"], &whole["data"]["k"]),
        (&json!("ConfigMap"), &json!("0"))
    );
    let (code, _, answer) = object("Foo").await;
    assert_eq!(code, 400);
    assert_eq!(
        answer.message(),
        "Unable to convert to Table as requested: includeObject: Invalid value: \"Foo\": must be 'Metadata', 'Object', 'None', or empty"
    );
}

#[tokio::test]
async fn w130_a_watch_as_tables_defines_the_columns_once() {
    let server = TestServer::start().await;
    server.create("x", json!({})).await;
    let mut watch = server
        .watch_as(
            &format!("{CONFIGMAPS}?watch=1&allowWatchBookmarks=1"),
            TABLE,
        )
        .await;
    let first = watch.next().await.unwrap();
    assert_eq!(
        (&first["type"], &first["object"]["kind"]),
        (&json!("ADDED"), &json!("Table"))
    );
    assert_eq!(
        first["object"]["columnDefinitions"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    assert_eq!(first["object"]["rows"][0]["cells"][0], "x");
    let end = watch.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    let annotations = &end["object"]["rows"][0]["object"]["metadata"]["annotations"];
    assert_eq!(annotations["k8s.io/initial-events-end"], "true");
    assert_eq!(end["object"]["columnDefinitions"], Value::Null);
    server.update("x", json!({}), "1").await;
    let change = watch.next().await.unwrap();
    assert_eq!(
        (&change["type"], &change["object"]["columnDefinitions"]),
        (&json!("MODIFIED"), &Value::Null)
    );
    let future = format!(
        "{CONFIGMAPS}?watch=1&resourceVersion=999999&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    let error = server.watch_as(&future, TABLE).await.next().await.unwrap();
    assert_eq!(error["object"]["kind"], "Status", "errors are no tables");
}

#[tokio::test]
async fn w131_metadata_of_objects_and_lists() {
    let server = TestServer::start().await;
    server.create("x", json!({"a": "b"})).await;
    let path = format!("{CONFIGMAPS}/x");
    let whole = server.get(&path).await.json();
    let one = server.get_as(&path, METADATA).await.json();
    assert_eq!(
        one,
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": whole["metadata"]})
    );
    let list = server.get_as(CONFIGMAPS, METADATA_LIST).await.json();
    assert_eq!(
        (&list["kind"], &list["items"][0]),
        (&json!("PartialObjectMetadataList"), &one)
    );
    let wrong = server.get_as(CONFIGMAPS, METADATA).await;
    assert_eq!(wrong.code, 406);
    assert_eq!(
        wrong.message(),
        "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)"
    );
    let wrong = server.get_as(&path, METADATA_LIST).await;
    assert_eq!(
        wrong.message(),
        "you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)"
    );
    let mut watch = server
        .watch_as(
            &format!("{CONFIGMAPS}?watch=1&allowWatchBookmarks=1"),
            METADATA,
        )
        .await;
    assert_eq!(watch.next().await.unwrap()["object"], one);
    let end = watch.next().await.unwrap();
    assert_eq!(end["object"]["kind"], "PartialObjectMetadata");
}
