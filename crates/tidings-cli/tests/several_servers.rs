//! Three etcd members and two servers, killed at random under load: every acknowledged write is kept, and every watch, on
//! whichever server it is resumed, sees each change once and in order.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tidings_testing::{Client, Etcd, Server, StartOptions};

const PATH: &str = "/api/v1/namespaces/default/configmaps";
const LASTS: Duration = Duration::from_secs(20);
/// How long recovery may take.
const PATIENCE: Duration = Duration::from_secs(30);
const WRITERS: usize = 4;
const FOLLOWERS: usize = 3;
const NAMES: usize = 3;

/// Clients of the current servers.
type Servers = Arc<Mutex<Vec<Client>>>;

fn client(servers: &Servers, at: usize) -> Client {
    let servers = servers.lock().unwrap();
    servers[at % servers.len()].clone()
}

/// Sends one request. `None` if the server is killed, or answers that it is unavailable.
async fn ask(client: &Client, method: &str, path: &str, body: &str) -> Option<(u16, Value)> {
    let asked = async {
        let mut connection = client.connect().await.ok()?;
        connection.request(method, path, body.as_bytes()).await.ok()
    };
    let answer = tokio::time::timeout(Duration::from_secs(10), asked)
        .await
        .expect("nothing hangs")?;
    let body = serde_json::from_slice(&answer.body).unwrap();
    let refused = matches!(answer.code, 429 | 500 | 503 | 504);
    (!refused).then_some((answer.code, body))
}

fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.unwrap_or_else(|| panic!("{object}")).parse().unwrap()
}

fn value(object: &Value) -> u64 {
    object["data"]["v"].as_str().unwrap().parse().unwrap()
}

