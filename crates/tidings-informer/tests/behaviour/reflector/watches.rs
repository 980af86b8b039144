//! How a reflector follows a watch.

use super::*;
use crate::support::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidings_api::{Object, Status, WatchEvent};
use tidings_informer::*;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn b50_b53_tables_and_other_kinds_in_a_watch_are_skipped() {
    let table = Object::parse(r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"99"},"rows":[]}"#).unwrap();
    let nameless = Object::parse(
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"98"}}"#,
    )
    .unwrap();
    let script = Script::new().list(list("10", &[])).watch(
        Watch::of(vec![
            WatchEvent::Added(table),
            WatchEvent::Modified(nameless),
            added("a", 11),
        ])
        .close_after(2 * SECOND),
    );
    let recorder = run_for(&script, options(), 5 * SECOND).await;
    assert_eq!(recorder.words(), ["replace 10 []", "+a@11"]);
    assert_eq!(
        script.asked().last().unwrap(),
        "watch 11",
        "what was skipped does not move the version"
    );
}

#[tokio::test(start_paused = true)]
async fn b51_b52_nothing_is_asked_before_the_start_and_everything_ends_with_the_stop() {
    let script = Script::new()
        .list(list("10", &[]))
        .watch(Watch::of(vec![added("a", 11)]));
    let reflector = Reflector::new("test", script.source(), Recorder::default(), options());
    assert!(script.requests().is_empty());
    let mut running = Box::pin(reflector.run());
    let _ = tokio::time::timeout(SECOND, &mut running).await;
    assert_eq!(script.open(), 1);
    drop(running);
    assert_eq!(
        script.open(),
        0,
        "the watch is closed once, when the reflector goes"
    );
    let never = Reflector::new("test", script.source(), Recorder::default(), options());
    drop(never.run());
    assert_eq!(script.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn b54_the_version_follows_every_event_and_bookmark() {
    let script = Script::new().list(list("10", &[])).watch(
        Watch::of(vec![added("a", 20), modified("a", 30)])
            .then(SECOND, vec![deleted("a", 35), bookmark(40)])
            .close_after(SECOND),
    );
    let recorder = run_for(&script, options(), 5 * SECOND).await;
    assert_eq!(
        recorder.words(),
        ["replace 10 []", "+a@20", "~a@30", "-a@35", "mark 40"]
    );
    assert_eq!(script.asked().last().unwrap(), "watch 40");
}

#[tokio::test(start_paused = true)]
async fn b56_watch_timeouts_are_drawn_between_five_and_ten_minutes() {
    for (least, from, to) in [(300, 300, 600), (1, 300, 600), (1800, 1800, 3600)] {
        let mut script = Script::new().list(list("10", &[]));
        for version in 11..31 {
            script = script.watch(Watch::of(vec![bookmark(version)]).end(End::Close));
        }
        let mut options = options();
        options.watch_timeout_least = Duration::from_secs(least);
        run_for(&script, options, MINUTE).await;
        let timeouts: Vec<i64> = script.requests()[1..]
            .iter()
            .map(|request| request.options.timeout_seconds.unwrap())
            .collect();
        assert!(timeouts.len() > 10);
        assert!(
            timeouts.iter().all(|timeout| (from..=to).contains(timeout)),
            "{timeouts:?}"
        );
        assert!(
            timeouts.iter().any(|timeout| *timeout != timeouts[0]),
            "they differ"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn b62_a_watch_is_closed_after_an_error_event() {
    let busy = Status::too_many_requests("slow down", 3600);
    let script = Script::new()
        .list(list("10", &[]))
        .watch(Watch::of(vec![error(busy), added("never", 11)]));
    let recorder = run_for(&script, options(), 10 * SECOND).await;
    assert_eq!(script.open(), 0);
    assert_eq!(recorder.words(), ["replace 10 []"]);
}

#[tokio::test(start_paused = true)]
async fn b67_an_ordinary_end_is_resumed_at_once_and_never_listed() {
    let reset =
        || SourceError::transport(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    let script = Script::new()
        .list(list("10", &[]))
        .watch(Watch::of(vec![added("a", 11)]).end(End::Close))
        .watch(Watch::silent().close_after(2 * SECOND))
        .watch(Watch::of(vec![added("b", 12)]).end(End::Break(reset())))
        .watch(Watch::silent());
    run_for(&script, options(), MINUTE).await;
    assert_eq!(
        script.asked(),
        [
            r#"list "0" 500"#,
            "watch 10",
            "watch 11",
            "watch 11",
            "watch 12"
        ]
    );
    let requests = script.requests();
    assert_eq!(
        requests[4].at - requests[1].at,
        2 * SECOND,
        "only the watch itself took time"
    );
}

#[tokio::test(start_paused = true)]
async fn b68_additions_of_a_watch_from_no_version_do_not_say_how_far_it_is() {
    let script = Script::new()
        .list(list("", &[]))
        .watch(Watch::of(vec![added("b", 12), added("a", 5)]).close_after(2 * SECOND))
        .watch(
            Watch::of(vec![
                added("b", 12),
                added("a", 5),
                modified("a", 13),
                added("c", 14),
            ])
            .close_after(2 * SECOND),
        );
    run_for(&script, options(), MINUTE).await;
    assert_eq!(script.asked()[1..], ["watch ", "watch ", "watch 14"]);
}

#[tokio::test(start_paused = true)]
async fn b140_d22_a_dead_connection_is_noticed_within_about_a_minute_and_resumed() {
    let script = Script::new()
        .list(list("10", &[]))
        .watch(Watch::of(vec![bookmark(11)]))
        .watch(Watch::of(vec![bookmark(12)]));
    run_for(&script, options(), 100 * SECOND).await;
    assert_eq!(script.asked(), [r#"list "0" 500"#, "watch 10", "watch 11"]);
    let requests = script.requests();
    assert_eq!(requests[2].at - requests[1].at, 75 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn b140_a_list_and_an_opening_that_hang_are_given_up() {
    struct Hangs(Script);
    impl Lister for Hangs {
        fn list(
            &self,
            options: tidings_api::ListOptions,
        ) -> BoxFuture<'_, Result<ListStream, SourceError>> {
            Box::pin(async move {
                let _ = Lister::list(&self.0, options).await;
                std::future::pending().await
            })
        }
    }
    impl Watcher for Hangs {
        fn watch(
            &self,
            options: tidings_api::ListOptions,
        ) -> BoxFuture<'_, Result<EventStream, SourceError>> {
            Watcher::watch(&self.0, options)
        }
    }
    let script = Script::new();
    let reflector = Reflector::new(
        "test",
        Arc::new(Hangs(script.clone())),
        Recorder::default(),
        options(),
    );
    let _ = tokio::time::timeout(5 * MINUTE, reflector.run()).await;
    assert!(script.lists() >= 3, "{:?}", script.asked());
}

#[tokio::test(start_paused = true)]
async fn b140_an_opening_that_hangs_is_given_up() {
    let opened = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&opened);
    let list_func: ListFunc = Arc::new(|_| Box::pin(async { Ok(list("10", &[]).into_stream()) }));
    let watch_func: WatchFunc = Arc::new(move |_| {
        *counted.lock().unwrap() += 1;
        Box::pin(std::future::pending())
    });
    let source = Arc::new(ListWatch::new(list_func, watch_func));
    let reflector = Reflector::new("test", source, Recorder::default(), options());
    let _ = tokio::time::timeout(5 * MINUTE, reflector.run()).await;
    assert!(*opened.lock().unwrap() >= 3);
}

#[tokio::test(start_paused = true)]
async fn events_without_a_version_do_not_lose_the_place() {
    let bare = Object::parse(r#"{"metadata":{"name":"bare","namespace":"default"}}"#).unwrap();
    let nowhere = WatchEvent::Bookmark {
        resource_version: String::new(),
        initial_events_end: false,
    };
    let script = Script::new().list(list("10", &[])).watch(
        Watch::of(vec![added("a", 11), WatchEvent::Added(bare), nowhere]).close_after(2 * SECOND),
    );
    run_for(&script, options(), 5 * SECOND).await;
    assert_eq!(script.asked().last().unwrap(), "watch 11");
}

#[tokio::test(start_paused = true)]
async fn d28_errors_inside_a_watch_reach_the_problem_handler() {
    let script = Script::new()
        .list(list("10", &[]))
        .watch(Watch::of(vec![error(Status::internal("in the stream"))]));
    let problems: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&problems);
    let _informer = SharedInformer::builder(script.source(), Decode::bytes())
        .on_problem(move |problem| noted.lock().unwrap().push(problem.to_string()))
        .start();
    eventually("seen", || {
        problems
            .lock()
            .unwrap()
            .iter()
            .any(|problem| problem.contains("in the stream"))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_state_says_what_the_reflector_is_doing() {
    let script = Script::new()
        .list_fails(refused())
        .list(list("10", &[object("a", 1)]))
        .watch(Watch::of(vec![bookmark(11)]).close_after(10 * SECOND))
        .watch_fails(refused());
    let informer = SharedInformer::builder(script.source(), Decode::bytes()).build();
    assert!(matches!(informer.state(), ReflectorState::Connecting));
    let mut states = informer.watch_state();
    informer.start();
    let mut seen = Vec::new();
    for _ in 0..4 {
        states.changed().await.unwrap();
        let state = states.borrow_and_update().clone();
        seen.push(match state {
            ReflectorState::Degraded {
                attempts,
                next_retry,
                ..
            } => {
                assert!(next_retry > Instant::now());
                format!("degraded {attempts}")
            }
            other => other.to_string(),
        });
    }
    assert_eq!(seen, ["degraded 1", "synced", "degraded 2", "synced"]);
    informer.stop().await;
    assert_eq!(informer.state().to_string(), "stopped");
}
