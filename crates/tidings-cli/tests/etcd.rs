//! Servers over a real etcd: what clients see while etcd is down, when history is compacted, and after etcd was restored.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tidings_storage::Storage;
use tidings_testing::{Client, Connection, Etcd, Response, Server, StartOptions};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const LONGEST: Duration = Duration::from_secs(30);

async fn start(data_dir: &Path, etcd: &Etcd, more: &[&str]) -> Server {
    let endpoints = etcd.argument();
    let arguments = ["--storage", "etcd", "--etcd-endpoints", &endpoints];
    Server::start(&StartOptions {
        binary: Path::new(env!("CARGO_BIN_EXE_tidings")),
        data_dir,
        arguments: &[&arguments, more].concat(),
    })
    .await
    .unwrap()
}

async fn ask(client: &Client, method: &str, path: &str, body: &str) -> Response {
    let mut connection = client.connect().await.unwrap();
    let asked = connection.request(method, path, body.as_bytes());
    tokio::time::timeout(LONGEST, asked).await.unwrap().unwrap()
}

async fn create(client: &Client, name: &str) -> u64 {
    let body = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
    let created = ask(client, "POST", CONFIGMAPS, &body).await;
    assert_eq!(created.code, 201, "{}", created.text());
    version(&serde_json::from_slice(&created.body).unwrap())
}

fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.unwrap().parse().unwrap()
}

async fn names(client: &Client, query: &str) -> Vec<String> {
    let listed = ask(client, "GET", &format!("{CONFIGMAPS}{query}"), "").await;
    assert_eq!(listed.code, 200, "{}", listed.text());
    let list: Value = serde_json::from_slice(&listed.body).unwrap();
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

/// The next event of a watch that is not a bookmark.
async fn event(watch: &mut Connection) -> (String, Value) {
    loop {
        let line = tokio::time::timeout(LONGEST, watch.line()).await.unwrap();
        let event: Value = serde_json::from_str(&line.unwrap().unwrap()).unwrap();
        if event["type"] != "BOOKMARK" {
            return (
                event["type"].as_str().unwrap().to_owned(),
                event["object"].clone(),
            );
        }
    }
}

async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < LONGEST, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn while_etcd_is_away_caches_answer_writes_are_refused_and_watches_stay() {
    let mut etcd = Etcd::start().unwrap();
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path(), &etcd, &[]).await;
    let client = &server.client;
    let first = create(client, "before").await;
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={first}");
    let mut watch = client.watch(&path).await.unwrap();
    assert_eq!(ask(client, "GET", "/readyz", "").await.text(), "ok");

    etcd.kill(0).unwrap();
    let body = r#"{"metadata":{"name":"refused"}}"#;
    for _ in 0..5 {
        let started = Instant::now();
        let refused = ask(client, "POST", CONFIGMAPS, body).await;
        assert!(matches!(refused.code, 503 | 504), "{}", refused.text());
        assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
        assert!(started.elapsed() < Duration::from_secs(4));
        assert_eq!(names(client, "?resourceVersion=0").await, ["before"]);
        // A list at the newest version is not possible.
        let newest = ask(client, "GET", CONFIGMAPS, "").await;
        assert_eq!(newest.code, 503, "{}", newest.text());
    }
    let ready = ask(client, "GET", "/readyz", "").await;
    assert_eq!(ready.code, 500);
    assert!(
        ready
            .text()
            .contains("[-]etcd failed: etcd has not answered for"),
        "{}",
        ready.text()
    );
    assert_eq!(ask(client, "GET", "/livez", "").await.code, 200);

    etcd.restart(0).unwrap();
    eventually("ready again", async || {
        ask(client, "GET", "/readyz", "").await.code == 200
    })
    .await;
    let second = create(client, "after").await;
    let (kind, object) = event(&mut watch).await;
    assert_eq!((kind.as_str(), version(&object)), ("ADDED", second));
    let metrics = ask(client, "GET", "/metrics", "").await.text();
    assert!(metrics.contains("tidings_etcd_unanswered"), "{metrics}");
}

