//! `tidings watch` as a user sees it, against the built server.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tidings_testing::{Server, StartOptions};

const BINARY: &str = env!("CARGO_BIN_EXE_tidings");
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn start(data_dir: &Path) -> Server {
    let start = StartOptions {
        binary: Path::new(BINARY),
        data_dir,
        arguments: &[],
    };
    Server::start(&start).await.unwrap()
}

/// A running `tidings watch`, killed when it is dropped.
struct View {
    child: Child,
    lines: BufReader<ChildStdout>,
    beside: BufReader<ChildStderr>,
}

impl View {
    fn open(data: &Path, arguments: &[&str]) -> View {
        let mut child = command(data, arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let beside = BufReader::new(child.stderr.take().unwrap());
        View {
            child,
            lines,
            beside,
        }
    }

    /// The next line on standard error.
    fn said(&mut self) -> String {
        let mut line = String::new();
        self.beside.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The next line without its time.
    fn event(&mut self) -> String {
        let line = self.line();
        let (time, event) = line.split_once(' ').unwrap_or(("", &line));
        assert_eq!(time.split(':').count(), 3, "{line:?} starts with a time");
        event.to_owned()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command
        .arg("watch")
        .args(arguments)
        .env("KUBECONFIG", data.join("kubeconfig"));
    command
}

/// The standard error of a command that ends by itself.
fn refused(data: &Path, arguments: &[&str]) -> String {
    let mut child = command(data, arguments)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > Duration::from_secs(20) {
            child.kill().unwrap();
            panic!("{arguments:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr)
        .unwrap()
        .trim_end()
        .to_owned()
}

async fn write(server: &Server, method: &str, path: &str, body: &str) {
    let mut connection = server.client.connect().await.unwrap();
    let answer = connection
        .request(method, path, body.as_bytes())
        .await
        .unwrap();
    assert!(answer.code < 300, "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_is_a_line_with_what_changed() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path()).await;
    write(
        &server,
        "POST",
        CONFIGMAPS,
        r#"{"metadata":{"name":"a"},"data":{"k":"v"}}"#,
    )
    .await;
    let mut view = View::open(home.path(), &["cm", "-A"]);
    assert_eq!(view.event(), "ADDED    default/a");
    let path = format!("{CONFIGMAPS}/a");
    write(
        &server,
        "PUT",
        &path,
        r#"{"metadata":{"name":"a","labels":{"app":"x"}},"data":{"k":"w"}}"#,
    )
    .await;
    assert_eq!(
        view.event(),
        "MODIFIED default/a  +metadata.labels.app: x  data.k: v → w"
    );
    write(&server, "DELETE", &path, "").await;
    assert_eq!(view.event(), "DELETED  default/a");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_can_be_narrowed_and_shown_in_other_forms() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path()).await;
    for (name, labels) in [("a", r#"{"app":"x"}"#), ("b", r#"{"app":"y"}"#)] {
        let body = format!(r#"{{"metadata":{{"name":"{name}","labels":{labels}}}}}"#);
        write(&server, "POST", CONFIGMAPS, &body).await;
    }
    let mut by_label = View::open(home.path(), &["configmaps", "-l", "app=y", "-o", "name"]);
    assert_eq!(by_label.line(), "configmap/b");
    let mut by_name = View::open(home.path(), &["ConfigMap", "a", "-o", "json"]);
    let event: serde_json::Value = serde_json::from_str(&by_name.line()).unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["metadata"]["name"]),
        (&"ADDED".into(), &"a".into())
    );
    assert_eq!(
        (&event["object"]["kind"], &event["object"]["apiVersion"]),
        (&"ConfigMap".into(), &"v1".into())
    );
    let mut by_field = View::open(
        home.path(),
        &["cm", "--field-selector", "metadata.name=b", "-o", "yaml"],
    );
    assert_eq!(
        (by_field.line(), by_field.line()),
        ("---".into(), "type: ADDED".into())
    );
    // One shows only changes; one shows another namespace, where nothing changes.
    let mut changes = View::open(home.path(), &["cm", "--watch-only", "-n", "default"]);
    let mut elsewhere = View::open(home.path(), &["cm", "-n", "kube-system", "-o", "name"]);
    // Wait until the watches are open: an object that is created before would count as existing.
    tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let mut connection = server.client.connect().await.unwrap();
            let metrics = connection
                .request("GET", "/metrics", b"")
                .await
                .unwrap()
                .text();
            let watches = metrics.lines().find(|line| {
                line.starts_with("apiserver_longrunning_requests") && line.contains("configmaps")
            });
            if watches.is_some_and(|line| line.ends_with(" 5")) {
                return;
            }
        }
    })
    .await
    .unwrap();
    write(&server, "POST", CONFIGMAPS, r#"{"metadata":{"name":"c"}}"#).await;
    assert_eq!(changes.event(), "ADDED    c");
    write(
        &server,
        "POST",
        "/api/v1/namespaces/kube-system/configmaps",
        r#"{"metadata":{"name":"z"}}"#,
    )
    .await;
    assert_eq!(elsewhere.line(), "configmap/z");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_shown_is_said_clearly() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path()).await;
    let data = home.path();
    assert_eq!(
        refused(data, &["nonsense"]),
        "tidings: the server doesn't have a resource type \"nonsense\""
    );
    assert_eq!(
        refused(data, &["cm", "-l", "a==b=c"]),
        "tidings: the selector \"a==b=c\" cannot be read: found '=', expected: ',' or 'end of string'"
    );
    let kubeconfig = std::fs::read_to_string(data.join("kubeconfig")).unwrap();
    let token = kubeconfig
        .lines()
        .find_map(|line| line.trim().strip_prefix("token: "))
        .unwrap();
    let wrong = data.join("wrong");
    std::fs::write(&wrong, kubeconfig.replace(token, "something-else")).unwrap();
    let said = refused(data, &["cm", "--kubeconfig", wrong.to_str().unwrap()]);
    assert!(
        said.contains("does not know this user (Unauthorized): the token"),
        "{said}"
    );
    assert_eq!(
        refused(data, &["cm", "--context", "nope"]),
        "tidings: the kubeconfig has no context \"nope\": it has tidings"
    );
    let url = server.url.clone();
    server.kill().await.unwrap();
    let said = refused(data, &["cm"]);
    assert!(
        said.starts_with(&format!("tidings: the server {url}")),
        "{said}"
    );
    assert!(
        said.contains("cannot be reached: Connection refused"),
        "{said}"
    );
    assert_eq!(said.matches("refused").count(), 1, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_has_enough_ends_the_view() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path()).await;
    for index in 0..50 {
        write(
            &server,
            "POST",
            CONFIGMAPS,
            &format!(r#"{{"metadata":{{"name":"n{index}"}}}}"#),
        )
        .await;
    }
    let mut child = command(home.path(), &["cm"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut byte = [0];
    child.stdout.take().unwrap().read_exact(&mut byte).unwrap(); // and closes it
    write(
        &server,
        "POST",
        CONFIGMAPS,
        r#"{"metadata":{"name":"one-more"}}"#,
    )
    .await;
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selector_that_the_server_does_not_know_ends_the_view() {
    let home = tempfile::tempdir().unwrap();
    let _server = start(home.path()).await;
    assert_eq!(
        refused(home.path(), &["cm", "-A", "--field-selector", "foo=bar"]),
        "tidings: the server refuses: \"foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_named_as_kubectl_names_them() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path();
    let server = start(data).await;
    for name in ["a", "b"] {
        let body = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        write(&server, "POST", CONFIGMAPS, &body).await;
    }
    for words in [["cm/b"], ["ConfigMap.v1/b"], ["configmaps.v1./b"]] {
        assert_eq!(View::open(data, &words).event(), "ADDED    b", "{words:?}");
    }
    for word in ["deployment.apps", "deployments.v1.apps"] {
        assert_eq!(
            View::open(data, &[word]).said(),
            "tidings: no deployments in namespace default yet; waiting"
        );
    }
    assert_eq!(
        refused(data, &["cm,secrets"]),
        "tidings: one resource at a time: write `cm` here, and `secrets` in a second terminal"
    );
    assert_eq!(
        refused(data, &["cm", "a", "b"]),
        "tidings: one object at a time: write `cm a`, or only `cm` for all of them"
    );
    assert_eq!(
        refused(data, &["cm/a", "--field-selector", "metadata.name=a"]),
        "tidings: a name and --field-selector do not go together: add metadata.name=a to the selector"
    );
    assert_eq!(
        refused(data, &["deployments.v9.apps"]),
        "tidings: the server doesn't have a resource type \"deployments.v9.apps\": \
         write `deployments`, `deployments.GROUP` or `deployments.VERSION.GROUP`, with the whole group"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn names_tell_their_namespace_and_what_happened_if_asked() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path()).await;
    write(&server, "POST", CONFIGMAPS, r#"{"metadata":{"name":"a"}}"#).await;
    let mut names = View::open(home.path(), &["cm", "-o", "name"]);
    let arguments = ["cm", "-A", "-o", "name", "--output-watch-events"];
    let mut events = View::open(home.path(), &arguments);
    assert_eq!(names.line(), "configmap/a");
    assert_eq!(events.line(), "ADDED    configmap/a -n default");
    write(&server, "DELETE", &format!("{CONFIGMAPS}/a"), "").await;
    assert_eq!(names.line(), "configmap/a");
    assert_eq!(events.line(), "DELETED  configmap/a -n default");
}

#[tokio::test(flavor = "multi_thread")]
async fn that_there_is_nothing_yet_is_said() {
    let home = tempfile::tempdir().unwrap();
    let _server = start(home.path()).await;
    for (arguments, nothing) in [
        (
            &["cm", "-n", "nowhere"][..],
            "no configmaps in namespace nowhere",
        ),
        (&["cm/a"], "no configmap a in namespace default"),
        (
            &["cm", "-A", "-l", "a=b"],
            "no configmaps that match in any namespace",
        ),
        (&["nodes"], "no nodes"),
    ] {
        let said = View::open(home.path(), arguments).said();
        assert_eq!(said, format!("tidings: {nothing} yet; waiting"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_secrets_only_the_keys_are_shown_and_of_applies_only_the_change() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path()).await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = |data: &str, applied: &str| {
        format!(
            r#"{{"metadata":{{"name":"s","annotations":{{"kubectl.kubernetes.io/last-applied-configuration":"{applied}"}}}},"data":{data}}}"#
        )
    };
    let body = secret(r#"{"user":"dQ=="}"#, "1");
    write(&server, "POST", secrets, &body).await;
    let mut view = View::open(home.path(), &["secrets"]);
    assert_eq!(view.event(), "ADDED    s");
    for (data, applied, shown) in [
        (r#"{"user":"dQ==","key":"djE="}"#, "2", "+data.key"),
        (r#"{"user":"dQ==","key":"djI="}"#, "3", "data.key changed"),
        (r#"{"user":"dQ=="}"#, "4", "-data.key"),
        (
            r#"{"user":"dQ=="}"#,
            "5",
            "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration] changed",
        ),
    ] {
        let path = format!("{secrets}/s");
        write(&server, "PUT", &path, &secret(data, applied)).await;
        assert_eq!(view.event(), format!("MODIFIED s  {shown}"));
    }
}

/// Checks that a line is the expected text with the time until the next retry.
fn assert_waits(said: &str, what: &str) {
    let rest = said.strip_prefix(what).unwrap_or_else(|| panic!("{said}"));
    let wait = rest
        .strip_prefix("; trying again in ")
        .and_then(|rest| rest.strip_suffix(" s"))
        .unwrap_or_else(|| panic!("{said}"));
    assert!(wait.parse::<f64>().unwrap() > 0.0, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_told_with_every_try_and_its_end() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path()).await;
    write(&server, "POST", CONFIGMAPS, r#"{"metadata":{"name":"a"}}"#).await;
    let mut view = View::open(home.path(), &["cm"]);
    assert_eq!(view.event(), "ADDED    a");
    let address = server.url.strip_prefix("https://").unwrap().to_owned();
    server.kill().await.unwrap();
    // The connection may break in several ways; the second attempt is refused.
    let first = view.said();
    assert!(first.starts_with("tidings: lost the server: "), "{first}");
    assert_waits(
        &view.said(),
        "tidings: lost the server: Connection refused (os error 111)",
    );
    let mut again = Command::new(BINARY)
        .args(["serve", "--listen", &address, "--data-dir"])
        .arg(home.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = view.said();
    while said.starts_with("tidings: lost the server: ") {
        assert!(again.try_wait().unwrap().is_none(), "the server has ended");
        said = view.said();
    }
    again.kill().unwrap();
    again.wait().unwrap();
    assert_eq!(said, "tidings: connected again");
}

fn point_to(home: &Path, server: &str) {
    let kubeconfig = format!(
        r#"{{"apiVersion":"v1","kind":"Config","current-context":"c",
            "contexts":[{{"name":"c","context":{{"cluster":"c","user":"u"}}}}],
            "clusters":[{{"name":"c","cluster":{{"server":"{server}"}}}}],
            "users":[{{"name":"u","user":{{}}}}]}}"#
    );
    std::fs::write(home.join("kubeconfig"), kubeconfig).unwrap();
}

/// A server without any ConfigMap, which answers lists of them with these codes in turn, and then correctly.
fn answering(home: &Path, codes: &'static [u16]) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    point_to(home, &format!("http://{address}"));
    std::thread::spawn(move || {
        let mut codes = codes.iter();
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let path = requested(&stream);
            if path.contains("watch=") {
                open.push(stream);
                continue;
            }
            let (code, body) = match path.split('?').next().unwrap() {
                "/api" => (200, CONFIGMAPS_ONLY.to_owned()),
                "/apis" => (200, r#"{"kind":"APIGroupDiscoveryList","items":[]}"#.to_owned()),
                _ => match codes.next() {
                    Some(code) => (
                        *code,
                        format!(
                            r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not now","code":{code}}}"#
                        ),
                    ),
                    None => (
                        200,
                        r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}"#
                            .to_owned(),
                    ),
                },
            };
            let answer = format!(
                "HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
}

const CONFIGMAPS_ONLY: &str = r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":""},"versions":[{"version":"v1","resources":[
    {"resource":"configmaps","responseKind":{"kind":"ConfigMap"},"scope":"Namespaced","shortNames":["cm"],"verbs":["list","watch"]}]}]}]}"#;

/// Reads the head of a request, and returns its path.
fn requested(stream: &TcpStream) -> String {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().unwrap().unwrap();
    for line in lines {
        if line.unwrap().is_empty() {
            break;
        }
    }
    first.split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn a_server_that_will_not_ends_the_view_at_once() {
    for codes in [&[400], &[401], &[403], &[404], &[405]] {
        let home = tempfile::tempdir().unwrap();
        answering(home.path(), codes);
        let said = refused(home.path(), &["cm"]);
        assert_eq!(said, "tidings: the server refuses: not now", "{codes:?}");
    }
}

#[test]
fn a_server_that_cannot_yet_is_asked_again_and_that_is_said() {
    let home = tempfile::tempdir().unwrap();
    answering(home.path(), &[503]);
    let mut view = View::open(home.path(), &["cm"]);
    assert_waits(&view.said(), "tidings: the server refuses: not now");
    assert_eq!(
        view.said(),
        "tidings: no configmaps in namespace default yet; waiting"
    );
}

#[test]
fn a_server_that_does_not_answer_is_named() {
    let home = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    point_to(home.path(), &format!("http://{address}"));
    assert_eq!(
        View::open(home.path(), &["cm"]).said(),
        format!("tidings: still waiting for http://{address}/")
    );
}

/// Creates an object of a kind whose definition was just created: until it is established, its path is not found.
async fn create_when_served(server: &Server, path: &str, body: &str) {
    let mut connection = server.client.connect().await.unwrap();
    loop {
        let answer = connection
            .request("POST", path, body.as_bytes())
            .await
            .unwrap();
        match answer.code {
            404 => tokio::task::yield_now().await,
            code => {
                assert!(code < 300, "{}", answer.text());
                return;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_is_deleted_and_created_again_does_not_end_the_view() {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const DEFINITION: &str = r#"{"metadata":{"name":"cats.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
        "names":{"plural":"cats","kind":"Cat"},"versions":[{"name":"v1","served":true,"storage":true,
        "schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;
    const CATS: &str = "/apis/example.com/v1/namespaces/default/cats";
    let cat = |name: &str| {
        format!(r#"{{"apiVersion":"example.com/v1","kind":"Cat","metadata":{{"name":"{name}"}}}}"#)
    };
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path()).await;
    write(&server, "POST", DEFINITIONS, DEFINITION).await;
    create_when_served(&server, CATS, &cat("tom")).await;
    let mut view = View::open(home.path(), &["cats"]);
    assert_eq!(view.event(), "ADDED    tom");
    let definition = format!("{DEFINITIONS}/cats.example.com");
    write(&server, "DELETE", &definition, "").await;
    let said = view.said();
    assert!(said.contains("trying again in"), "{said}");
    let mut connection = server.client.connect().await.unwrap();
    while connection
        .request("GET", &definition, b"")
        .await
        .unwrap()
        .code
        != 404
    {
        tokio::task::yield_now().await;
    }
    write(&server, "POST", DEFINITIONS, DEFINITION).await;
    create_when_served(&server, CATS, &cat("kitty")).await;
    let mut event = view.event();
    while event.starts_with("DELETED") {
        event = view.event();
    }
    assert_eq!(event, "ADDED    kitty");
}
