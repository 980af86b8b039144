//! How a reflector waits, and when it gives up.

use super::*;
use crate::support::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidings_api::{Reason, Status};
use tidings_informer::*;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn b55_d8_k8_a_watch_that_ends_at_once_is_a_failure_that_waits_and_resumes() {
    let mut script = Script::new().list(list("10", &[]));
    for _ in 0..10_000 {
        script = script.watch(Watch::silent().end(End::Close));
    }
    let problems: Arc<Mutex<Vec<Problem>>> = Arc::default();
    let noted = Arc::clone(&problems);
    let informer = SharedInformer::builder(script.source(), Decode::bytes())
        .on_problem(move |problem| noted.lock().unwrap().push(problem.clone()))
        .start();
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(script.lists(), 1, "resumed, not listed");
    assert!(
        script.watches() < 40,
        "{} watches in ten minutes",
        script.watches()
    );
    assert!(script.asked()[1..].iter().all(|asked| asked == "watch 10"));
    let problems = problems.lock().unwrap();
    let short = |problem: &Problem| matches!(problem, Problem::VeryShortWatch);
    assert!(problems.iter().all(short), "{problems:?}");
    assert_eq!(problems.len(), script.watches(), "each is reported");
    drop(informer);
}

#[tokio::test(start_paused = true)]
async fn b57_a_refused_watch_waits_longer_each_time_and_lists_nothing() {
    let mut script = Script::new().list(list("10", &[]));
    for _ in 0..40 {
        script = script.watch_fails(refused());
    }
    run_for(&script, options(), 60 * MINUTE).await;
    assert_eq!(script.lists(), 1);
    let gaps = gaps(&script, |request| request.options.watch);
    for (index, gap) in gaps.iter().take(40).enumerate() {
        let base = Duration::from_millis(800 * 2_u64.pow(index.min(10) as u32))
            .min(Duration::from_secs(30));
        assert!(
            *gap >= base && *gap <= 2 * base,
            "wait {index}: {gap:?}, base {base:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn b58_a_backoff_of_ones_own_is_kept_to_the_millisecond() {
    let mut script = Script::new().list(list("10", &[]));
    for _ in 0..5 {
        script = script.watch_fails(refused());
    }
    let mut options = options();
    options.backoff = BackoffOptions::default()
        .between(Duration::from_millis(10), Duration::from_millis(100))
        .jitter(0.0);
    run_for(&script, options, SECOND).await;
    let total: Duration = gaps(&script, |request| request.options.watch).iter().sum();
    assert_eq!(total, Duration::from_millis(10 + 20 + 40 + 80 + 100));
}

#[tokio::test(start_paused = true)]
async fn b59_too_many_requests_wait_and_resume_at_the_opening_and_inside_a_watch() {
    let busy = || Status::too_many_requests("slow down", 0);
    let mut script = Script::new()
        .list(list("10", &[]))
        .watch(Watch::of(vec![error(busy())]));
    for _ in 0..4 {
        script = script.watch_fails(busy());
    }
    run_for(&script, options(), 10 * MINUTE).await;
    assert_eq!(script.lists(), 1);
    let steps = gaps(&script, |request| request.options.watch);
    assert!(steps.len() >= 5);
    for step in &steps[..5] {
        assert!(*step >= Duration::from_millis(800), "{steps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn b60_internal_errors_are_resumed_within_a_window_that_starts_over_after_a_pause() {
    let internal = || Status::internal("broken");
    // Without patience: the first error relists.
    let script = Script::new()
        .list(list("10", &[]))
        .watch(Watch::of(vec![error(internal())]))
        .list(list("20", &[]));
    let mut with = options();
    with.internal_error_patience = Some(Duration::ZERO);
    run_for(&script, with, MINUTE).await;
    assert_eq!(
        script.asked()[..3],
        [r#"list "0" 500"#, "watch 10", r#"list "10" 0"#]
    );
    // Errors one second apart for thirty seconds: thirty-one watches are resumed.
    let mut script = Script::new().list(list("10", &[]));
    for _ in 0..40 {
        script = script.watch(Watch::of(vec![error(internal())]));
    }
    script = script.list(list("20", &[]));
    let mut with = options();
    with.internal_error_patience = Some(30 * SECOND);
    with.backoff = BackoffOptions::default()
        .between(SECOND, SECOND)
        .jitter(0.0);
    run_for(&script, with.clone(), 100 * SECOND).await;
    let before_list = script
        .asked()
        .iter()
        .skip(1)
        .take_while(|asked| asked.starts_with("watch"))
        .count();
    assert_eq!(before_list, 32, "the first, and thirty-one retries");
    // A pause of more than a minute restarts the patience.
    let mut script = Script::new().list(list("10", &[]));
    for _ in 0..10 {
        script = script.watch(Watch::of(vec![error(internal())]));
    }
    script = script.watch(Watch::silent().then(70 * SECOND, vec![error(internal())]));
    for _ in 0..25 {
        script = script.watch(Watch::of(vec![error(internal())]));
    }
    run_for(&script, with, 115 * SECOND).await;
    assert_eq!(
        script.lists(),
        1,
        "thirty-six errors, but no thirty seconds of them"
    );
}

#[tokio::test(start_paused = true)]
async fn d8_connections_that_fail_say_nothing_about_the_version() {
    let mut script = Script::new().list(list("10", &[]));
    for _ in 0..3 {
        for _ in 0..4 {
            script = script.watch_fails(refused());
        }
        script = script.watch(Watch::of(vec![error(Status::internal("restarting"))]));
    }
    run_for(&script, options(), 60 * MINUTE).await;
    assert_eq!(script.lists(), 1, "{:?}", script.asked());
}

#[tokio::test(start_paused = true)]
async fn b141_d10_retry_after_is_kept_to_within_reason() {
    for (seconds, least, most) in [(0, 0, 2), (20, 20, 21), (1_000_000, 300, 301)] {
        let script = Script::new()
            .list(list("10", &[]))
            .watch_fails(Status::too_many_requests("slow down", seconds));
        run_for(&script, options(), 10 * MINUTE).await;
        let waited = gaps(&script, |request| request.options.watch)[0];
        assert!(
            waited >= Duration::from_secs(least) && waited <= Duration::from_secs(most),
            "{seconds}: {waited:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn d9_k3_waits_grow_through_an_outage_and_start_over_only_after_two_healthy_minutes() {
    let mut script = Script::new();
    for _ in 0..30 {
        script = script.list_fails(refused());
    }
    run_for(&script, options(), 20 * MINUTE).await;
    let waits = gaps(&script, |_| true);
    assert!(
        waits[6..].iter().all(|wait| *wait >= 30 * SECOND),
        "{waits:?}"
    );
    // The backoff resets after two minutes without a failure, not after one.
    for (healthy, first) in [(60, false), (130, true)] {
        let mut script = Script::new().list(list("10", &[]));
        for _ in 0..6 {
            script = script.watch_fails(refused());
        }
        script = script
            .watch(
                Watch::of(vec![bookmark(11)])
                    .then(Duration::from_secs(healthy / 2), vec![bookmark(12)])
                    .then(
                        Duration::from_secs(healthy / 2),
                        vec![error(Status::internal("x"))],
                    ),
            )
            .watch_fails(refused());
        run_for(&script, options(), 20 * MINUTE).await;
        let requests = script.requests();
        let wait = requests[9].at - requests[8].at;
        assert_eq!(wait < 4 * SECOND, first, "after {healthy} s: {wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn b143_refusals_are_tried_again_or_final_as_asked() {
    let denied = || Status::failure(403, Reason::Forbidden, "pods is forbidden");
    let script = Script::new()
        .list_fails(denied())
        .list(list("10", &[]))
        .watch_fails(denied())
        .watch(Watch::of(vec![bookmark(11)]));
    let keeps_trying = SharedInformer::builder(script.source(), Decode::bytes()).start();
    eventually("followed again", || {
        script.open() == 1 && keeps_trying.has_synced()
    })
    .await;
    assert_eq!(
        script.lists(),
        2,
        "a forbidden watch is resumed when it is allowed again"
    );

    let script = Script::new().list_fails(denied());
    let mut fail_fast = ReflectorOptions::default();
    fail_fast.on_refusal = OnRefusal::Stop;
    let stops = SharedInformer::builder(script.source(), Decode::bytes())
        .name("pods")
        .reflector(fail_fast)
        .start();
    let error = stops.wait_synced().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the informer pods has not synced: stopped: pods is forbidden"
    );
    assert!(stops.is_stopped());
    assert_eq!(script.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn b143_a_wrong_question_is_refused_and_a_stream_that_is_not_supported_is_not() {
    let wrong = || Status::failure(400, Reason::BadRequest, "no such field");
    let mut fail_fast = streamed();
    fail_fast.on_refusal = OnRefusal::Stop;
    let script = Script::new()
        .watch_fails(wrong())
        .list(list("10", &[]))
        .watch(Watch::of(vec![bookmark(11)]));
    let listed = SharedInformer::builder(script.source(), Decode::bytes())
        .reflector(fail_fast.clone())
        .start();
    listed.wait_synced().await.unwrap();

    let script = Script::new().watch_fails(wrong()).list_fails(wrong());
    let stops = SharedInformer::builder(script.source(), Decode::bytes())
        .reflector(fail_fast)
        .start();
    let error = stops.wait_synced().await.unwrap_err();
    assert!(error.to_string().ends_with("stopped: no such field"));
    assert_eq!(script.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn options_that_make_no_sense_do_not_make_a_busy_loop() {
    let mut script = Script::new();
    for _ in 0..20_000 {
        script = script.list_fails(Status::failure(500, Reason::InternalError, "no"));
    }
    let mut options = options();
    options.silence_max = Duration::ZERO;
    options.backoff = BackoffOptions::default()
        .between(Duration::ZERO, Duration::ZERO)
        .jitter(f64::NAN);
    options.backoff.factor = f64::NAN;
    run_for(&script, options, Duration::from_secs(3)).await;
    let asked = script.lists();
    assert!((1_000..=3_100).contains(&asked), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn d2_a_waiting_reflector_stops_at_once() {
    let script = Script::new().watch_fails(Status::too_many_requests("later", 300));
    let informer = SharedInformer::builder(script.source(), Decode::bytes())
        .reflector(streamed())
        .start();
    eventually("waiting", || {
        matches!(informer.state(), ReflectorState::Degraded { .. })
    })
    .await;
    let before = Instant::now();
    informer.stop().await;
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn whoever_knows_that_the_server_is_back_ends_a_wait() {
    let script = Script::new()
        .list(list("10", &[]))
        .watch_fails(refused())
        .watch(Watch::of(vec![bookmark(11)]));
    let retry = RetrySignal::new();
    let mut options = options();
    options.backoff = BackoffOptions::default().between(MINUTE, MINUTE);
    options.retry_now = Some(retry.clone());
    let informer = SharedInformer::builder(script.source(), Decode::bytes())
        .reflector(options)
        .start();
    eventually("waiting", || {
        matches!(informer.state(), ReflectorState::Degraded { .. })
    })
    .await;
    let before = Instant::now();
    retry.retry_now();
    eventually("it watches again", || script.watches() == 2).await;
    assert!(before.elapsed() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_sent_before_the_server_was_back_costs_no_wait() {
    let soon = SECOND / 2;
    let script = Script::new()
        .list(list("10", &[]))
        .watch(
            Watch::silent()
                .then(soon, Vec::new())
                .end(End::Break(refused())),
        )
        .watch_fails(refused())
        .watch(Watch::of(vec![bookmark(11)]));
    let retry = RetrySignal::new();
    let mut options = options();
    options.backoff = BackoffOptions::default().between(MINUTE, MINUTE);
    options.retry_now = Some(retry.clone());
    let informer = SharedInformer::builder(script.source(), Decode::bytes())
        .reflector(options)
        .start();
    eventually("it watches", || script.open() == 1).await;
    let before = Instant::now();
    retry.retry_now();
    eventually("it watches again", || script.watches() == 2).await;
    assert!(before.elapsed() < SECOND);
    // The second failure is news.
    eventually("it watches a third time", || script.watches() == 3).await;
    assert!(before.elapsed() >= MINUTE);
    informer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_the_first_state_does_not_end_a_reflector_that_stops_before_sync() {
    let gone = || Status::failure(404, Reason::NotFound, "the definition was deleted");
    let script = Script::new()
        .list(list("10", &[object("a", 9)]))
        .watch_fails(expired())
        .list_fails(gone())
        .list_fails(gone())
        .list(list("20", &[object("b", 19)]))
        .watch(Watch::of(vec![bookmark(21)]));
    let mut options = ReflectorOptions::default();
    options.on_refusal = OnRefusal::StopBeforeSync;
    let informer = SharedInformer::builder(script.source(), Decode::bytes())
        .reflector(options.clone())
        .start();
    eventually("it is created again", || {
        informer.store().list_keys() == [ObjectKey::new("default", "b")]
    })
    .await;

    let script = Script::new().list_fails(gone());
    let stops = SharedInformer::builder(script.source(), Decode::bytes())
        .reflector(options)
        .start();
    stops.wait_synced().await.unwrap_err();
    assert!(stops.is_stopped());
}

#[tokio::test(start_paused = true)]
async fn a_reflector_alone_has_a_store_a_state_and_problems() {
    let script = Script::new()
        .list_fails(refused())
        .list(list("10", &[object("a", 8), object("b", 9)]))
        .watch(Watch::of(vec![modified("a", 11), deleted("b", 12)]));
    let reflected = ReflectedStore::new(Arc::new(Indexer::new()), Decode::bytes());
    let store = reflected.store();
    let problems = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&problems);
    let reflector = Reflector::new("alone", script.source(), reflected, options())
        .on_problem(move |problem| seen.lock().unwrap().push(problem.to_string()));
    let mut states = reflector.watch_state();
    let running = tokio::spawn(reflector.run());
    states
        .wait_for(|state| matches!(state, ReflectorState::Degraded { .. }))
        .await
        .unwrap();
    states
        .wait_for(|state| matches!(state, ReflectorState::Synced))
        .await
        .unwrap();
    eventually("the events are applied", || store.len() == 1).await;
    assert_eq!(store.get("default", "a").unwrap().version(), 11);
    assert_eq!(store.snapshot().version().text(), "12");
    assert_eq!(problems.lock().unwrap().len(), 1);
    running.abort();
}
