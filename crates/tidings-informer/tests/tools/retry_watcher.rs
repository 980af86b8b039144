//! A watch that resumes by itself, and an informer as a watch.

use std::sync::Arc;
use std::time::Duration;

use crate::script::{Act, Answer, Script, added, bookmark, deleted, modified, object, word};
use tidings_api::{
    EventType, GroupResource, Reason, SplitOptions, Status, WatchEvent, WatchSplitter,
};
use tidings_informer::{
    Decode, HandlerOptions, InformerWatch, LogOptions, NotResumable, Overflow, ReflectorOptions,
    RetryWatcher, SharedInformer, SourceError,
};
use tokio::sync::mpsc;
use tokio::time::timeout;

const WHILE: Duration = Duration::from_secs(3600);

/// The events of a watcher until it ends or is idle, as text.
async fn words(watcher: &mut RetryWatcher<Script>) -> Vec<String> {
    let mut words = Vec::new();
    while let Ok(event) = timeout(WHILE, watcher.next()).await {
        match event {
            Some(event) => words.push(word(&event)),
            None => {
                words.push("end".to_owned());
                break;
            }
        }
    }
    words
}

async fn check(answers: Vec<Answer>, from: &str, expected: &[&str]) -> Arc<Script> {
    let script = Script::new(answers);
    let mut watcher = RetryWatcher::new(Arc::clone(&script), from).unwrap();
    assert_eq!(words(&mut watcher).await, expected);
    script
}

fn refuse(status: Status) -> Answer {
    Answer::Refuse(status.into())
}

fn status(code: u16, reason: Reason) -> Status {
    Status::failure(code, reason, "no")
}

fn error(status: Status) -> Act {
    Act::Send(vec![WatchEvent::Error(Box::new(status))])
}

#[test]
fn b121_versions_that_are_no_place_to_start_from_are_refused() {
    for version in ["", "0"] {
        let refused = RetryWatcher::new(Script::new([]), version).unwrap_err();
        let resource_version = version.to_owned();
        assert_eq!(refused, NotResumable { resource_version });
    }
    assert!(RetryWatcher::new(Script::new([]), "1").is_ok());
}

#[tokio::test(start_paused = true)]
async fn b121_items_at_or_before_the_version_are_skipped() {
    let events = vec![added("a", 3), added("b", 5), added("c", 6)];
    let script = check(
        vec![Answer::Stream(vec![Act::Send(events), Act::Hang])],
        "5",
        &["+c@6"],
    )
    .await;
    assert_eq!(script.versions(), ["5"]);
}

#[tokio::test(start_paused = true)]
async fn b121_survives_closed_streams_without_duplicates_or_gaps() {
    // A server that sends each watch all events from the first on, one more each time. The versions have gaps.
    let all: Vec<u64> = (1..=12).map(|n| n * n).collect();
    let answers = (2..=all.len()).map(|shown| {
        let events = all[..shown].iter().map(|n| added(&format!("o{n}"), *n));
        Answer::Stream(vec![Act::Send(events.collect())])
    });
    let script = Script::new(answers);
    let mut watcher = RetryWatcher::new(Arc::clone(&script), "1").unwrap();
    let expected: Vec<String> = all[1..].iter().map(|n| format!("+o{n}@{n}")).collect();
    assert_eq!(words(&mut watcher).await, expected);
    // Each watch resumed where the one before it ended.
    let asked: Vec<String> = all.iter().map(u64::to_string).collect();
    assert_eq!(script.versions(), asked);
    assert_eq!(watcher.resource_version().text(), "144");
}

#[tokio::test(start_paused = true)]
async fn b121_bookmarks_are_used_and_not_shown() {
    let script = check(
        vec![
            Answer::Stream(vec![Act::Send(vec![modified("a", 6), bookmark(90)])]),
            Answer::Stream(vec![Act::Send(vec![deleted("a", 80), deleted("b", 91)])]),
        ],
        "5",
        &["~a@6", "-b@91"],
    )
    .await;
    assert_eq!(script.versions(), ["5", "90", "91"]);
}

#[tokio::test(start_paused = true)]
async fn b122_watches_start_at_least_a_second_apart() {
    let pause = |millis| vec![Act::Pause(Duration::from_millis(millis))];
    let answers = vec![
        Answer::Stream(vec![]),
        Answer::Stream(pause(300)),
        Answer::Stream(pause(5000)),
    ];
    let script = check(answers, "5", &[]).await;
    // A watch that lasted longer is resumed at once.
    assert_eq!(script.times(), [0, 1000, 2000, 7000]);
}

