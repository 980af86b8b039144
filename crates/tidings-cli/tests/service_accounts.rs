//! Tokens of service accounts of the built server, with kubectl, and the options about them.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tidings_testing::{Server, StartOptions};

const BINARY: &str = env!("CARGO_BIN_EXE_tidings");

async fn start(data_dir: &Path, arguments: &[&str]) -> Server {
    let start = StartOptions {
        binary: Path::new(BINARY),
        data_dir,
        arguments,
    };
    Server::start(&start).await.unwrap()
}

fn text(output: &Output) -> String {
    let bytes = [&*output.stdout, &*output.stderr].concat();
    String::from_utf8(bytes).unwrap().trim().to_owned()
}

/// What kubectl prints, with its errors.
fn kubectl(data: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(data.join("kubeconfig"));
    command.arg("--cache-dir").arg(data.with_extension("cache"));
    text(&command.args(arguments).output().unwrap())
}

/// Who the server says somebody with this token is. The administrator's token in the kubeconfig does not count.
fn whoami(data: &Path, token: &str) -> String {
    let config = fs::read_to_string(data.join("kubeconfig")).unwrap();
    let at = config.find("    token: ").unwrap() + "    token: ".len();
    let end = at + config[at..].find('\n').unwrap();
    let path = data.with_extension("other");
    fs::write(&path, format!("{}{token}{}", &config[..at], &config[end..])).unwrap();
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(&path);
    command.args([
        "auth",
        "whoami",
        "--output",
        "jsonpath={.status.userInfo.username}",
    ]);
    text(&command.output().unwrap())
}

#[tokio::test]
async fn kubectl_makes_tokens_that_live_through_a_restart_and_end_with_the_account() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = start(&data, &[]).await;
    assert_eq!(
        kubectl(&data, &["create", "serviceaccount", "robot"]),
        "serviceaccount/robot created"
    );
    let token = kubectl(&data, &["create", "token", "robot", "--duration", "20m"]);
    assert_eq!(whoami(&data, &token), "system:serviceaccount:default:robot");
    let short = kubectl(&data, &["create", "token", "robot", "--duration", "1m"]);
    assert!(
        short.contains("may not specify a duration less than 10 minutes"),
        "{short}"
    );
    drop(server);

    let _server = start(&data, &[]).await;
    assert_eq!(whoami(&data, &token), "system:serviceaccount:default:robot");
    kubectl(&data, &["delete", "serviceaccount", "robot"]);
    let gone = whoami(&data, &token);
    assert!(gone.contains("Unauthorized"), "{gone}");
}

#[tokio::test]
async fn servers_with_the_same_key_believe_each_other_and_others_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key.pem");
    let made = Command::new("openssl")
        .args(["genrsa", "-out"])
        .arg(&key)
        .arg("2048")
        .output();
    assert!(made.unwrap().status.success());
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    let key = key.to_str().unwrap();
    let issuer = "--service-account-issuer=https://tidings.example.com";
    let _one = start(&one, &["--service-account-signing-key-file", key, issuer]).await;
    let _two = start(
        &two,
        &[
            "--service-account-key-file",
            key,
            issuer,
            "--api-audiences=https://tidings.example.com,api",
        ],
    )
    .await;
    for data in [&one, &two] {
        kubectl(data, &["create", "serviceaccount", "robot"]);
    }
    // The signature is believed; the account there is another one.
    let token = kubectl(&one, &["create", "token", "robot"]);
    assert_eq!(whoami(&one, &token), "system:serviceaccount:default:robot");
    let review = |data: &Path, token: &str| {
        let review = directory.path().join("review.json");
        let spec = serde_json::json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        fs::write(&review, spec.to_string()).unwrap();
        let review = review.to_str().unwrap();
        kubectl(
            data,
            &[
                "create",
                "-f",
                review,
                "--output",
                "jsonpath={.status.error}",
            ],
        )
    };
    let error = review(&two, &token);
    assert!(error.contains("service account UID"), "{error}");
    let back = kubectl(&two, &["create", "token", "robot"]);
    let error = review(&one, &back);
    assert_eq!(
        error, "[invalid bearer token, invalid signature, no keys found]",
        "{error}"
    );
    let algorithms =
        |data: &Path| kubectl(data, &["get", "--raw", "/.well-known/openid-configuration"]);
    assert!(
        algorithms(&one).contains(r#""id_token_signing_alg_values_supported":["RS256"]"#),
        "{}",
        algorithms(&one)
    );
    assert!(
        algorithms(&two).contains("ES256") && algorithms(&two).contains("RS256"),
        "{}",
        algorithms(&two)
    );
}

#[test]
fn wrong_options_are_refused_and_say_what_to_change() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let wrong = directory.path().join("wrong.pem");
    fs::write(
        &wrong,
        "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n",
    )
    .unwrap();
    let wrong = wrong.to_str().unwrap();
    for (arguments, expected) in [
        (
            ["--service-account-signing-key-file", wrong],
            "--service-account-signing-key-file cannot be used",
        ),
        (
            ["--service-account-signing-key-file", "/nowhere"],
            "/nowhere cannot be read",
        ),
        (
            ["--service-account-key-file", wrong],
            "--service-account-key-file cannot be used",
        ),
        (
            ["--service-account-issuer", "http://x"],
            "write a URL that begins with https://",
        ),
        (
            ["--service-account-max-token-expiration", "30m"],
            "must be at least 1h",
        ),
        (["--api-audiences", "a,,b"], "remove the comma too much"),
    ] {
        let mut command = Command::new(BINARY);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(&data);
        let output = command.args(arguments).output().unwrap();
        let said = text(&output);
        assert!(
            !output.status.success() && said.contains(expected),
            "{arguments:?}: {said}"
        );
        assert!(!said.contains("hunter2"), "{said}");
        assert!(!data.exists(), "{arguments:?} leaves a data directory");
    }
}
