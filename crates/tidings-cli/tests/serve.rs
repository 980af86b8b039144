//! The command as people and scripts use it, with the built binary and curl.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tidings_testing::{Server, StartOptions};

const BINARY: &str = env!("CARGO_BIN_EXE_tidings");
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn start(data_dir: &Path, arguments: &[&str]) -> Server {
    let start = StartOptions {
        binary: Path::new(BINARY),
        data_dir,
        arguments,
    };
    Server::start(&start).await.unwrap()
}

/// Runs the command until it ends by itself. Returns its exit code and standard error.
fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(BINARY).args(arguments).output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

fn terminate(server: &Server) {
    let pid = server.pids()[0].to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
}

/// curl with the server's certificate authority and the token of the kubeconfig.
fn curl(data: &Path, arguments: &[&str]) -> Command {
    let kubeconfig = fs::read_to_string(data.join("kubeconfig")).unwrap();
    let token = kubeconfig
        .lines()
        .find_map(|line| line.trim().strip_prefix("token: "))
        .unwrap();
    let mut command = Command::new("curl");
    command
        .args(["--silent", "--no-buffer", "--cacert"])
        .arg(data.join("pki/ca.crt"));
    command
        .args(["-H", &format!("Authorization: Bearer {token}")])
        .args(arguments);
    command
}

#[tokio::test]
async fn the_demonstration_of_the_readme() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = start(&data, &[]).await;
    let configmaps = format!("{}/api/v1/namespaces/kube-system/configmaps", server.url);
    let send = |method: &str, path: &str, corefile: &str| {
        let body =
            format!(r#"{{"metadata":{{"name":"coredns"}},"data":{{"Corefile":"{corefile}"}}}}"#);
        let output = curl(
            &data,
            &[
                "-X",
                method,
                "-d",
                &body,
                "-H",
                "Content-Type: application/json",
                path,
            ],
        )
        .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    assert!(send("POST", &configmaps, ".:53 { health }").contains("\"uid\""));
    let watch_url = format!(
        "{}/api/v1/watch/namespaces/kube-system/configmaps/coredns",
        server.url
    );
    let mut watch = curl(&data, &["--http1.1", "--include", &watch_url])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut until = |start: &str| loop {
        let line = lines.next().expect("the watch goes on").unwrap();
        if line.to_lowercase().starts_with(start) {
            return line;
        }
    };
    until("transfer-encoding: chunked");
    assert!(until("{\"type\":\"added\"").contains("health"));
    send("PUT", &format!("{configmaps}/coredns"), ".:53 { ready }");
    assert!(until("{\"type\":\"modified\"").contains("ready"));
    terminate(&server);
    assert!(
        watch.wait().unwrap().success(),
        "the watch ends cleanly when the server stops"
    );
    assert!(server.ended().await.unwrap().success());
}

#[tokio::test]
async fn w1_http_1_and_http_2_answer_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = start(&data, &[]).await;
    let ask = |version: &str, arguments: &[&str]| {
        let mut all = vec![version, "--write-out", "\n%{http_version} %{http_code}"];
        all.extend(arguments);
        String::from_utf8(curl(&data, &all).output().unwrap().stdout).unwrap()
    };
    let list = format!("{}/api/v1/namespaces", server.url);
    let (one, two) = (ask("--http1.1", &[&list]), ask("--http2", &[&list]));
    assert!(
        one.ends_with("1.1 200") && two.ends_with("2 200"),
        "{one} {two}"
    );
    assert_eq!(one.lines().next(), two.lines().next());
    let watch = format!("{}/api/v1/namespaces?watch=1&timeoutSeconds=1", server.url);
    let (one, two) = (ask("--http1.1", &[&watch]), ask("--http2", &[&watch]));
    assert_eq!(one.lines().filter(|line| line.contains("ADDED")).count(), 4);
    assert_eq!(one.replace("1.1 200", ""), two.replace("2 200", ""));
    let health = format!("{}/healthz", server.url);
    assert!(
        ask("--http2", &["--head", &health]).ends_with("2 200"),
        "W11"
    );
    let large = directory.path().join("large");
    fs::write(&large, vec![b'x'; (3 << 20) + 1]).unwrap();
    let body = format!("@{}", large.display());
    let create = format!("{}{CONFIGMAPS}", server.url);
    let json = "Content-Type: application/json";
    for version in ["--http1.1", "--http2"] {
        let answer = ask(
            version,
            &["-X", "POST", "--data-binary", &body, "-H", json, &create],
        );
        assert!(
            answer.contains("Request entity too large: limit is 3145728"),
            "W14: {answer}"
        );
        assert!(answer.ends_with(" 413"), "W14: {answer}");
    }
}