#[tokio::test]
async fn an_older_backup_ends_watches_with_410_and_lost_versions_are_refused() {
    let mut etcd = Etcd::start().unwrap();
    let (home, backup) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = start(home.path(), &etcd, &[]).await;
    let client = &server.client;
    create(client, "kept").await;
    etcd.kill(0).unwrap();
    etcd.back_up(backup.path()).unwrap();
    etcd.restart(0).unwrap();
    eventually("ready again", async || {
        ask(client, "GET", "/readyz", "").await.code == 200
    })
    .await;
    let mut last = 0;
    for number in 0..20 {
        last = create(client, &format!("lost-{number}")).await;
    }
    let from_last = format!("{CONFIGMAPS}?watch=1&resourceVersion={last}");
    let mut watch = client.watch(&from_last).await.unwrap();

    etcd.kill(0).unwrap();
    etcd.restore(backup.path()).unwrap();
    etcd.restart(0).unwrap();
    let (kind, status) = event(&mut watch).await;
    assert_eq!(
        (kind.as_str(), &status["code"]),
        ("ERROR", &410.into()),
        "{status}"
    );
    eventually("the restored state", async || {
        ask(client, "GET", CONFIGMAPS, "").await.code == 200 && names(client, "").await == ["kept"]
    })
    .await;
    // A watch from a version of the lost state gets 410 at once, instead of waiting for that version.
    let late = ask(client, "GET", &from_last, "").await.text();
    assert!(late.starts_with(r#"{"type":"ERROR""#), "{late}");
    assert!(late.contains(r#""code":410"#), "{late}");
    let listed = ask(client, "GET", CONFIGMAPS, "").await;
    let now = version(&serde_json::from_slice(&listed.body).unwrap());
    let mut fresh = client
        .watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={now}"))
        .await
        .unwrap();
    let made = create(client, "new").await;
    assert_eq!(version(&event(&mut fresh).await.1), made);
}

#[tokio::test]
async fn history_that_ends_while_a_server_sleeps_is_not_missed() {
    let etcd = Etcd::start().unwrap();
    let home = tempfile::tempdir().unwrap();
    let brief = ["--history", "1s"];
    let sleeper = start(home.path(), &etcd, &brief).await;
    let awake = start(home.path(), &etcd, &brief).await;
    let first = create(&awake.client, "a").await;
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={first}");
    let mut watch = sleeper.client.watch(&path).await.unwrap();
    let pid = sleeper.pids()[0];
    tidings_testing::pause(pid).unwrap();
    let mut connection = awake.client.connect().await.unwrap();
    let oldest = async || {
        let metrics = ask(&awake.client, "GET", "/metrics", "").await.text();
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix("tidings_store_oldest_revision "));
        line.unwrap().parse::<u64>().unwrap()
    };
    let mut number = 0;
    // More data than the buffers of the paused server's connection hold.
    let fill = "x".repeat(30_000);
    // The last thousand revisions are always kept.
    eventually("history has ended", async || {
        for _ in 0..100 {
            number += 1;
            let body = format!(
                r#"{{"metadata":{{"name":"a"}},"data":{{"n":"{number}","fill":"{fill}"}}}}"#
            );
            let path = format!("{CONFIGMAPS}/a");
            let put = connection.request("PUT", &path, body.as_bytes()).await;
            assert_eq!(put.unwrap().code, 200);
        }
        oldest().await > first + 1000
    })
    .await;
    tidings_testing::resume(pid).unwrap();
    // The paused server has missed compacted changes: its watches end, and it relists.
    let (kind, status) = loop {
        let (kind, object) = event(&mut watch).await;
        if kind != "MODIFIED" {
            break (kind, object);
        }
    };
    assert_eq!(
        (kind.as_str(), &status["code"]),
        ("ERROR", &410.into()),
        "{status}"
    );
    eventually("up to date", async || {
        let path = format!("{CONFIGMAPS}/a");
        let found = ask(&sleeper.client, "GET", &path, "").await;
        found.code == 200 && found.text().contains(&format!(r#""n":"{number}""#))
    })
    .await;
}

#[tokio::test]
async fn two_servers_are_one_to_their_clients() {
    let etcd = Etcd::start().unwrap();
    let home = tempfile::tempdir().unwrap();
    let one = start(home.path(), &etcd, &[]).await;
    let two = start(home.path(), &etcd, &[]).await;
    let mut first = 0;
    for number in 0..7 {
        first = first.max(create(&one.client, &format!("c{number}")).await);
        // A list without a version includes every write that any server acknowledged before.
        assert_eq!(names(&two.client, "").await.len(), number + 1);
        let path = format!("{CONFIGMAPS}/c{number}");
        assert_eq!(ask(&two.client, "GET", &path, "").await.code, 200);
    }
    // A paged list continues on the other server, at its version.
    let page = ask(&one.client, "GET", &format!("{CONFIGMAPS}?limit=3"), "").await;
    let page: Value = serde_json::from_slice(&page.body).unwrap();
    create(&two.client, "c9").await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = names(&two.client, &format!("?continue={token}")).await;
    assert_eq!(rest, ["c3", "c4", "c5", "c6"]);
    // A watch resumes on the other server, at any version.
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={}", first - 1);
    for server in [&one, &two] {
        let mut watch = server.client.watch(&path).await.unwrap();
        assert_eq!(version(&event(&mut watch).await.1), first);
        assert_eq!(event(&mut watch).await.1["metadata"]["name"], "c9");
    }
    // A server that starts later can also serve old versions.
    let three = start(home.path(), &etcd, &[]).await;
    let mut watch = three.client.watch(&path).await.unwrap();
    assert_eq!(version(&event(&mut watch).await.1), first);
    let deleted = ask(&three.client, "DELETE", &format!("{CONFIGMAPS}/c9"), "").await;
    assert_eq!(deleted.code, 200);
    assert_eq!(names(&one.client, "").await.len(), 7);
}

#[tokio::test]
async fn objects_are_json_where_kube_apiserver_has_them() {
    let etcd = Etcd::start().unwrap();
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path(), &etcd, &[]).await;
    let made = [
        ("/api/v1/nodes", "n"),
        ("/api/v1/namespaces/default/services", "s"),
        ("/api/v1/namespaces/default/endpoints", "e"),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            "l",
        ),
    ];
    for (path, name) in made {
        let spec = match name {
            "s" => r#"{"clusterIP":"None"}"#,
            _ => "{}",
        };
        let body = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{spec}}}"#);
        let created = ask(&server.client, "POST", path, &body).await;
        assert_eq!(created.code, 201, "{path}: {}", created.text());
    }
    create(&server.client, "c").await;
    let raw = tidings_storage::Etcd::open(tidings_storage::EtcdOptions::new(etcd.endpoints()));
    let raw = raw.await.unwrap();
    for key in [
        "minions/n",
        "services/specs/default/s",
        "services/endpoints/default/e",
        "leases/default/l",
        "configmaps/default/c",
        "namespaces/default",
    ] {
        let range = tidings_storage::Range {
            prefix: key.into(),
            ..Default::default()
        };
        let found = raw.range(range).await.unwrap().entries;
        let found = found.first().unwrap_or_else(|| panic!("there is no {key}"));
        let object: Value = serde_json::from_slice(&found.value).unwrap();
        let version = &object["metadata"]["resourceVersion"];
        assert!(version.is_null(), "{key}: the version is etcd's");
    }
}

/// A value that another program wrote into etcd is not served and does not affect other objects, whether it was written before or
/// after the start of the server.
#[tokio::test]
async fn a_foreign_value_is_set_aside_and_named() {
    let home = tempfile::tempdir().unwrap();
    let etcd = Etcd::start().unwrap();
    let raw = tidings_storage::Etcd::open(tidings_storage::EtcdOptions::new(etcd.endpoints()));
    let raw = raw.await.unwrap();
    let put = async |key: &str, value: &'static [u8]| {
        let write = tidings_storage::Write::create(key.to_owned(), value);
        raw.write(write).await.unwrap()
    };
    let server = start(home.path(), &etcd, &[]).await;
    let client = server.client.clone();
    create(&client, "a").await;
    let binary = &b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap"[..];
    let mut watch = client
        .watch(&format!("{CONFIGMAPS}?watch=1"))
        .await
        .unwrap();
    assert_eq!(event(&mut watch).await.0, "ADDED");
    put("configmaps/default/foreign", binary).await;
    put("configmaps/default/nonsense", b"[1]").await;
    put(
        "configmaps/default/misnamed",
        br#"{"metadata":{"name":"other","namespace":"default"}}"#,
    )
    .await;
    create(&client, "b").await;
    let (kind, object) = event(&mut watch).await;
    assert_eq!(
        (kind.as_str(), &object["metadata"]["name"]),
        ("ADDED", &Value::from("b"))
    );
    assert_eq!(names(&client, "").await, ["a", "b"]);
    let set_aside = async |client: &Client| {
        let metrics = ask(client, "GET", "/metrics", "").await.text();
        let name = "tidings_store_values_set_aside{group=\"\",resource=\"configmaps\"} ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0, |count| count.parse::<u64>().unwrap())
    };
    assert_eq!(set_aside(&client).await, 3);
    assert_eq!(ask(&client, "GET", "/readyz", "").await.code, 200);
    // A create of an object with that key conflicts.
    let body = r#"{"metadata":{"name":"foreign"}}"#;
    let exists = ask(&client, "POST", CONFIGMAPS, body).await;
    assert_eq!(exists.code, 409, "{}", exists.text());
    drop(watch);
    server.kill().await.unwrap();
    let server = start(home.path(), &etcd, &[]).await;
    assert_eq!(names(&server.client, "").await, ["a", "b"]);
    assert_eq!(set_aside(&server.client).await, 3);
    // The server forgets the value when it is deleted.
    let range = tidings_storage::Range {
        prefix: "configmaps/default/foreign".into(),
        ..Default::default()
    };
    let at = raw.range(range).await.unwrap().entries[0].revision;
    let delete = tidings_storage::Write::delete("configmaps/default/foreign", at);
    raw.write(delete).await.unwrap();
    create(&server.client, "c").await;
    assert_eq!(names(&server.client, "").await, ["a", "b", "c"]);
    assert_eq!(set_aside(&server.client).await, 2);
}

#[test]
fn what_is_wrong_with_etcd_is_said_before_anything_starts() {
    let home = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tidings"))
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(home.path())
            .args(arguments)
            .env("RUST_LOG", "error")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused(&["--storage", "etcd"]);
    assert!(
        said.contains("add --etcd-endpoints http://127.0.0.1:2379"),
        "{said}"
    );
    let said = refused(&["--etcd-endpoints", "http://127.0.0.1:1"]);
    assert!(said.contains("add --storage etcd"), "{said}");
    let said = refused(&["--storage", "etcd", "--etcd-endpoints", "localhost:2379"]);
    assert!(said.contains("write it as http://HOST:PORT"), "{said}");
    let said = refused(&[
        "--storage",
        "etcd",
        "--etcd-endpoints",
        "http://127.0.0.1:1",
    ]);
    assert!(said.contains("etcd does not answer"), "{said}");
    assert!(said.contains("http://127.0.0.1:1: "), "{said}");
}
