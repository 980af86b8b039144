//! The audit log of the built server: to a file and to a webhook, with kubectl; the access log.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tidings_testing::{Server, StartOptions};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

const BINARY: &str = env!("CARGO_BIN_EXE_tidings");

const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  resources:
  - resources: [secrets]
- level: RequestResponse
  resources:
  - resources: [configmaps]
- level: None
";

async fn start(data_dir: &Path, arguments: &[&str]) -> Server {
    let start = StartOptions {
        binary: Path::new(BINARY),
        data_dir,
        arguments,
    };
    Server::start(&start).await.unwrap()
}

fn kubectl(data: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(data.join("kubeconfig"));
    command.arg("--cache-dir").arg(data.with_extension("cache"));
    let output = command.args(arguments).output().unwrap();
    let bytes = [output.stdout, output.stderr].concat();
    String::from_utf8(bytes).unwrap().trim().to_owned()
}

fn policy(directory: &Path) -> PathBuf {
    let path = directory.join("policy.yaml");
    fs::write(&path, POLICY).unwrap();
    path
}

fn events(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn brief(event: &Value) -> String {
    let on = &event["objectRef"];
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    format!(
        "{} {} {} {}",
        text(&event["level"]),
        text(&event["verb"]),
        text(&on["resource"]),
        event["responseStatus"]["code"]
    )
}

#[tokio::test]
async fn a_file_has_who_did_what_and_no_more_than_its_policy_wants() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (policy, log) = (
        policy(directory.path()),
        directory.path().join("logs/audit.log"),
    );
    let arguments = [
        "--audit-policy-file",
        policy.to_str().unwrap(),
        "--audit-log-path",
        log.to_str().unwrap(),
    ];
    let server = start(&data, &arguments).await;
    kubectl(
        &data,
        &[
            "create",
            "secret",
            "generic",
            "s",
            "--from-literal=password=hunter2",
        ],
    );
    kubectl(
        &data,
        &["create", "configmap", "c", "--from-literal=colour=blue"],
    );
    kubectl(&data, &["get", "secrets", "--as=ann"]);
    drop(server);

    let text = fs::read_to_string(&log).unwrap();
    assert!(
        !text.contains("hunter2") && !text.contains("aHVudGVyMg"),
        "{text}"
    );
    let token = fs::read_to_string(data.join("pki/token")).unwrap();
    assert!(!text.contains(token.trim()));
    let events = events(&text);
    let all: Vec<String> = events.iter().map(brief).collect();
    assert_eq!(
        all,
        [
            "Metadata create secrets 201",
            "RequestResponse create configmaps 201",
            "Metadata list secrets 403"
        ]
    );
    assert_eq!(events[0]["sourceIPs"], serde_json::json!(["127.0.0.1"]));
    assert!(
        events[0]["userAgent"]
            .as_str()
            .unwrap()
            .starts_with("kubectl/")
    );
    assert_eq!(events[1]["requestObject"]["data"]["colour"], "blue");
    assert_eq!(events[2]["impersonatedUser"]["username"], "ann");
    assert_eq!(events[2]["user"]["username"], "admin");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(
        fs::metadata(&log).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

/// Takes lists of events over HTTP. The first one is refused.
async fn receive(listener: TcpListener, lists: mpsc::UnboundedSender<Value>) {
    let mut refuses = true;
    loop {
        let (stream, _) = listener.accept().await.unwrap();
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
                break;
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await.unwrap();
            let code = if refuses {
                "500 Internal Server Error"
            } else {
                "200 OK"
            };
            if !refuses {
                let _ = lists.send(serde_json::from_slice(&body).unwrap());
            }
            refuses = false;
            let answer = format!("HTTP/1.1 {code}\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_webhook_gets_lists_and_again_what_it_refused() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let webhook = directory.path().join("webhook.kubeconfig");
    let url = format!("http://{}/audit", listener.local_addr().unwrap());
    fs::write(
        &webhook,
        format!("apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: \"{url}\"}}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{token: hunter2}}}}]\ncurrent-context: x\n"),
    )
    .unwrap();
    let (sender, mut lists) = mpsc::unbounded_channel();
    tokio::spawn(receive(listener, sender));
    let policy = policy(directory.path());
    let arguments = [
        "--audit-policy-file",
        policy.to_str().unwrap(),
        "--audit-webhook-config-file",
        webhook.to_str().unwrap(),
        "--audit-webhook-batch-max-wait=1s",
        "--audit-webhook-initial-backoff=1s",
    ];
    let server = start(&data, &arguments).await;
    let made = tokio::task::spawn_blocking({
        let data = data.clone();
        move || {
            kubectl(&data, &["create", "configmap", "c"]);
            kubectl(&data, &["delete", "configmap", "c"])
        }
    });
    made.await.unwrap();
    let mut got = Vec::new();
    while got.len() < 2 {
        let list = tokio::time::timeout(Duration::from_secs(20), lists.recv())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            (&list["kind"], &list["apiVersion"]),
            (&"EventList".into(), &"audit.k8s.io/v1".into())
        );
        got.extend(list["items"].as_array().unwrap().iter().map(brief));
    }
    assert_eq!(
        got[..2],
        [
            "RequestResponse create configmaps 201",
            "RequestResponse delete configmaps 200"
        ]
    );
    let metrics = kubectl(&data, &["get", "--raw", "/metrics"]);
    assert!(
        metrics.contains("apiserver_audit_error_total{plugin=\"webhook\"} 0"),
        "{metrics}"
    );
    drop(server);
}

#[tokio::test]
async fn a_request_is_refused_if_its_event_cannot_be_written_and_must_be() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let path = directory.path().join("strict.yaml");
    fs::write(&path, POLICY.replace("omitStages: [RequestReceived]\n", "")).unwrap();
    let path = path.to_str().unwrap();
    let full = [
        "--audit-policy-file",
        path,
        "--audit-log-path",
        "/dev/full",
        "--audit-log-mode",
    ];
    for (mode, expected) in [
        ("blocking", "configmap/c created"),
        ("blocking-strict", "failed to store audit event"),
    ] {
        let data = data.with_extension(mode);
        let server = start(&data, &[&full[..], &[mode]].concat()).await;
        let said = kubectl(&data, &["create", "configmap", "c"]);
        assert!(said.contains(expected), "{mode}: {said}");
        drop(server);
    }
}

#[test]
fn the_access_log_has_a_line_for_each_request_and_no_query() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let log = fs::File::create(directory.path().join("log")).unwrap();
    let mut command = Command::new(BINARY);
    command
        .args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--access-log",
            "--log",
            "json",
            "--data-dir",
        ])
        .arg(&data);
    let mut server = command
        .env_remove("RUST_LOG")
        .stdout(std::process::Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let line = loop {
        kubectl(
            &data,
            &["get", "pods", "--selector", "app=hunter2", "-n", "blue"],
        );
        let text = fs::read_to_string(directory.path().join("log")).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        if let Some(line) = text
            .lines()
            .find(|line| line.contains("\"resource\":\"pods\""))
        {
            break line.to_owned();
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{text}");
    };
    server.kill().unwrap();
    server.wait().unwrap();
    let line: Value = serde_json::from_str(&line).unwrap();
    let fields = &line["fields"];
    assert_eq!(
        (
            &fields["user"],
            &fields["verb"],
            &fields["namespace"],
            &fields["status"],
            &fields["path"]
        ),
        (
            &"admin".into(),
            &"list".into(),
            &"blue".into(),
            &200.into(),
            &"/api/v1/namespaces/blue/pods".into()
        )
    );
    assert!(
        fields["id"].as_str().unwrap().len() == 36 && fields["duration_ms"].as_f64().unwrap() > 0.0
    );
}

#[test]
fn wrong_options_are_refused_and_say_what_to_change() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (good, wrong) = (
        policy(directory.path()),
        directory.path().join("wrong.yaml"),
    );
    fs::write(
        &wrong,
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Everything\n",
    )
    .unwrap();
    let (good, wrong) = (good.to_str().unwrap(), wrong.to_str().unwrap());
    for (arguments, expected) in [
        (
            vec!["--audit-policy-file", wrong, "--audit-log-path", "x"],
            "wrong.yaml, line 4: unknown variant `Everything`",
        ),
        (
            vec!["--audit-policy-file", good],
            "add --audit-log-path or --audit-webhook-config-file",
        ),
        (vec!["--audit-log-path", "x"], "--audit-policy-file"),
        (
            vec![
                "--audit-policy-file",
                good,
                "--audit-webhook-config-file",
                wrong,
            ],
            "--audit-webhook-config-file cannot be used",
        ),
        (
            vec![
                "--audit-policy-file",
                good,
                "--audit-log-path",
                "x",
                "--audit-log-mode",
                "fast",
            ],
            "write batch, blocking or blocking-strict",
        ),
    ] {
        let mut command = Command::new(BINARY);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(&data);
        let output = command.args(&arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && said.contains(expected),
            "{arguments:?}: {said}"
        );
        assert!(!data.exists(), "{arguments:?} leaves a data directory");
    }
}
