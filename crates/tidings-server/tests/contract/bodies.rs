//! Bodies of requests: protobuf, malformed values, unknown and duplicate fields (W42, W43, W169, W172, W173).

use http::Request;
use serde_json::{Value, json};

use crate::support::{CONFIGMAPS, TestServer};

/// A length-delimited protobuf field.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap();
    assert!(length < 128, "the length fits into one byte");
    [&[number << 3 | 2, length], bytes].concat()
}

/// A protobuf object in the envelope that clients send.
fn envelope(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let types = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &types), field(2, raw)].concat()
}

async fn send(server: &TestServer, method: &str, path: &str, body: Vec<u8>) -> (u16, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/vnd.kubernetes.protobuf")
        .header(
            "accept",
            "application/vnd.kubernetes.protobuf,application/json",
        )
        .body(http_body_util::Full::<bytes::Bytes>::from(body));
    let answer = server.send(request.unwrap()).await;
    (answer.code, answer.json())
}

#[tokio::test]
async fn w42_w43_bodies_may_be_protobuf() {
    let server = TestServer::start().await;
    let data = [field(1, b"k"), field(2, b"v")].concat();
    let configmap = [field(1, &field(1, b"proto")), field(2, &data)].concat();
    let (code, created) = send(
        &server,
        "POST",
        CONFIGMAPS,
        envelope("v1", "ConfigMap", &configmap),
    )
    .await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(
        (&created["metadata"]["name"], &created["data"]),
        (&json!("proto"), &json!({"k": "v"}))
    );
    let path = format!("{CONFIGMAPS}/proto");
    let policy = field(4, b"Foreground");
    let (code, held) = send(
        &server,
        "DELETE",
        &path,
        envelope("v1", "DeleteOptions", &policy),
    )
    .await;
    assert_eq!(
        (code, &held["metadata"]["finalizers"]),
        (200, &json!(["foregroundDeletion"]))
    );
    let (code, status) = send(&server, "POST", CONFIGMAPS, b"nonsense".to_vec()).await;
    assert_eq!(code, 400);
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        ),
        "{message}"
    );
    let (code, wrong) = send(&server, "POST", CONFIGMAPS, envelope("v1", "Secret", b"")).await;
    assert_eq!(code, 400);
    assert!(
        wrong["message"]
            .as_str()
            .unwrap()
            .starts_with("Secret in version \"v1\" cannot be handled as a ConfigMap")
    );
}

#[tokio::test]
async fn w173_unknown_and_duplicate_fields() {
    let server = TestServer::start().await;
    let body = r#"{"metadata":{"name":"a","name":"b","zoo":1},"data":{"k":"1","k":"2"},"data":{"z":"1"},"foo":1}"#;
    let warned = server.request("POST", CONFIGMAPS, body).await;
    assert_eq!(
        (warned.code, warned.json()["data"].clone()),
        (201, json!({"k": "2", "z": "1"}))
    );
    let mut warnings: Vec<_> = warned
        .headers
        .get_all("warning")
        .iter()
        .map(|value| value.to_str().unwrap())
        .collect();
    warnings.sort_unstable();
    assert_eq!(
        warnings,
        [
            r#"299 - "duplicate field \"data.k\"""#,
            r#"299 - "duplicate field \"data\"""#,
            r#"299 - "duplicate field \"metadata.name\"""#,
            r#"299 - "unknown field \"foo\"""#,
            r#"299 - "unknown field \"metadata.zoo\"""#,
        ]
    );
    let strict = server
        .request(
            "POST",
            &format!("{CONFIGMAPS}?fieldValidation=Strict"),
            body,
        )
        .await;
    assert_eq!(strict.code, 400);
    assert!(strict.message().starts_with("ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: duplicate field \"metadata.name\", "), "{}", strict.text);
    let ignored = server
        .request(
            "POST",
            &format!("{CONFIGMAPS}?fieldValidation=Ignore&dryRun=All"),
            body.replace("\"b\"", "\"c\""),
        )
        .await;
    assert_eq!(
        (ignored.code, ignored.headers.contains_key("warning")),
        (201, false)
    );
}

