//! Kills the server with SIGKILL under load, many times: no acknowledged write is lost, no deleted object comes back, no partial
//! write appears, and a resumed watch sees every change exactly once, with its type.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use tidings_testing::{Client, Connection, Etcd, Server, StartOptions};

const WRITERS: usize = 4;
const PATH: &str = "/api/v1/namespaces/default/configmaps";

/// Long-lived objects ("stones"), created at the beginning; every other one is deleted later. Their values are in segments of the
/// log that are not rewritten, their deletions in segments that are.
const STONES: u64 = 400;

fn stone(number: u64) -> String {
    format!("stone-{number}")
}

/// What a writer knows of an object. The n-th change sets the value n; every fourth change deletes the object, for a stone the
/// second.
#[derive(Debug, Default, Clone)]
struct KnownValue {
    is_stone: bool,
    /// Acknowledged changes.
    changes: u64,
    /// The value; `None` if the object does not exist.
    value: Option<u64>,
    /// One more change may have been done: its answer is missing.
    uncertain: bool,
}

impl KnownValue {
    fn of(name: &str) -> KnownValue {
        KnownValue {
            is_stone: name.starts_with("stone"),
            ..KnownValue::default()
        }
    }

    /// The value after the next change.
    fn next(&self) -> Option<u64> {
        let number = self.changes + 1;
        let deletes = self.value.is_some() && (self.is_stone || number.is_multiple_of(4));
        (!deletes).then_some(number)
    }

    fn done(&mut self) {
        self.value = self.next();
        self.changes += 1;
        self.uncertain = false;
    }
}

type Names = Arc<Mutex<BTreeMap<String, KnownValue>>>;

/// Does the next change of an object. Returns false if the server is killed: it is then unknown whether the change was done.
async fn change(connection: &mut Connection, name: String, names: &Names) -> bool {
    let (before, next) = {
        let mut names = names.lock().unwrap();
        let known = names
            .entry(name.clone())
            .or_insert_with(|| KnownValue::of(&name));
        known.uncertain = true;
        (known.value, known.next())
    };
    let item = format!("{PATH}/{name}");
    let (method, path) = match (before, next) {
        (None, _) => ("POST", PATH),
        (Some(_), Some(_)) => ("PUT", item.as_str()),
        (Some(_), None) => ("DELETE", item.as_str()),
    };
    let body = match next {
        None => String::new(),
        Some(value) => {
            let fill = "x".repeat(500 + value as usize * 31 % 700);
            format!(
                r#"{{"metadata":{{"name":"{name}"}},"data":{{"v":"{value}","fill":"{fill}"}}}}"#
            )
        }
    };
    let Ok(answer) = connection.request(method, path, body.as_bytes()).await else {
        return false;
    };
    let right = answer.code == 200 || answer.code == 201;
    assert!(right, "{}", answer.text());
    names.lock().unwrap().get_mut(&name).unwrap().done();
    true
}

/// Changes `first`, then creates, updates, deletes and recreates five objects until the server is killed.
async fn write(client: Client, writer: usize, first: Option<String>, names: Names) {
    let Ok(mut connection) = client.connect().await else {
        return;
    };
    let all = (1..).map(|number| format!("w{writer}-{}", number % 5));
    for name in first.into_iter().chain(all) {
        if !change(&mut connection, name, &names).await {
            return;
        }
    }
}

/// A copy of the state that a watch keeps up to date. It resumes after each restart.
#[derive(Debug)]
struct Follower {
    version: u64,
    names: BTreeMap<String, KnownValue>,
}

impl Follower {
    /// The number of changes that it has seen.
    fn changes(&self) -> u64 {
        self.names.values().map(|known| known.changes).sum()
    }

    /// Watches until it has seen this number of changes. `Err` if the watch ends before, because the server is killed.
    async fn follow(&mut self, client: &Client, changes: u64) -> anyhow::Result<()> {
        if self.changes() >= changes {
            return Ok(());
        }
        let path = format!("{PATH}?watch=1&resourceVersion={}", self.version);
        let mut watch = client.watch(&path).await?;
        while self.changes() < changes {
            let line = watch.line().await?;
            self.take(&line.context("the watch has ended")?);
        }
        Ok(())
    }

