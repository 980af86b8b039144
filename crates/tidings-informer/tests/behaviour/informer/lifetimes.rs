//! How informers start, sync, stop, and are shared.

use super::*;
use crate::support::server::Server;
use crate::support::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidings_api::Object;
use tidings_informer::*;
use tokio::time::Instant;

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
        "behaviour::informer::lifetimes::b104_b65_handlers_and_informers_have_names"
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
async fn an_informer_that_stops_before_it_syncs_reaches_no_version() {
    // The version of a store that has never been filled is empty too.
    let informer = over(&Server::new()).name("pods").build();
    informer.stop().await;
    let error = informer.wait_for("").await.unwrap_err();
    assert_eq!(&*error.informer, "pods");
    assert!(informer.wait_for_within("", SECOND).await.is_err());
    // After it has synced, a version that was reached stays reached.
    let server = Server::new();
    let informer = over(&server).start();
    informer.wait_synced().await.unwrap();
    let version = server.put("a").to_string();
    informer.wait_for(&*version).await.unwrap();
    informer.stop().await;
    informer.wait_for(&*version).await.unwrap();
    assert!(informer.wait_for("900").await.is_err());
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
    // Stops one of them by its key.
    factory.stop(&in_ns).await;
    assert!(narrow.is_stopped() && !first.is_stopped() && !other_form.is_stopped());
    let anew = factory.informer(&in_ns, make);
    assert!(!anew.is_stopped());
    anew.start();
    anew.wait_synced().await.unwrap();
    // Dropping the last handle stops the informer.
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
    let lists = ListPermits::new(2);
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
            options.lists = Some(lists.clone());
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
    // The resync is delivered, and the watch continues.
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
    // A panic of a problem handler has no effect.
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