#[tokio::test(start_paused = true)]
async fn b122_recovers_from_failures_to_open() {
    let pods = GroupResource {
        group: "",
        resource: "pods",
    };
    let answers = vec![
        Answer::Refuse(SourceError::transport("no route")),
        Answer::Stream(vec![]),
        refuse(Status::expired("too old resource version")),
        refuse(Status::timeout("slow")),
        refuse(Status::internal("odd")),
        refuse(Status::not_found(pods, "")),
        refuse(status(599, Reason::Unknown)),
        refuse(Status::too_many_requests("busy", 7)),
        Answer::Stream(vec![Act::Send(vec![added("a", 6)]), Act::Hang]),
    ];
    let script = check(answers, "5", &["+a@6"]).await;
    assert_eq!(
        script.times(),
        [0, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 14000]
    );
    assert!(script.versions().iter().all(|version| version == "5"));
}

#[tokio::test(start_paused = true)]
async fn b122_recovers_from_errors_in_the_stream_after_the_time_asked_for() {
    let mut slow = Status::timeout("slow");
    slow.details.get_or_insert_default().retry_after_seconds = 4;
    let answers = vec![
        Answer::Stream(vec![Act::Send(vec![added("a", 6)]), error(slow)]),
        Answer::Stream(vec![error(Status::internal("odd"))]),
        Answer::Stream(vec![error(status(599, Reason::Unknown))]),
        Answer::Stream(vec![Act::Fail(SourceError::transport("reset"))]),
        Answer::Stream(vec![Act::Send(vec![added("b", 7)]), Act::Hang]),
    ];
    let script = check(answers, "5", &["+a@6", "+b@7"]).await;
    assert_eq!(script.times(), [0, 4000, 5000, 6000, 7000]);
    assert_eq!(script.versions(), ["5", "6", "6", "6", "6"]);
}

