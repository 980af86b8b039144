//! How a reflector lists, watches, waits and goes on: points B38 to B81.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::*;
use tidings_api::{Object, ObjectKey, Reason, Status, WatchEvent};
use tidings_informer::*;
use tokio::time::Instant;

/// A store that notes what it is told, in words.
#[derive(Clone, Default)]
struct Recorder {
    words: Arc<Mutex<Vec<String>>>,
    collected: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    fn words(&self) -> Vec<String> {
        self.words.lock().unwrap().clone()
    }

    fn say(&self, word: String) {
        self.words.lock().unwrap().push(word);
    }
}

fn say(event: &WatchEvent) -> String {
    match event {
        WatchEvent::Added(object) => format!("+{}@{}", object.name(), object.revision()),
        WatchEvent::Modified(object) => format!("~{}@{}", object.name(), object.revision()),
        WatchEvent::Deleted(object) => format!("-{}@{}", object.name(), object.revision()),
        WatchEvent::Bookmark {
            resource_version, ..
        } => format!("mark {resource_version}"),
        WatchEvent::Error(_) => "error".into(),
    }
}

impl ReflectorStore for Recorder {
    fn collect(&mut self, part: Vec<WatchEvent>) {
        let mut collected = self.collected.lock().unwrap();
        for event in part {
            match &event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let name = object.name().into_owned();
                    collected.retain(|known| !known.starts_with(&format!("{name}@")));
                    collected.push(format!("{name}@{}", object.revision()));
                }
                WatchEvent::Deleted(object) => {
                    collected.retain(|known| !known.starts_with(&format!("{}@", object.name())));
                }
                _ => {}
            }
        }
    }

    fn discard(&mut self) {
        self.collected.lock().unwrap().clear();
    }

    fn distrust(&mut self) {
        self.say("distrust".into());
        self.discard();
    }

    fn replace(&mut self, version: &Version) {
        let mut collected = std::mem::take(&mut *self.collected.lock().unwrap());
        collected.sort();
        self.say(format!("replace {version} [{}]", collected.join(" ")));
    }

    fn apply(&mut self, events: Vec<WatchEvent>) {
        for event in events {
            self.say(say(&event));
        }
    }

    fn latest(&self, _: &ObjectKey) -> Option<u64> {
        None
    }
}

fn options() -> ReflectorOptions {
    let mut options = ReflectorOptions::default();
    options.seed = Some(7);
    options
}

fn streamed() -> ReflectorOptions {
    let mut options = options();
    options.initial_state = InitialState::Streamed;
    options
}