#[tokio::test]
async fn w91_the_head_of_a_watch_comes_before_any_event() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&directory.path().join("data"), &[]).await;
    let quiet = server.client.watch("/api/v1/secrets?watch=1");
    tokio::time::timeout(Duration::from_secs(5), quiet)
        .await
        .expect("at once")
        .unwrap();
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_watch() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&directory.path().join("data"), &[]).await;
    let mut connection = server.client.connect().await.unwrap();
    for _ in 0..3 {
        let watch = connection
            .request("GET", "/api/v1/namespaces?watch=1&timeoutSeconds=1", b"")
            .await
            .unwrap();
        assert_eq!((watch.code, watch.text().lines().count()), (200, 4));
        assert_eq!(
            connection
                .request("GET", "/healthz", b"")
                .await
                .unwrap()
                .text(),
            "ok"
        );
    }
}

/// Deviation: a watch from before a restart goes on, because history is kept on disk
#[tokio::test]
async fn w105_w108_objects_and_credentials_survive_a_restart_and_watches_resume() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = start(&data, &[]).await;
    let mut connection = server.client.connect().await.unwrap();
    let created = connection
        .request("POST", CONFIGMAPS, br#"{"metadata":{"name":"a"}}"#)
        .await
        .unwrap();
    let object: serde_json::Value = serde_json::from_slice(&created.body).unwrap();
    let version = object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    connection
        .request("POST", CONFIGMAPS, br#"{"metadata":{"name":"b"}}"#)
        .await
        .unwrap();
    let first = fs::read_to_string(data.join("kubeconfig")).unwrap();
    server.kill().await.unwrap();
    let server = start(&data, &[]).await;
    let watch = format!("{CONFIGMAPS}?watch=1&resourceVersion={version}");
    let line = server
        .client
        .watch(&watch)
        .await
        .unwrap()
        .line()
        .await
        .unwrap()
        .unwrap();
    assert!(
        line.contains("\"ADDED\"") && line.contains("\"name\":\"b\""),
        "no 410: {line}"
    );
    let second = fs::read_to_string(data.join("kubeconfig")).unwrap();
    let credentials = |text: &str| -> Vec<String> {
        text.lines()
            .filter(|line| !line.contains("server:"))
            .map(ToOwned::to_owned)
            .collect()
    };
    assert_eq!(credentials(&first), credentials(&second));
}

#[tokio::test]
async fn the_kubeconfig_is_private_and_goes_where_it_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let (data, path) = (
        directory.path().join("data"),
        directory.path().join("elsewhere"),
    );
    drop(start(&data, &["--ephemeral"]).await);
    assert_eq!(
        fs::metadata(data.join("kubeconfig"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
    let mut child = Command::new(BINARY)
        .args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--ephemeral",
            "--data-dir",
        ])
        .arg(&data)
        .arg("--kubeconfig")
        .arg(&path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert_eq!(
        first,
        format!(
            "kubeconfig: {0} (use it with: export KUBECONFIG={0})",
            path.display()
        )
    );
    assert!(
        lines
            .next()
            .unwrap()
            .unwrap()
            .starts_with("ready: https://127.0.0.1:")
    );
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert!(
        !data.join("log").exists(),
        "an ephemeral server stores nothing"
    );
    start(&data, &[]).await; // a durable server can use the directory afterwards
}

#[tokio::test]
async fn a_data_directory_is_made_only_where_it_is_needed() {
    let directory = tempfile::tempdir().unwrap();
    let (data, other) = (
        directory.path().join("data"),
        directory.path().join("other"),
    );
    let kubeconfig = directory.path().join("kubeconfig");
    let kubeconfig = kubeconfig.to_str().unwrap();
    let arguments = ["--ephemeral", "--kubeconfig", kubeconfig];
    let mut child = Command::new(BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(&data)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines
        .map(Result::unwrap)
        .find(|line| line.starts_with("ready: "));
    let address = ready.unwrap().replace("ready: https://", "");
    let (_, said) = refused(&[
        "serve",
        "--listen",
        &address,
        "--data-dir",
        other.to_str().unwrap(),
    ]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        said.contains("choose another address with --listen"),
        "{said}"
    );
    assert!(!data.exists(), "the kubeconfig is elsewhere");
    assert!(!other.exists(), "the port was in use");
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_is_refused_with_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let serve = |data: &Path| {
        refused(&[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            data.to_str().unwrap(),
        ])
    };
    let server = start(&data, &[]).await;
    let (code, text) = serve(&data);
    assert_eq!(code, Some(1));
    assert!(
        text.contains("is in use by another server: stop that one, or choose another directory"),
        "{text}"
    );
    server.kill().await.unwrap();

    let foreign = directory.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("notes.txt"), "mine").unwrap();
    let (code, text) = serve(&foreign);
    assert_eq!(code, Some(1));
    assert!(
        text.contains("is not a data directory of Tidings (it holds notes.txt)"),
        "{text}"
    );

    let segment = data.join("log/00000000000000000001.seg");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[40] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let (code, text) = serve(&data);
    assert_eq!(code, Some(1));
    assert!(
        text.contains("is damaged at byte 8") && text.contains("Nothing was changed"),
        "{text}"
    );
    assert_eq!(fs::read(&segment).unwrap(), bytes);

    let (code, text) = refused(&["serve", "--history", "soon"]);
    assert_eq!(code, Some(2));
    assert!(
        text.contains("write a whole number with its unit, as 30s, 10m or 2h"),
        "{text}"
    );
}

#[tokio::test]
async fn a_full_disk_fails_the_write_and_loses_nothing() {
    // A limit on file sizes simulates a full disk: writes fail half-way in the same manner.
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let script = directory.path().join("limited");
    fs::write(
        &script,
        format!("#!/bin/sh\ntrap '' XFSZ\nulimit -f 1024\nexec {BINARY} \"$@\"\n"),
    )
    .unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let limited = StartOptions {
        binary: &script,
        data_dir: &data,
        arguments: &[],
    };
    let server = Server::start(&limited).await.unwrap();
    let mut connection = server.client.connect().await.unwrap();
    let mut acknowledged = Vec::new();
    let failure = loop {
        let name = format!("n{}", acknowledged.len());
        let fill = "x".repeat(40_000);
        let body = format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"k":"{fill}"}}}}"#);
        let answer = connection
            .request("POST", CONFIGMAPS, body.as_bytes())
            .await
            .unwrap();
        match answer.code {
            201 => acknowledged.push(name),
            _ => break answer,
        }
    };
    assert_eq!(failure.code, 500, "{}", failure.text());
    assert!(
        failure.text().contains("the store cannot write"),
        "{}",
        failure.text()
    );
    assert!(acknowledged.len() > 3);
    let small = connection
        .request("POST", CONFIGMAPS, br#"{"metadata":{"name":"small"}}"#)
        .await
        .unwrap();
    assert_eq!(
        small.code, 201,
        "what fits is written: the failed write left nothing behind"
    );
    server.kill().await.unwrap();
    let server = start(&data, &[]).await;
    let list = server
        .client
        .connect()
        .await
        .unwrap()
        .request("GET", CONFIGMAPS, b"")
        .await
        .unwrap()
        .text();
    for name in acknowledged.iter().map(String::as_str).chain(["small"]) {
        assert!(
            list.contains(&format!("\"name\":\"{name}\"")),
            "{name} is lost"
        );
    }
    assert!(
        !list.contains(&format!("\"name\":\"n{}\"", acknowledged.len())),
        "nothing half-written appears"
    );
}

