//! Waiting for events that meet conditions.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::script::{
    Act, Answer, Script, added, bookmark, deleted, modified, object, stream, word,
};
use tidings_api::{EventType, Status, WatchEvent};
use tidings_informer::until::{
    Condition, Unmet, UntilError, until, until_with_sync, until_without_retry,
};
use tidings_informer::{Decode, EventStream, SharedInformer, SourceError, Store, WatchItem};
use tokio::sync::mpsc;
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

/// A condition that is met by an event with this text, and counts its calls.
fn is<'a>(expected: &'a str, asked: &'a AtomicUsize) -> Condition<'a, WatchEvent> {
    Box::new(move |event| {
        asked.fetch_add(1, Ordering::Relaxed);
        Ok(word(event) == expected)
    })
}

fn any<'a>() -> Condition<'a, WatchEvent> {
    Box::new(|_| Ok(true))
}

fn never<'a, T: 'a>() -> Condition<'a, T> {
    Box::new(|_| Ok(false))
}

fn fails<'a, T: 'a>() -> Condition<'a, T> {
    Box::new(|_| Err("cannot tell".into()))
}

fn sending(events: Vec<WatchEvent>, then: impl IntoIterator<Item = Act>) -> EventStream {
    let acts = [Act::Send(events)].into_iter().chain(then);
    stream(acts.collect(), &Arc::default())
}

fn last<T>(error: &UntilError<T>, word: impl Fn(&T) -> String) -> Option<String> {
    error.last.as_ref().map(word)
}

#[tokio::test(start_paused = true)]
async fn b124_conditions_are_met_in_order() {
    let asked = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let events = vec![
        added("b", 1),
        added("a", 2),
        modified("x", 3),
        added("b", 4),
    ];
    let conditions = vec![is("+a@2", &asked[0]), is("+b@4", &asked[1])];
    let met = until_without_retry(sending(events, [Act::Hang]), conditions, MINUTE).await;
    assert_eq!(word(&met.unwrap().unwrap()), "+b@4");
    // The second condition is called only after the first was met, and first with the event that met it.
    assert_eq!(asked.map(AtomicUsize::into_inner), [2, 3]);
}

#[tokio::test(start_paused = true)]
async fn b124_the_last_event_may_meet_the_next_condition_too() {
    let asked = AtomicUsize::new(0);
    let conditions = vec![any(), is("+a@1", &asked), any()];
    let watch = sending(vec![added("a", 1)], [Act::Hang]);
    let met = until_without_retry(watch, conditions, MINUTE).await;
    assert_eq!(word(&met.unwrap().unwrap()), "+a@1");
    assert_eq!(asked.into_inner(), 1);
}

