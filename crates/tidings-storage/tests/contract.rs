//! Tests the storage contract with every engine.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use tidings_storage::{
    Change, Embedded, EmbeddedOptions, Error, Etcd, EtcdOptions, Event, Range, Revision, Storage,
    WatchStream, Write,
};

/// A store of any engine.
enum Store {
    Embedded(Embedded),
    Etcd(Etcd),
}

impl Deref for Store {
    type Target = dyn Storage;

    fn deref(&self) -> &dyn Storage {
        match self {
            Store::Embedded(store) => store,
            Store::Etcd(store) => store,
        }
    }
}

impl Store {
    async fn compact(&self) -> Result<Revision, Error> {
        match self {
            Store::Embedded(store) => store.compact().await,
            Store::Etcd(store) => store.compact().await,
        }
    }
}

/// A new store with its clock and resources.
struct Engine {
    name: &'static str,
    store: Store,
    /// The clock of the store, which tests advance.
    clock: Arc<AtomicU64>,
    /// The revision of the empty store.
    base: u64,
    _kept: Box<dyn std::any::Any>,
}

/// A store of each engine.
async fn engines() -> Vec<Engine> {
    let directory = tempfile::tempdir().unwrap();
    let (durable_options, durable_clock) = options();
    let (memory_options, memory_clock) = options();
    let durable = Embedded::open(directory.path(), durable_options).unwrap();
    let etcd = tidings_testing::Etcd::start().unwrap();
    let etcd_clock = Arc::new(AtomicU64::new(1_000_000));
    let in_etcd = open_etcd(&etcd, &etcd_clock).await;
    vec![
        Engine {
            name: "ephemeral",
            store: Store::Embedded(Embedded::ephemeral(memory_options)),
            clock: memory_clock,
            base: 0,
            _kept: Box::new(()),
        },
        Engine {
            name: "durable",
            store: Store::Embedded(durable),
            clock: durable_clock,
            base: 0,
            _kept: Box::new(directory),
        },
        Engine {
            name: "etcd",
            base: in_etcd.revision().await.unwrap().0,
            store: Store::Etcd(in_etcd),
            clock: etcd_clock,
            _kept: Box::new(etcd),
        },
    ]
}

async fn open_etcd(etcd: &tidings_testing::Etcd, clock: &Arc<AtomicU64>) -> Etcd {
    let mut options = EtcdOptions::new(etcd.endpoints());
    options.history_age = Duration::from_secs(600);
    options.history_revisions_min = 5;
    let clock = clock.clone();
    options.now = Arc::new(move || Duration::from_millis(clock.load(Ordering::Relaxed)));
    options.clock_step_max = Duration::MAX;
    Etcd::open(options).await.unwrap()
}

fn options() -> (EmbeddedOptions, Arc<AtomicU64>) {
    let clock = Arc::new(AtomicU64::new(1_000_000));
    let mut options = EmbeddedOptions::default();
    options.history_age = Duration::from_secs(600);
    options.history_revisions_min = 5;
    options.now = Arc::new({
        let clock = clock.clone();
        move || Duration::from_millis(clock.load(Ordering::Relaxed))
    });
    options.clock_step_max = Duration::MAX;
    (options, clock)
}

async fn next(watch: &mut WatchStream) -> Result<tidings_storage::WatchBatch, Error> {
    poll_fn(|context| watch.as_mut().poll_next(context))
        .await
        .unwrap()
}

/// The next `count` events.
async fn events(watch: &mut WatchStream, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        events.extend(next(watch).await.unwrap().events);
    }
    assert_eq!(events.len(), count);
    events
}

/// An event as a tuple: the revision, the key, the value unless it was deleted, and true if the key was created.
fn summary(event: &Event) -> (u64, String, Option<String>, bool) {
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let value = match &event.change {
        Change::Put(value) => Some(text(value)),
        Change::Delete => None,
    };
    (event.revision.0, text(&event.key), value, event.created)
}

