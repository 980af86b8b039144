//! The certificates that clients of the built server see: those of files, by name, after a change; kubectl and curl with them.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, KeyPair};
use tidings_testing::{Server, StartOptions};

const BINARY: &str = env!("CARGO_BIN_EXE_tidings");

/// Writes a certificate for a name that is its own authority, and its key.
fn write_pair(directory: &Path, file: &str, name: &str) -> (PathBuf, PathBuf) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let paths = (
        directory.join(format!("{file}.crt")),
        directory.join(format!("{file}.key")),
    );
    fs::write(&paths.1, key.serialize_pem()).unwrap();
    fs::write(&paths.0, certificate.pem()).unwrap();
    paths
}

/// True if a client that believes this certificate alone reaches the server under a name.
fn is_believed(url: &str, name: &str, authority: &Path) -> bool {
    let port = url.rsplit(':').next().unwrap();
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--output", "/dev/null", "--cacert"])
        .arg(authority);
    curl.args(["--resolve", &format!("{name}:{port}:127.0.0.1")]);
    let status = curl.arg(format!("https://{name}:{port}/version")).status();
    status.unwrap().success()
}

#[tokio::test]
async fn clients_see_the_certificates_of_files_by_name_and_changed_ones_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let default = write_pair(directory.path(), "default", "api.example.com");
    let other = write_pair(directory.path(), "other", "other.example.com");
    let (certificate, key) = (default.0.to_str().unwrap(), default.1.to_str().unwrap());
    let named = format!("{},{}", other.0.display(), other.1.display());
    let arguments = [
        "--tls-cert-file",
        certificate,
        "--tls-private-key-file",
        key,
        "--tls-sni-cert-key",
        &named,
    ];
    let start = StartOptions {
        binary: Path::new(BINARY),
        data_dir: &data,
        arguments: &arguments,
    };
    let server = Server::start(&start).await.unwrap();
    assert!(is_believed(&server.url, "api.example.com", &default.0));
    assert!(is_believed(&server.url, "other.example.com", &other.0));
    assert!(!is_believed(&server.url, "other.example.com", &default.0));
    // The administrator's kubeconfig believes the server's own authority, and asks for its certificate by name.
    let kubeconfig = data.join("kubeconfig");
    let mut kubectl = Command::new("kubectl");
    kubectl
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .args(["get", "namespaces", "-o", "name"]);
    let listed = kubectl.output().unwrap();
    assert!(
        listed.status.success(),
        "{}",
        String::from_utf8_lossy(&listed.stderr)
    );

    // The key is written first: for a moment the two do not fit, and the pair before stays.
    let old = directory.path().join("old.crt");
    fs::copy(&default.0, &old).unwrap();
    write_pair(directory.path(), "default", "api.example.com");
    let begun = Instant::now();
    while !is_believed(&server.url, "api.example.com", &default.0) {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "the new certificate is not shown"
        );
    }
    assert!(!is_believed(&server.url, "api.example.com", &old));
}

#[test]
fn wrong_files_are_refused_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let one = write_pair(directory.path(), "one", "a");
    let two = write_pair(directory.path(), "two", "b");
    let refusal = |arguments: &[&str]| {
        let mut command = Command::new(BINARY);
        command
            .args(["serve", "--listen=127.0.0.1:0", "--data-dir"])
            .arg(&data);
        let output = command.args(arguments).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let (certificate, key) = (one.0.to_str().unwrap(), two.1.to_str().unwrap());
    let said = refusal(&[
        "--tls-cert-file",
        certificate,
        "--tls-private-key-file",
        key,
    ]);
    assert!(
        said.contains("--tls-cert-file cannot be used: ")
            && said.contains("its key is not the one in"),
        "{said}"
    );
    let said = refusal(&["--tls-cert-file", certificate]);
    assert!(said.contains("--tls-private-key-file"), "{said}");
    let said = refusal(&["--tls-sni-cert-key", certificate]);
    assert!(said.contains("write it as CERTIFICATE,KEY"), "{said}");
    assert!(!data.exists());
}
