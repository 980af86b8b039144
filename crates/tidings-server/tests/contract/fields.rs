//! Unknown and duplicate fields, for each kind of write (W172, W173): the cases of kube-apiserver's integration tests with Deployments.

use serde_json::json;

use crate::support::{CONFIGMAPS, TestResponse, TestServer, pods_of};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// A Deployment with unknown and duplicate fields.
const ODD: &str = r#"{
  "apiVersion": "apps/v1",
  "kind": "Deployment",
  "metadata": {"name": "dupename", "name": "odd", "unknownMeta": "metaVal", "labels": {"app": "nginx"}},
  "spec": {
    "unknown1": "val1",
    "unknownDupe": "valDupe",
    "unknownDupe": "valDupe2",
    "paused": true,
    "paused": false,
    "selector": {"matchLabels": {"app": "nginx"}},
    "template": {
      "metadata": {"labels": {"app": "nginx"}},
      "spec": {"containers": [{
        "name": "nginx",
        "image": "nginx:latest",
        "unknownNested": "val1",
        "imagePullPolicy": "Always",
        "imagePullPolicy": "Never"
      }]}
    }
  }
}"#;

/// The messages for `ODD`, in order. An unknown field that is also a duplicate is reported only as unknown.
const ODD_MESSAGES: &[&str] = &[
    r#"duplicate field "metadata.name""#,
    r#"unknown field "metadata.unknownMeta""#,
    r#"unknown field "spec.unknown1""#,
    r#"unknown field "spec.unknownDupe""#,
    r#"duplicate field "spec.paused""#,
    r#"unknown field "spec.template.spec.containers[0].unknownNested""#,
    r#"duplicate field "spec.template.spec.containers[0].imagePullPolicy""#,
];

/// A patch with the unknown and duplicate fields of `ODD`.
const ODD_PATCH: &str = r#"{"spec": {
    "unknown1": "val1",
    "unknownDupe": "valDupe",
    "unknownDupe": "valDupe2",
    "paused": true,
    "paused": false,
    "template": {"spec": {"containers": [{
        "name": "nginx",
        "image": "nginx:latest",
        "unknownNested": "val1",
        "imagePullPolicy": "Always",
        "imagePullPolicy": "Never"
    }]}}
}}"#;

/// The messages for `ODD_PATCH`: first the duplicate fields of the patch, then the unknown fields of its result.
const ODD_PATCH_MESSAGES: &[&str] = &[
    r#"duplicate field "spec.unknownDupe""#,
    r#"duplicate field "spec.paused""#,
    r#"duplicate field "spec.template.spec.containers[0].imagePullPolicy""#,
    r#"unknown field "spec.template.spec.containers[0].unknownNested""#,
    r#"unknown field "spec.unknown1""#,
    r#"unknown field "spec.unknownDupe""#,
];

/// A patch with duplicate fields, whose result is valid.
const DUPLICATES_PATCH: &str = r#"{"spec": {
    "paused": true,
    "paused": false,
    "template": {"spec": {"containers": [{
        "name": "nginx",
        "image": "nginx:latest",
        "imagePullPolicy": "Always",
        "imagePullPolicy": "Never"
    }]}}
}}"#;

const DUPLICATES_MESSAGES: &[&str] = &[
    r#"duplicate field "spec.paused""#,
    r#"duplicate field "spec.template.spec.containers[0].imagePullPolicy""#,
];

const OPERATIONS: &str = r#"[
    {"op": "add", "path": "/spec/unknown1", "value": "val1", "foo": "bar"},
    {"op": "add", "path": "/spec/unknown2", "path": "/spec/unknown3", "value": "val1"},
    {"op": "add", "path": "/spec/unknownDupe", "value": "valDupe"},
    {"op": "add", "path": "/spec/unknownDupe", "value": "valDupe2"},
    {"op": "add", "path": "/spec/paused", "value": true},
    {"op": "add", "path": "/spec/paused", "value": false},
    {"op": "add", "path": "/spec/template/spec/containers/0/unknownNested", "value": "val1"},
    {"op": "add", "path": "/spec/template/spec/containers/0/imagePullPolicy", "value": "Always"},
    {"op": "add", "path": "/spec/template/spec/containers/0/imagePullPolicy", "value": "Never"}
]"#;

const OPERATIONS_MESSAGES: &[&str] = &[
    r#"json patch unknown field "[0].foo""#,
    r#"json patch duplicate field "[1].path""#,
    r#"unknown field "spec.template.spec.containers[0].unknownNested""#,
    r#"unknown field "spec.unknown1""#,
    r#"unknown field "spec.unknown3""#,
    r#"unknown field "spec.unknownDupe""#,
];

/// The texts of the warnings, in order.
fn warnings(answer: &TestResponse) -> Vec<String> {
    let values = answer.headers.get_all("warning").iter();
    let texts = values.map(|value| {
        let quoted = value.to_str().unwrap().strip_prefix("299 - ").unwrap();
        serde_json::from_str(quoted).unwrap()
    });
    texts.collect()
}

