//! What clients see of the store: its health, its limits, its history after restarts, and backups.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tidings_storage::disk::{Fault, SimulatedDisk};
use tidings_storage::{
    BoxFuture, Embedded, EmbeddedOptions, Error, HistoryHold, Range, RangeResult, Revision, Stats,
    Storage, Trouble, WatchStream, Write,
};

use crate::custom::{DEFINITIONS, until_condition, version, widgets};
use crate::support::{CONFIGMAPS, TestServer};

/// A server over a simulated disk, which can be made to fail.
async fn on_disk() -> (TestServer, SimulatedDisk) {
    let disk = SimulatedDisk::new(3);
    let store = Embedded::open(Path::new("/data"), options(&disk)).unwrap();
    (TestServer::over(store).await, disk)
}

fn clock(ms: &Arc<AtomicU64>) -> Arc<dyn Fn() -> Duration + Send + Sync> {
    let ms = ms.clone();
    Arc::new(move || Duration::from_millis(ms.load(Ordering::Relaxed)))
}

/// Opens the store again. Retries, because the tasks of the old server release it a little later.
async fn reopened(options: &EmbeddedOptions) -> Embedded {
    loop {
        match Embedded::open(Path::new("/data"), options.clone()) {
            Ok(store) => return store,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

fn options(disk: &SimulatedDisk) -> EmbeddedOptions {
    let mut options = EmbeddedOptions::default();
    options.disk = Arc::new(disk.clone());
    options.segment_bytes_max = 50_000;
    options
}

/// Repeats a GET until the response has a status code. The store checks its health once a second.
async fn until_code(server: &TestServer, path: &str, code: u16) -> String {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let answer = server.get(path).await;
        if answer.code == code {
            return answer.text;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "{path} answers {}: {}",
            answer.code,
            answer.text
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn metric(server: &TestServer, name: &str) -> f64 {
    let text = server.get("/metrics").await.text;
    let line = text
        .lines()
        .find(|line| line.split(' ').next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("there is no {name} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn config_map(name: &str, bytes: usize) -> String {
    json!({"metadata": {"name": name}, "data": {"k": "x".repeat(bytes)}}).to_string()
}

#[tokio::test]
async fn a_full_disk_makes_a_server_not_ready_until_there_is_space() {
    let (server, disk) = on_disk().await;
    server.create("before", json!({})).await;
    until_code(&server, "/readyz", 200).await;
    disk.set_capacity(Some(disk.used()));
    let refused = server
        .request("POST", CONFIGMAPS, config_map("a", 5000))
        .await;
    assert_eq!(refused.code, 500, "{}", refused.text);
    let text = until_code(&server, "/readyz", 500).await;
    assert!(text.contains("[-]etcd failed: "), "{text}");
    assert!(
        text.contains("the last write failed") || text.contains("full"),
        "{text}"
    );
    assert_eq!(
        server.get("/livez").await.code,
        200,
        "a restart would not help"
    );
    assert_eq!(
        server.get(CONFIGMAPS).await.names(),
        ["before"],
        "reads still work"
    );
    assert!(metric(&server, "tidings_store_failed_commits_total").await >= 1.0);
    disk.set_capacity(None);
    until_code(&server, "/readyz", 200).await;
    let created = server
        .request("POST", CONFIGMAPS, config_map("a", 5000))
        .await;
    assert_eq!(created.code, 201, "{}", created.text);
    assert!(metric(&server, "tidings_store_disk_bytes").await > 5000.0);
    assert!(metric(&server, "tidings_store_disk_reserve_bytes").await > 0.0);
    let syncs = metric(&server, "tidings_store_sync_duration_seconds_count").await;
    assert!(syncs >= metric(&server, "tidings_store_commits_total").await);
    let age = metric(&server, "tidings_store_oldest_age_seconds").await;
    assert!((0.0..600.0).contains(&age));
}

#[tokio::test]
async fn a_dead_commit_thread_makes_livez_fail() {
    let (server, disk) = on_disk().await;
    assert_eq!(server.get("/livez").await.code, 200);
    disk.fail_after(0, Fault::Panic);
    let refused = server
        .request("POST", CONFIGMAPS, config_map("a", 10))
        .await;
    assert_eq!(
        refused.code, 504,
        "the outcome is unknown: {}",
        refused.text
    );
    for path in ["/livez", "/readyz", "/healthz"] {
        let text = until_code(&server, path, 500).await;
        assert!(
            text.contains("the thread that commits writes has ended: restart the server"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_write_with_unknown_outcome_gets_504() {
    let (server, disk) = on_disk().await;
    server.create("a", json!({})).await;
    // The write succeeds, the sync fails, and so does the rollback.
    for call in 1..8 {
        disk.fail_after(call, Fault::Error);
    }
    let unknown = server
        .request("POST", CONFIGMAPS, config_map("b", 10))
        .await;
    assert_eq!(unknown.code, 504, "{}", unknown.text);
    assert!(
        unknown.message().contains("may have been done"),
        "{}",
        unknown.text
    );
    disk.heal();
    until_code(&server, "/readyz", 200).await;
    assert_eq!(server.get(CONFIGMAPS).await.names(), ["a"]);
}

#[tokio::test]
async fn w14_an_object_that_grows_too_large_by_patches_is_refused() {
    let (server, _disk) = on_disk().await;
    let mut whole = version("v1", true, &json!({}));
    whole["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = widgets(&[whole]);
    server.request("POST", DEFINITIONS, &definition).await;
    until_condition(&server, "widgets.ex.com", "Established").await;
    let all = "/apis/ex.com/v1/namespaces/default/widgets";
    let widget = json!({"apiVersion": "ex.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    assert_eq!(server.request("POST", all, &widget).await.code, 201);
    let path = format!("{all}/w");
    let mut last = server.get(&path).await.version();
    let refused = loop {
        let patch = json!({"spec": {format!("m{last}"): "x".repeat(300_000)}});
        let answer = server.patch(&path, "merge", &patch).await;
        if answer.code != 200 {
            break answer;
        }
        last = answer.version();
    };
    assert_eq!(refused.code, 413, "{}", refused.text);
    assert_eq!(refused.json()["reason"], "RequestEntityTooLarge");
    let message = refused.message();
    assert!(
        message.contains("would take 18") && message.contains("takes 1568768 at most"),
        "{message}"
    );
    let kept = server.get(&path).await;
    assert_eq!(
        (kept.code, kept.version()),
        (200, last),
        "nothing was written"
    );
    let dry = format!("{path}?dryRun=All");
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(server.patch(&dry, "merge", &patch).await.code, 200);
}

/// A store that compacts its history at every read, unless the history is held.
struct CompactingStore {
    store: Embedded,
    clock_ms: Arc<AtomicU64>,
}

impl Storage for CompactingStore {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        self.store.revision()
    }

    fn oldest(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        self.store.oldest()
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Revision, Error>> {
        self.store.write(write)
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult, Error>> {
        Box::pin(async move {
            self.clock_ms.fetch_add(60_000, Ordering::Relaxed);
            self.store.compact().await?;
            self.store.range(range).await
        })
    }

    fn watch(&self, prefix: Bytes, after: Revision) -> BoxFuture<'_, Result<WatchStream, Error>> {
        self.store.watch(prefix, after)
    }

    fn request_progress(&self, prefix: &[u8]) {
        self.store.request_progress(prefix);
    }

    fn hold_history(&self) -> HistoryHold {
        self.store.hold_history()
    }

    fn trouble(&self) -> Option<Trouble> {
        self.store.trouble()
    }

    fn stats(&self) -> Stats {
        self.store.stats()
    }
}

#[tokio::test]
async fn w104_history_is_not_compacted_while_caches_are_filled_at_a_start() {
    let disk = SimulatedDisk::new(5);
    let clock_ms = Arc::new(AtomicU64::new(0));
    let mut options = options(&disk);
    options.history_age = Duration::from_secs(30);
    options.history_revisions_min = 0;
    options.clock_step_max = Duration::MAX;
    options.now = clock(&clock_ms);
    let store = Embedded::open(Path::new("/data"), options.clone()).unwrap();
    let server = TestServer::over(store).await;
    let first = server.create("a", json!({})).await;
    for number in 1..=20 {
        server.update("a", json!({}), &number.to_string()).await;
    }
    drop(server);
    let store = reopened(&options).await;
    let server = TestServer::over(CompactingStore { store, clock_ms }).await;
    let mut watch = server
        .watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={first}"))
        .await;
    for number in 1..=20 {
        let event = watch.next().await.unwrap();
        assert_eq!(event["type"], "MODIFIED", "{event}");
        assert_eq!(event["object"]["data"]["k"], number.to_string(), "{event}");
    }
}

/// The items of a list at a version, and the events of a watch with a selector from that version on.
async fn seen_from(
    server: &TestServer,
    version: u64,
    last: u64,
) -> (Vec<Value>, Vec<(String, Value)>) {
    let path = format!("{CONFIGMAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    let list = server.get(&path).await;
    assert_eq!(list.code, 200, "{version}: {}", list.text);
    let items = list.json()["items"].as_array().unwrap().clone();
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={version}&labelSelector=on%3Dyes");
    let mut watch = server.watch(&path).await;
    let mut events = Vec::new();
    let mut at = version;
    while at < last {
        let event = watch.next().await.unwrap();
        let seen = event["object"]["metadata"]["resourceVersion"].as_str();
        at = seen.unwrap().parse().unwrap();
        let kind = event["type"].as_str().unwrap().to_owned();
        events.push((kind, event["object"].clone()));
    }
    (items, events)
}

/// Another program may have written objects whose first members are not kind and apiVersion. Lists stay valid JSON.
#[tokio::test]
async fn w70_objects_that_another_program_wrote_are_listed_as_they_are() {
    let store = Arc::new(Embedded::ephemeral(Default::default()));
    for name in ["a", "longer-than-kind-and-apiversion-together"] {
        let json = format!(r#"{{"metadata":{{"name":"{name}","namespace":"default"}}}}"#);
        let write = tidings_storage::Write::create(format!("configmaps/default/{name}"), json);
        store.write(write).await.unwrap();
    }
    let api = tidings_server::Api::start(store, Default::default()).await;
    let server = TestServer { api: api.unwrap() };
    let names = server.get(crate::support::CONFIGMAPS).await.names();
    assert_eq!(names, ["a", "longer-than-kind-and-apiversion-together"]);
}

/// Objects enter and leave a selection, are deleted and created again while segments of the log are rolled and rewritten. After a restart a
/// list and a watch from every version show the same as before, including the types of events and the last states in DELETED events
/// (W100, W101).
#[tokio::test]
async fn w100_w104_every_retained_version_reads_the_same_after_a_restart() {
    let disk = SimulatedDisk::new(11);
    let mut options = options(&disk);
    options.segment_bytes_max = 3000;
    options.history_revisions_min = 12;
    options.history_age = Duration::from_secs(5);
    let clock_ms = Arc::new(AtomicU64::new(0));
    options.now = clock(&clock_ms);
    let store = Arc::new(Embedded::open(Path::new("/data"), options.clone()).unwrap());
    let api = tidings_server::Api::start(store.clone(), Default::default())
        .await
        .unwrap();
    let server = TestServer { api };
    let mut random = fastrand::Rng::with_seed(4);
    let mut there = std::collections::BTreeSet::new();
    for number in 0..150 {
        let name = format!("c{}", random.u32(..5));
        let labels = json!({"on": if random.bool() { "yes" } else { "no" }});
        match (there.contains(&name), random.u32(..3)) {
            (false, _) => {
                server.create(&name, labels).await;
                there.insert(name);
            }
            (true, 0) => {
                server.delete(&name).await;
                there.remove(&name);
            }
            (true, _) => {
                server.update(&name, labels, &number.to_string()).await;
            }
        }
        if number % 10 == 0 {
            // Compacts the history and rewrites what is left.
            for _ in 0..3 {
                clock_ms.fetch_add(4000, Ordering::Relaxed);
                store.compact().await.unwrap();
            }
        }
    }
    let oldest = store.compact().await.unwrap().0;
    let last = server.create("last", json!({"on": "yes"})).await;
    let mut before = Vec::new();
    for version in oldest..=last {
        before.push(seen_from(&server, version, last).await);
    }
    assert!(before.len() > 10);
    assert!(
        before
            .iter()
            .any(|(_, events)| events.iter().any(|(kind, _)| kind == "DELETED"))
    );
    drop(server);
    drop(store);
    let store = reopened(&options).await;
    let again = TestServer::over(store).await;
    // The oldest revision in the metrics can be read, and the one before it cannot.
    let name = "tidings_watch_cache_oldest_revision{group=\"\",resource=\"configmaps\"}";
    let retained = metric(&again, name).await as u64;
    assert!(retained <= oldest, "{retained}");
    seen_from(&again, retained.max(1), last).await;
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={}", retained - 1);
    let gone = again.get(&path).await;
    assert!(gone.text.contains("\"code\":410"), "{}", gone.text);
    for (version, before) in (oldest..).zip(before) {
        let after = seen_from(&again, version, last).await;
        assert_eq!(after, before, "from version {version}");
    }
}

#[tokio::test]
async fn a_backup_of_a_running_server_is_consistent_and_can_be_restored() {
    let server = TestServer::start().await;
    for number in 0..200 {
        server.create(&format!("c{number:03}"), json!({})).await;
    }
    server.delete("c007").await;
    let answer = server.get("/tidings/backup").await;
    assert_eq!(answer.code, 200);
    let home = tempfile::tempdir().unwrap();
    let (file, data) = (home.path().join("backup"), home.path().join("data"));
    std::fs::write(&file, &answer.bytes).unwrap();
    let names = server.get(CONFIGMAPS).await.names();
    let version = server.get(CONFIGMAPS).await.version();
    tidings_storage::backup::restore(&data, &file, &[], 0, &mut |_, _| {}).unwrap();
    let restored = Embedded::open(&data, EmbeddedOptions::default()).unwrap();
    let restored = TestServer::over(restored).await;
    assert_eq!(restored.get(CONFIGMAPS).await.names(), names);
    assert_eq!(names.len(), 199);
    let gone = restored
        .get(&format!("{CONFIGMAPS}?watch=1&resourceVersion={version}"))
        .await;
    assert!(gone.text.contains("\"code\":410"), "W94: {}", gone.text);
    let anonymous = TestServer::with_token("secret")
        .await
        .get("/tidings/backup")
        .await;
    assert_eq!(anonymous.code, 403, "{}", anonymous.text);
}
