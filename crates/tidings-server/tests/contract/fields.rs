//! Fields that do not exist or occur twice, for each way to write (W172, W173): the cases that the original publishes for
//! Deployments.

use serde_json::json;

use crate::support::{Answer, CONFIGMAPS, Server, pods_of};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// A Deployment with a name that occurs twice and the like.
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

/// What is odd about it, in the order in which it is told. What does not exist is not told to occur twice.
const OF_A_BODY: &[&str] = &[
    r#"duplicate field "metadata.name""#,
    r#"unknown field "metadata.unknownMeta""#,
    r#"unknown field "spec.unknown1""#,
    r#"unknown field "spec.unknownDupe""#,
    r#"duplicate field "spec.paused""#,
    r#"unknown field "spec.template.spec.containers[0].unknownNested""#,
    r#"duplicate field "spec.template.spec.containers[0].imagePullPolicy""#,
];

/// A patch that makes the same of a Deployment.
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

/// First what occurs twice in the patch, then what does not exist in what it makes.
const OF_A_PATCH: &[&str] = &[
    r#"duplicate field "spec.unknownDupe""#,
    r#"duplicate field "spec.paused""#,
    r#"duplicate field "spec.template.spec.containers[0].imagePullPolicy""#,
    r#"unknown field "spec.template.spec.containers[0].unknownNested""#,
    r#"unknown field "spec.unknown1""#,
    r#"unknown field "spec.unknownDupe""#,
];

/// A patch whose result is in order.
const TWICE_PATCH: &str = r#"{"spec": {
    "paused": true,
    "paused": false,
    "template": {"spec": {"containers": [{
        "name": "nginx",
        "image": "nginx:latest",
        "imagePullPolicy": "Always",
        "imagePullPolicy": "Never"
    }]}}
}}"#;

const OF_TWICE: &[&str] = &[
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

const OF_OPERATIONS: &[&str] = &[
    r#"json patch unknown field "[0].foo""#,
    r#"json patch duplicate field "[1].path""#,
    r#"unknown field "spec.template.spec.containers[0].unknownNested""#,
    r#"unknown field "spec.unknown1""#,
    r#"unknown field "spec.unknown3""#,
    r#"unknown field "spec.unknownDupe""#,
];

/// The texts of the warnings, in their order.
fn warnings(answer: &Answer) -> Vec<String> {
    let values = answer.headers.get_all("warning").iter();
    let texts = values.map(|value| {
        let quoted = value.to_str().unwrap().strip_prefix("299 - ").unwrap();
        serde_json::from_str(quoted).unwrap()
    });
    texts.collect()
}

/// Sends a write with each value of `fieldValidation` and looks at what is told. Nothing is stored.
async fn check(server: &Server, write: (&str, &str), media_type: &str, body: &str, told: &[&str]) {
    let (method, path) = write;
    for validation in ["", "Warn", "Ignore", "Strict"] {
        let path = format!("{path}?dryRun=All&fieldManager=m&fieldValidation={validation}");
        let headers = [("content-type", media_type)];
        let answer = server.ask(method, &path, &headers, body).await;
        let about = format!("{method} {media_type} {validation}: {}", answer.text);
        if validation == "Strict" {
            assert!(answer.code >= 400, "{about}");
            let strict = format!("strict decoding error: {}", told.join(", "));
            assert!(answer.message().ends_with(&strict), "{about}");
        } else {
            assert!(answer.code < 300, "{about}");
            let told = if validation == "Ignore" { &[] } else { told };
            assert_eq!(warnings(&answer), told, "{about}");
        }
    }
}

/// A server with a Deployment that is in order.
async fn with_deployment() -> (Server, String) {
    let server = Server::start().await;
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
async fn w173_of_what_is_created() {
    let server = Server::start().await;
    let write = ("POST", DEPLOYMENTS);
    check(&server, write, "application/json", ODD, OF_A_BODY).await;
}

#[tokio::test]
async fn w173_each_is_told_once_where_it_is_met() {
    let server = Server::start().await;
    let body = r#"{"data":{"a":"1"},"zip":{"q":1,"q":2},"metadata":{"name":"x","labels":{"l":"1","l":"2","l":"3"}},
        "data":{"b":"1","b":"2"},"zip":1,"data":{}}"#;
    let told = [
        r#"unknown field "zip""#,
        r#"duplicate field "metadata.labels.l""#,
        r#"duplicate field "data""#,
        r#"duplicate field "data.b""#,
    ];
    let write = ("POST", CONFIGMAPS);
    check(&server, write, "application/json", body, &told).await;
}

#[tokio::test]
async fn w173_of_what_replaces() {
    let (server, path) = with_deployment().await;
    check(&server, ("PUT", &path), "application/json", ODD, OF_A_BODY).await;
}

#[tokio::test]
async fn w173_of_merge_patches() {
    let (server, path) = with_deployment().await;
    for media_type in [
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    ] {
        let write = ("PATCH", &*path);
        check(&server, write, media_type, ODD_PATCH, OF_A_PATCH).await;
        check(&server, write, media_type, TWICE_PATCH, OF_TWICE).await;
    }
}

#[tokio::test]
async fn w173_of_json_patches() {
    let (server, path) = with_deployment().await;
    let media_type = "application/json-patch+json";
    let write = ("PATCH", &*path);
    check(&server, write, media_type, OPERATIONS, OF_OPERATIONS).await;
}

#[tokio::test]
async fn w173_of_what_is_applied() {
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
    let told = [
        r#"line 9: key "paused" already set in map"#,
        r#"line 13: key "imagePullPolicy" already set in map"#,
    ];
    for validation in ["", "Warn", "Ignore", "Strict"] {
        let path =
            format!("{path}?dryRun=All&fieldManager=m&force=true&fieldValidation={validation}");
        let headers = [("content-type", "application/apply-patch+yaml")];
        let answer = server.ask("PATCH", &path, &headers, body).await;
        if validation == "Strict" {
            let why = format!(
                "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {}",
                told.join("\n  ")
            );
            assert_eq!((answer.code, answer.message()), (400, why));
        } else {
            assert_eq!(answer.code, 200, "{}", answer.text);
            let told = if validation == "Ignore" {
                &[][..]
            } else {
                &told
            };
            assert_eq!(warnings(&answer), told, "{validation}");
        }
    }
}
