//! Users of the built server: tokens of files and of `tidings user`, certificates, and kubectl and curl with them.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use tidings_testing::{Server, StartOptions};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

const BINARY: &str = env!("CARGO_BIN_EXE_tidings");

async fn start(data_dir: &Path, arguments: &[&str]) -> Server {
    let start = StartOptions {
        binary: Path::new(BINARY),
        data_dir,
        arguments,
    };
    Server::start(&start).await.unwrap()
}

fn tidings(data: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(arguments).arg("--data-dir").arg(data);
    command.output().unwrap()
}

/// What kubectl prints, with its errors, and whether it has succeeded.
fn kubectl(kubeconfig: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(kubeconfig).args(arguments);
    let cache = kubeconfig.with_extension("cache");
    let output = command.arg("--cache-dir").arg(cache).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    (output.status.success(), text.trim().to_owned())
}

/// The code and the body of what curl gets.
fn curl(data: &Path, server: &Server, path: &str, arguments: &[&str]) -> (String, String) {
    let mut command = Command::new("curl");
    let ca = data.join("pki/ca.crt");
    // Answers for curl are indented.
    command.args(["--silent", "--user-agent", "test", "--write-out"]);
    command.args(["\n%{http_code}", "--cacert"]);
    command.arg(ca).args(arguments);
    let output = command
        .arg(format!("{}{path}", server.url))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, code) = text.rsplit_once('\n').unwrap();
    (code.to_owned(), body.to_owned())
}