/// Increments the values of some objects, each time from the value that it reads. Returns the acknowledged values.
async fn write(servers: Servers, writer: usize, stop: Arc<AtomicBool>) -> BTreeMap<String, u64> {
    let mut acknowledged = BTreeMap::new();
    for number in 0_usize.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let client = client(&servers, fastrand::usize(..8));
        let name = format!("w{writer}-{}", number % NAMES);
        let item = format!("{PATH}/{name}");
        let Some((code, now)) = ask(&client, "GET", &item, "").await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        // A write that one server acknowledged is visible on every server.
        let known = acknowledged.get(&name).copied().unwrap_or(0);
        let found = if code == 404 { 0 } else { value(&now) };
        assert!(
            found >= known,
            "{name} is {found}, but {known} was acknowledged"
        );
        let next = found + 1;
        let (method, path, condition) = match code {
            404 => ("POST", PATH, String::new()),
            _ => {
                let condition = format!(r#","resourceVersion":"{}""#, version(&now));
                ("PUT", item.as_str(), condition)
            }
        };
        let body =
            format!(r#"{{"metadata":{{"name":"{name}"{condition}}},"data":{{"v":"{next}"}}}}"#);
        match ask(&client, method, path, &body).await {
            Some((200 | 201, _)) => {
                acknowledged.insert(name, next);
            }
            // An earlier write without an answer was done.
            Some((409, _)) | None => {}
            Some((code, answer)) => panic!("{code}: {answer}"),
        }
    }
    acknowledged
}

/// A copy of the state that a watch keeps up to date. It resumes on any server.
#[derive(Debug, Clone, PartialEq)]
struct Follower {
    version: u64,
    values: BTreeMap<String, u64>,
    resumed: usize,
}

impl Follower {
    /// Applies events until the watch ends. Returns true if it has reached a version.
    async fn follow(&mut self, client: &Client, until: Option<u64>) -> bool {
        let path = format!("{PATH}?watch=1&resourceVersion={}", self.version);
        let Ok(mut watch) = client.watch(&path).await else {
            return false;
        };
        self.resumed += 1;
        loop {
            if until.is_some_and(|until| self.version >= until) {
                return true;
            }
            let next = tokio::time::timeout(Duration::from_secs(2), watch.line()).await;
            let Ok(Ok(Some(line))) = next else {
                return false;
            };
            let event: Value = serde_json::from_str(&line).unwrap();
            let object = &event["object"];
            if event["type"] == "ERROR" && matches!(object["code"].as_u64(), Some(429 | 503 | 504))
            {
                return false;
            }
            let version = version(object);
            assert!(
                version > self.version,
                "{version} after {}: each change once, in order",
                self.version
            );
            self.version = version;
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            let expected = self.values.get(&name).copied().unwrap_or(0) + 1;
            assert_eq!(value(object), expected, "{name}: no change is left out");
            self.values.insert(name, expected);
        }
    }
}

async fn follow(servers: Servers, from: Follower, stop: Arc<AtomicBool>) -> Follower {
    let mut follower = from;
    for number in 0_usize.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        follower.follow(&client(&servers, number), None).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    follower
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_and_servers_are_killed_and_nothing_is_lost() {
    let seed: u64 = std::env::var("TIDINGS_SEED").map_or(7, |seed| seed.parse().unwrap());
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut etcd = Etcd::cluster(3, None).unwrap();
    let home = tempfile::tempdir().unwrap();
    let endpoints = etcd.argument();
    let arguments = ["--storage", "etcd", "--etcd-endpoints", &endpoints];
    let start = StartOptions {
        binary: Path::new(env!("CARGO_BIN_EXE_tidings")),
        data_dir: home.path(),
        arguments: &arguments,
    };
    let mut running = Vec::new();
    for _ in 0..2 {
        running.push(Some(Server::start(&start).await.unwrap()));
    }
    let clients = running.iter().flatten().map(|server| server.client.clone());
    let servers: Servers = Arc::new(Mutex::new(clients.collect()));
    let (_, list) = ask(&client(&servers, 0), "GET", PATH, "").await.unwrap();
    let from = Follower {
        version: version(&list),
        values: BTreeMap::new(),
        resumed: 0,
    };

    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(servers.clone(), writer, stop.clone())))
        .collect();
    let followers: Vec<_> = (0..FOLLOWERS)
        .map(|_| tokio::spawn(follow(servers.clone(), from.clone(), stop.clone())))
        .collect();
    let (started, mut killed) = (Instant::now(), (0, 0));
    while started.elapsed() < LASTS {
        tokio::time::sleep(Duration::from_millis(chance.u64(200..800))).await;
        if chance.bool() {
            let member = chance.usize(..etcd.len());
            etcd.kill(member).unwrap();
            tokio::time::sleep(Duration::from_millis(chance.u64(..1200))).await;
            etcd.restart(member).unwrap();
            killed.0 += 1;
        } else {
            let at = chance.usize(..running.len());
            running[at].take().unwrap().kill().await.unwrap();
            tokio::time::sleep(Duration::from_millis(chance.u64(..500))).await;
            let server = Server::start(&start).await.unwrap();
            servers.lock().unwrap()[at] = server.client.clone();
            running[at] = Some(server);
            killed.1 += 1;
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = BTreeMap::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }

    // A write without an answer may still be done later: the state is final when it no longer changes.
    let deadline = Instant::now() + PATIENCE;
    let mut lists = Vec::new();
    while lists.len() < 2 || lists[lists.len() - 1] != lists[lists.len() - 2] {
        assert!(Instant::now() < deadline, "no state that stays");
        tokio::time::sleep(Duration::from_millis(500)).await;
        for at in 0..2 {
            let Some((200, list)) = ask(&client(&servers, at), "GET", PATH, "").await else {
                lists.clear();
                continue;
            };
            lists.push(list["items"].clone());
        }
    }
    let items = lists.pop().unwrap();
    let items = items.as_array().unwrap();
    let values: BTreeMap<String, u64> = items
        .iter()
        .map(|item| {
            (
                item["metadata"]["name"].as_str().unwrap().to_owned(),
                value(item),
            )
        })
        .collect();
    for (name, acknowledged) in &acknowledged {
        assert!(values[name] >= *acknowledged, "{name} has lost a write");
    }
    let newest = items.iter().map(version).max().unwrap();
    let mut resumed = 0;
    for follower in followers {
        let mut follower = follower.await.unwrap();
        let deadline = Instant::now() + PATIENCE;
        for number in 0.. {
            if follower
                .follow(&client(&servers, number), Some(newest))
                .await
            {
                break;
            }
            assert!(Instant::now() < deadline, "it does not reach {newest}");
        }
        assert_eq!(
            follower.values, values,
            "who watched has what who lists has"
        );
        resumed += follower.resumed;
    }
    let writes: u64 = values.values().sum();
    let (members, of_servers) = killed;
    println!(
        "{writes} writes, {members} members and {of_servers} servers killed, watches resumed {resumed} times"
    );
    assert!(writes > 200 && members > 2 && of_servers > 2);
}
