//! A quota under 64 writers at two servers over etcd: it is never exceeded, and at rest it says what there is.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use tidings_testing::{Client, Etcd, Server, StartOptions};
use tokio::task::JoinSet;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const WRITERS: usize = 64;
const ROUNDS: usize = 5;
const LIMIT: usize = 30;
const PATIENCE: Duration = Duration::from_secs(30);

async fn start(etcd: &Etcd, directory: &Path, name: &str) -> Server {
    let endpoints = etcd.argument();
    let start = StartOptions {
        binary: Path::new(env!("CARGO_BIN_EXE_tidings")),
        data_dir: &directory.join(name),
        arguments: &["--storage", "etcd", "--etcd-endpoints", &endpoints],
    };
    Server::start(&start).await.unwrap()
}

async fn ask(client: &Client, method: &str, path: &str, body: &str) -> (u16, Value) {
    let mut connection = client.connect().await.unwrap();
    let answer = connection.request(method, path, body.as_bytes()).await;
    let answer = answer.unwrap();
    let body = serde_json::from_slice(&answer.body).unwrap();
    (answer.code, body)
}

async fn count(client: &Client) -> usize {
    let (code, list) = ask(client, "GET", MAPS, "").await;
    assert_eq!(code, 200);
    list["items"].as_array().unwrap().len()
}

async fn used(client: &Client) -> Value {
    let (_, quota) = ask(client, "GET", &format!("{QUOTAS}/maps"), "").await;
    quota["status"]["used"]["configmaps"].clone()
}

/// Creates objects, and deletes every other one.
async fn write(client: Client, writer: usize) {
    for round in 0..ROUNDS {
        let name = format!("w{writer}-{round}");
        let body = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        let (code, answer) = ask(&client, "POST", MAPS, &body).await;
        assert!(matches!(code, 201 | 403), "{code}: {answer}");
        if code == 201 && round % 2 == 0 {
            let (code, answer) = ask(&client, "DELETE", &format!("{MAPS}/{name}"), "").await;
            assert_eq!(code, 200, "{answer}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_holds_on_several_servers() {
    let etcd = Etcd::start().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let servers = [
        start(&etcd, directory.path(), "one").await,
        start(&etcd, directory.path(), "two").await,
    ];
    let clients = servers.each_ref().map(|server| server.client.clone());
    let quota =
        format!(r#"{{"metadata":{{"name":"maps"}},"spec":{{"hard":{{"configmaps":"{LIMIT}"}}}}}}"#);
    assert_eq!(ask(&clients[0], "POST", QUOTAS, &quota).await.0, 201);
    let begun = Instant::now();
    while used(&clients[0]).await.is_null() || used(&clients[1]).await.is_null() {
        assert!(begun.elapsed() < PATIENCE, "the quota is not settled");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(clients[writer % 2].clone(), writer));
    }
    let mut most = 0;
    while !writers.is_empty() {
        while let Some(written) = writers.try_join_next() {
            written.unwrap();
        }
        most = most.max(count(&clients[0]).await);
    }
    assert!(most <= LIMIT, "{most} objects, {LIMIT} are allowed");
    let there = count(&clients[1]).await;
    assert!(there > 0 && there <= LIMIT);
    // At rest it says what there is, at both servers.
    let begun = Instant::now();
    let sum = Value::from(there.to_string());
    while used(&clients[0]).await != sum || used(&clients[1]).await != sum {
        assert!(
            begun.elapsed() < PATIENCE,
            "{} of {sum}",
            used(&clients[0]).await
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for server in servers {
        server.kill().await.unwrap();
    }
}