/// Runs a reflector over a script for so long.
async fn run_for(script: &Script, options: ReflectorOptions, time: Duration) -> Recorder {
    let recorder = Recorder::default();
    let reflector = Reflector::new("test", script.source(), recorder.clone(), options);
    let _ = tokio::time::timeout(time, reflector.run()).await;
    recorder
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn b38_the_first_list_is_of_any_state_and_paged_and_the_watch_goes_on_from_it() {
    let script = Script::new()
        .list(list("10", &[object("a", 4)]))
        .watch(Watch::of(vec![added("b", 11)]));
    let recorder = run_for(&script, options(), SECOND).await;
    assert_eq!(script.asked(), [r#"list "0" 500"#, "watch 10"]);
    let requests = script.requests();
    assert!(!requests[0].options.allow_watch_bookmarks);
    assert!(requests[1].options.allow_watch_bookmarks);
    assert_eq!(recorder.words(), ["replace 10 [a@4]", "+b@11"]);
}

#[tokio::test(start_paused = true)]
async fn b39_a_relist_is_at_the_last_version_and_not_paged() {
    let script = Script::new()
        .list(list("10", &[object("a", 4)]))
        .watch(Watch::of(vec![modified("a", 12), error(expired())]))
        .list(list("20", &[object("b", 15)]));
    let recorder = run_for(&script, options(), MINUTE).await;
    assert_eq!(
        script.asked(),
        [r#"list "0" 500"#, "watch 10", r#"list "12" 0"#, "watch 20"]
    );
    assert_eq!(
        recorder.words(),
        ["replace 10 [a@4]", "~a@12", "replace 20 [b@15]"]
    );
}

#[tokio::test(start_paused = true)]
async fn b40_d29_an_expired_relist_is_repeated_at_once_at_the_newest_version_and_paged() {
    let script = Script::new()
        .list(list("10", &[]))
        .watch_fails(expired())
        .list_fails(expired())
        .list(list("20", &[]));
    run_for(&script, options(), MINUTE).await;
    assert_eq!(
        script.asked(),
        [
            r#"list "0" 500"#,
            "watch 10",
            r#"list "10" 0"#,
            r#"list "" 500"#,
            "watch 20"
        ]
    );
    let requests = script.requests();
    assert_eq!(
        requests[2].at, requests[3].at,
        "the second list does not wait"
    );
}

#[tokio::test(start_paused = true)]
async fn b41_k7_pages_that_expire_are_followed_by_the_whole_list_at_the_first_version() {
    let four = [
        object("a", 1),
        object("b", 1),
        object("c", 1),
        object("d", 1),
    ];
    let script = Script::new()
        .list(list("10", &four))
        .watch_fails(expired())
        .list(page("10", &four, "next"))
        .list_fails(Status::continue_expired(String::new()))
        .list(list("11", &[object("a", 1), object("z", 11)]));
    let mut options = options();
    options.page_size = Some(4);
    let recorder = run_for(&script, options, MINUTE).await;
    let versions: Vec<String> = script
        .requests()
        .iter()
        .filter(|request| !request.options.watch)
        .map(|request| request.options.resource_version.clone())
        .collect();
    assert_eq!(versions, ["0", "10", "", "10"]);
    assert_eq!(
        script.requests().last().unwrap().options.resource_version,
        "11"
    );
    assert_eq!(
        recorder.words()[1],
        "replace 11 [a@1 z@11]",
        "the first page is void"
    );
}

#[tokio::test(start_paused = true)]
async fn b42_a_version_that_the_server_has_not_reached_is_given_up_in_all_three_wordings() {
    let by_cause = Status::too_large_resource_version(30, 20);
    let mut by_text_of_cause = Status::failure(504, Reason::Timeout, "Timeout: x");
    by_text_of_cause = by_text_of_cause.with_cause(tidings_api::Cause {
        message: "Too large resource version".into(),
        ..Default::default()
    });
    let by_message = Status::failure(
        504,
        Reason::Timeout,
        "Too large resource version: 30, current: 20",
    );
    for status in [by_cause, by_text_of_cause, by_message] {
        let script = Script::new()
            .list(list("10", &[]))
            .watch_fails(expired())
            .list_fails(status)
            .list(list("20", &[]));
        run_for(&script, options(), MINUTE).await;
        assert_eq!(script.asked()[2..4], [r#"list "10" 0"#, r#"list "" 500"#]);
    }
}

#[tokio::test(start_paused = true)]
async fn b43_a_server_that_pages_any_state_is_paged_from_then_on() {
    let script = Script::new()
        .list(page("10", &[object("a", 1)], "next"))
        .list(list("10", &[object("b", 1)]))
        .watch_fails(expired())
        .list(list("20", &[]));
    let recorder = run_for(&script, options(), MINUTE).await;
    assert_eq!(
        script.asked()[..4],
        [
            r#"list "0" 500"#,
            "page next 500",
            "watch 10",
            r#"list "10" 500"#
        ]
    );
    assert_eq!(recorder.words()[0], "replace 10 [a@1 b@1]");
}

#[tokio::test(start_paused = true)]
async fn b44_a_page_size_that_is_set_holds_for_every_list() {
    let script = Script::new()
        .list(list("10", &[]))
        .watch_fails(expired())
        .list(list("20", &[]));
    let mut options = options();
    options.page_size = Some(7);
    run_for(&script, options, MINUTE).await;
    assert_eq!(
        script.asked()[..3],
        [r#"list "0" 7"#, "watch 10", r#"list "10" 7"#]
    );
}

#[tokio::test(start_paused = true)]
async fn b49_b66_errors_of_lists_and_watches_reach_the_problem_handler_with_their_cause() {
    let denied = Status::failure(403, Reason::Forbidden, "Access Denied");
    let script = Script::new()
        .list_fails(denied)
        .list(list("10", &[]))
        .watch_fails(SourceError::transport(std::io::Error::other("no route")));
    let problems: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&problems);
    let informer = SharedInformer::builder(script.source(), Decode::bytes())
        .on_problem(move |problem| noted.lock().unwrap().push(problem.story()))
        .start();
    eventually("both", || problems.lock().unwrap().len() == 2).await;
    let problems = problems.lock().unwrap();
    assert!(problems[0].contains("Access Denied"), "{problems:?}");
    assert!(problems[1].contains("no route"), "{problems:?}");
    drop(informer);
}

#[tokio::test(start_paused = true)]
async fn b50_b53_tables_and_other_kinds_in_a_watch_are_skipped() {
    let table = Object::parse(r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"99"},"rows":[]}"#.into()).unwrap();
    let nameless = Object::parse(
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"98"}}"#.into(),
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

fn gaps(script: &Script, of: impl Fn(&Request) -> bool) -> Vec<Duration> {
    let times: Vec<Instant> = script
        .requests()
        .iter()
        .filter(|request| of(request))
        .map(|request| request.at)
        .collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
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
    // Off: the first one lists again.
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
    // Thirty seconds, one second apart: thirty-one are resumed.
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
    // A pause of more than a minute starts a new window.
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
async fn b61_an_object_that_the_server_cannot_read_is_left_to_a_new_list() {
    let unreadable = Status::failure(
        500,
        Reason::StorageReadError,
        "corrupt object has been deleted",
    );
    let script = Script::new()
        .list(list("10", &[object("a", 1), object("b", 2)]))
        .watch(Watch::of(vec![error(unreadable)]))
        .list(list("20", &[object("a", 1)]));
    let recorder = run_for(&script, options(), MINUTE).await;
    assert_eq!(
        recorder.words(),
        ["replace 10 [a@1 b@2]", "replace 20 [a@1]"]
    );
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
    // A bookmark whose annotation says "false" is a plain one: the splitter decides that.
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
    // That nobody is there, or that there are too many, says nothing about streams.
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
async fn events_without_a_version_do_not_lose_the_place() {
    let bare =
        Object::parse(r#"{"metadata":{"name":"bare","namespace":"default"}}"#.into()).unwrap();
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
    // One minute of health is too little, two are enough.
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
async fn d8_an_answer_that_cannot_be_read_is_resumed_and_listed_only_when_it_stays() {
    let broken = || SourceError::from(tidings_api::SplitError::Shape("something else"));
    let mut script = Script::new()
        .list(list("10", &[]))
        .watch(Watch::of(vec![added("a", 11)]).end(End::Break(broken())))
        .watch(Watch::of(vec![added("b", 12)]).close_after(2 * SECOND));
    for _ in 0..5 {
        script = script.watch(Watch::silent().end(End::Break(broken())));
    }
    script = script.list(list("20", &[]));
    run_for(&script, options(), 10 * MINUTE).await;
    let asked = script.asked();
    assert_eq!(
        asked[..4],
        [r#"list "0" 500"#, "watch 10", "watch 11", "watch 12"]
    );
    assert_eq!(asked.iter().filter(|asked| *asked == "watch 12").count(), 5);
    assert_eq!(asked[8..10], [r#"list "12" 0"#, "watch 20"]);
}

#[tokio::test(start_paused = true)]
async fn b137_events_that_are_older_than_what_came_before_lead_to_a_consistent_list() {
    let script = Script::new()
        .list(list("10", &[]))
        .watch(Watch::of(vec![added("a", 15), added("b", 12)]))
        .list(list("20", &[object("a", 15), object("b", 12)]));
    let recorder = run_for(&script, options(), MINUTE).await;
    assert_eq!(
        script.asked()[..3],
        [r#"list "0" 500"#, "watch 10", r#"list "" 500"#]
    );
    assert_eq!(
        recorder.words(),
        ["replace 10 []", "+a@15", "replace 20 [a@15 b@12]"]
    );
}

#[tokio::test(start_paused = true)]
async fn b142_d13_a_server_whose_version_goes_back_is_noticed_and_reloaded_without_trust() {
    let script = Script::new()
        .list(list("100", &[object("a", 90)]))
        .watch_fails(Status::too_large_resource_version(100, 50))
        .list_fails(Status::too_large_resource_version(100, 50))
        .list(list("50", &[object("a", 40)]))
        .list(list("50", &[object("a", 40)]));
    let problems: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&problems);
    let informer = SharedInformer::builder(script.source(), Decode::bytes())
        .on_problem(move |problem| noted.lock().unwrap().push(problem.to_string()))
        .start();
    eventually("reloaded", || {
        informer.last_sync_resource_version().text() == "50"
    })
    .await;
    assert_eq!(
        script.asked()[3..6],
        [r#"list "" 500"#, r#"list "" 500"#, "watch 50"]
    );
    let problems = problems.lock().unwrap();
    assert!(
        problems
            .iter()
            .any(|problem| problem == "the server's version went back from 100 to 50"),
        "{problems:?}"
    );
    assert_eq!(informer.store().get("default", "a").unwrap().version(), 40);
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
        said[4].starts_with("a first stream took 45"),
        "and how long it took: {said:?}"
    );
    assert_eq!(said.len(), 5);
    // When they have ended nothing is said.
    let logged = crate::support::logged::Logged::default();
    let _guard = tracing::subscriber::set_default(logged.clone());
    let script = Script::new().watch(Watch::of(vec![initial_events_end(5)]));
    run_for(&script, streamed(), 50 * SECOND).await;
    assert!(logged.messages().is_empty(), "{:?}", logged.messages());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_takes_long_is_traced_step_by_step() {
    let logged = crate::support::logged::Logged::default();
    let _guard = tracing::subscriber::set_default(logged.clone());
    let list_func: ListFunc = Arc::new(|_| {
        Box::pin(async {
            tokio::time::sleep(12 * SECOND).await;
            Ok(list("10", &[object("a", 1)]).into_stream())
        })
    });
    let watch_func: WatchFunc = Arc::new(|_| Box::pin(std::future::pending()));
    let source = Arc::new(ListWatch::new(list_func, watch_func));
    let reflector = Reflector::new("test", source, Recorder::default(), options());
    let _ = tokio::time::timeout(20 * SECOND, reflector.run()).await;
    let said = logged.messages();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("a list took 12"), "{said:?}");
    assert!(
        said[0].contains("receiving 12.0s (1 objects)") && said[0].contains("replacing"),
        "{said:?}"
    );
}
