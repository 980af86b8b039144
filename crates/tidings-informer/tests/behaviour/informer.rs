//! Shared informers and their handlers: points B82 to B110.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::server::Server;
use crate::support::*;
use tidings_api::Object;
use tidings_informer::*;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

fn over(server: &Server) -> InformerBuilder<Object> {
    SharedInformer::builder(server.source(), Decode::bytes())
}

fn plain() -> HandlerOptions {
    HandlerOptions::default()
}

/// A handler that notes what it is told.
#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Vec<String>>>);

impl Noted {
    fn words(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl ResourceEventHandler<Object> for Noted {
    fn handle(&mut self, event: &Event<Object>) {
        self.0.lock().unwrap().push(word(event));
    }
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[tokio::test(start_paused = true)]
async fn b82_b100_an_informer_is_synced_when_its_store_is_and_a_handler_when_its_calls_are_done() {
    let server = Server::new();
    server.put("a");
    let informer = over(&server).build();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let passes = Arc::clone(&gate);
    let registration = informer
        .for_each(
            move |_| {
                let passes = Arc::clone(&passes);
                async move { passes.acquire().await.unwrap().forget() }
            },
            &plain(),
        )
        .unwrap();
    assert!(!informer.has_synced() && !registration.has_synced() && !informer.is_stopped());
    informer.start();
    informer.wait_synced().await.unwrap();
    settle().await;
    assert!(informer.has_synced() && !registration.has_synced() && !informer.is_stopped());
    gate.add_permits(2); // the object, and the end of the initial state
    assert!(registration.synced().await);
    informer.stop().await;
    assert!(informer.is_stopped());
}

#[tokio::test(start_paused = true)]
async fn b83_k12_a_handler_that_comes_late_gets_the_state_and_then_every_change_once() {
    let server = Server::new();
    server.put("a");
    server.put("b");
    let informer = over(&server).start();
    informer.wait_synced().await.unwrap();
    server.put("c");
    server.delete("a");
    informer.wait_for(Version::new("4")).await.unwrap();
    let mut late = informer.subscribe(&plain()).unwrap();
    server.put("b");
    assert_eq!(
        words(&mut late, 4).await,
        ["+b@2!", "+c@3!", "synced", "~b@2>5"]
    );
    assert!(quiet(&mut late, SECOND).await);
}

#[tokio::test(start_paused = true)]
async fn b84_b85_b99_handlers_are_removed_once_and_independently() {
    let server = Server::new();
    let informer = over(&server).start();
    informer.wait_synced().await.unwrap();
    let noted = Noted::default();
    let first = informer.add_event_handler(noted.clone(), &plain()).unwrap();
    let second = informer.add_event_handler(noted.clone(), &plain()).unwrap();
    first.synced().await;
    second.synced().await;
    noted.take();
    server.put("a");
    settle().await;
    assert_eq!(
        noted.take(),
        ["+a@1", "+a@1"],
        "two registrations, two calls"
    );
    first.remove();
    first.remove();
    settle().await;
    server.put("b");
    settle().await;
    assert_eq!(noted.take(), ["+b@2"]);
    informer.stop().await;
    second.remove();
    first.shut_down(Pending::Deliver).await;
}

#[tokio::test(start_paused = true)]
async fn b86_a_stopped_informer_takes_no_handlers_and_says_so() {
    let server = Server::new();
    let informer = over(&server).name("configmaps").start();
    informer.stop().await;
    let refused = informer
        .add_event_handler(Noted::default(), &plain())
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the informer configmaps has stopped; start another"
    );
    assert!(informer.subscribe(&plain()).is_err());
    assert!(informer.for_each(|_| async {}, &plain()).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b87_b147_handlers_come_and_go_by_the_hundred_while_events_pour_in() {
    let server = Server::new();
    let informer = over(&server).start();
    informer.wait_synced().await.unwrap();
    let writer = {
        let server = server.clone();
        tokio::spawn(async move {
            let mut chance = fastrand::Rng::with_seed(1);
            for _ in 0..10_000 {
                let name = format!("n{}", chance.u8(..50));
                if chance.u8(..4) == 0 {
                    server.delete(&name);
                } else {
                    server.put(&name);
                }
                if chance.u8(..20) == 0 {
                    tokio::task::yield_now().await;
                }
            }
        })
    };
    let comers: Vec<_> = (0..100)
        .map(|index| {
            let informer = informer.clone();
            tokio::spawn(async move {
                for round in 0..100 {
                    let Ok(registration) = informer.add_event_handler(Noted::default(), &plain())
                    else {
                        return;
                    };
                    match (index + round) % 3 {
                        0 => registration.remove(),
                        1 => registration.shut_down(Pending::Deliver).await,
                        _ => registration.shut_down(Pending::Drop).await,
                    }
                }
            })
        })
        .collect();
    writer.await.unwrap();
    for (index, comer) in comers.into_iter().enumerate() {
        if index == 90 {
            informer.stop().await; // some still come and go
        }
        comer.await.unwrap();
    }
    eventually("all gone", || informer.stats().handlers == 0).await;
}

#[tokio::test(start_paused = true)]
async fn b88_all_tasks_end_with_the_stop_whatever_was_started() {
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    let server = Server::new();
    server.put("a");
    let never_run = over(&server).build();
    never_run
        .add_event_handler(Noted::default(), &plain())
        .unwrap();
    never_run.stop().await;
    let informer = over(&server).build();
    informer
        .add_event_handler(Noted::default(), &plain())
        .unwrap();
    informer.start();
    informer.wait_synced().await.unwrap();
    informer
        .add_event_handler(Noted::default(), &plain())
        .unwrap();
    let subscription = informer.subscribe(&plain()).unwrap();
    informer.stop().await;
    drop(subscription);
    assert_eq!(metrics.num_alive_tasks(), before);
}

#[tokio::test(start_paused = true)]
async fn b89_handlers_that_were_added_before_the_start_miss_nothing() {
    let server = Server::new();
    server.put("a");
    let informer = over(&server).build();
    let noted = Noted::default();
    let registration = informer.add_event_handler(noted.clone(), &plain()).unwrap();
    settle().await;
    informer.start();
    registration.synced().await;
    assert_eq!(noted.words(), ["+a@1!", "synced"]);
}

#[tokio::test(start_paused = true)]
async fn b90_b91_b64_handlers_are_resynced_each_at_its_own_time_or_never() {
    let server = Server::new();
    server.put("a");
    let informer = over(&server).build();
    let [two, three, never, often] = std::array::from_fn(|_| Noted::default());
    informer
        .add_event_handler(two.clone(), &plain().resync(2 * SECOND))
        .unwrap();
    informer
        .add_event_handler(three.clone(), &plain().resync(3 * SECOND))
        .unwrap();
    informer.add_event_handler(never.clone(), &plain()).unwrap();
    informer
        .add_event_handler(often.clone(), &plain().resync(Duration::from_millis(1)))
        .unwrap();
    informer.start();
    informer.wait_synced().await.unwrap();
    settle().await;
    for noted in [&two, &three, &never, &often] {
        assert_eq!(noted.take(), ["+a@1!", "synced"]);
    }
    tokio::time::sleep(12 * SECOND).await;
    let counts = [two, three, never, often].map(|noted| {
        let words = noted.take();
        assert!(words.iter().all(|word| word == "=a@1"), "{words:?}");
        words.len()
    });
    assert_eq!(counts, [6, 4, 0, 12], "not more than once a second");
}

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

struct Panics {
    noted: Noted,
    times: Arc<Mutex<Vec<Instant>>>,
}

impl ResourceEventHandler<Object> for Panics {
    fn on_add(&mut self, object: &Arc<Cached<Object>>, _: bool) {
        self.noted.0.lock().unwrap().push(object.name().to_owned());
        self.times.lock().unwrap().push(Instant::now());
        assert!(object.name() == "fine", "no");
    }
}

#[tokio::test(start_paused = true)]
async fn b97_d18_a_handler_that_panics_hurts_only_itself_and_becomes_synced() {
    let server = Server::new();
    for name in ["a", "b", "fine"] {
        server.put(name);
    }
    let informer = over(&server).build();
    let (bad, good) = (Noted::default(), Noted::default());
    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let panics = Panics {
        noted: bad.clone(),
        times: Arc::clone(&times),
    };
    let bad_registration = informer.add_event_handler(panics, &plain()).unwrap();
    let good_registration = informer.add_event_handler(good.clone(), &plain()).unwrap();
    let asynchronous = informer
        .for_each(
            |event| async move { assert!(event.object().is_none(), "no") },
            &plain(),
        )
        .unwrap();
    informer.start();
    good_registration.synced().await;
    assert_eq!(good.words(), ["+a@1!", "+b@2!", "+fine@3!", "synced"]);
    assert!(bad_registration.synced().await && asynchronous.synced().await);
    assert_eq!(bad.words(), ["a", "b", "fine"]);
    let times = times.lock().unwrap();
    assert!(
        times[1] - times[0] >= SECOND && times[2] - times[1] >= SECOND,
        "it rests after a panic"
    );
}

#[tokio::test(start_paused = true)]
async fn b99_d17_a_handler_can_be_drained_or_cut_off() {
    let server = Server::new();
    for index in 0..10 {
        server.put(&format!("n{index}"));
    }
    let informer = over(&server).start();
    informer.wait_synced().await.unwrap();
    for (pending, expected) in [(Pending::Deliver, 11), (Pending::Drop, 1)] {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let slow = informer
            .for_each(
                move |_| {
                    let counted = Arc::clone(&counted);
                    async move {
                        tokio::time::sleep(SECOND).await;
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                },
                &plain(),
            )
            .unwrap();
        tokio::time::sleep(SECOND / 2).await;
        slow.shut_down(pending).await;
        assert_eq!(
            calls.load(Ordering::Relaxed),
            expected,
            "{pending:?}: the call that ran was not interrupted"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_shuts_itself_down_does_not_wait_for_itself() {
    let server = Server::new();
    server.put("a");
    let informer = over(&server).build();
    let own: Arc<Mutex<Option<Registration<Object>>>> = Arc::default();
    let (mine, done) = (Arc::clone(&own), Arc::new(AtomicBool::new(false)));
    let finished = Arc::clone(&done);
    let registration = informer
        .for_each(
            move |_| {
                let (mine, finished) = (Arc::clone(&mine), Arc::clone(&finished));
                async move {
                    let registration = mine.lock().unwrap().clone().unwrap();
                    registration.shut_down(Pending::Drop).await;
                    finished.store(true, Ordering::Relaxed);
                }
            },
            &plain(),
        )
        .unwrap();
    *own.lock().unwrap() = Some(registration.clone());
    informer.start();
    eventually("ended", || done.load(Ordering::Relaxed)).await;
    registration.shut_down(Pending::Deliver).await;
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
async fn b102_a_filter_turns_updates_into_additions_and_deletions() {
    let server = Server::new();
    server.put_with("a", r#"{"show":"yes"}"#);
    server.put_with("b", "{}");
    let informer = over(&server).build();
    #[derive(Clone, Default)]
    struct Calls(Arc<Mutex<Vec<String>>>);
    impl ResourceEventHandler<Object> for Calls {
        fn on_add(&mut self, object: &Arc<Cached<Object>>, initial: bool) {
            self.0
                .lock()
                .unwrap()
                .push(format!("add {} {initial}", object.name()));
        }
        fn on_update(&mut self, old: &Arc<Cached<Object>>, new: &Arc<Cached<Object>>) {
            self.0
                .lock()
                .unwrap()
                .push(format!("update {} {}", old.version(), new.version()));
        }
        fn on_delete(&mut self, last: &Arc<Cached<Object>>, known: bool) {
            self.0.lock().unwrap().push(format!(
                "delete {}@{} {known}",
                last.name(),
                last.version()
            ));
        }
    }
    let calls = Calls::default();
    let filter = |object: &Cached<Object>| object.labels().get("show").is_some();
    let handler = FilteringResourceEventHandler {
        filter,
        handler: calls.clone(),
    };
    let registration = informer.add_event_handler(handler, &plain()).unwrap();
    informer.start();
    registration.synced().await;
    server.put_with("b", r#"{"show":"yes"}"#); // 3: comes to pass
    server.put_with("b", r#"{"show":"yes"}"#); // 4: stays
    server.put_with("b", "{}"); // 5: ceases
    server.put_with("b", "{}"); // 6: not seen
    server.delete("b");
    settle().await;
    assert_eq!(
        *calls.0.lock().unwrap(),
        ["add a true", "add b false", "update 3 4", "delete b@4 true"]
    );
}

#[tokio::test(start_paused = true)]
async fn b103_b110_d19_deletions_carry_the_last_state_and_say_if_it_is_the_final_one() {
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
async fn b104_b65_handlers_and_informers_have_names() {
    let server = Server::new();
    let informer = over(&server).name("v1/configmaps").build();
    assert_eq!(informer.name(), "v1/configmaps");
    let by_type = informer
        .add_event_handler(Noted::default(), &plain())
        .unwrap();
    assert_eq!(by_type.name(), "behaviour::informer::Noted");
    let given = informer
        .add_event_handler(Noted::default(), &plain().name("mine"))
        .unwrap();
    assert_eq!(given.name(), "mine");
    let closure = informer.for_each(|_| async {}, &plain()).unwrap();
    assert_eq!(
        closure.name(),
        "behaviour::informer::b104_b65_handlers_and_informers_have_names"
    );
}

#[tokio::test(start_paused = true)]
async fn d20_an_object_that_was_created_again_is_another_one() {
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
async fn k1_a_hundred_tasks_wait_for_the_first_state_and_all_wake() {
    let script = Script::new().list_fails(refused()).list(list("10", &[]));
    let informer = SharedInformer::builder(script.source(), Decode::bytes()).start();
    let waiting: Vec<_> = (0..100)
        .map(|_| {
            let informer = informer.clone();
            tokio::spawn(async move { informer.wait_synced().await.is_ok() })
        })
        .collect();
    for task in waiting {
        assert!(
            tokio::time::timeout(60 * SECOND, task)
                .await
                .unwrap()
                .unwrap()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn k2_a_deletion_that_races_a_subscriber_stalls_nobody() {
    let server = Server::new();
    let informer = over(&server).start();
    informer.wait_synced().await.unwrap();
    let mut slow = informer.subscribe(&plain()).unwrap();
    let mut quick = informer.subscribe(&plain()).unwrap();
    server.put("a");
    informer.wait_for(Version::new("1")).await.unwrap();
    server.delete("a");
    informer.wait_for(Version::new("2")).await.unwrap();
    // The object is gone from the store before either has read of it.
    assert!(informer.store().is_empty());
    for subscription in [&mut slow, &mut quick] {
        assert_eq!(words(subscription, 3).await, ["synced", "+a@1", "-a@2"]);
    }
    server.put("b");
    assert_eq!(words(&mut slow, 1).await, ["+b@3"], "and goes on");
}

#[tokio::test(start_paused = true)]
async fn k4_one_forbidden_watch_among_ten_delays_none_of_the_others() {
    let forbidden =
        tidings_api::Status::failure(403, tidings_api::Reason::Forbidden, "secrets is forbidden");
    let factory = SharedInformerFactory::new();
    let mut informers = Vec::new();
    for index in 0..10 {
        let script = if index == 3 {
            let mut script = Script::new();
            for _ in 0..100 {
                script = script.list_fails(forbidden.clone());
            }
            script
        } else {
            Script::new().list(list("10", &[]))
        };
        let key = InformerKey::new(format!("v1/resource-{index}"));
        informers.push(factory.informer(&key, || {
            SharedInformer::builder(script.source(), Decode::bytes())
        }));
    }
    factory.start();
    let error = factory.wait_synced(5 * SECOND).await.unwrap_err();
    assert_eq!(error.laggards.len(), 1);
    let text = error.to_string();
    assert!(
        text.starts_with("not synced: v1/resource-3 (degraded after "),
        "{text}"
    );
    assert!(text.ends_with("secrets is forbidden)"), "{text}");
    let synced = informers
        .iter()
        .filter(|informer| informer.has_synced())
        .count();
    assert_eq!(synced, 9);
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
        Object::parse(format!(r#"{{"metadata":{{"name":"bad","namespace":"default","uid":"u","resourceVersion":"{version}"}},"data":5}}"#).into()).unwrap()
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
    informer.wait_for(Version::new("20")).await.unwrap();
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
async fn b145_the_lag_counts_the_initial_state_and_the_call_that_runs() {
    let server = Server::new();
    for name in ["a", "b", "c"] {
        server.put(name);
    }
    let informer = over(&server).start();
    informer.wait_synced().await.unwrap();
    let slow = informer
        .for_each(|_| tokio::time::sleep(10 * SECOND), &plain())
        .unwrap();
    tokio::time::sleep(15 * SECOND).await;
    let lag = slow.lag();
    assert_eq!(lag.events, 2, "the second of three runs");
    assert!(lag.bytes > 100 && lag.age >= 15 * SECOND, "{lag:?}");
    tokio::time::sleep(10 * SECOND).await;
    server.put("d");
    settle().await;
    assert_eq!(slow.lag().events, 2, "one runs and one waits");
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(slow.lag(), Lag::default());
}

#[tokio::test(start_paused = true)]
async fn a_version_is_waited_for_so_long_and_the_error_says_what_is_missing() {
    let server = Server::new();
    let informer = over(&server).name("pods").start();
    informer.wait_synced().await.unwrap();
    let version = server.put("a").to_string();
    informer.wait_for_within(&*version, SECOND).await.unwrap();
    let error = informer.wait_for_within("900", SECOND).await;
    let at = informer.last_sync_resource_version();
    assert_eq!(
        error.unwrap_err().to_string(),
        format!("the informer pods is at version \"{at}\" and not at \"900\": synced")
    );
}

#[tokio::test(start_paused = true)]
async fn k11_b145_a_handler_that_sleeps_a_minute_holds_up_nothing_and_costs_no_queue() {
    let server = Server::new();
    let informer = over(&server).log(LogOptions::new(1000, 1 << 20)).start();
    informer.wait_synced().await.unwrap();
    let slow: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
    let (state, calls) = (Arc::clone(&slow), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&calls);
    let sleeper = informer
        .for_each(
            move |event| {
                let (state, counted) = (Arc::clone(&state), Arc::clone(&counted));
                async move {
                    let first = counted.fetch_add(1, Ordering::Relaxed) == 1;
                    if first {
                        tokio::time::sleep(60 * SECOND).await;
                    }
                    let mut state = state.lock().unwrap();
                    match &event {
                        Event::Added { object, .. } => {
                            assert!(
                                state
                                    .insert(object.key().to_string(), object.version())
                                    .is_none()
                            );
                        }
                        Event::Updated { old, new } => {
                            assert_eq!(
                                state.insert(new.key().to_string(), new.version()),
                                Some(old.version())
                            );
                        }
                        Event::Deleted { last, .. } => {
                            assert!(state.remove(last.key().as_str()).is_some())
                        }
                        _ => {}
                    }
                }
            },
            &plain(),
        )
        .unwrap();
    sleeper.synced().await;
    let noted = Noted::default();
    let quick = informer.add_event_handler(noted.clone(), &plain()).unwrap();
    quick.synced().await;
    let mut chance = fastrand::Rng::with_seed(3);
    for round in 0..1000 {
        for _ in 0..100 {
            let name = format!("n{}", chance.u16(..300));
            if chance.u8(..5) == 0 {
                server.delete(&name)
            } else {
                server.put(&name)
            };
        }
        informer
            .wait_for(Version::new(&server.revision().to_string()))
            .await
            .unwrap();
        let stats = informer.stats();
        assert!(
            stats.logged <= 1200 && stats.logged_bytes <= 2 << 20,
            "round {round}: {stats:?}"
        );
    }
    settle().await;
    assert_eq!(quick.lag().events, 0, "the other handler is up to date");
    assert!(noted.words().len() > 50_000);
    assert!(sleeper.lag().events > 0);
    tokio::time::sleep(61 * SECOND).await;
    let seen: Vec<String> = slow
        .lock()
        .unwrap()
        .iter()
        .map(|(key, version)| format!("{key}@{version}"))
        .collect();
    assert!(
        seen == server.contents(),
        "what it was told replays to the state"
    );
    assert!(
        calls.load(Ordering::Relaxed) < 5000,
        "one event for each object that changed: {calls:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn overflow_can_mean_every_object_again_or_an_error_or_waiting() {
    for overflow in [Overflow::DropToSnapshot, Overflow::Error, Overflow::Block] {
        let server = Server::new();
        for name in ["a", "b", "c"] {
            server.put(name);
        }
        let informer = over(&server).log(LogOptions::new(10, 1 << 20)).start();
        informer.wait_synced().await.unwrap();
        let mut events = informer.subscribe(&plain().overflow(overflow)).unwrap();
        assert_eq!(words(&mut events, 4).await.last().unwrap(), "synced");
        for _ in 0..100 {
            server.put("b");
            settle().await; // each in a batch of its own
        }
        server.delete("c");
        server.put("d");
        settle().await;
        match overflow {
            Overflow::DropToSnapshot => {
                assert_eq!(
                    words(&mut events, 4).await,
                    ["-c@3?", "~b@2>103", "+d@105", "=a@1"]
                );
            }
            Overflow::Error => {
                assert!(events.next().await.is_none());
                assert_eq!(events.outcome(), Err(FellBehind));
            }
            _ => {
                assert!(informer.stats().logged <= 12, "the store waits");
                assert!(informer.store().get("default", "b").unwrap().version() < 103);
                let all = words(&mut events, 102).await;
                assert_eq!(
                    (all[0].as_str(), all[99].as_str()),
                    ("~b@2>4", "~b@102>103")
                );
                assert_eq!(all[100..], ["-c@104", "+d@105"], "every single one");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn d23_factories_share_by_what_is_followed_and_stop_and_start_again() {
    let server = Server::new();
    server.put("a");
    let factory = SharedInformerFactory::new();
    let pods = InformerKey::new("v1/pods");
    let in_ns = InformerKey::new("v1/pods")
        .namespace("ns")
        .label_selector("app=web");
    let make = || SharedInformer::builder(server.source(), Decode::bytes());
    let first = factory.informer(&pods, make);
    let again = factory.informer(&pods, || -> InformerBuilder<Object> {
        panic!("it is there")
    });
    let narrow = factory.informer(&in_ns, make);
    let other_form = factory.informer(&pods, || {
        SharedInformer::builder(server.source(), Decode::keys())
    });
    assert_eq!(
        factory.len(),
        3,
        "two filters of one resource, and two forms"
    );
    assert_eq!(
        (narrow.name(), first.name()),
        ("v1/pods in ns with app=web", "v1/pods")
    );
    factory.start();
    factory.wait_synced(SECOND).await.unwrap();
    assert_eq!(again.store().len(), 1);
    // One of them is stopped, by its key.
    factory.stop(&in_ns).await;
    assert!(narrow.is_stopped() && !first.is_stopped() && !other_form.is_stopped());
    let anew = factory.informer(&in_ns, make);
    assert!(!anew.is_stopped());
    anew.start();
    anew.wait_synced().await.unwrap();
    // The last handle stops it.
    let requests = server.requests().len();
    drop(first);
    assert_eq!(factory.len(), 3);
    let lister = again.lister();
    drop(again);
    assert_eq!(factory.len(), 3, "a lister is a handle");
    drop(lister);
    assert_eq!(factory.len(), 2);
    settle().await;
    assert_eq!(server.requests().len(), requests);
    let restarted = factory.informer(&pods, make);
    restarted.start();
    restarted.wait_synced().await.unwrap();
    factory.shut_down().await;
    assert!(restarted.is_stopped() && anew.is_stopped() && factory.is_empty());
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
        Ok(object.clone())
    });
    let informer = SharedInformer::builder(script.source(), decode).start();
    informer.wait_synced().await.unwrap();
    let before = informer.store().get("default", "same").unwrap();
    informer.wait_for(Version::new("20")).await.unwrap();
    let after = informer.store().get("default", "same").unwrap();
    assert!(Arc::ptr_eq(&before, &after));
    assert_eq!(decoded.load(Ordering::Relaxed), 3, "not decoded again");
}

#[tokio::test(start_paused = true)]
async fn d21_every_setting_of_the_reflector_can_be_reached_through_a_factory() {
    let script = Script::new().watch(Watch::of(vec![initial_events_end(5)]));
    let factory = SharedInformerFactory::new();
    let informer = factory.informer(&InformerKey::new("v1/pods"), || {
        let mut options = ReflectorOptions::default();
        options.initial_state = InitialState::Streamed;
        options.watch_timeout_least = Duration::from_secs(1800);
        SharedInformer::builder(script.source(), Decode::bytes()).reflector(options)
    });
    factory.start();
    informer.wait_synced().await.unwrap();
    let asked = &script.requests()[0].options;
    assert_eq!(asked.send_initial_events, Some(true));
    assert!(asked.timeout_seconds.unwrap() >= 1800);
}

#[tokio::test(start_paused = true)]
async fn many_informers_of_one_program_do_not_list_all_at_once() {
    let lists = Arc::new(tokio::sync::Semaphore::new(2));
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let informers: Vec<_> = (0..10)
        .map(|_| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            let list: ListFunc = Arc::new(move |_| {
                let (running, most) = (Arc::clone(&running), Arc::clone(&most));
                Box::pin(async move {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::time::sleep(SECOND).await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    Ok(list("10", &[]).into_stream())
                })
            });
            let watch: WatchFunc = Arc::new(|_| Box::pin(std::future::pending()));
            let mut options = ReflectorOptions::default();
            options.lists = Some(Arc::clone(&lists));
            SharedInformer::builder(Arc::new(ListWatch::new(list, watch)), Decode::bytes())
                .reflector(options)
                .start()
        })
        .collect();
    for informer in &informers {
        informer.wait_synced().await.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn b98_b63_the_form_with_one_handler_runs_in_its_caller_and_panics_there() {
    let server = Server::new();
    server.put("a");
    let noted = Noted::default();
    let options = ReflectorOptions::default();
    let (store, controller) = Controller::new(
        "one",
        server.source(),
        Decode::bytes(),
        noted.clone(),
        options.clone(),
    );
    let by_name = controller
        .indexer()
        .add_index("name", |object| Ok(vec![object.name().to_owned()]))
        .unwrap();
    let controller = controller.resync(2 * SECOND);
    let mut is_synced = controller.synced();
    let running = tokio::spawn(async move { drop(controller.run().await) });
    is_synced.wait_for(|synced| *synced).await.unwrap();
    server.put("b");
    server.delete("a");
    tokio::time::sleep(3 * SECOND).await;
    // A resync has nothing that could fail: it is told, and the watch goes on.
    assert_eq!(noted.take(), ["+a@1!", "synced", "+b@2", "-a@3", "=b@2"]);
    assert_eq!(store.by_index(&by_name, &"b".to_owned()).unwrap().len(), 1);
    running.abort();

    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let panics = Panics {
        noted: Noted::default(),
        times,
    };
    let (_, controller) = Controller::new("one", server.source(), Decode::bytes(), panics, options);
    let outcome = tokio::spawn(async move { drop(controller.run().await) }).await;
    assert!(outcome.unwrap_err().is_panic(), "the caller is told");
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_source_ends_the_informer_and_is_said() {
    let list_func: ListFunc = Arc::new(|_| Box::pin(async { panic!("no list") }));
    let watch_func: WatchFunc = Arc::new(|_| Box::pin(std::future::pending()));
    let source = Arc::new(ListWatch::new(list_func, watch_func));
    let informer = SharedInformer::builder(source, Decode::bytes())
        .name("broken")
        .start();
    let error = informer.wait_synced().await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the informer broken has not synced: stopped: the source or the order of an index panicked"
    );
    // A problem handler that panics harms nothing.
    let script = Script::new().list_fails(refused()).list(list("10", &[]));
    let informer = SharedInformer::builder(script.source(), Decode::bytes())
        .on_problem(|_| panic!("no"))
        .start();
    informer.wait_synced().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_stop_its_informer() {
    let server = Server::new();
    server.put("a");
    let informer = over(&server).build();
    let weak = informer.downgrade();
    informer
        .for_each(
            move |_| {
                let informer = weak.upgrade().unwrap();
                async move { informer.stop().await }
            },
            &plain(),
        )
        .unwrap();
    informer.start();
    eventually("stopped", || informer.is_stopped()).await;
    let (first, second) = tokio::join!(informer.stop(), informer.stop());
    assert_eq!((first, second), ((), ()));
    let dropped = informer.downgrade();
    drop(informer);
    assert!(dropped.upgrade().is_none());
}

#[tokio::test(start_paused = true)]
async fn b64_a_resync_of_zero_is_never() {
    let server = Server::new();
    server.put("a");
    let informer = over(&server).start();
    let mut events = informer.subscribe(&plain().resync(Duration::ZERO)).unwrap();
    assert_eq!(words(&mut events, 2).await, ["+a@1!", "synced"]);
    assert!(quiet(&mut events, 100 * SECOND).await);
    let (_, controller) = Controller::new(
        "one",
        server.source(),
        Decode::bytes(),
        Noted::default(),
        ReflectorOptions::default(),
    );
    let running = tokio::time::timeout(SECOND, controller.resync(Duration::ZERO).run()).await;
    assert!(running.is_err(), "it runs");
}

#[tokio::test(start_paused = true)]
async fn b101_b138_an_object_that_cannot_be_decoded_never_goes_back() {
    // The store waits behind a handler that blocks, so that a relist meets changes that are queued.
    let bad = Object::parse(r#"{"metadata":{"name":"a","namespace":"default","uid":"uid-a","resourceVersion":"3"},"bad":true}"#.into()).unwrap();
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
    informer.wait_for(Version::new("3")).await.unwrap();
    assert!(
        quiet(&mut events, SECOND).await,
        "its last good state stays"
    );
    assert_eq!(informer.store().get("default", "a").unwrap().version(), 2);
}

#[tokio::test(start_paused = true)]
async fn b11_b139_what_has_no_version_and_no_form_leaves_the_version_of_the_store() {
    let bare =
        Object::parse(r#"{"metadata":{"name":"bad","namespace":"default"}}"#.into()).unwrap();
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