/// Waits until a question gets an answer: files are looked at every second.
async fn until(expected: &str, mut ask: impl FnMut() -> String) {
    let begun = Instant::now();
    while ask() != expected {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "never {expected}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_user_is_made_bound_and_removed_while_the_server_runs() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let early = tidings(&data, &["user", "add", "ann"]);
    let text = String::from_utf8(early.stderr).unwrap();
    assert!(
        text.contains("start the server once with `tidings serve`"),
        "{text}"
    );

    let server = start(&data, &[]).await;
    let admin = data.join("kubeconfig");
    let added = tidings(
        &data,
        &["user", "add", "ann", "--group", "dev", "--group", "ops"],
    );
    assert!(added.status.success(), "{added:?}");
    let printed = String::from_utf8(added.stdout).unwrap();
    let ann = PathBuf::from(printed.trim().strip_prefix("kubeconfig: ").unwrap());
    let reads = || kubectl(&ann, &["get", "configmaps"]).1;
    let refused = "Error from server (Forbidden): configmaps is forbidden: User \"ann\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\"";
    until(refused, reads).await;

    // Who has the answer to the binding can rely on it.
    let (bound, text) = kubectl(
        &admin,
        &[
            "create",
            "rolebinding",
            "devs",
            "--clusterrole=view",
            "--group=dev",
        ],
    );
    assert!(bound, "{text}");
    let (may, text) = kubectl(&ann, &["get", "configmaps"]);
    assert!(may, "{text}");
    assert_eq!(kubectl(&ann, &["auth", "can-i", "get", "pods"]).1, "yes");
    let (may, answer) = kubectl(&ann, &["auth", "can-i", "delete", "pods"]);
    assert!(!may && answer.starts_with("no"), "{answer}");
    let rules = kubectl(&ann, &["auth", "can-i", "--list"]).1;
    assert!(
        rules.contains("selfsubjectaccessreviews.authorization.k8s.io"),
        "{rules}"
    );
    // The administrator as ann, and ann as somebody else.
    let (may, text) = kubectl(&admin, &["get", "secrets", "--as=ann", "--as-group=dev"]);
    assert!(
        !may && text.contains("User \"ann\" cannot list resource \"secrets\""),
        "{text}"
    );
    let (may, text) = kubectl(&ann, &["get", "pods", "--as=root"]);
    assert!(!may && text.contains("cannot impersonate"), "{text}");
    let (may, text) = kubectl(
        &ann,
        &[
            "create",
            "clusterrolebinding",
            "up",
            "--clusterrole=cluster-admin",
            "--user=ann",
        ],
    );
    assert!(
        !may && text.contains("User \"ann\" cannot create resource \"clusterrolebindings\""),
        "{text}"
    );

    // A new token replaces the old one.
    let old = fs::read_to_string(&ann).unwrap();
    let old = old
        .lines()
        .find_map(|line| line.trim().strip_prefix("token: "))
        .unwrap()
        .to_owned();
    assert!(
        tidings(&data, &["user", "add", "ann", "--group", "dev"])
            .status
            .success()
    );
    let bearer = format!("Authorization: Bearer {old}");
    until("401", || {
        curl(&data, &server, "/version", &["-H", &bearer]).0
    })
    .await;
    assert!(kubectl(&ann, &["get", "configmaps"]).0);
    let printed = tidings(&data, &["kubeconfig", "ann"]).stdout;
    assert_eq!(printed, fs::read(&ann).unwrap());
    assert_eq!(tidings(&data, &["user", "list"]).stdout, b"ann\tdev\n");

    assert!(tidings(&data, &["user", "remove", "ann"]).status.success());
    assert!(!ann.exists());
    let gone = tidings(&data, &["user", "remove", "ann"]);
    let text = String::from_utf8(gone.stderr).unwrap();
    assert!(
        !gone.status.success() && text.contains("there is no user \"ann\""),
        "{text}"
    );
}

#[tokio::test]
async fn a_wrong_file_of_credentials_is_refused_at_the_start_and_names_the_line() {
    let directory = tempfile::tempdir().unwrap();
    let (data, file) = (directory.path().join("data"), directory.path().join("file"));
    let path = file.to_str().unwrap();
    let refused = |option: &str| {
        let output = tidings(&data, &["serve", "--listen", "127.0.0.1:0", option, path]);
        assert!(!output.status.success() && !data.exists());
        String::from_utf8(output.stderr).unwrap()
    };
    let text = refused("--token-auth-file");
    assert!(
        text.contains("--token-auth-file cannot be used: ") && text.contains("cannot be read"),
        "{text}"
    );
    fs::write(&file, "t,ann,1\nhunter2,bob\n").unwrap();
    let text = refused("--token-auth-file");
    assert!(
        text.contains("line 2: at least a token, a user name and a uid"),
        "{text}"
    );
    assert!(!text.contains("hunter"), "{text}");
    let text = refused("--client-ca-file");
    assert!(text.contains("there is no certificate in it"), "{text}");
    let modes = tidings(&data, &["serve", "--authorization-mode", "Node,RBAC"]);
    let text = String::from_utf8(modes.stderr).unwrap();
    assert!(
        text.contains("Node is not built: choose from AlwaysAllow, AlwaysDeny, RBAC and Webhook"),
        "{text}"
    );
}

/// Everything is logged that can be, and what must not be is planted everywhere.
#[tokio::test]
async fn no_token_and_no_secret_is_in_any_log_line_error_or_metric() {
    let directory = tempfile::tempdir().unwrap();
    let (data, tokens) = (
        directory.path().join("data"),
        directory.path().join("tokens"),
    );
    fs::write(&tokens, "planted-right,ann,1,system:masters\n").unwrap();
    let (log, audit) = (directory.path().join("log"), directory.path().join("audit"));
    let policy = directory.path().join("policy");
    let metadata = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}";
    fs::write(&policy, metadata).unwrap();
    let mut process = Command::new(BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(&data)
        .arg("--token-auth-file")
        .arg(&tokens)
        .arg("--audit-policy-file")
        .arg(&policy)
        .arg("--audit-log-path")
        .arg(&audit)
        .env("RUST_LOG", "trace")
        .stdout(Stdio::piped())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    let url = lines.find_map(|line| line.strip_prefix("ready: ").map(ToOwned::to_owned));
    let server = Server::running(&url.unwrap(), "", &[process.id()]).unwrap();
    let right = "Authorization: Bearer planted-right";
    let json = "Content-Type: application/json";
    let ask = |bearer: &str, path: &str, body: &str, code: &str| {
        let bearer = ["-H", bearer, "-H", json];
        let sent = ["-d", body];
        let sent: &[&str] = if body.is_empty() { &[] } else { &sent };
        let (answered, text) = curl(&data, &server, path, &[&bearer, sent].concat());
        assert_eq!(answered, code, "{path}: {text}");
        text
    };
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = r#"{"metadata":{"name":"s"},"stringData":{"k":"planted-secret"}}"#;
    ask(right, secrets, secret, "201");
    let mut shown = vec![
        // One that is refused, with what it had.
        ask(
            right,
            secrets,
            r#"{"metadata":{"name":"s"},"data":{"k":"planted-odd"}}"#,
            "400",
        ),
        ask("Authorization: Bearer planted-wrong", secrets, "", "401"),
        ask("Authorization: Basic planted-basic", secrets, "", "403"),
        ask(right, "/metrics", "", "200"),
    ];
    let review = r#"{"spec":{"token":"planted-asked"}}"#;
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let answered = ask(right, reviews, review, "201");
    assert!(answered.contains("invalid bearer token"), "{answered}");
    // A token that the server makes itself.
    let account = "/api/v1/namespaces/default/serviceaccounts";
    ask(right, account, r#"{"metadata":{"name":"a"}}"#, "201");
    let made = ask(right, &format!("{account}/a/token"), "{}", "201");
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    let made = made["status"]["token"].as_str().unwrap();
    let signature = made.rsplit('.').next().unwrap();
    ask(&format!("Authorization: Bearer {made}"), secrets, "", "403");
    // A wrong file is named and not quoted.
    fs::write(
        &tokens,
        "planted-right,ann,1,system:masters\nplanted-line,x\n",
    )
    .unwrap();
    let told = "what it said before stays";
    until("told", || {
        match fs::read_to_string(&log).unwrap().contains(told) {
            true => "told".to_owned(),
            false => String::new(),
        }
    })
    .await;
    process.kill().unwrap();
    process.wait().unwrap();
    shown.push(fs::read_to_string(&log).unwrap());
    shown.push(fs::read_to_string(&audit).unwrap());
    let is_audited = |verb| {
        shown
            .last()
            .unwrap()
            .contains(&format!(r#""verb":"{verb}""#))
    };
    assert!(is_audited("create") && is_audited("list"));
    let mut lines = shown.iter().flat_map(|text| text.lines());
    let line = lines.find(|line| line.contains("planted-") || line.contains(signature));
    assert_eq!(line, None);
}

struct TestAuthority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl TestAuthority {
    fn new() -> TestAuthority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "users");
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        TestAuthority {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Writes a certificate and its key. Returns what curl needs to show them.
    fn sign(&self, directory: &Path, user: &str, groups: &[&str], until: i32) -> Vec<String> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        for group in groups {
            params
                .distinguished_name
                .push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let path = |end: &str| directory.join(format!("{user}-{until}.{end}"));
        fs::write(path("crt"), certificate.pem()).unwrap();
        fs::write(path("key"), key.serialize_pem()).unwrap();
        let shown = |end: &str| path(end).to_str().unwrap().to_owned();
        vec!["--cert".into(), shown("crt"), "--key".into(), shown("key")]
    }
}

#[tokio::test]
async fn a_certificate_says_who_asks_and_a_foreign_one_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (known, foreign) = (TestAuthority::new(), TestAuthority::new());
    let ca = directory.path().join("clients.crt");
    fs::write(&ca, &known.pem).unwrap();
    let tokens = directory.path().join("tokens");
    fs::write(&tokens, "eve-token,eve,7\n").unwrap();
    let arguments = [
        "--client-ca-file",
        ca.to_str().unwrap(),
        "--token-auth-file",
        tokens.to_str().unwrap(),
    ];
    let server = start(&data, &arguments).await;
    let nodes = "/api/v1/nodes";
    let ask = |shown: &[String], more: &[&str], path: &str| {
        let shown = shown.iter().map(String::as_str);
        let arguments: Vec<&str> = shown.chain(more.iter().copied()).collect();
        curl(&data, &server, path, &arguments)
    };
    let master = known.sign(directory.path(), "root", &["system:masters"], 2100);
    let bob = known.sign(directory.path(), "bob", &["dev"], 2100);
    let expired = known.sign(directory.path(), "bob", &["dev"], 2001);
    let stranger = foreign.sign(directory.path(), "mallory", &["system:masters"], 2100);
    assert_eq!(ask(&master, &[], nodes).0, "200");
    for version in ["--http1.1", "--http2"] {
        let (code, body) = ask(&bob, &[version], nodes);
        assert!(
            code == "403" && body.contains(r#"User \"bob\" cannot list"#),
            "{code} {body}"
        );
    }
    let me = ["-H", "Content-Type: application/json", "-d", "{}"];
    let (code, body) = ask(
        &bob,
        &me,
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    );
    assert_eq!(code, "201");
    for part in [
        r#""username":"bob","groups":["dev","system:authenticated"]"#,
        "X509SHA256=",
    ] {
        assert!(body.contains(part), "{body}");
    }
    for shown in [&expired, &stranger] {
        assert_eq!(ask(shown, &[], nodes).0, "401");
        // A token that is right counts all the same.
        let (code, body) = ask(shown, &["-H", "Authorization: Bearer eve-token"], nodes);
        assert!(code == "403" && body.contains("eve"), "{code} {body}");
    }
    // The certificate counts before the token, and without either nobody is known.
    let (_, body) = ask(&bob, &["-H", "Authorization: Bearer eve-token"], nodes);
    assert!(body.contains("bob"), "{body}");
    let (code, body) = ask(&[], &[], nodes);
    assert!(
        code == "403" && body.contains("system:anonymous"),
        "{code} {body}"
    );

    // The authorities are read again, and count for connections that are open too.
    let mut open = KeptConnection::open(&data, &server, &master).await;
    assert_eq!(open.ask(nodes).await, "200");
    fs::write(&ca, &foreign.pem).unwrap();
    let begun = Instant::now();
    while open.ask(nodes).await != "401" {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "it is still believed"
        );
    }
    assert_eq!(ask(&stranger, &[], nodes).0, "200");
    assert_eq!(ask(&master, &[], nodes).0, "401");
}

/// A connection of HTTP/1.1 that has shown a certificate, for several requests.
struct KeptConnection(BufStream<TlsStream<TcpStream>>);

impl KeptConnection {
    /// `shown` is what curl is told.
    async fn open(data: &Path, server: &Server, shown: &[String]) -> KeptConnection {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(data.join("pki/ca.crt")).unwrap();
        roots.add(ca).unwrap();
        let chain = vec![CertificateDer::from_pem_file(&shown[1]).unwrap()];
        let key = PrivateKeyDer::from_pem_file(&shown[3]).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .unwrap();
        let stream = TcpStream::connect(server.client.address()).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await;
        KeptConnection(BufStream::new(stream.unwrap()))
    }

    /// The code of the answer to a GET.
    async fn ask(&mut self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        self.0.write_all(request.as_bytes()).await.unwrap();
        self.0.flush().await.unwrap();
        let (mut code, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).await.unwrap();
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                code = rest[..3].to_owned();
            } else if let Some(rest) = line.strip_prefix("content-length: ") {
                length = rest.parse().unwrap();
            } else if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.unwrap();
        code
    }
}
