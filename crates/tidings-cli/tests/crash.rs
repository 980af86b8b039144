//! kill -9 under load, a hundred times: nothing acknowledged is lost, nothing half-written appears, and a watch that
//! resumes sees every change exactly once.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tidings_testing::{Client, Etcd, Server, Start};

const ROUNDS: u64 = 100;
const WRITERS: usize = 4;
const PATH: &str = "/api/v1/namespaces/default/configmaps";

/// What a writer was told of a name, and the one value that may have been written since.
#[derive(Debug, Default, Clone)]
struct Known {
    acknowledged: Option<u64>,
    uncertain: Option<u64>,
}

type Names = Arc<Mutex<BTreeMap<String, Known>>>;

/// Counts up the values of five names until the server is gone.
async fn write(client: Client, writer: usize, names: Names) {
    let Ok(mut connection) = client.connect().await else {
        return;
    };
    for number in 1_usize.. {
        let name = format!("w{writer}-{}", number % 5);
        let before = names
            .lock()
            .unwrap()
            .get(&name)
            .cloned()
            .unwrap_or_default();
        let value = before.acknowledged.unwrap_or(0) + 1;
        names.lock().unwrap().insert(
            name.clone(),
            Known {
                uncertain: Some(value),
                ..before
            },
        );
        let fill = "x".repeat(500 + number % 700);
        let body = format!(
            r#"{{"metadata":{{"name":"{name}"}},"data":{{"v":"{value}","fill":"{fill}"}}}}"#
        );
        let item = format!("{PATH}/{name}");
        let (method, path) = if value == 1 {
            ("POST", PATH)
        } else {
            ("PUT", item.as_str())
        };
        // Killed: whether it was written is not known.
        let Ok(answer) = connection.request(method, path, body.as_bytes()).await else {
            return;
        };
        assert!(
            answer.code == 200 || answer.code == 201,
            "{}",
            answer.text()
        );
        names.lock().unwrap().insert(
            name,
            Known {
                acknowledged: Some(value),
                uncertain: None,
            },
        );
    }
}

/// A watcher's own copy of the state, kept over restarts by resuming.
#[derive(Debug)]
struct Follower {
    version: u64,
    values: BTreeMap<String, u64>,
}

impl Follower {
    /// Follows until a version, or until the server is gone.
    async fn follow(&mut self, client: &Client, until: Option<u64>) {
        let path = format!("{PATH}?watch=1&resourceVersion={}", self.version);
        if until.is_some_and(|until| self.version >= until) {
            return;
        }
        let Ok(mut watch) = client.watch(&path).await else {
            return;
        };
        while until.is_none_or(|until| self.version < until) {
            let Ok(Some(line)) = watch.line().await else {
                return;
            };
            let event: Value = serde_json::from_str(&line).unwrap();
            let meta = &event["object"]["metadata"];
            let version = meta["resourceVersion"]
                .as_str()
                .unwrap_or_else(|| panic!("{line}"));
            let version: u64 = version.parse().unwrap();
            assert!(
                version > self.version,
                "{version} after {}: each change once, in order",
                self.version
            );
            self.version = version;
            let name = meta["name"].as_str().unwrap().to_owned();
            let value: u64 = event["object"]["data"]["v"]
                .as_str()
                .unwrap()
                .parse()
                .unwrap();
            let expected = self.values.get(&name).copied().unwrap_or(0) + 1;
            assert_eq!(value, expected, "{name}: no change is left out");
            self.values.insert(name, value);
        }
    }
}

/// The newest version of any object, and the values of all.
async fn list(client: &Client) -> (u64, BTreeMap<String, u64>) {
    let list = client
        .connect()
        .await
        .unwrap()
        .request("GET", PATH, b"")
        .await
        .unwrap();
    let list: Value = serde_json::from_slice(&list.body).unwrap();
    let number = |value: &Value| value.as_str().unwrap().parse::<u64>().unwrap();
    let items = list["items"].as_array().unwrap();
    let newest = items
        .iter()
        .map(|item| number(&item["metadata"]["resourceVersion"]))
        .max();
    let named = |item: &Value| {
        (
            item["metadata"]["name"].as_str().unwrap().to_owned(),
            number(&item["data"]["v"]),
        )
    };
    (newest.unwrap_or(0), items.iter().map(named).collect())
}

/// What the server has is what was acknowledged, or the one write whose answer was cut off. Then it is known.
fn check(round: u64, names: &Names, values: &BTreeMap<String, u64>) {
    let mut names = names.lock().unwrap();
    for (name, known) in names.iter_mut() {
        let value = values.get(name).copied();
        let right =
            value == known.acknowledged || (known.uncertain.is_some() && value == known.uncertain);
        assert!(right, "round {round}: {name} is {value:?}, but {known:?}");
        *known = Known {
            acknowledged: value,
            uncertain: None,
        };
    }
    assert!(
        values.keys().all(|name| names.contains_key(name)),
        "round {round}: something was never written"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_a_hundred_times() {
    kill_again_and_again(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_a_hundred_times_over_etcd() {
    let etcd = Etcd::start().unwrap();
    let endpoints = etcd.argument();
    kill_again_and_again(&["--storage", "etcd", "--etcd-endpoints", &endpoints]).await;
}

async fn kill_again_and_again(arguments: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let binary = Path::new(env!("CARGO_BIN_EXE_tidings"));
    let start = Start {
        binary,
        data_dir: &data_dir,
        arguments,
    };
    let names = Names::default();
    // Version 0 would mean the state in any order; version 1 is the first of the namespaces.
    let mut follower = Follower {
        version: 1,
        values: BTreeMap::new(),
    };
    for round in 0..ROUNDS {
        let server = Server::start(&start)
            .await
            .unwrap_or_else(|error| panic!("round {round}: {error:#}"));
        let client = server.client.clone();
        let (newest, values) = list(&client).await;
        check(round, &names, &values);
        follower.follow(&client, Some(newest)).await;
        assert_eq!(
            follower.values, values,
            "round {round}: who resumes has the same state as who lists"
        );

        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            writers.spawn(write(client.clone(), writer, names.clone()));
        }
        // Spread over the time that a commit takes, so that the kill meets it at every point.
        let pause = Duration::from_micros(20_000 + round * 1_371 % 9_000);
        let killing = async {
            tokio::time::sleep(pause).await;
            server.kill().await.unwrap();
        };
        tokio::join!(follower.follow(&client, None), killing);
        while let Some(writer) = writers.join_next().await {
            writer.unwrap();
        }
    }
    let writes: u64 = follower.values.values().sum();
    println!("{writes} writes over {ROUNDS} kills");
    assert!(writes > ROUNDS, "there was load");
}