#[tokio::test(start_paused = true)]
async fn b124_no_conditions_are_met_without_an_event() {
    let met = until_without_retry(sending(vec![], [Act::Hang]), vec![], MINUTE).await;
    assert!(met.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn b124_a_timeout_is_an_error_with_the_last_event() {
    let start = Instant::now();
    let watch = sending(vec![added("a", 1)], [Act::Hang]);
    let error = until_without_retry(watch, vec![never()], MINUTE)
        .await
        .unwrap_err();
    assert!(matches!(error.reason, Unmet::TimedOut(MINUTE)), "{error}");
    assert_eq!(last(&error, word).as_deref(), Some("+a@1"));
    assert_eq!(start.elapsed(), MINUTE);
}

#[tokio::test(start_paused = true)]
async fn b124_events_without_end_do_not_keep_the_time_from_being_over() {
    // An event is always ready: the timeout must be checked between events.
    let acts = (0..10_000).map(|n| Act::Send(vec![added("a", n)]));
    let watch = stream(acts.collect(), &Arc::default());
    let error = until_without_retry(watch, vec![never()], Duration::ZERO)
        .await
        .unwrap_err();
    assert!(matches!(error.reason, Unmet::TimedOut(_)), "{error}");
    assert_eq!(last(&error, word).as_deref(), Some("+a@0"));
}

#[tokio::test(start_paused = true)]
async fn b124_the_error_of_a_condition_ends_it() {
    let watch = sending(vec![added("a", 1), added("b", 2)], [Act::Hang]);
    let error = until_without_retry(watch, vec![any(), fails()], MINUTE)
        .await
        .unwrap_err();
    assert!(matches!(error.reason, Unmet::Condition(_)), "{error}");
    assert_eq!(error.source().unwrap().to_string(), "cannot tell");
    assert_eq!(last(&error, word).as_deref(), Some("+a@1"));
}

#[tokio::test(start_paused = true)]
async fn b124_a_closed_watch_is_an_error() {
    let watch = sending(vec![added("a", 1)], []);
    let error = until_without_retry(watch, vec![never()], MINUTE)
        .await
        .unwrap_err();
    assert!(matches!(error.reason, Unmet::Closed), "{error}");
    let watch = sending(vec![], [Act::Fail(SourceError::transport("reset"))]);
    let error = until_without_retry(watch, vec![never()], MINUTE)
        .await
        .unwrap_err();
    assert!(matches!(error.reason, Unmet::Source(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn b124_until_goes_on_over_closed_watches() {
    let script = Script::new([
        Answer::Stream(vec![Act::Send(vec![added("a", 6), bookmark(8)])]),
        Answer::Stream(vec![Act::Send(vec![modified("a", 7), deleted("a", 9)])]),
    ]);
    let asked = AtomicUsize::new(0);
    let source = Arc::clone(&script);
    let met = until(source, "5", vec![is("-a@9", &asked)], MINUTE).await;
    assert_eq!(word(&met.unwrap().unwrap()), "-a@9");
    assert_eq!((asked.into_inner(), script.open()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn b124_until_needs_a_version_and_hands_errors_to_the_condition() {
    let error = until(Script::new([]), "0", vec![any()], MINUTE).await;
    let reason = error.unwrap_err().reason;
    assert!(matches!(reason, Unmet::NotResumable(_)), "{reason}");

    let gone = WatchEvent::Error(Box::new(Status::expired("too old")));
    let script = Script::new([Answer::Stream(vec![Act::Send(vec![gone])])]);
    let error = until(script, "5", vec![never()], MINUTE).await.unwrap_err();
    assert!(matches!(error.reason, Unmet::Closed), "{error}");
    assert_eq!(last(&error, word).as_deref(), Some("!410"));
}

fn informer(script: &Arc<Script>) -> SharedInformer<()> {
    SharedInformer::builder(Arc::<Script>::clone(script), Decode::keys()).build()
}

fn item_word(item: &WatchItem<()>) -> String {
    format!("{:?} {:?}", item.event_type, item.object)
}

#[tokio::test(start_paused = true)]
async fn b124_a_precondition_sees_the_synced_store_and_may_end_it() {
    let script = Script::listing(vec![object("a", "1"), object("b", "2")], "2", []);
    let mut seen = 0;
    let precondition = |store: &Store<()>| {
        seen = store.len();
        Ok(true)
    };
    let informer = informer(&script);
    let met = until_with_sync(
        &informer,
        Some(Box::new(precondition)),
        vec![fails()],
        MINUTE,
    )
    .await;
    assert!(met.unwrap().is_none());
    assert_eq!((seen, informer.stats().handlers), (2, 0));
}

/// On two threads: the informer runs while the precondition reads the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b124_after_an_unmet_precondition_the_conditions_see_everything() {
    let (sender, live) = mpsc::unbounded_channel();
    let script = Script::listing(
        vec![object("a", "1")],
        "2",
        [Answer::Stream(vec![Act::Live(live)])],
    );
    let informer = informer(&script);
    let mut seen = Vec::new();
    let precondition = |_: &Store<()>| {
        sender.send(deleted("a", 5)).unwrap();
        while informer.last_sync_resource_version().text() != "5" {
            std::thread::yield_now();
        }
        Ok(false)
    };
    let gone = |item: &WatchItem<()>| {
        seen.push(item_word(item));
        Ok(item.event_type == EventType::Deleted)
    };
    let met = until_with_sync(
        &informer,
        Some(Box::new(precondition)),
        vec![Box::new(gone)],
        MINUTE,
    )
    .await;
    assert_eq!(met.unwrap().unwrap().object.name(), "a");
    assert_eq!(seen, ["Added default/a@1", "Deleted default/a@5"]);
}

#[tokio::test(start_paused = true)]
async fn b124_without_a_precondition_the_state_is_seen_as_it_comes() {
    let script = Script::listing(vec![object("a", "1")], "2", []);
    let informer = informer(&script);
    let met = until_with_sync(&informer, None, vec![Box::new(|_| Ok(true))], MINUTE).await;
    assert_eq!(item_word(&met.unwrap().unwrap()), "Added default/a@1");
    let error = until_with_sync(&informer, None, vec![never()], MINUTE).await;
    let reason = error.unwrap_err().reason;
    assert!(matches!(reason, Unmet::TimedOut(_)), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn b124_a_precondition_waits_for_the_state_as_long_as_there_is_time() {
    let informer = informer(&Script::silent());
    let start = Instant::now();
    let precondition = |_: &Store<()>| panic!("asked about a store without a state");
    let error = until_with_sync(
        &informer,
        Some(Box::new(precondition)),
        vec![never()],
        Duration::from_secs(20),
    )
    .await;
    let reason = error.unwrap_err().reason;
    assert!(matches!(reason, Unmet::NotSynced(_)), "{reason}");
    assert_eq!(start.elapsed(), Duration::from_secs(20));
    informer.stop().await;
    let error = until_with_sync(&informer, None, vec![never()], MINUTE).await;
    let reason = error.unwrap_err().reason;
    assert!(matches!(reason, Unmet::Stopped(_)), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn b124_the_error_of_a_precondition_ends_it() {
    let script = Script::listing(vec![], "2", []);
    let error = until_with_sync(
        &informer(&script),
        Some(Box::new(|_: &Store<()>| Err("cannot tell".into()))),
        vec![never()],
        MINUTE,
    )
    .await
    .unwrap_err();
    assert!(matches!(error.reason, Unmet::Condition(_)), "{error}");
}
