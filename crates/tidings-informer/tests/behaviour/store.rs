//! Keys, stores, indexes, listers, overlays: points B1 to B18.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::*;
use tidings_api::{KeyError, LabelSelector, Object, ObjectKey};
use tidings_informer::*;

fn cached(object: &Object) -> Arc<Cached<Object>> {
    Cached::new(object, &Decode::bytes()).unwrap()
}

fn names<K>(objects: &[Arc<Cached<K>>]) -> Vec<String> {
    objects
        .iter()
        .map(|object| object.name().to_owned())
        .collect()
}

fn labelled(name: &str, version: u64, labels: &str) -> Arc<Cached<Object>> {
    cached(&object_with(name, version, &format!("uid-{name}"), labels))
}

/// The values of the label `in`, split at dots.
fn by_group(object: &Cached<Object>) -> Result<Vec<String>, IndexError> {
    let group = object.labels().get("in").unwrap_or_default();
    Ok(group
        .split('.')
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect())
}

#[test]
fn kr33_b1_b37_keys_are_namespace_and_name() {
    assert_eq!(object("ns/a", 1).key().as_str(), "ns/a");
    let cluster = Object::parse(r#"{"metadata":{"name":"node-1"}}"#).unwrap();
    assert_eq!(cluster.key().as_str(), "node-1");
    let key = ObjectKey::parse("ns/a").unwrap();
    assert_eq!((key.namespace(), key.name()), ("ns", "a"));
    assert_eq!((ObjectKey::parse("a").unwrap().namespace(), "a"), ("", "a"));
    for bad in ["a/b/c", "", "ns/"] {
        assert_eq!(ObjectKey::parse(bad), Err(KeyError(bad.into())));
    }
    // A deletion uses the key of the stored object; a caller cannot give another.
    let delta: Delta<Object> = Delta::Deleted {
        key,
        last: None,
        version: ServerVersion::default(),
    };
    assert_eq!(delta.key().unwrap().as_str(), "ns/a");
}

#[test]
fn kr32_b2_d27_a_store_keeps_the_last_of_every_key_in_order() {
    let store = Indexer::new();
    store.put(cached(&object("b", 1)));
    store.put(cached(&object("a", 2)));
    store.put(cached(&object("b", 3)));
    assert_eq!(names(&store.list()), ["a", "b"]);
    assert_eq!(
        store
            .list_keys()
            .iter()
            .map(ObjectKey::as_str)
            .collect::<Vec<_>>(),
        ["default/a", "default/b"]
    );
    assert_eq!(store.get_by_key("default/b").unwrap().version(), 3);
    assert!(store.get("default", "c").is_none());
    store.delete(&ObjectKey::new("default", "b"));
    assert_eq!(store.len(), 1);
    store.replace(
        [cached(&object("x", 5)), cached(&object("c", 4))],
        &ServerVersion::new("9"),
    );
    assert_eq!(
        names(&store.list()),
        ["c", "x"],
        "what is not listed is gone"
    );
    assert_eq!(store.snapshot().version().text(), "9");
}

#[test]
fn b3_an_object_without_a_key_says_what_is_wrong_with_it() {
    let nameless = Object::parse(r#"{"metadata":{"namespace":"ns"}}"#).unwrap();
    let error = Cached::new(&nameless, &Decode::bytes()).unwrap_err();
    assert_eq!(error.to_string(), "unexpected key format: \"ns/\"");
    let problem = Problem::Quarantined {
        key: "ns/".into(),
        error,
    };
    assert_eq!(
        problem.story(),
        "ns/ is left out of the store: unexpected key format: \"ns/\""
    );
}

#[test]
fn b4_b12_what_is_stored_is_transformed_and_keeps_its_version_whatever_the_transform_removes() {
    let decode = Decode::json().transform(|mut value: serde_json::Value| {
        value.as_object_mut().unwrap().remove("metadata");
        Ok(value)
    });
    let store = Indexer::new();
    let stored = Cached::new(&object("a", 7), &decode).unwrap();
    store.put(stored);
    let found = store.get("default", "a").unwrap();
    assert!(found.get("metadata").is_none());
    assert_eq!(found["data"]["version"], "7");
    assert_eq!(found.version(), 7);
}

#[test]
fn b5_b6_b7_an_index_follows_updates_and_forgets_values_that_nothing_has() {
    let store = Indexer::new();
    let groups = store.add_index("groups", by_group).unwrap();
    store.put(labelled("a", 1, r#"{"in":"x.y"}"#));
    store.put(labelled("b", 2, r#"{"in":"y"}"#));
    let of = |value: &str| names(&store.by_index(&groups, &value.to_owned()).unwrap());
    assert_eq!(
        (of("x"), of("y"), of("z")),
        (vec!["a".into()], vec!["a".into(), "b".into()], vec![])
    );
    store.put(labelled("a", 3, r#"{"in":"y.z"}"#));
    assert_eq!(
        (of("x"), of("y"), of("z")),
        (vec![], vec!["a".into(), "b".into()], vec!["a".into()])
    );
    assert_eq!(
        store.snapshot().index_values(&groups).unwrap(),
        ["y", "z"],
        "x has no entry any more"
    );
    assert_eq!(
        store.by_index(&groups, &"y".to_owned()).unwrap()[0].version(),
        3,
        "the new state, not the old"
    );
    store.delete(&ObjectKey::new("default", "a"));
    store.delete(&ObjectKey::new("default", "b"));
    assert!(store.snapshot().index_values(&groups).unwrap().is_empty());
    let none = store.add_index("none", |_| Ok(Vec::<u32>::new())).unwrap();
    store.put(labelled("a", 4, "{}"));
    assert!(store.by_index(&none, &1).unwrap().is_empty());
}

#[test]
fn b8_an_index_that_comes_late_is_complete_at_once() {
    let store = Indexer::new();
    store.put(labelled("a", 1, r#"{"in":"x"}"#));
    let groups = store.add_index("groups", by_group).unwrap();
    assert_eq!(
        names(&store.by_index(&groups, &"x".to_owned()).unwrap()),
        ["a"]
    );
    store.put(labelled("b", 2, r#"{"in":"x"}"#));
    assert_eq!(
        names(&store.by_index(&groups, &"x".to_owned()).unwrap()),
        ["a", "b"]
    );
}

#[test]
fn b9_two_indexes_of_one_name_and_indexes_of_other_stores_are_errors() {
    let store = Indexer::new();
    let groups = store.add_index("groups", by_group).unwrap();
    assert_eq!(
        store.add_index("groups", by_group).unwrap_err(),
        IndexConflict("groups".into())
    );
    let other: Indexer<Object> = Indexer::new();
    assert_eq!(
        other.by_index(&groups, &"x".to_owned()).unwrap_err(),
        UnknownIndex("groups".into())
    );
}

#[tokio::test(start_paused = true)]
async fn b10_b33_b139_an_object_that_fails_does_not_hold_up_the_others() {
    let script = Script::new()
        .list(list(
            "10",
            &[object("a", 1), object("bad", 2), object("c", 3)],
        ))
        .watch(Watch::of(vec![
            added("d", 11),
            modified("bad", 12),
            modified("a", 13),
            deleted("bad", 14),
        ]));
    let decode = Decode::with(|object: Object| match object.name().as_ref() {
        "bad" => Err(DecodeError::new("no good")),
        _ => Ok(object.clone()),
    });
    let informer = SharedInformer::builder(script.source(), decode).build();
    let mut events = informer.subscribe(&HandlerOptions::default()).unwrap();
    informer.start();
    assert_eq!(
        words(&mut events, 5).await,
        ["+a@1!", "+c@3!", "synced", "+d@11", "~a@1>13"]
    );
    assert!(
        quiet(&mut events, Duration::from_secs(1)).await,
        "nothing of what was never there"
    );
    assert_eq!(
        informer.last_sync_resource_version().text(),
        "14",
        "the version goes on"
    );
}

#[tokio::test(start_paused = true)]
async fn b11_b69_the_version_of_the_store_follows_everything_and_never_goes_back() {
    let script = Script::new().list(list("10", &[])).watch(
        Watch::silent()
            .then(Duration::from_secs(1), vec![added("a", 11)])
            .then(Duration::from_secs(1), vec![modified("a", 12)])
            .then(Duration::from_secs(1), vec![deleted("a", 13)])
            .then(Duration::from_secs(1), vec![bookmark(20)]),
    );
    let informer = SharedInformer::builder(script.source(), Decode::bytes()).build();
    assert_eq!(informer.last_sync_resource_version().text(), "");
    informer.start();
    let mut seen = vec![];
    for expected in ["10", "11", "12", "13", "20"] {
        informer
            .wait_for(ServerVersion::new(expected))
            .await
            .unwrap();
        seen.push(informer.last_sync_resource_version().text().to_owned());
    }
    assert_eq!(seen, ["10", "11", "12", "13", "20"]);
    assert_eq!(informer.store().snapshot().version().text(), "20");
}

#[test]
fn b13_d12_a_snapshot_is_one_state_whatever_happens_later() {
    let store = Indexer::new();
    for index in 0..1000 {
        store.put(cached(&object(&format!("n{index:04}"), index)));
    }
    let snapshot = store.snapshot();
    for index in 0..1000 {
        store.delete(&ObjectKey::new("default", &format!("n{index:04}")));
    }
    assert_eq!(snapshot.len(), 1000);
    let keys: Vec<&str> = snapshot
        .iter()
        .map(|object| object.key().as_str())
        .collect();
    assert!(
        keys.windows(2).all(|pair| pair[0] < pair[1]),
        "in order, and none twice"
    );
    assert!(store.is_empty());
    assert_eq!(snapshot.after("default/n0997").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn b14_listers_select_by_namespace_and_label_with_and_without_an_index() {
    let objects = [
        object_with("ns-a/z", 1, "1", r#"{"app":"web"}"#),
        object_with("ns/a", 2, "2", r#"{"app":"web","tier":"x"}"#),
        object_with("ns/b", 3, "3", r#"{"app":"db"}"#),
        object_with("ns.b/c", 4, "4", "{}"),
    ];
    for indexed in [false, true] {
        let script = Script::new().list(list("10", &objects));
        let mut builder = SharedInformer::builder(script.source(), Decode::keys());
        if indexed {
            builder = builder.label_index();
        }
        let informer = builder.start();
        informer.wait_synced().await.unwrap();
        let lister = informer.lister();
        let select = |text: &str| names(&lister.list(&LabelSelector::parse(text).unwrap()));
        assert_eq!(
            select(""),
            ["z", "c", "a", "b"],
            "in the order of the joined keys"
        );
        assert_eq!(select("app=web"), ["z", "a"]);
        assert_eq!(select("app=web,tier"), ["a"]);
        assert_eq!(select("app in (web,db),tier!=x"), ["z", "b"]);
        assert_eq!(select("app=none"), Vec::<String>::new());
        let in_ns = lister.by_namespace("ns");
        assert_eq!(
            names(&in_ns.list(&LabelSelector::default())),
            ["a", "b"],
            "not ns-a, not ns.b"
        );
        assert_eq!(
            names(&in_ns.list(&LabelSelector::parse("app=web").unwrap())),
            ["a"]
        );
        assert_eq!(in_ns.get("b").unwrap().version(), 3);
        assert_eq!(
            in_ns.get("z").unwrap_err().to_string(),
            "informer \"ns/z\" not found"
        );
        assert!(lister.get("z").is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn b15_entries_of_an_expiring_store_vanish_and_come_back_fresh() {
    let cache = ExpirationCache::new(Duration::from_secs(10));
    let key = ObjectKey::new("", "a");
    cache.put(key.clone(), 1);
    tokio::time::advance(Duration::from_secs(9)).await;
    assert_eq!(cache.get(&key), Some(1));
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!((cache.get(&key), cache.list()), (None, vec![]));
    cache.put(key.clone(), 2);
    tokio::time::advance(Duration::from_secs(9)).await;
    assert_eq!(cache.list(), [2]);
    let forever = ExpirationCache::new(Duration::ZERO);
    forever.replace([(key.clone(), 3)]);
    tokio::time::advance(Duration::from_secs(1_000_000)).await;
    assert_eq!(forever.get(&key), Some(3));
    forever.delete(&key);
    assert_eq!(forever.get(&key), None);
}

#[test]
fn b17_what_a_store_hands_out_cannot_be_changed() {
    // No mutation detector is needed: objects are behind an `Arc`, and `Cached` is immutable. A caller can only change its own
    // copy.
    let store = Indexer::new();
    store.put(Cached::new(&object("a", 1), &Decode::<serde_json::Value>::json()).unwrap());
    let mut found = store.get("default", "a").unwrap();
    assert!(Arc::get_mut(&mut found).is_none(), "shared with the store");
    let mut copy = found.value().clone();
    copy["data"]["version"] = "changed".into();
    assert_eq!(store.get("default", "a").unwrap()["data"]["version"], "1");
}

#[tokio::test(start_paused = true)]
async fn b18_k13_own_writes_are_visible_until_the_watch_has_caught_up() {
    let script = Script::new().list(list("10", &[object("a", 5)])).watch(
        Watch::silent()
            .then(Duration::from_secs(1), vec![modified("a", 11)])
            .then(Duration::from_secs(1), vec![modified("a", 12)])
            .then(Duration::from_secs(1), vec![deleted("a", 14)])
            .then(
                Duration::from_secs(1),
                vec![WatchEvent::Added(object_with("a", 16, "another", "{}"))],
            ),
    );
    use tidings_api::WatchEvent;
    let informer = SharedInformer::builder(script.source(), Decode::bytes()).start();
    informer.wait_synced().await.unwrap();
    let overlay = informer.overlay();
    let version = || {
        overlay
            .get_by_key("default/a")
            .map(|object| object.version())
    };
    overlay
        .wrote_raw(&object("a", 12), &Decode::bytes())
        .unwrap();
    assert_eq!(
        (
            version(),
            informer.store().get("default", "a").unwrap().version()
        ),
        (Some(12), 5)
    );
    informer.wait_for(ServerVersion::new("11")).await.unwrap();
    assert_eq!(
        (version(), overlay.len()),
        (Some(12), 1),
        "an older event keeps it"
    );
    informer.wait_for(ServerVersion::new("12")).await.unwrap();
    assert_eq!(
        (version(), overlay.len()),
        (Some(12), 0),
        "the same version ends it"
    );
    overlay
        .wrote_raw(&object("a", 11), &Decode::bytes())
        .unwrap();
    assert_eq!(
        (version(), overlay.len()),
        (Some(12), 0),
        "what comes late is not laid over"
    );
    // A deletion by this program hides the object, and a creation shows it.
    overlay.deleted(&informer.store().get("default", "a").unwrap());
    overlay
        .wrote_raw(&object("a", 13), &Decode::bytes())
        .unwrap();
    assert_eq!(version(), None, "a late answer does not bring it back");
    overlay
        .wrote_raw(&object("b", 15), &Decode::bytes())
        .unwrap();
    assert_eq!(version(), None);
    assert_eq!(names(&overlay.list()), ["b"]);
    informer.wait_for(ServerVersion::new("14")).await.unwrap();
    overlay
        .wrote_raw(&object("a", 13), &Decode::bytes())
        .unwrap();
    assert_eq!(version(), None, "a late write does not bring it back");
    informer.wait_for(ServerVersion::new("16")).await.unwrap();
    assert_eq!(version(), Some(16), "one that was created again wins");
    assert!(overlay.is_empty());
}

#[test]
fn d11_errors_and_panics_of_index_functions_leave_the_object_out_of_the_index_only() {
    let store = Indexer::new();
    let picky = store
        .add_index("picky", |object: &Cached<Object>| match object.name() {
            "fails" => Err(IndexError::new("will not")),
            "panics" => panic!("cannot"),
            name => Ok(vec![name.to_owned()]),
        })
        .unwrap();
    for name in ["fails", "fine", "panics"] {
        store.put(cached(&object(name, 1)));
    }
    assert_eq!(names(&store.list()), ["fails", "fine", "panics"]);
    assert_eq!(store.snapshot().index_values(&picky).unwrap(), ["fine"]);
    store.delete(&ObjectKey::new("default", "fails"));
    assert_eq!(store.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn d11_errors_of_index_functions_are_reported() {
    let script = Script::new().list(list("10", &[object("a", 1)]));
    let seen: Arc<AtomicUsize> = Arc::default();
    let noted = Arc::clone(&seen);
    let informer = SharedInformer::builder(script.source(), Decode::bytes())
        .on_problem(move |problem| {
            let text = problem.story();
            assert_eq!(text, "default/a is left out of the index bad: never");
            noted.fetch_add(1, Ordering::Relaxed);
        })
        .build();
    informer
        .try_add_index("bad", |_| Err::<Vec<u8>, _>(IndexError::new("never")))
        .unwrap();
    informer.start();
    informer.wait_synced().await.unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}

#[test]
fn k17_lookups_equal_a_scan_under_random_histories() {
    for seed in 0..20 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let store = Indexer::new();
        let groups = store.add_index("groups", by_group).unwrap();
        store.add_label_index().unwrap();
        for version in 1..400 {
            let name = format!("n{}", rng.u8(..20));
            match rng.u8(..10) {
                0..6 => {
                    let labels = format!(
                        r#"{{"in":"{}.{}","even":"{}"}}"#,
                        rng.u8(..4),
                        rng.u8(..4),
                        version % 2
                    );
                    store.put(labelled(&name, version, &labels));
                }
                6..9 => store.delete(&ObjectKey::new("default", &name)),
                _ => {
                    let some: Vec<_> = store.list().into_iter().filter(|_| rng.bool()).collect();
                    store.replace(some, &ServerVersion::new("1"));
                }
            }
            let snapshot = store.snapshot();
            for value in 0..4_u8 {
                let value = value.to_string();
                let scan: Vec<&str> = snapshot
                    .iter()
                    .filter(|object| by_group(object).unwrap().contains(&value))
                    .map(|object| object.name())
                    .collect();
                let found: Vec<&str> = snapshot
                    .by_index(&groups, &value)
                    .unwrap()
                    .map(|object| object.name())
                    .collect();
                assert_eq!(found, scan, "seed {seed}, version {version}");
            }
            let even = LabelSelector::parse("even=1").unwrap();
            let scan = snapshot
                .iter()
                .filter(|object| even.matches(object.labels()))
                .count();
            assert_eq!(
                snapshot.select(None, &even).count(),
                scan,
                "seed {seed}, version {version}"
            );
        }
    }
}

/// The 99.9th percentile of read times in nanoseconds, measured while `busy` returns true.
fn slowest_of_a_thousand(store: &Store<Object>, busy: impl Fn() -> bool) -> u64 {
    let keys: Vec<String> = (0..100)
        .map(|index| format!("default/n{:06}", index * 997))
        .collect();
    let mut times = Vec::new();
    while busy() {
        for key in &keys {
            let start = std::time::Instant::now();
            assert!(store.get_by_key(key).is_some());
            times.push(start.elapsed().as_nanos() as u64);
        }
    }
    times.sort_unstable();
    times[times.len() - 1 - times.len() / 1000]
}

#[test]
fn k10_reads_do_not_wait_while_a_hundred_thousand_objects_are_replaced() {
    let generation = |version: u64| -> Vec<Arc<Cached<Object>>> {
        (0..100_000)
            .map(|index| cached(&object(&format!("n{index:06}"), version)))
            .collect()
    };
    let indexer = Arc::new(Indexer::new());
    indexer
        .add_index("version", |object: &Cached<Object>| {
            Ok(vec![object.version()])
        })
        .unwrap();
    indexer.replace(generation(1), &ServerVersion::new("1"));
    let store = indexer.store();
    // First without a writer, to know what the machine itself does to reads.
    let until = std::time::Instant::now() + Duration::from_millis(500);
    let at_rest = slowest_of_a_thousand(&store, || std::time::Instant::now() < until);
    let next = generation(2);
    let writing = std::thread::spawn(move || indexer.replace(next, &ServerVersion::new("2")));
    let during = slowest_of_a_thousand(&store, || !writing.is_finished());
    writing.join().unwrap();
    assert_eq!(store.get_by_key("default/n000000").unwrap().version(), 2);
    let most = 1_000_000.max(3 * at_rest);
    assert!(
        during < most,
        "p99.9 of a read: {during} ns while replacing, {at_rest} ns at rest"
    );
}