async fn keys(
    store: &dyn Storage,
    prefix: &'static str,
    at: Option<Revision>,
) -> Vec<(String, String)> {
    let range = Range {
        prefix: prefix.into(),
        at,
        ..Range::default()
    };
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    store
        .range(range)
        .await
        .unwrap()
        .entries
        .iter()
        .map(|entry| (text(&entry.key), text(&entry.value)))
        .collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

#[tokio::test]
async fn writes_are_compare_and_swap_on_one_revision() {
    for Engine {
        name: engine,
        store,
        _kept,
        ..
    } in engines().await
    {
        let first = store.write(Write::create("a", "1")).await.unwrap();
        let second = store.write(Write::create("b", "1")).await.unwrap();
        assert_eq!(second.0, first.0 + 1, "{engine}: one revision for all keys");
        let exists = store.write(Write::create("a", "x")).await.unwrap_err();
        assert!(
            matches!(exists, Error::Conflict { current: Some(current) } if current == first),
            "{engine}"
        );
        let stale = store
            .write(Write::update("a", second, "x"))
            .await
            .unwrap_err();
        assert!(
            matches!(stale, Error::Conflict { current: Some(current) } if current == first),
            "{engine}"
        );
        let third = store.write(Write::update("a", first, "2")).await.unwrap();
        let deleted = store.write(Write::delete("a", third)).await.unwrap();
        let gone = store.write(Write::delete("a", third)).await.unwrap_err();
        assert!(
            matches!(gone, Error::Conflict { current: None }),
            "{engine}"
        );
        assert_eq!(
            store.revision().await.unwrap(),
            deleted,
            "{engine}: refused writes take no revision"
        );
        assert!(
            store.write(Write::create("a", "3")).await.is_ok(),
            "{engine}: a deleted key can be created again"
        );
    }
}

#[tokio::test]
async fn reads_are_of_exactly_their_revision() {
    for Engine {
        name: engine,
        store,
        base,
        _kept,
        ..
    } in engines().await
    {
        let a1 = store.write(Write::create("p/a", "1")).await.unwrap();
        let b1 = store.write(Write::create("p/b", "1")).await.unwrap();
        let a2 = store.write(Write::update("p/a", a1, "2")).await.unwrap();
        let gone = store.write(Write::delete("p/b", b1)).await.unwrap();
        store.write(Write::create("q", "1")).await.unwrap();
        assert_eq!(
            keys(&*store, "p/", Some(Revision(base))).await,
            pairs(&[]),
            "{engine}"
        );
        assert_eq!(
            keys(&*store, "p/", Some(b1)).await,
            pairs(&[("p/a", "1"), ("p/b", "1")]),
            "{engine}"
        );
        assert_eq!(
            keys(&*store, "p/", Some(a2)).await,
            pairs(&[("p/a", "2"), ("p/b", "1")]),
            "{engine}"
        );
        assert_eq!(
            keys(&*store, "p/", Some(gone)).await,
            pairs(&[("p/a", "2")]),
            "{engine}"
        );
        assert_eq!(
            keys(&*store, "p/", None).await,
            pairs(&[("p/a", "2")]),
            "{engine}"
        );
        let of_b = |at| Range {
            prefix: "p/b".into(),
            at,
            ..Range::default()
        };
        let found = store.range(of_b(Some(a2))).await.unwrap();
        assert_eq!(found.entries[0].revision, b1, "{engine}");
        let found = store.range(of_b(None)).await.unwrap();
        assert!(found.entries.is_empty(), "{engine}");
        let future = store.range(of_b(Some(Revision(base + 99)))).await;
        let future = future.unwrap_err();
        assert!(
            matches!(
                future,
                Error::Future { requested: Revision(requested), .. } if requested == base + 99
            ),
            "{engine}"
        );
    }
}

#[tokio::test]
async fn ranges_are_in_bytewise_order_and_pages_go_on_where_they_ended() {
    for Engine {
        name: engine,
        store,
        _kept,
        ..
    } in engines().await
    {
        for key in ["p/ns/a", "p/ns-a/z", "p/ns.b/a", "p/ns/b", "q"] {
            store.write(Write::create(key, "v")).await.unwrap();
        }
        let page = |start: Option<&'static str>| Range {
            prefix: "p/".into(),
            start: start.map(Bytes::from),
            limit: 2,
            at: None,
        };
        let first = store.range(page(None)).await.unwrap();
        assert_eq!(
            first
                .entries
                .iter()
                .map(|entry| &entry.key[..])
                .collect::<Vec<_>>(),
            [b"p/ns-a/z", b"p/ns.b/a"],
            "{engine}"
        );
        assert!(first.more, "{engine}");
        let second = store.range(page(Some("p/ns.b/a\0"))).await.unwrap();
        assert_eq!(
            second
                .entries
                .iter()
                .map(|entry| &entry.key[..])
                .collect::<Vec<_>>(),
            [b"p/ns/a", b"p/ns/b"],
            "{engine}"
        );
        assert!(!second.more, "{engine}");
    }
}