/// Sends a dry-run write with each value of `fieldValidation`, and compares the warnings or the error with the expected messages.
async fn check(
    server: &TestServer,
    write: (&str, &str),
    media_type: &str,
    body: &str,
    messages: &[&str],
) {
    let (method, path) = write;
    for validation in ["", "Warn", "Ignore", "Strict"] {
        let path = format!("{path}?dryRun=All&fieldManager=m&fieldValidation={validation}");
        let headers = [("content-type", media_type)];
        let answer = server
            .request_with_headers(method, &path, &headers, body)
            .await;
        let about = format!("{method} {media_type} {validation}: {}", answer.text);
        if validation == "Strict" {
            assert!(answer.code >= 400, "{about}");
            let strict = format!("strict decoding error: {}", messages.join(", "));
            assert!(answer.message().ends_with(&strict), "{about}");
        } else {
            assert!(answer.code < 300, "{about}");
            let messages = if validation == "Ignore" {
                &[]
            } else {
                messages
            };
            assert_eq!(warnings(&answer), messages, "{about}");
        }
    }
}

/// A server with a valid Deployment.
async fn with_deployment() -> (TestServer, String) {
    let server = TestServer::start().await;
    let mut deployment = json!({"metadata": {"name": "odd"}, "spec": pods_of(json!({
        "selector": {"matchLabels": {"app": "nginx"}},
    }))});
    deployment["spec"]["template"] = json!({
        "metadata": {"labels": {"app": "nginx"}},
        "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]},
    });
    let created = server.request("POST", DEPLOYMENTS, deployment).await;
    assert_eq!(created.code, 201, "{}", created.text);
    (server, format!("{DEPLOYMENTS}/odd"))
}

#[tokio::test]
async fn w173_odd_fields_of_a_create() {
    let server = TestServer::start().await;
    let write = ("POST", DEPLOYMENTS);
    check(&server, write, "application/json", ODD, ODD_MESSAGES).await;
}

#[tokio::test]
async fn w173_each_odd_field_is_reported_once() {
    let server = TestServer::start().await;
    let body = r#"{"data":{"a":"1"},"zip":{"q":1,"q":2},"metadata":{"name":"x","labels":{"l":"1","l":"2","l":"3"}},
        "data":{"b":"1","b":"2"},"zip":1,"data":{}}"#;
    let messages = [
        r#"unknown field "zip""#,
        r#"duplicate field "metadata.labels.l""#,
        r#"duplicate field "data""#,
        r#"duplicate field "data.b""#,
    ];
    let write = ("POST", CONFIGMAPS);
    check(&server, write, "application/json", body, &messages).await;
}

#[tokio::test]
async fn w173_odd_fields_of_an_update() {
    let (server, path) = with_deployment().await;
    check(
        &server,
        ("PUT", &path),
        "application/json",
        ODD,
        ODD_MESSAGES,
    )
    .await;
}

#[tokio::test]
async fn w173_odd_fields_of_merge_patches() {
    let (server, path) = with_deployment().await;
    for media_type in [
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    ] {
        let write = ("PATCH", &*path);
        check(&server, write, media_type, ODD_PATCH, ODD_PATCH_MESSAGES).await;
        check(
            &server,
            write,
            media_type,
            DUPLICATES_PATCH,
            DUPLICATES_MESSAGES,
        )
        .await;
    }
}

#[tokio::test]
async fn w173_odd_fields_of_json_patches() {
    let (server, path) = with_deployment().await;
    let media_type = "application/json-patch+json";
    let write = ("PATCH", &*path);
    check(&server, write, media_type, OPERATIONS, OPERATIONS_MESSAGES).await;
}

#[tokio::test]
async fn w173_duplicate_fields_of_an_apply() {
    let (server, path) = with_deployment().await;
    let body = r#"{
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "odd"
        },
        "spec": {
            "paused": false,
            "paused": true,
            "template": {"spec": {"containers": [{
                "name": "nginx",
                "imagePullPolicy": "Never",
                "imagePullPolicy": "Always"
            }]}}
        }
    }"#;
    let messages = [
        r#"line 9: key "paused" already set in map"#,
        r#"line 13: key "imagePullPolicy" already set in map"#,
    ];
    for validation in ["", "Warn", "Ignore", "Strict"] {
        let path =
            format!("{path}?dryRun=All&fieldManager=m&force=true&fieldValidation={validation}");
        let headers = [("content-type", "application/apply-patch+yaml")];
        let answer = server
            .request_with_headers("PATCH", &path, &headers, body)
            .await;
        if validation == "Strict" {
            let why = format!(
                "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {}",
                messages.join("\n  ")
            );
            assert_eq!((answer.code, answer.message()), (400, why));
        } else {
            assert_eq!(answer.code, 200, "{}", answer.text);
            let messages = if validation == "Ignore" {
                &[][..]
            } else {
                &messages
            };
            assert_eq!(warnings(&answer), messages, "{validation}");
        }
    }
}