#[tokio::test]
async fn stopping_drains() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&directory.path().join("data"), &[]).await;
    let mut watch = server
        .client
        .watch("/api/v1/namespaces?watch=1&allowWatchBookmarks=1")
        .await
        .unwrap();
    for _ in 0..5 {
        watch.line().await.unwrap().unwrap();
    }
    terminate(&server);
    let bookmark = watch.line().await.unwrap().unwrap();
    assert!(bookmark.starts_with("{\"type\":\"BOOKMARK\""), "{bookmark}");
    assert!(watch.line().await.unwrap().is_none(), "a clean end");
    let ended = tokio::time::timeout(Duration::from_secs(4), server.ended()).await;
    assert!(
        ended
            .expect("idle connections do not hold it")
            .unwrap()
            .success()
    );
}

#[tokio::test]
async fn a_watch_of_nothing_stays_open() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&directory.path().join("data"), &[]).await;
    for query in [
        "watch=1",
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
        "watch=1&resourceVersion=0",
    ] {
        let name = format!("after-{}", query.len());
        let mut watch = server
            .client
            .watch(&format!(
                "{CONFIGMAPS}?{query}&fieldSelector=metadata.name%3D{name}"
            ))
            .await
            .unwrap();
        let body = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        let mut connection = server.client.connect().await.unwrap();
        assert_eq!(
            connection
                .request("POST", CONFIGMAPS, body.as_bytes())
                .await
                .unwrap()
                .code,
            201
        );
        let line = watch.line().await.unwrap().expect("it has not ended");
        assert!(line.contains(&name), "{query}: {line}");
    }
}

