//! Certificate signing requests: who asked, what is refused, who may approve and sign.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};
use tidings_server::{ApiOptions, Authentication, AuthorizationMode, Credentials};

use crate::support::{TestResponse, TestServer};

const TOKENS: &str = "root,root,0,system:masters\nann,ann,1,\"dev,ops\"\nbob,bob,2\n";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn server() -> TestServer {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    std::fs::write(&path, TOKENS).unwrap();
    let credentials = Credentials::default().token_file(&path).unwrap();
    let mut options = ApiOptions::default();
    options.authentication = Authentication::Credentials(credentials);
    options.authorization = vec![AuthorizationMode::Rbac];
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
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let headers = [("authorization", &*bearer), ("content-type", kind)];
    server
        .request_with_headers(method, path, &headers, body.to_string())
        .await
}

/// A request in PEM, in base64.
pub(crate) fn request(name: &str, group: &str) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
        .distinguished_name
        .push(DnType::OrganizationName, group);
    let key = KeyPair::generate().unwrap();
    STANDARD.encode(params.serialize_request(&key).unwrap().pem().unwrap())
}

fn body(name: &str, spec: &Value) -> Value {
    let mut whole = json!({
        "metadata": {"name": name},
        "spec": {
            "request": request("carol", "dev"),
            "signerName": "example.com/s",
            "usages": ["client auth"],
            "username": "somebody-else",
        },
        "status": {"certificate": "eA==", "conditions": [{"type": "Approved", "status": "True"}]},
    });
    for (name, value) in spec.as_object().unwrap() {
        whole["spec"][name] = value.clone();
    }
    whole
}

/// Lets a user do what a role says.
async fn grant(server: &TestServer, user: &str, rules: Value) {
    let role = json!({"metadata": {"name": user}, "rules": rules});
    let binding = json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    assert_eq!(
        ask(
            server,
            "root",
            "POST",
            &format!("{RBAC}/clusterroles"),
            role
        )
        .await
        .code,
        201
    );
    assert_eq!(
        ask(
            server,
            "root",
            "POST",
            &format!("{RBAC}/clusterrolebindings"),
            binding
        )
        .await
        .code,
        201
    );
}

fn messages(answer: &TestResponse) -> Vec<String> {
    let causes = answer.json()["details"]["causes"].clone();
    let causes = causes.as_array().cloned().unwrap_or_default();
    causes
        .iter()
        .map(|cause| {
            format!(
                "{}: {}",
                cause["field"].as_str().unwrap(),
                cause["message"].as_str().unwrap()
            )
        })
        .collect()
}

#[tokio::test]
async fn a_request_says_who_made_it_and_is_not_approved_by_its_maker() {
    let server = server().await;
    grant(&server, "ann", json!([{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["*"]}])).await;
    let made = ask(
        &server,
        "ann",
        "POST",
        REQUESTS,
        body("a", &json!({"groups": ["system:masters"]})),
    )
    .await;
    assert_eq!(made.code, 201, "{}", made.text);
    let made = made.json();
    assert_eq!(made["spec"]["username"], "ann");
    assert_eq!(made["spec"]["uid"], "1");
    assert_eq!(
        made["spec"]["groups"],
        json!(["dev", "ops", "system:authenticated"])
    );
    assert_eq!(made["status"], json!({}));

    // An update changes nothing of it.
    let path = format!("{REQUESTS}/a");
    let changed = ask(
        &server,
        "ann",
        "PATCH",
        &path,
        json!({"spec": {"username": "root"}, "metadata": {"labels": {"a": "b"}}}),
    )
    .await;
    assert_eq!(changed.code, 200, "{}", changed.text);
    assert_eq!(changed.json()["spec"]["username"], "ann");
    assert_eq!(changed.json()["metadata"]["labels"]["a"], "b");
}

