//! Encryption at rest of the built server: what lies on the disk and in etcd, keys that change, and `tidings check`.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidings_storage::{EtcdOptions, Range, Storage};
use tidings_testing::{Etcd, Server, StartOptions};

const BINARY: &str = env!("CARGO_BIN_EXE_tidings");
/// In clear text, and as it stands in a Secret.
const CLEAR: [&str; 2] = ["hunter2hunter2", "aHVudGVyMmh1bnRlcjI"];

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

fn make_secret(data: &Path, name: &str) {
    let literal = format!("--from-literal=password={}", CLEAR[0]);
    let said = kubectl(data, &["create", "secret", "generic", name, &literal]);
    assert_eq!(said, format!("secret/{name} created"));
}

fn password(data: &Path, name: &str) -> String {
    kubectl(
        data,
        &["get", "secret", name, "-o", "jsonpath={.data.password}"],
    )
}

/// Writes a configuration in which the first of several keys of a secretbox encrypts Secrets.
fn write_keys(path: &Path, keys: &[(&str, u8)]) {
    let keys: Vec<String> = keys
        .iter()
        .map(|(name, byte)| {
            let secret = STANDARD.encode([*byte; 32]);
            format!("      - {{name: {name}, secret: {secret}}}\n")
        })
        .collect();
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  \
         - secretbox:\n      keys:\n{}  - identity: {{}}\n",
        keys.concat()
    );
    fs::write(path, text).unwrap();
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => files_below(&path),
            false => vec![path],
        })
        .collect()
}

fn has_clear_text(bytes: &[u8]) -> bool {
    let has = |text: &str| {
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    CLEAR.into_iter().any(has)
}

fn check(data: &Path) -> String {
    let output = Command::new(BINARY)
        .arg("check")
        .arg(data)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// What a server says that does not start.
fn refusal(data: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(BINARY);
    command
        .args(["serve", "--listen=127.0.0.1:0", "--data-dir"])
        .arg(data);
    let output = command.args(arguments).output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    text.lines()
        .filter(|line| !line.contains(" ERROR "))
        .collect::<Vec<_>>()
        .join("\n")
}

/// True if a file of the log has these bytes. Files may go while they are read.
fn log_has(data: &Path, bytes: &[u8]) -> bool {
    let has = |path: &PathBuf| {
        let read = fs::read(path).unwrap_or_default();
        read.windows(bytes.len()).any(|part| part == bytes)
    };
    files_below(&data.join("log")).iter().any(has)
}

/// Writes all Secrets as they are, as the documentation of Kubernetes tells to do after a change of keys.
fn rewrite_secrets(data: &Path) {
    let all = kubectl(data, &["get", "secrets", "-A", "-o", "json"]);
    let file = data.with_extension("json");
    fs::write(&file, all).unwrap();
    let said = kubectl(data, &["replace", "-f", file.to_str().unwrap()]);
    assert!(said.contains("secret/old replaced"), "{said}");
}

#[tokio::test]
async fn no_secret_lies_on_the_disk_or_in_a_backup_and_keys_are_changed() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let config = directory.path().join("encryption.yaml");
    let option = format!("--encryption-provider-config={}", config.display());

    // Before encryption begins, it is there: the search finds it.
    let server = start(&data, &[]).await;
    make_secret(&data, "old");
    server.kill().await.unwrap();
    assert!(log_has(&data, CLEAR[1].as_bytes()));

    write_keys(&config, &[("k1", 1)]);
    let arguments = [option.as_str()];
    let server = start(&data, &arguments).await;
    assert_eq!(password(&data, "old"), format!("{}=", CLEAR[1]));
    make_secret(&data, "new");
    // A write that changes nothing encrypts what is not yet.
    rewrite_secrets(&data);
    let backup = directory.path().join("backup");
    let mut command = Command::new(BINARY);
    command
        .arg("backup")
        .arg(&backup)
        .arg("--kubeconfig")
        .arg(data.join("kubeconfig"));
    assert!(command.stderr(Stdio::null()).status().unwrap().success());
    let bytes = fs::read(&backup).unwrap();
    assert!(!has_clear_text(&bytes));
    let mark = b"k8s:enc:secretbox:v1:k1:";
    assert!(bytes.windows(mark.len()).any(|part| part == mark));
    server.kill().await.unwrap();
    // What was there before stays in the log until its file is rewritten. A backup has only what is there now.
    let data = directory.path().join("restored");
    let mut restore = Command::new(BINARY);
    restore.arg("restore").arg(&data).arg(&backup);
    assert!(restore.output().unwrap().status.success());
    assert!(!log_has(&data, CLEAR[1].as_bytes()));
    let server = start(&data, &arguments).await;

    // Another key, while the server runs; a wrong file changes nothing.
    fs::write(&config, "kind: EncryptionConfiguration\n").unwrap();
    write_keys(&config, &[("k2", 2), ("k1", 1)]);
    let begun = Instant::now();
    while !log_has(&data, b"k8s:enc:secretbox:v1:k2:") {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the new key is not used"
        );
        rewrite_secrets(&data);
    }
    rewrite_secrets(&data);
    server.kill().await.unwrap();

    let said = check(&data);
    assert!(
        said.contains("2 objects are encrypted with secretbox key k2"),
        "{said}"
    );
    assert!(
        !said.contains("objects are encrypted with secretbox key k1, and"),
        "{said}"
    );

    // Without its keys a server does not start, instead of taking objects for deleted.
    let said = refusal(&data, &[]);
    assert!(
        said.contains("cannot be decrypted: it was encrypted with secretbox key k"),
        "{said}"
    );
    assert!(
        said.contains("--encryption-provider-config names the keys"),
        "{said}"
    );
    write_keys(&config, &[("k2", 9), ("k1", 9)]);
    let said = refusal(&data, &[option.as_str()]);
    assert!(
        said.contains("with another key that is named as secretbox key k"),
        "{said}"
    );

    write_keys(&config, &[("k2", 2), ("k1", 1)]);
    let server = start(&data, &arguments).await;
    assert_eq!(password(&data, "old"), format!("{}=", CLEAR[1]));
    assert_eq!(password(&data, "new"), format!("{}=", CLEAR[1]));
    drop(server);
}

