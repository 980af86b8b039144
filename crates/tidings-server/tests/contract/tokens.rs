//! Tokens of service accounts and bootstrap tokens: who gets them, what is refused, and when they end.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tidings_server::{ApiOptions, Authentication, AuthorizationMode, Credentials};

use crate::support::{TestResponse, TestServer};

const ADMIN: &str = "correct-horse";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const SELF: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

async fn server() -> TestServer {
    let mut options = ApiOptions::default();
    let credentials = Credentials::default().admin_token(ADMIN);
    options.authentication = Authentication::Credentials(credentials);
    options.authorization = vec![AuthorizationMode::Rbac];
    options.service_accounts.bootstrap_tokens = true;
    TestServer::with(options).await
}

impl TestServer {
    async fn as_token(&self, token: &str, method: &str, path: &str, body: Value) -> TestResponse {
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
        self.request_with_headers(method, path, &headers, body)
            .await
    }

    async fn made(&self, path: &str, body: Value) -> Value {
        let answer = self.as_token(ADMIN, "POST", path, body).await;
        assert_eq!(answer.code, 201, "{}", answer.text);
        answer.json()
    }

    /// A token of the account `robot`, whose request has this spec.
    async fn token(&self, spec: Value) -> TestResponse {
        let path = format!("{ACCOUNTS}/robot/token");
        self.as_token(ADMIN, "POST", &path, json!({"spec": spec}))
            .await
    }

