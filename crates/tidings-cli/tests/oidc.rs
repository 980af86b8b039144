//! Tokens of other issuers, and requests without a credential, on the built server, with kubectl.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;
use tidings_identity::{SigningKey, sign, web_keys};
use tidings_testing::{Server, StartOptions};

const BINARY: &str = env!("CARGO_BIN_EXE_tidings");

const CONFIG: &str = r#"apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous: {enabled: true, conditions: [{path: /livez}]}
jwt:
- issuer: {url: 'https://login.example.com', audiences: [kubernetes]}
  claimMappings:
    username: {expression: '"login:" + claims.sub'}
    groups: {claim: groups, prefix: ''}
"#;

fn code(url: &str, path: &str) -> String {
    let mut curl = Command::new("curl");
    curl.args([
        "--silent",
        "--insecure",
        "--output",
        "/dev/null",
        "--write-out",
        "%{http_code}",
    ]);
    let output = curl.arg(format!("{url}{path}")).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn a_token_of_an_issuer_is_believed_and_the_file_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (data, config, keys) = (
        directory.path().join("data"),
        directory.path().join("authentication.yaml"),
        directory.path().join("keys.json"),
    );
    let key = SigningKey::from_pkcs8(&SigningKey::generate().unwrap()).unwrap();
    fs::write(&config, CONFIG).unwrap();
    fs::write(&keys, web_keys(&[key.public().clone()])).unwrap();
    let given = format!("https://login.example.com={}", keys.display());
    let arguments = [
        "--authentication-config",
        config.to_str().unwrap(),
        "--authentication-keys-file",
        &given,
    ];
    let start = StartOptions {
        binary: Path::new(BINARY),
        data_dir: &data,
        arguments: &arguments,
    };
    let server = Server::start(&start).await.unwrap();
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let claims = json!({"iss": "https://login.example.com", "aud": "kubernetes", "exp": now + 600, "sub": "ann", "groups": ["dev"]});
    let token = sign(&claims, &key).unwrap();
    // Without the administrator's token.
    let bare = directory.path().join("bare.kubeconfig");
    let text = fs::read_to_string(data.join("kubeconfig")).unwrap();
    fs::write(&bare, text.replace(server.client.token(), &token)).unwrap();
    let whoami = || {
        let mut kubectl = Command::new("kubectl");
        kubectl
            .arg("--kubeconfig")
            .arg(&bare)
            .args(["auth", "whoami", "-o"]);
        let output = kubectl
            .arg("jsonpath={.status.userInfo.username} {.status.userInfo.groups}")
            .output()
            .unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    assert_eq!(whoami(), r#"login:ann ["dev","system:authenticated"]"#);
    assert_eq!(code(&server.url, "/livez"), "200");
    assert_eq!(code(&server.url, "/version"), "401");

    // A wrong file changes nothing, another one does.
    fs::write(&config, CONFIG.replace("claims.sub", "claims.sub +")).unwrap();
    assert!(whoami().starts_with("login:ann"));
    fs::write(
        &config,
        CONFIG
            .replace("login:", "other:")
            .replace("/livez", "/version"),
    )
    .unwrap();
    let begun = Instant::now();
    while !whoami().starts_with("other:ann") {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "the new file is not used"
        );
    }
    assert_eq!(code(&server.url, "/version"), "200");
    assert_eq!(code(&server.url, "/livez"), "401");
}

#[test]
fn wrong_options_are_refused_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let (data, config) = (
        directory.path().join("data"),
        directory.path().join("authentication.yaml"),
    );
    let refusal = |text: &str, more: &[&str]| {
        fs::write(&config, text).unwrap();
        let mut command = Command::new(BINARY);
        command
            .args(["serve", "--listen=127.0.0.1:0", "--data-dir"])
            .arg(&data);
        let output = command
            .arg("--authentication-config")
            .arg(&config)
            .args(more)
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refusal(&CONFIG.replace("https", "http"), &[]);
    assert!(
        said.contains("--authentication-config cannot be used: ")
            && said.contains("authentication.yaml, line 5: write a URL"),
        "{said}"
    );
    let said = refusal(
        &CONFIG.replace("login.example.com", "kubernetes.default.svc"),
        &[],
    );
    assert!(
        said.contains("the issuer https://kubernetes.default.svc is that of service accounts"),
        "{said}"
    );
    let said = refusal(CONFIG, &["--anonymous-auth=false"]);
    assert!(said.contains("leave out one of the two"), "{said}");
    let keys = directory.path().join("keys.json");
    fs::write(&keys, "{}").unwrap();
    let given = format!("https://login.example.com={}", keys.display());
    let said = refusal(CONFIG, &["--authentication-keys-file", &given]);
    assert!(
        said.contains("keys.json cannot be used: it is no JSON Web Key Set"),
        "{said}"
    );
    assert!(!data.exists());
}
