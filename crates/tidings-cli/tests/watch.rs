//! `tidings watch` as a person sees it, against the built server.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use tidings_testing::{Server, Start};

const BINARY: &str = env!("CARGO_BIN_EXE_tidings");
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn start(data_dir: &Path) -> Server {
    let start = Start {
        binary: Path::new(BINARY),
        data_dir,
        arguments: &[],
    };
    Server::start(&start).await.unwrap()
}

/// A view that runs until it is dropped.
struct View {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl View {
    fn open(data: &Path, arguments: &[&str]) -> View {
        let mut child = command(data, arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        View { child, lines }
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

/// What the command says when it ends by itself.
fn refused(data: &Path, arguments: &[&str]) -> String {
    let output = command(data, arguments).output().unwrap();
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
    // Only changes, and of another namespace none.
    let mut changes = View::open(home.path(), &["cm", "--watch-only", "-n", "default"]);
    let mut elsewhere = View::open(home.path(), &["cm", "-n", "kube-system", "-o", "name"]);
    // A view that has started shows what comes; until then it would miss nothing either, but call it old.
    tokio::time::timeout(std::time::Duration::from_secs(20), async {
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
    assert!(said.contains("refuses: Unauthorized"), "{said}");
    assert!(refused(data, &["cm", "--context", "nope"]).contains("nope"));
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
