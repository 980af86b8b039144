//! The events that handlers receive.

use super::*;
use crate::support::server::Server;
use crate::support::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tidings_api::Object;
use tidings_informer::*;

#[tokio::test(start_paused = true)]
async fn b92_b93_d7_a_relist_tells_what_changed_and_nothing_else() {
    let script = Script::new()
        .list(list(
            "10",
            &[object("gone", 1), object("same", 2), object("changed", 3)],
        ))
        .watch_fails(expired())
        .list(list(
            "20",
            &[object("same", 2), object("changed", 15), object("new", 16)],
        ));
    let informer = SharedInformer::builder(script.source(), Decode::bytes()).build();
    let mut events = informer.subscribe(&plain()).unwrap();
    informer.start();
    assert_eq!(
        words(&mut events, 4).await,
        ["+changed@3!", "+gone@1!", "+same@2!", "synced"]
    );
    assert_eq!(
        words(&mut events, 3).await,
        ["-gone@1?", "~changed@3>15", "+new@16"],
        "not initial any more"
    );
    assert!(quiet(&mut events, 5 * SECOND).await);
}

#[tokio::test(start_paused = true)]
async fn b94_b109_when_an_event_is_delivered_the_store_and_the_indexes_have_it() {
    let server = Server::new();
    for name in ["a", "b", "c"] {
        server.put_with(name, r#"{"app":"x"}"#);
    }
    let informer = over(&server).build();
    let apps = informer
        .add_index("apps", |object: &Cached<Object>| {
            object.labels().get("app").map(str::to_owned)
        })
        .unwrap();
    let store = informer.store();
    let wrong = Arc::new(AtomicUsize::new(0));
    let seen = Arc::new(AtomicUsize::new(0));
    let (count, errors) = (Arc::clone(&seen), Arc::clone(&wrong));
    informer
        .for_each(
            move |event| {
                if let Event::Added { object, .. } | Event::Updated { new: object, .. } = &event {
                    let stored = store.get_by_key(object.key().as_str());
                    let indexed = store.by_index(&apps, &"x".to_owned()).unwrap();
                    let there = stored.is_some_and(|stored| stored.version() >= object.version())
                        && indexed.iter().any(|found| found.key() == object.key());
                    errors.fetch_add(usize::from(!there), Ordering::Relaxed);
                    count.fetch_add(1, Ordering::Relaxed);
                }
                async {}
            },
            &plain(),
        )
        .unwrap();
    informer.start();
    for _ in 0..50 {
        server.put_with("b", r#"{"app":"x"}"#);
    }
    server.compact();
    server.put_with("d", r#"{"app":"x"}"#);
    eventually("four objects", || informer.store().len() == 4).await;
    settle().await;
    assert!(seen.load(Ordering::Relaxed) >= 4);
    assert_eq!(wrong.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn b101_an_object_never_goes_back() {
    let server = Server::new();
    let informer = over(&server).start();
    informer.wait_synced().await.unwrap();
    let mut events = informer.subscribe(&plain()).unwrap();
    assert_eq!(words(&mut events, 1).await, ["synced"]);
    for _ in 0..100 {
        server.put("a");
    }
    let mut last = 0;
    while last < 100 {
        match events.next().await.unwrap() {
            Event::Added { object, .. } => {
                assert_eq!(last, 0);
                last = object.version();
            }
            Event::Updated { old, new } => {
                assert_eq!(old.version(), last);
                assert!(new.version() > last);
                last = new.version();
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cr96_b103_b110_d19_deletions_carry_the_last_state_and_say_if_it_is_the_final_one() {
    let script = Script::new()
        .list(list("10", &[object("seen", 1), object("missed", 2)]))
        .watch(Watch::of(vec![
            deleted("seen", 12),
            deleted("never-there", 13),
            error(expired()),
        ]))
        .list(list("20", &[]));
    let informer = SharedInformer::builder(script.source(), Decode::bytes()).build();
    let mut events = informer.subscribe(&plain()).unwrap();
    informer.start();
    words(&mut events, 3).await;
    let Some(Event::Deleted {
        last,
        final_state_known: true,
    }) = events.next().await
    else {
        panic!()
    };
    assert_eq!(
        (last.key().as_str(), last.version()),
        ("default/seen", 12),
        "with the version of the deletion"
    );
    let Some(Event::Deleted {
        last,
        final_state_known: false,
    }) = events.next().await
    else {
        panic!()
    };
    assert_eq!((last.key().as_str(), last.version()), ("default/missed", 2));
    assert!(
        quiet(&mut events, SECOND).await,
        "what was never in the store is not deleted from it"
    );
}

#[tokio::test(start_paused = true)]
async fn kr19_d20_an_object_that_was_created_again_is_another_one() {
    let script = Script::new()
        .list(list("10", &[object_with("a", 1, "first", "{}")]))
        .watch_fails(expired())
        .list(list("20", &[object_with("a", 15, "second", "{}")]))
        .watch(Watch::of(vec![tidings_api::WatchEvent::Modified(
            object_with("a", 21, "third", "{}"),
        )]));
    let informer = SharedInformer::builder(script.source(), Decode::bytes()).build();
    let mut events = informer.subscribe(&plain()).unwrap();
    informer.start();
    assert_eq!(
        words(&mut events, 6).await,
        ["+a@1!", "synced", "-a@1?", "+a@15", "-a@15?", "+a@21"]
    );
}

#[tokio::test(start_paused = true)]
async fn k5_what_was_deleted_while_disconnected_is_deleted_with_its_last_state() {
    let server = Server::new();
    server.put("a");
    let informer = over(&server).start();
    let mut events = informer.subscribe(&plain()).unwrap();
    assert_eq!(words(&mut events, 2).await, ["+a@1!", "synced"]);
    for _ in 0..3 {
        server.fail_watch(server::Fault::Refused);
    }
    server.delete("a");
    server.compact();
    assert_eq!(words(&mut events, 1).await, ["-a@1?"]);
}

#[tokio::test(start_paused = true)]
async fn k9_b138_d5_d6_an_undecodable_object_is_set_aside_and_retried_when_it_changes() {
    #[derive(serde::Deserialize)]
    struct Counted {
        data: Data,
    }
    #[derive(serde::Deserialize)]
    struct Data {
        version: String,
    }
    let bad = |version: u64| {
        Object::parse(format!(r#"{{"metadata":{{"name":"bad","namespace":"default","uid":"u","resourceVersion":"{version}"}},"data":5}}"#)).unwrap()
    };
    let good = |version: u64| object_with("bad", version, "u", "{}");
    let script = Script::new()
        .list(list("10", &[object("a", 1), bad(2)]))
        .watch(Watch::of(vec![
            added("b", 11),
            tidings_api::WatchEvent::Modified(good(12)),
            tidings_api::WatchEvent::Modified(bad(13)),
            modified("a", 14),
            error(expired()),
        ]))
        .list(list("20", &[object("a", 14), object("b", 11), bad(13)]))
        .watch(Watch::silent().then(SECOND, vec![tidings_api::WatchEvent::Modified(good(21))]));
    let problems: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&problems);
    let informer = SharedInformer::builder(script.source(), Decode::<Counted>::json())
        .on_problem(move |problem| {
            if matches!(problem, Problem::Quarantined { .. }) {
                noted.lock().unwrap().push(problem.to_string());
            }
        })
        .build();
    let mut events = informer.subscribe(&plain()).unwrap();
    informer.start();
    assert_eq!(
        words(&mut events, 2).await,
        ["+a@1!", "synced"],
        "the informer syncs without it"
    );
    assert_eq!(informer.quarantined()[0].0, "default/bad");
    assert_eq!(words(&mut events, 3).await, ["+b@11", "+bad@12", "~a@1>14"]);
    informer.wait_for(ServerVersion::new("20")).await.unwrap();
    assert_eq!(informer.quarantined().len(), 1);
    assert_eq!(
        informer.store().get("default", "bad").unwrap().data.version,
        "12",
        "its last good state stays"
    );
    assert_eq!(words(&mut events, 1).await, ["~bad@12>21"]);
    assert!(informer.quarantined().is_empty());
    assert_eq!(
        problems.lock().unwrap().len(),
        2,
        "once for each of its bad states: {problems:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn d14_d15_a_relist_keeps_the_objects_that_did_not_change() {
    let script = Script::new()
        .list(list("10", &[object("same", 1), object("changed", 2)]))
        .watch_fails(expired())
        .list(list("20", &[object("same", 1), object("changed", 12)]));
    let decoded = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&decoded);
    let decode = Decode::with(move |object: Object| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(object)
    });
    let informer = SharedInformer::builder(script.source(), decode).start();
    informer.wait_synced().await.unwrap();
    let before = informer.store().get("default", "same").unwrap();
    informer.wait_for(ServerVersion::new("20")).await.unwrap();
    let after = informer.store().get("default", "same").unwrap();
    assert!(Arc::ptr_eq(&before, &after));
    assert_eq!(decoded.load(Ordering::Relaxed), 3, "not decoded again");
}

#[tokio::test(start_paused = true)]
async fn b101_b138_an_object_that_cannot_be_decoded_never_goes_back() {
    // A handler with `Overflow::Block` holds the store back, so that changes are still queued when the relist comes.
    let bad = Object::parse(r#"{"metadata":{"name":"a","namespace":"default","uid":"uid-a","resourceVersion":"3"},"bad":true}"#).unwrap();
    let script = Script::new()
        .list(list("1", &[object("a", 1)]))
        .watch(Watch::of(vec![modified("a", 2), error(expired())]))
        .list(list("3", &[bad]));
    let decode = Decode::with(|object: Object| match object.field(&["bad"]) {
        Some(_) => Err(DecodeError::new("bad")),
        None => Ok(object.clone()),
    });
    let informer = SharedInformer::builder(script.source(), decode).build();
    let mut events = informer.subscribe(&plain()).unwrap();
    informer.start();
    assert_eq!(words(&mut events, 3).await, ["+a@1!", "synced", "~a@1>2"]);
    informer.wait_for(ServerVersion::new("3")).await.unwrap();
    assert!(
        quiet(&mut events, SECOND).await,
        "its last good state stays"
    );
    assert_eq!(informer.store().get("default", "a").unwrap().version(), 2);
}

#[tokio::test(start_paused = true)]
async fn b11_b139_what_has_no_version_and_no_form_leaves_the_version_of_the_store() {
    let bare = Object::parse(r#"{"metadata":{"name":"bad","namespace":"default"}}"#).unwrap();
    let script = Script::new().list(list("10", &[])).watch(Watch::of(vec![
        added("a", 11),
        tidings_api::WatchEvent::Added(bare),
    ]));
    let decode = Decode::with(|object: Object| match object.name().as_ref() {
        "bad" => Err(DecodeError::new("no good")),
        _ => Ok(object.clone()),
    });
    let informer = SharedInformer::builder(script.source(), decode).start();
    eventually("left out", || informer.quarantined().len() == 1).await;
    settle().await;
    assert_eq!(informer.last_sync_resource_version().text(), "11");
}