#[tokio::test]
async fn a_watch_delivers_every_change_of_its_prefix_once_in_order() {
    for Engine {
        name: engine,
        store,
        base,
        _kept,
        ..
    } in engines().await
    {
        let before = store.write(Write::create("p/a", "1")).await.unwrap();
        store.write(Write::create("q/x", "1")).await.unwrap();
        let mut watch = store.watch("p/".into(), Revision(base)).await.unwrap();
        let mut late = store.watch("p/".into(), before).await.unwrap();
        let updated = store
            .write(Write::update("p/a", before, "2"))
            .await
            .unwrap();
        store.write(Write::create("q/y", "1")).await.unwrap();
        store.write(Write::delete("p/a", updated)).await.unwrap();
        let some = |text: &str| Some(text.to_owned());
        let seen: Vec<_> = events(&mut watch, 3).await.iter().map(summary).collect();
        assert_eq!(
            seen,
            [
                (base + 1, "p/a".into(), some("1"), true),
                (base + 3, "p/a".into(), some("2"), false),
                (base + 5, "p/a".into(), None, false)
            ],
            "{engine}"
        );
        let seen: Vec<_> = events(&mut late, 2).await.iter().map(summary).collect();
        assert_eq!(
            seen,
            [
                (base + 3, "p/a".into(), some("2"), false),
                (base + 5, "p/a".into(), None, false)
            ],
            "{engine}"
        );
    }
}

#[tokio::test]
async fn progress_reports_revisions_of_other_keys() {
    for Engine {
        name: engine,
        store,
        base,
        _kept,
        ..
    } in engines().await
    {
        let mut watch = store.watch("p/".into(), Revision(base)).await.unwrap();
        let other = store.write(Write::create("q", "1")).await.unwrap();
        store.request_progress(b"p/");
        let batch = next(&mut watch).await.unwrap();
        assert!(
            batch.events.is_empty() && batch.revision >= other,
            "{engine}: {batch:?}"
        );
    }
}

#[tokio::test]
async fn a_watch_that_falls_behind_reads_the_records_again() {
    for Engine {
        name: engine,
        store,
        base,
        _kept,
        ..
    } in engines().await
    {
        let mut watch = store.watch("p/".into(), Revision(base)).await.unwrap();
        let value = "x".repeat(100_000);
        let mut at = store
            .write(Write::create("p/a", value.clone()))
            .await
            .unwrap();
        for _ in 0..99 {
            at = store
                .write(Write::update("p/a", at, value.clone()))
                .await
                .unwrap();
        }
        let revisions: Vec<u64> = events(&mut watch, 100)
            .await
            .iter()
            .map(|event| event.revision.0)
            .collect();
        assert_eq!(
            revisions,
            (base + 1..=base + 100).collect::<Vec<_>>(),
            "{engine}"
        );
        store.write(Write::update("p/a", at, "live")).await.unwrap();
        assert_eq!(
            events(&mut watch, 1).await[0].revision.0,
            base + 101,
            "{engine}: and is live again"
        );
    }
}

#[tokio::test]
async fn history_is_kept_by_age_and_then_refused() {
    for Engine {
        name: engine,
        store,
        clock,
        base,
        _kept,
    } in engines().await
    {
        let mut at = store.write(Write::create("a", "0")).await.unwrap();
        let doomed = store.write(Write::create("b", "0")).await.unwrap();
        store.write(Write::delete("b", doomed)).await.unwrap();
        for value in 0..20 {
            clock.fetch_add(60_000, Ordering::Relaxed);
            at = store
                .write(Write::update("a", at, value.to_string()))
                .await
                .unwrap();
        }
        // Twenty minutes have passed, ten are kept: those from the eleventh update on.
        clock.fetch_add(1_000, Ordering::Relaxed);
        let oldest = store.compact().await.unwrap();
        assert_eq!(oldest, Revision(base + 13), "{engine}");
        assert_eq!(
            keys(&*store, "", Some(oldest)).await,
            pairs(&[("a", "9")]),
            "{engine}: the value before the first event is kept"
        );
        let too_old = Range {
            at: Some(Revision(base + 12)),
            ..Range::default()
        };
        let compacted = store.range(too_old).await.unwrap_err();
        assert!(
            matches!(
                compacted,
                Error::Compacted { oldest: Revision(oldest), .. } if oldest == base + 13
            ),
            "{engine}"
        );
        let refused = store.watch("a".into(), Revision(base + 12)).await;
        assert!(matches!(refused, Err(Error::Compacted { .. })), "{engine}");
        let mut watch = store.watch("".into(), oldest).await.unwrap();
        let seen = events(&mut watch, 10).await;
        assert!(!seen[0].created, "{engine}");
        assert_eq!(
            keys(&*store, "", None).await,
            pairs(&[("a", "19")]),
            "{engine}"
        );

        clock.fetch_add(3_600_000, Ordering::Relaxed);
        let current = store.revision().await.unwrap();
        let oldest = store.compact().await.unwrap();
        assert_eq!(
            oldest.0,
            current.0 - 5,
            "{engine}: the last revisions stay however old they are"
        );
    }
}