    async fn issued(&self, spec: Value) -> String {
        let answer = self.token(spec).await;
        assert_eq!(answer.code, 201, "{}", answer.text);
        answer.json()["status"]["token"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Who somebody with this token is; the code if nobody.
    async fn whoami(&self, token: &str) -> Value {
        let answer = self.as_token(token, "POST", SELF, json!({})).await;
        match answer.code {
            201 => answer.json()["status"]["userInfo"].clone(),
            code => code.into(),
        }
    }

    async fn review_token(&self, token: &str, audiences: Value) -> Value {
        let spec = json!({"token": token, "audiences": audiences});
        self.made(REVIEWS, json!({"spec": spec})).await["status"].clone()
    }
}

/// What a token says, and what it is signed with.
fn claims(token: &str) -> (Value, Value) {
    let mut parts = token.split('.').map(|part| {
        let bytes = URL_SAFE_NO_PAD.decode(part).unwrap_or_default();
        serde_json::from_slice::<Value>(&bytes).unwrap_or_default()
    });
    (parts.next().unwrap(), parts.next().unwrap())
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn pod(name: &str, account: &str) -> Value {
    let containers = json!([{"name": "c", "image": "i"}]);
    let spec = json!({"serviceAccountName": account, "nodeName": "n1", "containers": containers});
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn a_token_is_its_account_with_the_rights_of_roles() {
    let server = server().await;
    let account = server.made(ACCOUNTS, named("robot")).await;
    let answer = server.token(json!({})).await;
    assert_eq!(answer.code, 201, "{}", answer.text);
    let request = answer.json();
    assert_eq!(request["kind"], "TokenRequest");
    assert_eq!(request["metadata"]["name"], "robot");
    assert_eq!(request["metadata"]["uid"], account["metadata"]["uid"]);
    assert_eq!(
        request["spec"],
        json!({"audiences": ["https://kubernetes.default.svc"], "expirationSeconds": 3600, "boundObjectRef": null})
    );
    let token = request["status"]["token"].as_str().unwrap();
    let (header, said) = claims(token);
    assert_eq!(header["alg"], "ES256");
    assert_eq!(said["iss"], "https://kubernetes.default.svc");
    assert_eq!(said["sub"], "system:serviceaccount:default:robot");
    let length = said["exp"].as_i64().unwrap() - said["iat"].as_i64().unwrap();
    assert_eq!(length, 3600);
    assert_eq!(
        said["kubernetes.io"]["serviceaccount"],
        json!({"name": "robot", "uid": account["metadata"]["uid"]})
    );

    let who = server.whoami(token).await;
    assert_eq!(who["username"], "system:serviceaccount:default:robot");
    assert_eq!(who["uid"], account["metadata"]["uid"]);
    assert_eq!(
        who["groups"],
        json!([
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated"
        ])
    );
    let credential = format!("JTI={}", said["jti"].as_str().unwrap());
    assert_eq!(
        who["extra"]["authentication.kubernetes.io/credential-id"],
        json!([credential])
    );

    let pods = "/api/v1/namespaces/default/pods";
    let refused = server.as_token(token, "GET", pods, Value::Null).await;
    assert_eq!(refused.code, 403);
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let subject = json!({"kind": "ServiceAccount", "name": "robot", "namespace": "default"});
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
    let binding = json!({"metadata": {"name": "b"}, "subjects": [subject], "roleRef": role});
    server.made(bindings, binding).await;
    let allowed = server.as_token(token, "GET", pods, Value::Null).await;
    assert_eq!(allowed.code, 200, "{}", allowed.text);
}

#[tokio::test]
async fn a_token_ends_with_what_it_is_bound_to() {
    let server = server().await;
    server.made(ACCOUNTS, named("robot")).await;
    server.made(ACCOUNTS, named("other")).await;
    let pods = "/api/v1/namespaces/default/pods";
    server.made(pods, pod("p", "robot")).await;
    server.made(pods, pod("q", "other")).await;
    let secret = server
        .made("/api/v1/namespaces/default/secrets", named("s"))
        .await;
    let bound = |kind: &str, name: &str| json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name}});
    let of_pod = server.issued(bound("Pod", "p")).await;
    let who = server.whoami(&of_pod).await;
    assert_eq!(
        who["extra"]["authentication.kubernetes.io/pod-name"],
        json!(["p"])
    );
    assert_eq!(
        who["extra"]["authentication.kubernetes.io/node-name"],
        json!(["n1"])
    );
    let of_secret = server.issued(bound("Secret", "s")).await;
    assert_eq!(
        claims(&of_secret).1["kubernetes.io"]["secret"]["uid"],
        secret["metadata"]["uid"]
    );
    let unbound = server.issued(json!({})).await;

    let path = format!("{pods}/p?gracePeriodSeconds=0");
    let gone = server.as_token(ADMIN, "DELETE", &path, Value::Null).await;
    assert_eq!(gone.code, 200);
    // A list has every deletion that was answered before it; Pods are deleted too often for each deletion to wait for the cache.
    server.as_token(ADMIN, "GET", pods, Value::Null).await;
    assert_eq!(server.whoami(&of_pod).await, 401);
    let path = "/api/v1/namespaces/default/secrets/s";
    assert_eq!(
        server
            .as_token(ADMIN, "DELETE", path, Value::Null)
            .await
            .code,
        200
    );
    assert_eq!(server.whoami(&of_secret).await, 401);

    assert!(server.whoami(&unbound).await.is_object());
    let path = format!("{ACCOUNTS}/robot");
    assert_eq!(
        server
            .as_token(ADMIN, "DELETE", &path, Value::Null)
            .await
            .code,
        200
    );
    assert_eq!(server.whoami(&unbound).await, 401);
    // Another account of the same name is another account.
    server.made(ACCOUNTS, named("robot")).await;
    assert_eq!(server.whoami(&unbound).await, 401);

    for (spec, code, why) in [
        (
            bound("Pod", "q"),
            400,
            "cannot bind token for serviceaccount \"robot\" to pod running with different serviceaccount name.",
        ),
        (bound("Pod", "none"), 404, "pods \"none\" not found"),
        (
            bound("ConfigMap", "c"),
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
    ] {
        let answer = server.token(spec).await;
        assert_eq!((answer.code, &*answer.message()), (code, why));
    }
}

#[tokio::test]
async fn what_cannot_be_asked_for_is_refused() {
    let server = server().await;
    server.made(ACCOUNTS, named("robot")).await;
    let short = server.token(json!({"expirationSeconds": 599})).await;
    assert_eq!(short.code, 422);
    assert!(
        short.message().ends_with("spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes"),
        "{}",
        short.message()
    );
    let path = format!("{ACCOUNTS}/nobody/token");
    let absent = server.as_token(ADMIN, "POST", &path, json!({})).await;
    assert_eq!(
        (absent.code, &*absent.message()),
        (404, "serviceaccounts \"nobody\" not found")
    );
    for method in ["GET", "PUT", "DELETE", "PATCH"] {
        let path = format!("{ACCOUNTS}/robot/token");
        assert_eq!(
            server.as_token(ADMIN, method, &path, json!({})).await.code,
            405,
            "{method}"
        );
    }
}

#[tokio::test]
async fn a_token_is_for_its_audiences_and_what_was_changed_is_for_nobody() {
    let server = server().await;
    server.made(ACCOUNTS, named("robot")).await;
    let vault = server.issued(json!({"audiences": ["vault", "log"]})).await;
    assert_eq!(server.whoami(&vault).await, 401);
    let status = server.review_token(&vault, json!(["vault", "other"])).await;
    assert_eq!(status["authenticated"], true);
    assert_eq!(status["audiences"], json!(["vault"]));
    let status = server.review_token(&vault, json!([])).await;
    assert_eq!(status["authenticated"], Value::Null);
    assert!(
        status["error"]
            .as_str()
            .unwrap()
            .contains("token audiences [\"vault\" \"log\"] is invalid"),
        "{status}"
    );

    // One letter of the claims, and of the signature; the claims of one token under the signature of another; no signature at all.
    let ours = server.issued(json!({})).await;
    let other = server.issued(json!({})).await;
    let parts: Vec<&str> = ours.split('.').collect();
    let foreign = other.rsplit('.').next().unwrap();
    let none = URL_SAFE_NO_PAD.encode(br#"{"alg":"none"}"#);
    for wrong in [
        format!("{}.{}.{foreign}", parts[0], parts[1]),
        format!("{}.{}x.{}", parts[0], parts[1], parts[2]),
        format!("{none}.{}.", parts[1]),
        format!("{}.{}", parts[0], parts[1]),
        "a.b.c".to_owned(),
    ] {
        assert_eq!(server.whoami(&wrong).await, 401, "{wrong}");
        let status = server.review_token(&wrong, json!([])).await;
        assert_eq!(status["authenticated"], Value::Null);
        assert!(
            !status.to_string().contains(&wrong),
            "the error repeats the token"
        );
    }
    assert!(server.whoami(&ours).await.is_object());
    // A server with another key does not believe it.
    let elsewhere = self::server().await;
    elsewhere.made(ACCOUNTS, named("robot")).await;
    assert_eq!(elsewhere.whoami(&ours).await, 401);
}

#[tokio::test]
async fn others_find_the_keys() {
    let server = server().await;
    server.made(ACCOUNTS, named("robot")).await;
    let token = server.issued(json!({})).await;
    // Accounts may read the documents by the bootstrap role system:service-account-issuer-discovery.
    let answer = server
        .as_token(
            &token,
            "GET",
            "/.well-known/openid-configuration",
            Value::Null,
        )
        .await;
    assert_eq!(
        (answer.code, &answer.headers["content-type"]),
        (200, &"application/json".parse().unwrap())
    );
    assert_eq!(
        answer.json(),
        json!({
            "issuer": "https://kubernetes.default.svc",
            "jwks_uri": "https://kubernetes.default.svc/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    );
    let keys = server
        .as_token(&token, "GET", "/openid/v1/jwks", Value::Null)
        .await;
    assert_eq!(keys.headers["content-type"], "application/jwk-set+json");
    assert_eq!(keys.json()["keys"][0]["kid"], claims(&token).0["kid"]);
    assert_eq!(keys.json()["keys"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_bootstrap_token_is_believed_until_its_secret_is_over() {
    let server = server().await;
    let data = |value: &str| Value::from(STANDARD.encode(value));
    let secret = json!({
        "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
        "data": {
            "token-id": data("abcdef"),
            "token-secret": data("0123456789abcdef"),
            "usage-bootstrap-authentication": data("true"),
            "auth-extra-groups": data("system:bootstrappers:workers"),
        },
    });
    let token = "abcdef.0123456789abcdef";
    assert_eq!(server.whoami(token).await, 401);
    server
        .made("/api/v1/namespaces/kube-system/secrets", secret)
        .await;
    let who = server.whoami(token).await;
    assert_eq!(who["username"], "system:bootstrap:abcdef");
    assert_eq!(
        who["groups"],
        json!([
            "system:bootstrappers",
            "system:bootstrappers:workers",
            "system:authenticated"
        ])
    );
    assert_eq!(server.whoami("abcdef.0123456789abcdeg").await, 401);
    let over = json!({"data": {"expiration": data("2020-01-01T00:00:00Z")}});
    let path = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef";
    let headers = [
        ("authorization", "Bearer correct-horse"),
        ("content-type", "application/merge-patch+json"),
    ];
    let patched = server
        .request_with_headers("PATCH", path, &headers, over.to_string())
        .await;
    assert_eq!(patched.code, 200, "{}", patched.text);
    assert_eq!(server.whoami(token).await, 401);
}
