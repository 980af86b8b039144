//! How a reflector gets its state from the initial events of a watch.

use super::*;
use crate::support::*;
use std::sync::Arc;
use std::time::Duration;
use tidings_api::{Reason, Status, WatchEvent};
use tidings_informer::*;

#[tokio::test(start_paused = true)]
async fn b70_a_streamed_state_is_one_request_and_no_list() {
    let script = Script::new().watch(
        Watch::of(vec![added("a", 4), added("b", 2)])
            .then(SECOND, vec![initial_events_end(10), modified("a", 11)]),
    );
    let recorder = run_for(&script, streamed(), 10 * SECOND).await;
    assert_eq!(script.asked(), [r#"stream """#]);
    let asked = &script.requests()[0].options;
    assert!(asked.allow_watch_bookmarks);
    assert_eq!(
        asked.resource_version_match,
        Some(tidings_api::ResourceVersionMatch::NotOlderThan)
    );
    assert_eq!(recorder.words(), ["replace 10 [a@4 b@2]", "~a@11"]);
}

#[tokio::test(start_paused = true)]
async fn b71_b81_nothing_counts_before_the_bookmark_that_says_so() {
    let plain = WatchEvent::Bookmark {
        resource_version: "9".into(),
        initial_events_end: false,
    };
    let script = Script::new().watch(Watch::of(vec![added("a", 4), plain]));
    let recorder = run_for(&script, streamed(), 20 * SECOND).await;
    assert!(recorder.words().is_empty(), "{:?}", recorder.words());
    // A bookmark whose annotation says "false" does not end the initial events; the splitter decides that.
    let mut splitter = tidings_api::WatchSplitter::new(tidings_api::SplitOptions::default());
    let mut ends = Vec::new();
    for value in ["false", "true"] {
        let json = format!(
            r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"1","annotations":{{"k8s.io/initial-events-end":"{value}"}}}}}}}}"#
        );
        splitter
            .feed(json.as_bytes(), |event| {
                ends.push(matches!(
                    event,
                    WatchEvent::Bookmark {
                        initial_events_end: true,
                        ..
                    }
                ))
            })
            .unwrap();
    }
    assert_eq!(ends, [false, true]);
}

#[tokio::test(start_paused = true)]
async fn b72_changes_before_the_end_of_the_initial_events_are_part_of_the_state() {
    let script = Script::new().watch(Watch::of(vec![
        added("a", 1),
        added("b", 2),
        modified("a", 5),
        deleted("b", 6),
        initial_events_end(7),
    ]));
    let recorder = run_for(&script, streamed(), SECOND).await;
    assert_eq!(recorder.words(), ["replace 7 [a@5]"]);
}

