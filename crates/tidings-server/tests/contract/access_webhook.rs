//! A webhook that decides who may do what: asked before or after roles and bindings, remembered, failing.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tidings_server::{
    ApiOptions, Authentication, AuthorizationMode, AuthorizationWebhook, Credentials,
    ReviewVersion, Webhook,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{TestResponse, TestServer};

const TOKENS: &str = "ann,ann,1,\"dev\"\nbob,bob,2\nmaster,root,3,system:masters\n";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

type Asked = Arc<Mutex<Vec<Value>>>;
type Decide = fn(&Value) -> Value;

/// Answers reviews on a connection.
async fn answer(stream: TcpStream, decide: Decide, asked: Asked) {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut length, mut line) = (0, String::new());
        while stream.read_line(&mut line).await.unwrap_or(0) > 2 {
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            line.clear();
        }
        if length == 0 {
            return;
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let mut review: Value = serde_json::from_slice(&body).unwrap();
        review["status"] = decide(&review["spec"]);
        asked.lock().unwrap().push(review["spec"].clone());
        let body = review.to_string();
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

/// A server with these modes that asks a service.
async fn server(modes: &[AuthorizationMode], decide: Decide) -> (TestServer, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/authorize", listener.local_addr().unwrap());
    let asked = Asked::default();
    let noted = asked.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, decide, noted.clone()));
        }
    });
    (server_with(modes, &url).await, asked)
}

async fn server_with(modes: &[AuthorizationMode], url: &str) -> TestServer {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    std::fs::write(&path, TOKENS).unwrap();
    let credentials = Credentials::default().token_file(&path).unwrap();
    let mut options = ApiOptions::default();
    options.authentication = Authentication::Credentials(credentials);
    options.authorization = modes.to_vec();
    let mut webhook = AuthorizationWebhook::new(Webhook::at(url, None).unwrap());
    webhook.version = ReviewVersion::V1;
    options.authorization_webhook = Some(webhook);
    TestServer::with(options).await
}

async fn ask(
    server: &TestServer,
    token: &str,
    method: &str,
    path: &str,
    body: Value,
) -> TestResponse {
    let bearer = format!("Bearer {token}");
    let headers = [
        ("authorization", &*bearer),
        ("content-type", "application/json"),
    ];
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    server
        .request_with_headers(method, path, &headers, body)
        .await
}

async fn get(server: &TestServer, token: &str, path: &str) -> TestResponse {
    ask(server, token, "GET", path, Value::Null).await
}

/// ann may read Pods in blue, nobody may read Secrets, and about the rest it has no opinion.
fn decide(spec: &Value) -> Value {
    let on = &spec["resourceAttributes"];
    match (spec["user"].as_str(), on["resource"].as_str()) {
        (_, Some("secrets")) => {
            json!({"allowed": false, "denied": true, "reason": "secrets are secret"})
        }
        (Some("ann"), Some("pods")) if on["namespace"] == "blue" => json!({"allowed": true}),
        _ => json!({"allowed": false, "reason": "not my business"}),
    }
}