#[tokio::test]
async fn concurrent_writers_share_commits_and_lose_nothing() {
    for Engine {
        name: engine,
        store,
        base,
        _kept,
        ..
    } in engines().await
    {
        let store = Arc::new(store);
        let mut watch = store.watch("".into(), Revision(base)).await.unwrap();
        let writers: Vec<_> = (0..64)
            .map(|writer| {
                let store = store.clone();
                tokio::spawn(async move {
                    for write in 0..20 {
                        store
                            .write(Write::create(format!("{writer}/{write}"), "v"))
                            .await
                            .unwrap();
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        let stats = store.stats();
        assert_eq!((stats.writes, stats.queued), (1280, 0), "{engine}");
        if matches!(*store, Store::Embedded(_)) {
            assert_eq!(stats.keys, 1280, "{engine}");
            assert!(stats.commits < stats.writes, "{engine}: {stats:?}");
        }
        let seen: Vec<u64> = events(&mut watch, 1280)
            .await
            .iter()
            .map(|event| event.revision.0)
            .collect();
        assert_eq!(
            seen,
            (base + 1..=base + 1280).collect::<Vec<_>>(),
            "{engine}"
        );
    }
}

#[tokio::test]
async fn watches_end_when_the_store_closes() {
    for Engine {
        name: engine,
        store,
        base,
        _kept,
        ..
    } in engines().await
    {
        let mut watch = store.watch("".into(), Revision(base)).await.unwrap();
        drop(store);
        assert!(
            matches!(next(&mut watch).await, Err(Error::Closed)),
            "{engine}"
        );
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    Compact(u16),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..6_u8, any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
        3 => (0..6_u8).prop_map(Step::Delete),
        1 => any::<u16>().prop_map(Step::Compact),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// The store always equals a model that keeps a copy of every state, over restarts too. Segments are tiny, so that they are
    /// closed, rewritten and joined often. (The simulation in the crate does the same on a disk that fails.)
    #[test]
    fn a_durable_store_equals_its_model(
        segment_bytes in 100..1500_u64,
        revisions_min in 0..6_u64,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let (mut options, clock) = options();
        options.segment_bytes_max = segment_bytes;
        options.history_revisions_min = revisions_min;
        let mut store = Embedded::open(directory.path(), options.clone()).unwrap();
        let mut states: Vec<BTreeMap<String, (u64, String)>> = vec![BTreeMap::new()];
        for step in steps {
            let mut state = states.last().unwrap().clone();
            let revision = states.len() as u64;
            clock.fetch_add(7_000, Ordering::Relaxed);
            match step {
                Step::Put(key, value) => {
                    let (key, value) = (format!("k{key}"), value.to_string());
                    let write = match state.get(&key) {
                        None => Write::create(key.clone(), value.clone()),
                        Some((at, _)) => Write::update(key.clone(), Revision(*at), value.clone()),
                    };
                    prop_assert_eq!(runtime.block_on(store.write(write)).unwrap().0, revision);
                    state.insert(key, (revision, value));
                    states.push(state);
                }
                Step::Delete(key) => {
                    let key = format!("k{key}");
                    let Some((at, _)) = state.remove(&key) else { continue };
                    prop_assert_eq!(runtime.block_on(store.write(Write::delete(key, Revision(at)))).unwrap().0, revision);
                    states.push(state);
                }
                Step::Compact(seconds) => {
                    clock.fetch_add(u64::from(seconds) * 20, Ordering::Relaxed);
                    runtime.block_on(store.compact()).unwrap();
                }
                Step::Reopen => {
                    drop(store);
                    store = Embedded::open(directory.path(), options.clone()).unwrap();
                }
            }
        }
        let current = runtime.block_on(store.revision()).unwrap().0;
        prop_assert_eq!(current as usize, states.len() - 1);
        let oldest = runtime.block_on(store.oldest()).unwrap().0;
        for at in oldest..=current {
            let state = &states[at as usize];
            let seen = runtime.block_on(keys(&store, "", Some(Revision(at))));
            let expected: Vec<_> = state.iter().map(|(key, (_, value))| (key.clone(), value.clone())).collect();
            prop_assert_eq!(seen, expected, "at revision {}", at);
            let mut watch = runtime.block_on(store.watch("".into(), Revision(at))).unwrap();
            let seen = runtime.block_on(events(&mut watch, (current - at) as usize));
            for (event, revision) in seen.iter().zip(at + 1..) {
                let (of, key, value, created) = summary(event);
                let value_at = |revision: u64| states[revision as usize].get(&key).map(|(_, value)| value.clone());
                prop_assert_eq!(of, revision);
                prop_assert_eq!(&value, &value_at(revision));
                prop_assert_eq!(created, value.is_some() && value_at(revision - 1).is_none());
            }
        }
    }
}