#[tokio::test]
async fn a_refused_request_leaves_its_connection_usable() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&directory.path().join("data"), &[]).await;
    let mut connection = server.client.connect().await.unwrap();
    let body = vec![b'x'; 200_000];
    for _ in 0..20 {
        assert_eq!(
            connection
                .request("PATCH", CONFIGMAPS, &body)
                .await
                .unwrap()
                .code,
            405
        );
        assert_eq!(
            connection
                .request("POST", "/nosuch", &body)
                .await
                .unwrap()
                .code,
            404
        );
        assert_eq!(
            connection
                .request("GET", "/healthz", b"")
                .await
                .unwrap()
                .code,
            200
        );
    }
}

#[tokio::test]
async fn lists_that_nobody_reads_lock_nobody_out() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&directory.path().join("data"), &["--ephemeral"]).await;
    let mut connection = server.client.connect().await.unwrap();
    for number in 0..20 {
        let fill = "x".repeat(500_000);
        let body = format!(r#"{{"metadata":{{"name":"n{number}"}},"data":{{"k":"{fill}"}}}}"#);
        assert_eq!(
            connection
                .request("POST", CONFIGMAPS, body.as_bytes())
                .await
                .unwrap()
                .code,
            201
        );
    }
    let mut unread = Vec::new();
    for _ in 0..410 {
        unread.push(server.client.watch(CONFIGMAPS).await.unwrap()); // a list of which only the head is read
    }
    assert_eq!(
        connection
            .request("GET", &format!("{CONFIGMAPS}/n1"), b"")
            .await
            .unwrap()
            .code,
        200
    );
}

#[tokio::test]
async fn credentials_and_files_of_others_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    drop(start(&data, &[]).await);
    let data_dir = data.to_str().unwrap();
    let (code, text) = refused(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--ephemeral",
        "--data-dir",
        data_dir,
    ]);
    assert_eq!(code, Some(1));
    assert!(
        text.contains("belongs to a durable server, whose kubeconfig would be replaced"),
        "{text}"
    );
    let theirs = directory.path().join("config");
    fs::write(&theirs, "current-context: production\n").unwrap();
    let kubeconfig = theirs.to_str().unwrap();
    let (code, text) = refused(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        data_dir,
        "--kubeconfig",
        kubeconfig,
    ]);
    assert_eq!(code, Some(1));
    assert!(
        text.contains("exists and was not written by Tidings"),
        "{text}"
    );
    assert_eq!(
        fs::read_to_string(&theirs).unwrap(),
        "current-context: production\n"
    );
    fs::write(data.join("pki/token"), "").unwrap();
    let (code, text) = refused(&["serve", "--listen", "127.0.0.1:0", "--data-dir", data_dir]);
    assert_eq!(code, Some(1));
    assert!(
        text.contains("is empty or too short"),
        "an empty token would let everybody in: {text}"
    );
}