    fn take(&mut self, line: &str) {
        let event: Value = serde_json::from_str(line).unwrap();
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
        let known = self
            .names
            .entry(name.clone())
            .or_insert_with(|| KnownValue::of(&name));
        let (before, next) = (known.value, known.next());
        let kind = match (before, next) {
            (None, _) => "ADDED",
            (Some(_), Some(_)) => "MODIFIED",
            (Some(_), None) => "DELETED",
        };
        assert_eq!(event["type"], kind, "{name}: {known:?}");
        // A deletion event has the last state.
        let value: u64 = event["object"]["data"]["v"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(
            Some(value),
            next.or(before),
            "{name}: no change is left out"
        );
        known.done();
    }

    fn values(&self) -> BTreeMap<String, u64> {
        let names = self.names.iter();
        let values = names.filter_map(|(name, known)| Some((name.clone(), known.value?)));
        values.collect()
    }
}

/// The values of all objects.
async fn list(client: &Client) -> BTreeMap<String, u64> {
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
    let named = |item: &Value| {
        (
            item["metadata"]["name"].as_str().unwrap().to_owned(),
            number(&item["data"]["v"]),
        )
    };
    items.iter().map(named).collect()
}

/// Checks that the server has the acknowledged values, or the value after one more change whose answer is missing.
fn check(round: u64, names: &Names, values: &BTreeMap<String, u64>) {
    let mut names = names.lock().unwrap();
    for (name, known) in names.iter_mut() {
        let value = values.get(name).copied();
        if value != known.value {
            let right = known.uncertain && value == known.next();
            assert!(right, "round {round}: {name} is {value:?}, but {known:?}");
            known.done();
        }
        known.uncertain = false;
    }
    assert!(
        values.keys().all(|name| names.contains_key(name)),
        "round {round}: something was never written"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_two_hundred_times() {
    // Small values, so that segments end, and are compacted and rewritten, all the time.
    let arguments = [
        "--log-segment-bytes",
        "30000",
        "--compact-every-ms",
        "3",
        "--history",
        "1s",
        "--history-revisions",
        "500",
    ];
    kill_again_and_again(200, &arguments).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_a_hundred_times_over_etcd() {
    let etcd = Etcd::start().unwrap();
    let endpoints = etcd.argument();
    kill_again_and_again(100, &["--storage", "etcd", "--etcd-endpoints", &endpoints]).await;
}

async fn kill_again_and_again(rounds: u64, arguments: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let binary = Path::new(env!("CARGO_BIN_EXE_tidings"));
    let start = StartOptions {
        binary,
        data_dir: &data_dir,
        arguments,
    };
    let names = Names::default();
    // A watch from version 0 would begin with an unordered list; version 1 is that of the first namespace.
    let mut follower = Follower {
        version: 1,
        names: BTreeMap::new(),
    };
    for round in 0..rounds {
        let server = Server::start(&start)
            .await
            .unwrap_or_else(|error| panic!("round {round}: {error:#}"));
        let client = server.client.clone();
        let values = list(&client).await;
        check(round, &names, &values);
        let changes = names
            .lock()
            .unwrap()
            .values()
            .map(|known| known.changes)
            .sum();
        let resumed = follower.follow(&client, changes).await;
        resumed.unwrap_or_else(|error| panic!("round {round}: {error:#}"));
        assert_eq!(
            follower.values(),
            values,
            "round {round}: who resumes has the same state as who lists"
        );

        if round == 0 {
            let mut connection = client.connect().await.unwrap();
            for number in 0..STONES {
                assert!(change(&mut connection, stone(number), &names).await);
            }
        }
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            // Deletes one stone in each round: every other one in total.
            let next = Some(stone(round * 2)).filter(|_| writer == 0 && round * 2 < STONES);
            let next = next.filter(|name| names.lock().unwrap()[name].value.is_some());
            writers.spawn(write(client.clone(), writer, next, names.clone()));
        }
        // Pauses vary by the duration of a commit, so that kills come at every point of it.
        let pause = Duration::from_micros(20_000 + round * 1_371 % 9_000);
        let killing = async {
            tokio::time::sleep(pause).await;
            server.kill().await.unwrap();
        };
        let (followed, ()) = tokio::join!(follower.follow(&client, u64::MAX), killing);
        assert!(followed.is_err(), "it is followed until the server is gone");
        while let Some(writer) = writers.join_next().await {
            writer.unwrap();
        }
    }
    let changes = follower.changes();
    println!("{changes} changes over {rounds} kills");
    assert!(changes > rounds, "there was load");
}
