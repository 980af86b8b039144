//! The certificates that clients of the built server see: those of files, by name, after a change; kubectl and curl with them.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
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

/// Writes an authority and its key.
fn write_authority(directory: &Path) -> (PathBuf, PathBuf) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "clients");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let certificate = params.self_signed(&key).unwrap();
    let paths = (directory.join("ca.crt"), directory.join("ca.key"));
    fs::write(&paths.0, certificate.pem()).unwrap();
    fs::write(&paths.1, key.serialize_pem()).unwrap();
    paths
}

fn kubectl(kubeconfig: &Path, arguments: &[&str]) -> String {
    let mut kubectl = Command::new("kubectl");
    kubectl.arg("--kubeconfig").arg(kubeconfig).args(arguments);
    kubectl
        .arg("--cache-dir")
        .arg(kubeconfig.with_extension("cache"));
    let output = kubectl.output().unwrap();
    let bytes = [output.stdout, output.stderr].concat();
    String::from_utf8(bytes).unwrap().trim().to_owned()
}

#[tokio::test]
async fn an_approved_request_becomes_a_certificate_that_the_server_believes() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (certificate, key) = write_authority(directory.path());
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let arguments = [
        "--client-ca-file",
        certificate,
        "--cluster-signing-cert-file",
        certificate,
        "--cluster-signing-key-file",
        key,
    ];
    let start = StartOptions {
        binary: Path::new(BINARY),
        data_dir: &data,
        arguments: &arguments,
    };
    let server = Server::start(&start).await.unwrap();
    let kubeconfig = data.join("kubeconfig");

    let own = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "carol");
    params
        .distinguished_name
        .push(DnType::OrganizationName, "dev");
    // An organisation once more, which this crate has no other way to write.
    let organization = DnType::CustomDnType(vec![2, 5, 4, 10]);
    params.distinguished_name.push(organization, "ops");
    let request = params.serialize_request(&own).unwrap().pem().unwrap();
    let object = format!(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {{name: NAME}}\nspec:\n  \
         signerName: kubernetes.io/kube-apiserver-client\n  expirationSeconds: 3600\n  usages: [USAGE]\n  request: {}\n",
        STANDARD.encode(&request)
    );
    let file = directory.path().join("request.yaml");
    for (name, usage) in [("carol", "client auth"), ("server", "server auth")] {
        let object = object.replace("NAME", name).replace("USAGE", usage);
        fs::write(&file, object).unwrap();
        let said = kubectl(&kubeconfig, &["apply", "-f", file.to_str().unwrap()]);
        assert!(said.ends_with("created"), "{said}");
        let said = kubectl(&kubeconfig, &["certificate", "approve", name]);
        assert!(said.ends_with("approved"), "{said}");
    }
    let begun = Instant::now();
    let listed = loop {
        let listed = kubectl(&kubeconfig, &["get", "csr", "--no-headers"]);
        if listed.contains("Approved,Issued") && listed.contains("Approved,Failed") {
            break listed;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{listed}");
    };
    assert!(
        listed.contains("carol") && listed.contains("admin"),
        "{listed}"
    );
    let why = kubectl(
        &kubeconfig,
        &[
            "get",
            "csr",
            "server",
            "-o",
            "jsonpath={.status.conditions[1].message}",
        ],
    );
    assert_eq!(why, "invalid usage for client certificate: server auth");

    let signed = kubectl(
        &kubeconfig,
        &[
            "get",
            "csr",
            "carol",
            "-o",
            "jsonpath={.status.certificate}",
        ],
    );
    let (crt, own_key) = (
        directory.path().join("carol.crt"),
        directory.path().join("carol.key"),
    );
    fs::write(&crt, STANDARD.decode(signed).unwrap()).unwrap();
    fs::write(&own_key, own.serialize_pem()).unwrap();
    // Without the token of the administrator.
    let bare = directory.path().join("bare.kubeconfig");
    let text = fs::read_to_string(&kubeconfig).unwrap();
    fs::write(
        &bare,
        text.replace(
            &format!("token: {}", server.client.token()),
            "username: nobody",
        ),
    )
    .unwrap();
    let shown = [
        "--client-certificate",
        crt.to_str().unwrap(),
        "--client-key",
        own_key.to_str().unwrap(),
    ];
    let mut arguments = vec![
        "auth",
        "whoami",
        "-o",
        "jsonpath={.status.userInfo.username} {.status.userInfo.groups}",
    ];
    arguments.extend(shown);
    assert_eq!(
        kubectl(&bare, &arguments),
        r#"carol ["dev","ops","system:authenticated"]"#
    );
    // Somebody else's tool reads the certificate too.
    let openssl = Command::new("openssl")
        .args(["verify", "-purpose", "sslclient", "-CAfile", certificate])
        .arg(&crt)
        .output();
    if let Ok(openssl) = openssl {
        let said = String::from_utf8_lossy(&openssl.stdout).into_owned();
        assert!(
            said.trim().ends_with(": OK"),
            "{said}{}",
            String::from_utf8_lossy(&openssl.stderr)
        );
    }
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
