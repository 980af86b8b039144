//! kill -9 under load, again and again: nothing acknowledged is lost, nothing deleted comes back, nothing half-written appears,
//! and a watch that resumes sees every change exactly once, as what it was.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use tidings_testing::{Client, Connection, Etcd, Server, Start};

const WRITERS: usize = 4;
const PATH: &str = "/api/v1/namespaces/default/configmaps";

/// Objects that are made at the beginning and stay, but for every other one, which is deleted in its time: their values stand in
/// files of the log that are not rewritten, their deletions in such that are.
const STONES: u64 = 400;

fn stone(number: u64) -> String {
    format!("stone-{number}")
}

/// What a writer was told of a name. The n-th change of a name gives it the value n, and every fourth deletes it; the second
/// change of a stone does.
#[derive(Debug, Default, Clone)]
struct Known {
    is_stone: bool,
    /// How many changes were done.
    changes: u64,
    /// The value, unless it is deleted.
    value: Option<u64>,
    /// One more change may have been done.
    uncertain: bool,
}

impl Known {
    fn of(name: &str) -> Known {
        Known {
            is_stone: name.starts_with("stone"),
            ..Known::default()
        }
    }

    /// What the next change leaves.
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

type Names = Arc<Mutex<BTreeMap<String, Known>>>;

/// Does the next change of a name. False if the server is gone: whether the change was done is not known then.
async fn change(connection: &mut Connection, name: String, names: &Names) -> bool {
    let (before, next) = {
        let mut names = names.lock().unwrap();
        let known = names
            .entry(name.clone())
            .or_insert_with(|| Known::of(&name));
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

/// Creates, changes, deletes and makes anew five names, after `first`, until the server is gone.
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

/// A watcher's own copy of the state, kept over restarts by resuming.
#[derive(Debug)]
struct Follower {
    version: u64,
    names: BTreeMap<String, Known>,
}

impl Follower {
    /// How many changes it has seen.
    fn changes(&self) -> u64 {
        self.names.values().map(|known| known.changes).sum()
    }

    /// Follows until it has seen so many changes. `Err` if the watch ends before, because the server is gone.
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
            .or_insert_with(|| Known::of(&name));
        let (before, next) = (known.value, known.next());
        let kind = match (before, next) {
            (None, _) => "ADDED",
            (Some(_), Some(_)) => "MODIFIED",
            (Some(_), None) => "DELETED",
        };
        assert_eq!(event["type"], kind, "{name}: {known:?}");
        // A deletion shows the last state.
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

/// The values of all.
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

/// What the server has is what was acknowledged, or what the one change leaves whose answer was cut off. Then it is known.
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
    // Files of the log roll, are compacted and rewritten all the time.
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
    let start = Start {
        binary,
        data_dir: &data_dir,
        arguments,
    };
    let names = Names::default();
    // Version 0 would mean the state in any order; version 1 is the first of the namespaces.
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
            // One stone is deleted in each round, every other one in all.
            let next = Some(stone(round * 2)).filter(|_| writer == 0 && round * 2 < STONES);
            let next = next.filter(|name| names.lock().unwrap()[name].value.is_some());
            writers.spawn(write(client.clone(), writer, next, names.clone()));
        }
        // Spread over the time that a commit takes, so that the kill meets it at every point.
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