#[tokio::test]
async fn w173_unknown_fields_deep_inside_an_object() {
    let server = TestServer::start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "b", "imagge": "c"}], "nodeSelector": {"any": "thing"}}});
    let warned = server.request("POST", pods, &pod).await;
    assert_eq!(
        warned.headers["warning"],
        r#"299 - "unknown field \"spec.containers[0].imagge\"""#
    );
    assert_eq!(
        warned.json()["spec"]["containers"][0].get("imagge"),
        None,
        "the unknown field is not stored"
    );
    let strict = server
        .request("POST", &format!("{pods}?fieldValidation=Strict"), &pod)
        .await;
    assert_eq!(
        strict.message(),
        "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: unknown field \"spec.containers[0].imagge\""
    );
}

#[tokio::test]
async fn w169_invalid_names_in_the_path_are_refused() {
    let server = TestServer::start().await;
    for (name, why) in [
        ("..", "\"..\": may not be '..'"),
        ("%2e", "\".\": may not be '.'"),
        ("a%25b", "\"a%b\": may not contain '%'"),
    ] {
        let answer = server.get(&format!("{CONFIGMAPS}/{name}")).await;
        assert_eq!(
            (answer.code, answer.message()),
            (400, format!("Name parameter invalid: {why}"))
        );
    }
}

#[tokio::test]
async fn w133_malformed_values_are_refused() {
    let server = TestServer::start().await;
    let secret = json!({"metadata": {"name": "s"}, "data": {"k": "!!!"}});
    let answer = server
        .request("POST", "/api/v1/namespaces/default/secrets", secret)
        .await;
    assert_eq!(
        answer.message(),
        "Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data at input byte 0"
    );
    let phase = json!({"metadata": {"name": "default"}, "status": {"phase": "Foo"}});
    let answer = server
        .request("PUT", "/api/v1/namespaces/default/status", phase)
        .await;
    assert_eq!(
        answer.message(),
        "Namespace \"default\" is invalid: status.Phase: Invalid value: \"Foo\": may only be 'Active' if `deletionTimestamp` is empty"
    );
}

#[tokio::test]
async fn w133_values_of_the_wrong_json_type_are_refused() {
    let server = TestServer::start().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    for (spec, why) in [
        (
            json!({"replicas": "two"}),
            "string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            json!({"template": {"spec": {"containers": {}}}}),
            "object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
        ),
        (
            json!({"template": {"spec": {"containers": [{"image": 1}]}}}),
            "number into Go struct field Container.spec.template.spec.containers.image of type string",
        ),
        (
            json!({"paused": "yes"}),
            "string into Go struct field DeploymentSpec.spec.paused of type bool",
        ),
        (
            json!({"strategy": {"rollingUpdate": {"maxSurge": 1.5}}}),
            "number 1.5 into Go struct field RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge of type int32",
        ),
    ] {
        let body = json!({"metadata": {"name": "d"}, "spec": spec});
        let answer = server.request("POST", deployments, body).await;
        let expected = format!(
            "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal {why}"
        );
        assert_eq!((answer.code, answer.message()), (400, expected));
    }
}

#[tokio::test]
async fn w133_malformed_quantities_times_and_bytes_are_refused() {
    let server = TestServer::start().await;
    let container = json!({"name": "c", "image": "i", "resources": {"limits": {"cpu": "abc"}}});
    for (path, kind, body, why) in [
        (
            "/api/v1/namespaces/default/pods",
            "Pod",
            json!({"spec": {"containers": [container]}}),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "/api/v1/namespaces/default/events",
            "Event",
            json!({"involvedObject": {"namespace": "default"}, "firstTimestamp": "yesterday"}),
            "parsing time \"yesterday\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"yesterday\" as \"2006\"",
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            "ValidatingWebhookConfiguration",
            json!({"webhooks": [{"name": "a.b.c", "clientConfig": {"caBundle": "?a"}}]}),
            "illegal base64 data at input byte 0",
        ),
        (
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            "CertificateSigningRequest",
            json!({"spec": {"extra": {"a": [1]}}}),
            "json: cannot unmarshal number into Go struct field CertificateSigningRequestSpec.spec.extra of type string",
        ),
    ] {
        let mut body = body;
        body["metadata"] = json!({"name": "x"});
        let answer = server.request("POST", path, body).await;
        let expected = format!("{kind} in version \"v1\" cannot be handled as a {kind}: {why}");
        assert_eq!((answer.code, answer.message()), (400, expected));
    }
}