#[tokio::test(start_paused = true)]
async fn b122_ends_with_the_status_when_the_version_is_gone_in_the_stream() {
    let gone = || Status::expired("too old resource version");
    for last in [error(gone()), Act::Fail(gone().into())] {
        let answers = vec![Answer::Stream(vec![Act::Send(vec![added("a", 6)]), last])];
        let script = check(answers, "5", &["+a@6", "!410", "end"]).await;
        assert_eq!(script.versions(), ["5"]);
        assert_eq!(script.open(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn b122_ends_with_the_status_when_it_is_refused() {
    for (code, reason) in [(401, Reason::Unauthorized), (403, Reason::Forbidden)] {
        let last = format!("!{code}");
        let script = check(
            vec![
                Answer::Stream(vec![]),
                refuse(status(code, reason)),
                Answer::Stream(vec![Act::Send(vec![added("a", 6)])]),
            ],
            "5",
            &[&last, "end"],
        )
        .await;
        assert_eq!(script.versions().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn b122_ends_with_an_internal_error_on_what_cannot_be_followed() {
    let unversioned = WatchEvent::Added(object("a", ""));
    // The splitter rejects an unknown event type.
    let mut splitter = WatchSplitter::new(SplitOptions::default());
    let unknown = br#"{"type":"RENAMED","object":{"metadata":{"name":"a"}}}"#;
    let refused = splitter.feed(unknown, |_| {}).unwrap_err();
    let lasts = [
        Act::Send(vec![unversioned, added("b", 7)]),
        Act::Send(vec![WatchEvent::Bookmark {
            resource_version: String::new(),
            initial_events_end: false,
        }]),
        Act::Fail(refused.into()),
    ];
    for last in lasts {
        check(vec![Answer::Stream(vec![last])], "5", &["!500", "end"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn b123_drop_with_unread_events_ends_the_watch_at_once() {
    let events = (6..1000).map(|n| added("a", n)).collect();
    let script = Script::new([Answer::Stream(vec![Act::Send(events), Act::Hang])]);
    let mut watcher = RetryWatcher::new(Arc::clone(&script), "5").unwrap();
    assert_eq!(word(&watcher.next().await.unwrap()), "+a@6");
    assert_eq!(script.open(), 1);
    drop(watcher);
    assert_eq!(script.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn b123_drop_while_waiting_ends_the_watch_at_once() {
    let script = Script::new([Answer::Stream(vec![Act::Hang])]);
    let mut watcher = RetryWatcher::new(Arc::clone(&script), "5").unwrap();
    let waited = timeout(Duration::from_secs(1), watcher.next()).await;
    assert!(waited.is_err() && script.open() == 1);
    drop(watcher);
    assert_eq!(script.open(), 0);
    // No further watch is opened.
    tokio::time::sleep(WHILE).await;
    assert_eq!(script.versions(), ["5"]);
}

fn informer(script: &Arc<Script>) -> SharedInformer<()> {
    let mut options = ReflectorOptions::default();
    options.seed = Some(1);
    SharedInformer::builder(Arc::<Script>::clone(script), Decode::keys())
        .reflector(options)
        .log(LogOptions::new(2, 1 << 20))
        .start()
}

async fn item(watch: &mut InformerWatch<()>) -> String {
    let item = timeout(WHILE, watch.next()).await.unwrap().unwrap();
    let sign = match item.event_type {
        EventType::Added => "+",
        EventType::Modified => "~",
        EventType::Deleted => "-",
        other => panic!("{other:?}"),
    };
    let known = if item.final_state_known { "" } else { "?" };
    format!(
        "{sign}{}@{}{known}",
        item.object.name(),
        item.object.version()
    )
}

#[tokio::test(start_paused = true)]
async fn b125_events_of_an_object_come_in_order() {
    let (sender, live) = mpsc::unbounded_channel();
    let script = Script::listing(
        vec![object("a", "1"), object("b", "2")],
        "2",
        [Answer::Stream(vec![Act::Live(live)])],
    );
    let informer = informer(&script);
    let mut watch = informer.as_watch(&HandlerOptions::default()).unwrap();
    let mut seen = vec![item(&mut watch).await, item(&mut watch).await];
    for event in [
        modified("a", 3),
        deleted("a", 4),
        added("a", 5),
        added("c", 6),
    ] {
        sender.send(event).unwrap();
        seen.push(item(&mut watch).await);
    }
    assert_eq!(seen, ["+a@1", "+b@2", "~a@3", "-a@4", "+a@5", "+c@6"]);
    informer.stop().await;
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn b125_a_tombstone_is_a_deletion_of_the_last_known_state() {
    let (sender, live) = mpsc::unbounded_channel();
    let script = Script::listing(
        vec![object("a", "1"), object("b", "2")],
        "2",
        [
            Answer::Stream(vec![Act::Live(live)]),
            refuse(Status::expired("too old")),
        ],
    );
    let informer = informer(&script);
    let mut watch = informer.as_watch(&HandlerOptions::default()).unwrap();
    assert_eq!(item(&mut watch).await, "+a@1");
    assert_eq!(item(&mut watch).await, "+b@2");
    // The object is deleted while no watch is open: the next list does not have it.
    script.set_list(vec![object("b", "2")], "9");
    drop(sender);
    assert_eq!(item(&mut watch).await, "-a@1?");
}

#[tokio::test(start_paused = true)]
async fn b125_drop_while_the_reader_waits_ends_the_subscription() {
    let script = Script::listing(vec![], "2", []);
    let informer = informer(&script);
    informer.wait_synced().await.unwrap();
    let mut watch = informer.as_watch(&HandlerOptions::default()).unwrap();
    let waited = timeout(Duration::from_secs(1), watch.next()).await;
    assert!(waited.is_err());
    assert_eq!(informer.stats().handlers, 1);
    drop(watch);
    assert_eq!(informer.stats().handlers, 0);
}

#[tokio::test(start_paused = true)]
async fn b125_drop_while_the_informer_waits_lets_it_go_on() {
    let events = (3..50).map(|n| Act::Send(vec![modified("a", n)]));
    let acts = events.flat_map(|act| [act, Act::Pause(Duration::from_secs(1))]);
    let script = Script::listing(
        vec![object("a", "1")],
        "2",
        [Answer::Stream(acts.chain([Act::Hang]).collect())],
    );
    let informer = informer(&script);
    let blocking = HandlerOptions::default().overflow(Overflow::Block);
    let watch = informer.as_watch(&blocking).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let version = || informer.store().get("default", "a").unwrap().version();
    assert!(version() < 10, "the informer did not wait: {}", version());
    drop(watch);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(version(), 49);
}