#[tokio::test(start_paused = true)]
async fn b73_b74_a_stream_that_is_lost_early_starts_over_and_one_lost_later_is_resumed() {
    let script = Script::new()
        .watch(Watch::of(vec![added("lost", 1)]).close_after(2 * SECOND))
        .watch(Watch::of(vec![added("a", 2), initial_events_end(3)]).close_after(2 * SECOND));
    let recorder = run_for(&script, streamed(), MINUTE).await;
    assert_eq!(script.asked(), [r#"stream """#, r#"stream """#, "watch 3"]);
    assert_eq!(recorder.words(), ["replace 3 [a@2]"]);
}

#[tokio::test(start_paused = true)]
async fn b75_d3_k14_a_server_without_initial_events_is_listed_at_once_and_remembered() {
    let invalid = Status::failure(422, Reason::Invalid, "sendInitialEvents is forbidden");
    let script = Script::new()
        .watch_fails(invalid)
        .list(list("10", &[object("a", 1)]))
        .watch_fails(expired())
        .list(list("20", &[]));
    let recorder = run_for(&script, streamed(), 10 * MINUTE).await;
    assert_eq!(
        script.asked()[..5],
        [
            r#"stream """#,
            r#"list "0" 500"#,
            "watch 10",
            r#"list "10" 0"#,
            "watch 20"
        ],
        "it is not asked for a stream again"
    );
    assert_eq!(script.requests()[0].at, script.requests()[1].at, "at once");
    assert_eq!(recorder.words()[0], "replace 10 [a@1]");
}

#[tokio::test(start_paused = true)]
async fn b76_too_many_requests_for_a_stream_are_repeated_as_a_stream() {
    let busy = || Status::too_many_requests("slow down", 0);
    let script = Script::new()
        .watch_fails(busy())
        .watch_fails(busy())
        .watch(Watch::of(vec![initial_events_end(7)]));
    run_for(&script, streamed(), MINUTE).await;
    assert_eq!(script.asked(), [r#"stream """#; 3]);
}

#[tokio::test(start_paused = true)]
async fn b77_an_expired_resume_keeps_what_the_store_has_until_the_new_state_is_complete() {
    let script = Script::new()
        .watch(Watch::of(vec![added("a", 1), initial_events_end(3)]).close_after(2 * SECOND))
        .watch_fails(expired())
        .watch(Watch::of(vec![added("a", 1)]).then(5 * SECOND, vec![initial_events_end(9)]));
    let recorder = run_for(&script, streamed(), 6 * SECOND).await;
    assert_eq!(
        recorder.words(),
        ["replace 3 [a@1]"],
        "nothing was taken away"
    );
    assert_eq!(
        script.asked()[2],
        r#"stream "3""#,
        "not older than what is known"
    );
}

#[tokio::test(start_paused = true)]
async fn b78_streams_are_asked_for_only_where_they_are_wanted_and_possible() {
    let script = Script::new().list(list("10", &[]));
    let lister = ListWatch::over(script.source()).without_initial_events();
    let reflector = Reflector::new("test", Arc::new(lister), Recorder::default(), streamed());
    let _ = tokio::time::timeout(SECOND, reflector.run()).await;
    assert_eq!(script.asked(), [r#"list "0" 500"#, "watch 10"]);
}

#[tokio::test(start_paused = true)]
async fn d1_b135_a_stream_that_never_ends_its_initial_events_is_given_up_after_a_few_tries() {
    let mut script = Script::new();
    for _ in 0..100 {
        script = script.watch(Watch::of(vec![added("a", 1)]).end(End::Close));
    }
    script = script.list(list("10", &[object("a", 1)]));
    let recorder = run_for(&script, streamed(), 10 * MINUTE).await;
    assert_eq!(
        script.asked()[..5],
        [
            r#"stream """#,
            r#"stream """#,
            r#"stream """#,
            r#"list "0" 500"#,
            "watch 10"
        ]
    );
    let waits = gaps(&script, |request| {
        request.options.send_initial_events.is_some()
    });
    assert!(
        waits.iter().all(|wait| *wait >= Duration::from_millis(800)),
        "not hot: {waits:?}"
    );
    assert_eq!(recorder.words()[0], "replace 10 [a@1]");
}

#[tokio::test(start_paused = true)]
async fn b135_a_stalled_stream_is_listed_after_a_minute() {
    let script = Script::new()
        .watch(Watch::of(vec![added("a", 1)]))
        .list(list("10", &[]));
    run_for(&script, streamed(), 2 * MINUTE).await;
    assert_eq!(
        script.asked(),
        [r#"stream """#, r#"list "0" 500"#, "watch 10"]
    );
    let requests = script.requests();
    assert_eq!(requests[1].at - requests[0].at, MINUTE);
}

#[tokio::test(start_paused = true)]
async fn b75_d1_a_stream_that_breaks_again_and_again_is_listed() {
    let internal = || SourceError::from(Status::internal("broken"));
    for fails in [
        Script::new()
            .watch_fails(internal())
            .watch_fails(internal())
            .watch_fails(internal()),
        Script::new()
            .watch(Watch::of(vec![added("a", 1)]).end(End::Break(refused())))
            .watch(Watch::of(vec![added("a", 1), error(Status::internal("x"))]))
            .watch(Watch::of(vec![added("a", 1)]).end(End::Break(refused()))),
    ] {
        let script = fails.list(list("10", &[object("a", 1)]));
        let recorder = run_for(&script, streamed(), 10 * MINUTE).await;
        assert_eq!(script.asked()[3], r#"list "0" 500"#, "{:?}", script.asked());
        assert_eq!(recorder.words(), ["replace 10 [a@1]"]);
    }
    // Connection errors and 429 do not count as failed attempts to get initial events.
    let mut script = Script::new();
    for _ in 0..40 {
        script = script
            .watch_fails(refused())
            .watch_fails(Status::too_many_requests("later", 0));
    }
    run_for(&script, streamed(), 10 * MINUTE).await;
    assert_eq!(script.lists(), 0, "{:?}", script.asked());
}

#[tokio::test(start_paused = true)]
async fn b135_a_server_without_bookmarks_is_not_asked_again_and_again() {
    let script = Script::new().list(list("10", &[]));
    run_for(&script, options(), 60 * MINUTE).await;
    assert_eq!(script.lists(), 1);
    assert!(
        script.watches() < 16,
        "{} watches in an hour",
        script.watches()
    );
}

#[tokio::test(start_paused = true)]
async fn b79_every_ten_seconds_it_is_said_that_the_initial_events_do_not_end() {
    let logged = crate::support::logged::Logged::default();
    let _guard = tracing::subscriber::set_default(logged.clone());
    let script = Script::new().watch(Watch::silent().then(25 * SECOND, vec![added("a", 1)]));
    run_for(&script, streamed(), 45 * SECOND).await;
    let said = logged.messages();
    let nothing = "no initial events yet, and no bookmark that ends them";
    assert_eq!(said[..2], [nothing, nothing]);
    for (text, seconds) in said[2..4].iter().zip(["5s", "15s"]) {
        assert_eq!(
            *text,
            format!("no bookmark ends the initial events; the last event came {seconds} ago")
        );
    }
    assert!(
        said[4].starts_with("a list by initial events took 45"),
        "and how long it took: {said:?}"
    );
    assert_eq!(said.len(), 5);
    // Nothing is logged when they have ended.
    let logged = crate::support::logged::Logged::default();
    let _guard = tracing::subscriber::set_default(logged.clone());
    let script = Script::new().watch(Watch::of(vec![initial_events_end(5)]));
    run_for(&script, streamed(), 50 * SECOND).await;
    assert!(logged.messages().is_empty(), "{:?}", logged.messages());
}
