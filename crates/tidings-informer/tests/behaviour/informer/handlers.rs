//! How handlers are added, removed, and keep up.

use super::*;
use crate::support::server::Server;
use crate::support::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidings_api::Object;
use tidings_informer::*;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn b83_k12_a_handler_that_comes_late_gets_the_state_and_then_every_change_once() {
    let server = Server::new();
    server.put("a");
    server.put("b");
    let informer = over(&server).start();
    informer.wait_synced().await.unwrap();
    server.put("c");
    server.delete("a");
    informer.wait_for(ServerVersion::new("4")).await.unwrap();
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

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b87_b147_handlers_come_and_go_by_the_hundred_while_events_pour_in() {
    let server = Server::new();
    let informer = over(&server).start();
    informer.wait_synced().await.unwrap();
    let writer = {
        let server = server.clone();
        tokio::spawn(async move {
            let mut rng = fastrand::Rng::with_seed(1);
            for _ in 0..10_000 {
                let name = format!("n{}", rng.u8(..50));
                if rng.u8(..4) == 0 {
                    server.delete(&name);
                } else {
                    server.put(&name);
                }
                if rng.u8(..20) == 0 {
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
            informer.stop().await; // while handlers are still added and removed
        }
        comer.await.unwrap();
    }
    eventually("all gone", || informer.stats().handlers == 0).await;
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
    server.put_with("b", r#"{"show":"yes"}"#); // 3: accepted, so an add
    server.put_with("b", r#"{"show":"yes"}"#); // 4: an update
    server.put_with("b", "{}"); // 5: rejected, so a delete
    server.put_with("b", "{}"); // 6: not seen
    server.delete("b");
    settle().await;
    assert_eq!(
        *calls.0.lock().unwrap(),
        ["add a true", "add b false", "update 3 4", "delete b@4 true"]
    );
}

#[tokio::test(start_paused = true)]
async fn k2_a_deletion_that_races_a_subscriber_stalls_nobody() {
    let server = Server::new();
    let informer = over(&server).start();
    informer.wait_synced().await.unwrap();
    let mut slow = informer.subscribe(&plain()).unwrap();
    let mut quick = informer.subscribe(&plain()).unwrap();
    server.put("a");
    informer.wait_for(ServerVersion::new("1")).await.unwrap();
    server.delete("a");
    informer.wait_for(ServerVersion::new("2")).await.unwrap();
    // The store has lost the object before either subscription has read its events.
    assert!(informer.store().is_empty());
    for subscription in [&mut slow, &mut quick] {
        assert_eq!(words(subscription, 3).await, ["synced", "+a@1", "-a@2"]);
    }
    server.put("b");
    assert_eq!(words(&mut slow, 1).await, ["+b@3"], "and goes on");
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
    let mut rng = fastrand::Rng::with_seed(3);
    for round in 0..1000 {
        for _ in 0..100 {
            let name = format!("n{}", rng.u16(..300));
            if rng.u8(..5) == 0 {
                server.delete(&name)
            } else {
                server.put(&name)
            };
        }
        informer
            .wait_for(ServerVersion::new(&server.revision().to_string()))
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
async fn kr35_overflow_can_mean_every_object_again_or_an_error_or_waiting() {
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