#[tokio::test]
async fn what_no_signer_can_use_is_refused() {
    let server = server().await;
    for (spec, expected) in [
        (json!({"usages": []}), "spec.usages: Required value"),
        (
            json!({"usages": ["client auth", "tea"]}),
            "spec.usages[1]: Unsupported value: \"tea\": supported values: \"any\", \"cert sign\"",
        ),
        (
            json!({"usages": ["any", "any"]}),
            "spec.usages[1]: Duplicate value: \"any\"",
        ),
        (json!({"signerName": ""}), "spec.signerName: Required value"),
        (
            json!({"signerName": "kubernetes.io/legacy-unknown"}),
            "spec.signerName: Invalid value: \"kubernetes.io/legacy-unknown\": the legacy signerName is not allowed via this API version",
        ),
        (
            json!({"signerName": "a"}),
            "spec.signerName: Invalid value: \"a\": must be a fully qualified domain and path of the form 'example.com/signer-name'",
        ),
        (
            json!({"signerName": "a/b"}),
            "spec.signerName: Invalid value: \"a\": should be a domain with at least two segments separated by dots",
        ),
        (
            json!({"expirationSeconds": 599}),
            "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)",
        ),
        (
            json!({"request": STANDARD.encode("hm")}),
            "spec.request: Invalid value: []byte{0x68, 0x6d}: PEM block type must be CERTIFICATE REQUEST",
        ),
    ] {
        let answer = ask(&server, "root", "POST", REQUESTS, body("x", &spec)).await;
        assert_eq!(answer.code, 422, "{}", answer.text);
        let all = messages(&answer);
        assert!(all.len() == 1 && all[0].starts_with(expected), "{all:?}");
    }
    // A changed request has a wrong signature.
    let pem = String::from_utf8(STANDARD.decode(request("carol", "dev")).unwrap()).unwrap();
    let lines: Vec<&str> = pem.lines().collect();
    let mut der = STANDARD.decode(lines[1..lines.len() - 1].concat()).unwrap();
    let at = der.windows(5).position(|part| part == b"carol").unwrap();
    der[at] = b'd';
    let pem = format!(
        "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
        STANDARD.encode(der)
    );
    let answer = ask(
        &server,
        "root",
        "POST",
        REQUESTS,
        body("x", &json!({"request": STANDARD.encode(pem)})),
    )
    .await;
    assert!(
        answer
            .text
            .contains("the signature of the request is wrong"),
        "{}",
        answer.text
    );
    // Nobody gets a certificate of an administrator, who could never be taken back.
    let masters = json!({"request": request("eve", "system:masters"), "signerName": "kubernetes.io/kube-apiserver-client"});
    let answer = ask(&server, "root", "POST", REQUESTS, body("x", &masters)).await;
    assert_eq!(answer.code, 403);
    let message = "certificatesigningrequests.certificates.k8s.io \"x\" is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
    assert_eq!(answer.json()["message"], message);
}

#[tokio::test]
async fn approving_and_signing_need_the_right_to_it_for_the_signer() {
    let server = server().await;
    let all = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status"], "verbs": ["*"]});
    let signers = |names: Value, verbs: Value| json!({"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": names, "verbs": verbs});
    grant(&server, "bob", json!([all])).await;
    grant(
        &server,
        "ann",
        json!([
            all,
            signers(json!(["example.com/*"]), json!(["approve", "sign"]))
        ]),
    )
    .await;
    assert_eq!(
        ask(&server, "bob", "POST", REQUESTS, body("a", &json!({})))
            .await
            .code,
        201
    );
    let approval = format!("{REQUESTS}/a/approval");
    let status = format!("{REQUESTS}/a/status");
    let approve =
        json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "R"}]}});

    let refused = ask(&server, "bob", "PATCH", &approval, approve.clone()).await;
    assert_eq!(refused.code, 403);
    let message = "certificatesigningrequests.certificates.k8s.io \"a\" is forbidden: user not permitted to approve requests with signerName \"example.com/s\"";
    assert_eq!(refused.json()["message"], message);
    // By the status nobody approves.
    let refused = ask(&server, "ann", "PATCH", &status, approve.clone()).await;
    assert_eq!(refused.code, 422, "{}", refused.text);
    assert_eq!(
        messages(&refused),
        ["status.conditions: Forbidden: updates may not add a condition of type \"Approved\""]
    );

    let approved = ask(&server, "ann", "PATCH", &approval, approve).await;
    assert_eq!(approved.code, 200, "{}", approved.text);
    let condition = approved.json()["status"]["conditions"][0].clone();
    assert_eq!(condition["reason"], "R");
    assert!(condition["lastUpdateTime"].is_string() && condition["lastTransitionTime"].is_string());
    let taken_back = ask(
        &server,
        "ann",
        "PATCH",
        &approval,
        json!({"status": {"conditions": []}}),
    )
    .await;
    assert_eq!(
        messages(&taken_back),
        ["status.conditions: Forbidden: updates may not remove a condition of type \"Approved\""]
    );
    let both = json!({"status": {"conditions": [condition, {"type": "Denied", "status": "True"}]}});
    let both = ask(&server, "ann", "PATCH", &approval, both).await;
    assert_eq!(
        messages(&both),
        [
            "status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive"
        ]
    );

    let certificate = || {
        let key = KeyPair::generate().unwrap();
        let made = CertificateParams::default().self_signed(&key).unwrap();
        json!({"status": {"certificate": STANDARD.encode(made.pem())}})
    };
    let refused = ask(&server, "bob", "PATCH", &status, certificate()).await;
    assert_eq!(refused.code, 403);
    assert!(
        refused
            .text
            .contains("user not permitted to sign requests with signerName"),
        "{}",
        refused.text
    );
    // What is no decision may be written by whoever may write the status.
    let wrong = json!({"status": {"certificate": STANDARD.encode("hm")}});
    let wrong = ask(&server, "ann", "PATCH", &status, wrong).await;
    assert_eq!(
        messages(&wrong),
        [
            "status.certificate: Invalid value: \"<certificate data>\": must contain at least one CERTIFICATE PEM block"
        ]
    );
    let signed = ask(&server, "ann", "PATCH", &status, certificate()).await;
    assert_eq!(signed.code, 200, "{}", signed.text);
    assert_eq!(signed.json()["status"]["conditions"][0]["type"], "Approved");
    let again = ask(&server, "ann", "PATCH", &status, certificate()).await;
    assert_eq!(
        messages(&again),
        ["status.certificate: Forbidden: updates may not modify existing certificate content"]
    );
}
