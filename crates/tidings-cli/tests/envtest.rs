//! The program under the names kube-apiserver and etcd, as envtest starts it.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

const BINARY: &str = env!("CARGO_BIN_EXE_tidings");

/// The folder for KUBEBUILDER_ASSETS.
fn assets(directory: &Path) -> PathBuf {
    let folder = directory.join("assets");
    let output = Command::new(BINARY)
        .args(["envtest", "--bin-dir"])
        .arg(&folder)
        .output()
        .unwrap();
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.trim_end(), folder.to_str().unwrap());
    folder
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn output(program: &Path, arguments: &[&str]) -> (Output, String) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = [&output.stdout[..], &output.stderr].concat();
    (output, String::from_utf8(text).unwrap())
}

fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["--silent", "--max-time", "5", "--insecure"])
        .args(arguments)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// A process that is told to stop when the test ends.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Started {
    /// Asks it to stop, and returns how long it took.
    fn terminate(&mut self) -> Duration {
        let begun = Instant::now();
        let pid = self.0.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        assert!(self.0.wait().unwrap().success());
        begun.elapsed()
    }
}

/// What envtest writes before it starts the server: authorities of clients, and a certificate of one of them.
fn client_certificate(directory: &Path) -> (PathBuf, PathBuf, PathBuf) {
    let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&ca_key).unwrap();
    let issuer = Issuer::new(params, ca_key);
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "admin");
    params
        .distinguished_name
        .push(DnType::OrganizationName, "system:masters");
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let files = ["client-ca.crt", "client.crt", "client.key"].map(|name| directory.join(name));
    std::fs::write(&files[0], ca.pem()).unwrap();
    std::fs::write(&files[1], certificate.pem()).unwrap();
    std::fs::write(&files[2], key.serialize_pem()).unwrap();
    let [authority, certificate, key] = files;
    (authority, certificate, key)
}

#[test]
fn envtest_starts_it_as_it_starts_kube_apiserver_and_etcd() {
    let directory = tempfile::tempdir().unwrap();
    let folder = assets(directory.path());
    let (etcd, apiserver) = (folder.join("etcd"), folder.join("kube-apiserver"));
    // envtest looks for a flag in the help: if it is there, it passes it.
    let (help, text) = output(&apiserver, &["--help"]);
    assert!(help.status.success());
    assert!(text.contains("\n      --secure-port\n"));
    assert!(
        !text
            .lines()
            .any(|line| line.trim_start().starts_with("--insecure-port"))
    );

    let etcd_url = format!("http://127.0.0.1:{}", free_port());
    let mut etcd = Started(
        Command::new(etcd)
            .args([
                &format!("--listen-client-urls={etcd_url}"),
                &format!("--advertise-client-urls={etcd_url}"),
                "--data-dir=/tmp/none",
                "--listen-peer-urls=http://localhost:0",
                "--unsafe-no-fsync=true",
            ])
            .spawn()
            .unwrap(),
    );
    while curl(&[&format!("{etcd_url}/health")]) != r#"{"health":"true","reason":""}"# {
        assert!(etcd.0.try_wait().unwrap().is_none());
    }
    assert!(curl(&[&format!("{etcd_url}/version")]).contains("etcdserver"));

    let (authority, certificate, key) = client_certificate(directory.path());
    let port = free_port();
    let flags = [
        "--allow-privileged=true".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--cert-dir={}", directory.path().display()),
        format!("--client-ca-file={}", authority.display()),
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        format!("--etcd-servers={etcd_url}"),
        format!("--secure-port={port}"),
        "--service-account-issuer=https://127.0.0.1/".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--feature-gates=WatchList=true".to_owned(),
    ];
    let mut server = Command::new(&apiserver);
    server
        .args(&flags)
        .stderr(Stdio::piped())
        .stdout(Stdio::null());
    let mut server = Started(server.spawn().unwrap());
    let log = BufReader::new(server.0.stderr.take().unwrap());
    let url = format!("https://127.0.0.1:{port}");
    while curl(&[&format!("{url}/healthz")]) != "ok" {
        assert!(server.0.try_wait().unwrap().is_none());
    }
    // Flags without effect are told of.
    let mut told = log.lines().map_while(Result::ok);
    assert!(told.any(|line| line.contains("--feature-gates")));
    let shown = |path: &Path| path.to_str().unwrap().to_owned();
    let (certificate, key) = (shown(&certificate), shown(&key));
    let as_admin = |arguments: &[&str]| {
        let all = [&["--cert", &certificate, "--key", &key][..], arguments].concat();
        curl(&all)
    };
    let json = ["-H", "Content-Type: application/json", "-d"];
    let create = |path: &str, body: &str| {
        let path = format!("{url}{path}");
        as_admin(&[&json[..], &[body, &path]].concat())
    };
    assert!(curl(&[&format!("{url}/api/v1/namespaces")]).contains("system:anonymous"));
    // No controllers run, as in kube-apiserver: a namespace that is deleted stays, and has no account.
    create("/api/v1/namespaces", r#"{"metadata":{"name":"gone"}}"#);
    as_admin(&["-X", "DELETE", &format!("{url}/api/v1/namespaces/gone")]);
    let pod = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    let pod = create("/api/v1/namespaces/default/pods", pod);
    assert!(pod.contains("\"phase\": \"Pending\""), "{pod}");
    let accounts = as_admin(&[&format!("{url}/api/v1/serviceaccounts")]);
    assert!(accounts.contains("\"items\": []"), "{accounts}");
    let namespace = as_admin(&[&format!("{url}/api/v1/namespaces/gone")]);
    assert!(namespace.contains("Terminating"), "{namespace}");
    // A second one does not take another port.
    let (refused, text) = output(&apiserver, &flags.each_ref().map(String::as_str));
    assert!(!refused.status.success());
    assert!(
        text.contains(&format!("127.0.0.1:{port} cannot be listened on")),
        "{text}"
    );
    assert!(server.terminate() < Duration::from_secs(1));
    assert!(etcd.terminate() < Duration::from_secs(1));
}

#[test]
fn what_neither_program_knows_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let folder = assets(directory.path());
    for (program, arguments, why) in [
        (
            "kube-apiserver",
            &["--secure-prot=1"][..],
            "unknown flag: --secure-prot, perhaps --secure-port is meant",
        ),
        (
            "kube-apiserver",
            &["--authorization-mode=ABAC"],
            "--authorization-mode=ABAC is not built",
        ),
        (
            "kube-apiserver",
            &["--secure-port=99999"],
            "--secure-port 99999 is no port",
        ),
        (
            "etcd",
            &["--listen-client-url=http://127.0.0.1:1"],
            "perhaps --listen-client-urls is meant",
        ),
        (
            "etcd",
            &["--listen-client-urls=https://127.0.0.1:1"],
            "write http://HOST:PORT",
        ),
    ] {
        let (refused, text) = output(&folder.join(program), arguments);
        assert!(!refused.status.success());
        assert!(text.contains(why), "{text}");
    }
    let mut help = String::new();
    Command::new(folder.join("etcd"))
        .arg("--help")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
        .stdout
        .unwrap()
        .read_to_string(&mut help)
        .unwrap();
    assert!(help.contains("--listen-client-urls"));
}