#[tokio::test]
async fn a_wrong_configuration_is_refused_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let config = directory.path().join("encryption.yaml");
    write_keys(&config, &[("k:1", 1)]);
    let said = refusal(
        &data,
        &[&format!(
            "--encryption-provider-config={}",
            config.display()
        )],
    );
    assert!(
        said.contains("encryption.yaml, line 8: the name of a key cannot have a colon"),
        "{said}"
    );
    assert!(!said.contains("AQEB"), "{said}");
    assert!(!data.exists());
}

#[tokio::test]
async fn no_secret_lies_in_etcd() {
    let etcd = Etcd::start().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let config = directory.path().join("encryption.yaml");
    write_keys(&config, &[("k1", 1)]);
    let option = format!("--encryption-provider-config={}", config.display());
    let endpoints = format!("--etcd-endpoints={}", etcd.argument());
    let server = start(&data, &["--storage=etcd", &endpoints, &option]).await;
    make_secret(&data, "s");
    assert_eq!(password(&data, "s"), format!("{}=", CLEAR[1]));
    drop(server);
    let store = tidings_storage::Etcd::open(EtcdOptions::new(etcd.endpoints()))
        .await
        .unwrap();
    let range = Range {
        prefix: "secrets/".into(),
        ..Range::default()
    };
    let stored = store.range(range).await.unwrap().entries;
    assert_eq!(stored.len(), 1);
    assert!(stored[0].value.starts_with(b"k8s:enc:secretbox:v1:k1:"));
    assert!(!has_clear_text(&stored[0].value));
}