#[tokio::test]
async fn a_webhook_allows_denies_or_leaves_it_to_the_next_mode() {
    let modes = [AuthorizationMode::Webhook, AuthorizationMode::Rbac];
    let (server, asked) = server(&modes, decide).await;
    let all = json!({
        "metadata": {"name": "all"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bob"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(
        ask(&server, "master", "POST", bindings, all).await.code,
        201
    );
    assert_eq!(
        asked.lock().unwrap().len(),
        0,
        "masters are not asked about"
    );

    assert_eq!(
        get(&server, "ann", "/api/v1/namespaces/blue/pods")
            .await
            .code,
        200
    );
    let refused = get(&server, "ann", "/api/v1/namespaces/red/pods").await;
    assert_eq!(refused.code, 403);
    let message = r#"pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "red": not my business"#;
    assert_eq!(refused.json()["message"], message);
    // Roles allow bob everything, but the webhook stands before them.
    assert_eq!(get(&server, "bob", "/api/v1/configmaps").await.code, 200);
    let denied = get(&server, "bob", "/api/v1/secrets").await;
    assert_eq!(denied.code, 403);
    assert!(
        denied
            .text
            .contains("at the cluster scope: secrets are secret"),
        "{}",
        denied.text
    );

    // Answers are remembered; selectors are part of the question.
    let before = asked.lock().unwrap().len();
    get(&server, "bob", "/api/v1/secrets").await;
    assert_eq!(asked.lock().unwrap().len(), before);
    get(
        &server,
        "ann",
        "/api/v1/namespaces/blue/pods?labelSelector=app%3Dweb&fieldSelector=spec.nodeName!%3Dn",
    )
    .await;
    let spec = asked.lock().unwrap().last().unwrap().clone();
    assert_eq!(
        spec,
        json!({
            "user": "ann", "uid": "1", "groups": ["dev", "system:authenticated"],
            "resourceAttributes": {
                "namespace": "blue", "verb": "list", "version": "v1", "resource": "pods",
                "fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "NotIn", "values": ["n"]}]},
                "labelSelector": {"requirements": [{"key": "app", "operator": "In", "values": ["web"]}]},
            },
        })
    );

    // Reviews ask it too, and it cannot list rules.
    let body = |resource: &str| json!({"spec": {"resourceAttributes": {"namespace": "blue", "verb": "get", "resource": resource}}});
    let status = ask(&server, "ann", "POST", REVIEWS, body("pods"))
        .await
        .json()["status"]
        .clone();
    assert_eq!(status, json!({"allowed": true}));
    let status = ask(&server, "bob", "POST", REVIEWS, body("secrets"))
        .await
        .json()["status"]
        .clone();
    assert_eq!(
        status,
        json!({"allowed": false, "denied": true, "reason": "secrets are secret"})
    );
    let rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let listed = ask(
        &server,
        "bob",
        "POST",
        rules,
        json!({"spec": {"namespace": "blue"}}),
    )
    .await
    .json();
    assert_eq!(listed["status"]["incomplete"], true);
    assert_eq!(
        listed["status"]["evaluationError"],
        "webhook authorizer does not support user rule resolution"
    );
}

/// Everybody may do everything but grant it.
fn all_but_grants(spec: &Value) -> Value {
    let verb = spec["resourceAttributes"]["verb"]
        .as_str()
        .unwrap_or_default();
    let may_escalate = spec["user"] == "ann";
    json!({"allowed": verb != "escalate" && verb != "bind" || may_escalate})
}

#[tokio::test]
async fn a_webhook_is_asked_who_may_grant_what_they_do_not_have() {
    let modes = [AuthorizationMode::Rbac, AuthorizationMode::Webhook];
    let (server, _) = server(&modes, all_but_grants).await;
    let role = |name: &str| json!({"metadata": {"name": name}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let refused = ask(&server, "bob", "POST", roles, role("a")).await;
    assert_eq!(refused.code, 403);
    assert!(
        refused
            .text
            .contains("is attempting to grant RBAC permissions not currently held"),
        "{}",
        refused.text
    );
    assert_eq!(
        ask(&server, "ann", "POST", roles, role("b")).await.code,
        201
    );
    let path = format!("{roles}/b");
    let change = json!({"metadata": {"name": "b"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]});
    assert_eq!(
        ask(&server, "bob", "PUT", &path, change.clone()).await.code,
        403
    );
    assert_eq!(ask(&server, "ann", "PUT", &path, change).await.code, 200);
    // Acting as somebody else is a question of its own.
    let headers = [("authorization", "Bearer bob"), ("impersonate-user", "ann")];
    let seen = server
        .request_with_headers("GET", &path, &headers, String::new())
        .await;
    assert_eq!(seen.code, 200);
}

#[tokio::test]
async fn a_webhook_that_does_not_answer_has_no_opinion_and_says_why() {
    // Nobody listens there any more.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/authorize", listener.local_addr().unwrap());
    drop(listener);
    let modes = [AuthorizationMode::Webhook, AuthorizationMode::Rbac];
    let server = server_with(&modes, &url).await;
    tokio::time::pause();
    assert_eq!(
        get(&server, "ann", "/healthz").await.code,
        200,
        "roles allow it"
    );
    let failed = get(&server, "ann", "/api/v1/pods?limit=1").await;
    assert_eq!(failed.code, 500);
    let start = format!("Internal Server Error: \"/api/v1/pods?limit=1\": POST {url}: ");
    assert!(failed.text.starts_with(&start), "{}", failed.text);
    let body = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let status = ask(&server, "ann", "POST", REVIEWS, body).await.json()["status"].clone();
    assert_eq!(status["allowed"], false);
    assert!(
        status["evaluationError"]
            .as_str()
            .unwrap()
            .starts_with("POST "),
        "{status}"
    );
}
