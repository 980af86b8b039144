//! The queue of deltas: points B19 to B37.

use std::sync::Arc;

use crate::support::*;
use tidings_api::{Object, ObjectKey};
use tidings_informer::*;

fn cached(name: &str, version: u64) -> Arc<Cached<Object>> {
    Cached::new(&object(name, version), &Decode::bytes()).unwrap()
}

fn put(name: &str, version: u64) -> Delta<Object> {
    Delta::Updated(cached(name, version))
}

fn gone(name: &str, version: u64) -> Delta<Object> {
    Delta::Deleted {
        key: ObjectKey::new("default", name),
        last: Some(cached(name, version)),
        version: ServerVersion::new(&version.to_string()),
    }
}

fn state(version: u64, objects: &[(&str, u64)]) -> Delta<Object> {
    Delta::Replaced {
        objects: objects
            .iter()
            .map(|(name, version)| cached(name, *version))
            .collect(),
        version: ServerVersion::new(&version.to_string()),
    }
}

fn queue() -> DeltaFifo<Object> {
    DeltaFifo::new(QUEUE_BYTES_MAX)
}

/// The next batch as text; `None` if the queue is empty.
fn pop(queue: &DeltaFifo<Object>) -> Option<String> {
    let mut popped = std::pin::pin!(queue.pop_batch());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match popped.as_mut().poll(&mut context) {
        std::task::Poll::Ready(Some(batch)) => Some(format!(
            "{:?}{}",
            batch.deltas,
            if batch.initial { "!" } else { "" }
        )),
        std::task::Poll::Ready(None) => Some("closed".into()),
        std::task::Poll::Pending => None,
    }
}

use std::future::Future;

#[tokio::test]
async fn b19_the_order_of_each_producer_is_kept_and_nothing_is_lost() {
    let queue = queue();
    let producers: Vec<_> = ["a", "b"]
        .into_iter()
        .map(|producer| {
            let queue = queue.clone();
            tokio::spawn(async move {
                for version in 1..=500 {
                    queue.push(put(&format!("{producer}{version}"), version));
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let mut seen: Vec<(String, u64)> = Vec::new();
    while seen.len() < 1000 {
        for delta in queue.pop_batch().await.unwrap().deltas {
            let Delta::Updated(object) = delta else {
                panic!()
            };
            seen.push((object.name()[..1].to_owned(), object.version()));
        }
    }
    for producer in ["a", "b"] {
        let versions: Vec<u64> = seen
            .iter()
            .filter(|(name, _)| name == producer)
            .map(|(_, version)| *version)
            .collect();
        assert_eq!(versions, (1..=500).collect::<Vec<_>>());
    }
    for producer in producers {
        producer.await.unwrap();
    }
}

#[test]
fn b20_b32_every_change_of_a_key_is_delivered_in_order_each_in_its_own_batch() {
    let queue = queue();
    queue.extend([
        put("a", 1),
        put("b", 2),
        put("a", 3),
        put("c", 4),
        put("a", 5),
    ]);
    assert_eq!(
        pop(&queue).unwrap(),
        "[Updated(default/a@1), Updated(default/b@2)]"
    );
    assert_eq!(
        pop(&queue).unwrap(),
        "[Updated(default/a@3), Updated(default/c@4)]"
    );
    assert_eq!(pop(&queue).unwrap(), "[Updated(default/a@5)]");
    assert_eq!(pop(&queue), None);
}

#[test]
fn b21_b34_a_state_stands_alone_and_in_order_and_several_stay_several() {
    let queue = queue();
    queue.extend([
        put("a", 1),
        gone("a", 2),
        state(3, &[("a", 3)]),
        state(4, &[]),
        put("b", 5),
    ]);
    let popped: Vec<String> = std::iter::from_fn(|| pop(&queue)).collect();
    assert_eq!(
        popped,
        [
            "[Updated(default/a@1)]",
            "[Deleted(default/a@2)]",
            "[Replaced(1 objects@3)]",
            "[Replaced(0 objects@4)]",
            "[Updated(default/b@5)]"
        ]
    );
}

/// The events that handlers receive for batches of watch events after an initial list.
async fn told(
    first: List,
    then: Vec<Vec<tidings_api::WatchEvent>>,
    relist: Option<List>,
) -> Vec<String> {
    let mut watch = Watch::silent();
    for batch in then {
        watch = watch.then(std::time::Duration::ZERO, batch);
    }
    let mut script = Script::new().list(first);
    if let Some(relist) = relist {
        watch = watch.then(std::time::Duration::ZERO, vec![error(expired())]);
        script = script.watch(watch).list(relist);
    } else {
        script = script.watch(watch);
    }
    let informer = SharedInformer::builder(script.source(), Decode::bytes()).build();
    let mut events = informer.subscribe(&HandlerOptions::default()).unwrap();
    informer.start();
    let mut told = Vec::new();
    while let Ok(Some(event)) =
        tokio::time::timeout(std::time::Duration::from_secs(60), events.next()).await
    {
        told.push(word(&event));
    }
    told
}

#[tokio::test(start_paused = true)]
async fn b22_b23_what_a_state_lacks_is_deleted_once_with_the_last_state_that_is_known() {
    let told = told(
        list("10", &[object("stored", 1), object("kept", 2)]),
        vec![vec![
            added("queued", 11),
            modified("queued", 12),
            added("gone", 13),
            deleted("gone", 14),
        ]],
        Some(list("20", &[object("kept", 2)])),
    )
    .await;
    assert_eq!(
        told[3..],
        [
            "+queued@11",
            "~queued@11>12",
            "+gone@13",
            "-gone@14",
            "-queued@12?",
            "-stored@1?"
        ],
        "each deleted exactly once"
    );
}

#[tokio::test(start_paused = true)]
async fn b24_deletions_come_before_replacements_and_these_in_order() {
    let told = told(
        list("10", &[object("m", 1), object("z", 1)]),
        vec![],
        Some(list(
            "20",
            &[object("a", 12), object("b", 13), object("m", 14)],
        )),
    )
    .await;
    assert_eq!(
        told,
        [
            "+m@1!", "+z@1!", "synced", "-z@1?", "+a@12", "+b@13", "~m@1>14"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn b25_b26_a_resync_shows_the_state_after_what_was_queued_and_brings_nothing_back() {
    let script = Script::new()
        .list(list("10", &[object("a", 1), object("b", 1)]))
        .watch(Watch::silent().then(
            std::time::Duration::from_secs(9),
            vec![modified("a", 11), deleted("b", 12)],
        ));
    let informer = SharedInformer::builder(script.source(), Decode::bytes()).build();
    let options = HandlerOptions::default().resync(std::time::Duration::from_secs(10));
    let mut events = informer.subscribe(&options).unwrap();
    informer.start();
    assert_eq!(words(&mut events, 3).await, ["+a@1!", "+b@1!", "synced"]);
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    let rest = words(&mut events, 3).await;
    assert_eq!(
        rest,
        ["~a@1>11", "-b@12", "=a@11"],
        "not b, and not the old a"
    );
}

#[test]
fn b27_b28_b29_a_queue_is_synced_when_the_first_state_is_processed() {
    let fifo = queue();
    assert!(!fifo.has_synced());
    fifo.push(put("a", 1));
    assert!(
        fifo.has_synced(),
        "changes without a state: there is nothing to wait for"
    );

    let fifo = queue();
    fifo.extend([state(3, &[("a", 1), ("b", 2), ("a", 3)]), put("c", 4)]);
    assert!(!fifo.has_synced());
    assert_eq!(
        pop(&fifo).unwrap(),
        "[Replaced(2 objects@3)]!",
        "of one key the last counts"
    );
    assert!(!fifo.has_synced(), "handed out, not processed");
    fifo.processed();
    assert!(fifo.has_synced());
    assert_eq!(pop(&fifo).unwrap(), "[Updated(default/c@4)]", "not initial");
    fifo.push(state(9, &[("z", 8)]));
    assert_eq!(
        pop(&fifo).unwrap(),
        "[Replaced(1 objects@9)]",
        "a relist is not initial"
    );
    assert!(fifo.has_synced());

    let empty = queue();
    empty.push(state(3, &[]));
    pop(&empty);
    empty.processed();
    assert!(empty.has_synced());
}

#[tokio::test(start_paused = true)]
async fn b30_b95_b96_d4_the_transform_sees_each_object_once_in_every_mode() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    for streamed in [false, true] {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let decode = Decode::<serde_json::Value>::json().transform(move |mut value| {
            counted.fetch_add(1, Ordering::Relaxed);
            let seen = value.get("seen").is_some();
            assert!(!seen, "never one that it has transformed before");
            value["seen"] = true.into();
            Ok(value)
        });
        let mut options = ReflectorOptions::default();
        let mut script = Script::new();
        let later = vec![modified("a", 11), error(expired())];
        if streamed {
            options.initial_state = InitialState::Streamed;
            let mut first = vec![added("a", 1), added("b", 2), initial_events_end(10)];
            first.extend(later);
            script = script.watch(Watch::of(first)).watch(Watch::of(vec![
                modified("a", 11),
                added("b", 2),
                initial_events_end(20),
            ]));
        } else {
            script = script
                .list(list("10", &[object("a", 1), object("b", 2)]))
                .watch(Watch::of(later))
                .list(list("20", &[object("a", 11), object("b", 2)]));
        }
        let informer = SharedInformer::builder(script.source(), decode)
            .reflector(options)
            .start();
        let options = HandlerOptions::default().resync(std::time::Duration::from_secs(1));
        let mut events = informer.subscribe(&options).unwrap();
        informer.wait_for(ServerVersion::new("20")).await.unwrap();
        words(&mut events, 20).await;
        assert_eq!(
            calls.load(Ordering::Relaxed),
            3,
            "two first, one change; none for a resync or a relist (streamed: {streamed})"
        );
        assert_eq!(informer.store().get("default", "a").unwrap()["seen"], true);
    }
}

#[tokio::test]
async fn b31_a_blocked_consumer_wakes_when_the_queue_closes() {
    let queue = queue();
    let waiting = {
        let queue = queue.clone();
        tokio::spawn(async move { queue.pop_batch().await.is_none() })
    };
    tokio::task::yield_now().await;
    queue.close();
    assert!(waiting.await.unwrap());
    queue.push(put("late", 1));
    assert!(
        pop(&queue).unwrap().contains("late"),
        "what is there is still handed out"
    );
    assert_eq!(pop(&queue).unwrap(), "closed");
}

#[test]
fn b32_batches_end_at_a_thousand_and_at_the_initial_state() {
    let fifo = queue();
    fifo.push(state(1, &[("a", 1)]));
    for index in 0..2500 {
        fifo.push(put(&format!("n{index}"), index));
    }
    let sizes: Vec<usize> = std::iter::from_fn(|| pop(&fifo))
        .map(|batch| batch.matches('@').count())
        .collect();
    assert_eq!(sizes, [1, 1000, 1000, 500]);
}

#[test]
fn b35_bookmarks_keep_their_place() {
    let fifo = queue();
    fifo.extend([
        put("a", 1),
        Delta::Bookmark(ServerVersion::new("5")),
        put("a", 6),
        Delta::Sync,
        Delta::Bookmark(ServerVersion::new("9")),
    ]);
    let popped: Vec<String> = std::iter::from_fn(|| pop(&fifo)).collect();
    assert_eq!(
        popped,
        [
            "[Updated(default/a@1), Bookmark(5)]",
            "[Updated(default/a@6)]",
            "[Sync]",
            "[Bookmark(9)]"
        ]
    );
}

#[test]
fn b36_d16_what_is_popped_is_let_go_and_room_is_given_back() {
    let fifo = queue();
    let object = cached("a", 1);
    fifo.push(Delta::Added(Arc::clone(&object)));
    assert_eq!(Arc::strong_count(&object), 2);
    pop(&fifo);
    assert_eq!(Arc::strong_count(&object), 1);
    for index in 0..100_000 {
        fifo.push(Delta::Bookmark(ServerVersion::new(&index.to_string())));
    }
    let full = fifo.bytes();
    while pop(&fifo).is_some() {}
    assert!(full > 1_000_000);
    assert_eq!((fifo.len(), fifo.bytes()), (0, 0));
}

#[test]
fn beyond_its_budget_the_queue_keeps_one_change_of_each_key_at_the_place_of_the_last() {
    let fifo: DeltaFifo<Object> = DeltaFifo::new(2000);
    for version in 0..10_000 {
        fifo.push(put(["a", "b", "c"][version as usize % 3], version));
    }
    assert!(fifo.len() < 20, "{} wait", fifo.len());
    assert!(fifo.bytes() < 8000, "{} bytes", fifo.bytes());
    assert!(fifo.coalesced() > 9_900);
    let mut last = Vec::new();
    let mut versions = Vec::new();
    while let Some(batch) = pop(&fifo) {
        for version in batch.split('@').skip(1) {
            let version: u64 = version
                .split(|c: char| !c.is_ascii_digit())
                .next()
                .unwrap()
                .parse()
                .unwrap();
            versions.push(version);
        }
        last.push(batch);
    }
    assert!(
        versions.windows(2).all(|pair| pair[0] < pair[1]),
        "in the order of the versions: {versions:?}"
    );
    assert_eq!(versions[versions.len() - 3..], [9997, 9998, 9999]);
    assert_eq!(fifo.bytes(), 0);
}

#[test]
fn beyond_its_budget_the_queue_moves_nothing_over_a_state() {
    let fifo: DeltaFifo<Object> = DeltaFifo::new(0);
    fifo.extend([put("a", 1), state(5, &[("a", 4)]), put("a", 6), put("a", 7)]);
    let popped: Vec<String> = std::iter::from_fn(|| pop(&fifo)).collect();
    assert_eq!(
        popped,
        ["[Replaced(1 objects@5)]", "[Updated(default/a@7)]"]
    );
}

#[test]
fn beyond_its_budget_the_queue_says_up_to_where_the_state_is_complete() {
    let fifo: DeltaFifo<Object> = DeltaFifo::new(0);
    // The first delta exceeds the budget of zero; `a` at 4 replaces `a` at 1.
    fifo.extend([put("a", 1), put("b", 2)]);
    fifo.extend([
        put("c", 3),
        put("a", 4),
        Delta::Bookmark(ServerVersion::new("5")),
        put("c", 6),
    ]);
    let mut incomplete = Vec::new();
    let mut popped = std::pin::pin!(fifo.pop_batch());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    if let std::task::Poll::Ready(Some(batch)) = popped.as_mut().poll(&mut context) {
        incomplete.push((format!("{:?}", batch.deltas), batch.incomplete_from));
    }
    assert_eq!(
        incomplete,
        [(
            "[Updated(default/b@2), Updated(default/a@4), Bookmark(5), Updated(default/c@6)]"
                .to_owned(),
            None
        )],
        "all of it at once: nothing is owed"
    );
    // A batch that ends before the replacement of a delta leaves the state incomplete from the replaced version on.
    fifo.extend([put("a", 11), put("b", 12)]);
    for index in 0..1000 {
        fifo.push(put(&format!("n{index}"), 100 + index));
    }
    fifo.push(put("a", 2000));
    let mut popped = std::pin::pin!(fifo.pop_batch());
    let std::task::Poll::Ready(Some(batch)) = popped.as_mut().poll(&mut context) else {
        panic!()
    };
    assert_eq!(
        (batch.deltas.len(), batch.incomplete_from),
        (1000, Some(11))
    );
}

#[test]
fn beyond_its_budget_a_state_supersedes_what_waits_before_it() {
    let fifo: DeltaFifo<Object> = DeltaFifo::new(0);
    fifo.extend([
        state(1, &[("a", 1)]),
        put("b", 2),
        Delta::Bookmark(ServerVersion::new("3")),
        put("b", 4),
    ]);
    assert!(!fifo.has_synced());
    fifo.push(state(9, &[("z", 8)]));
    assert_eq!(
        pop(&fifo).unwrap(),
        "[Replaced(1 objects@9)]!",
        "it is the initial state now"
    );
    assert!(pop(&fifo).is_none());
    assert!(fifo.has_synced());
    assert_eq!((fifo.bytes(), fifo.len()), (0, 0));
    // Bookmarks between deltas do not prevent coalescing.
    fifo.push(put("a", 10));
    for version in 11..1000 {
        fifo.extend([
            Delta::Bookmark(ServerVersion::new(&version.to_string())),
            put("a", version),
        ]);
    }
    let states = std::iter::from_fn(|| pop(&fifo))
        .map(|batch| batch.matches("Updated").count())
        .sum::<usize>();
    assert_eq!(states, 1);
}

#[test]
fn a_complete_list_can_be_read_object_by_object() {
    let queue = DeltaFifo::new(QUEUE_BYTES_MAX);
    let objects: Objects<()> = [("b", 2), ("a", 1)]
        .map(|(name, version)| {
            Cached::from_parts(
                ObjectKey::new("default", name),
                version,
                Uid::default(),
                [],
                (),
            )
        })
        .into_iter()
        .collect();
    queue.push(Delta::Replaced {
        objects,
        version: ServerVersion::new("3"),
    });
    let batch = queue.try_pop_batch().unwrap();
    assert!(queue.try_pop_batch().is_none());
    let [Delta::Replaced { objects, .. }] = <[_; 1]>::try_from(batch.deltas).unwrap() else {
        panic!("a list");
    };
    let names: Vec<&str> = objects.iter().map(|object| object.name()).collect();
    assert_eq!(names, ["a", "b"]);
    let versions: Vec<u64> = objects.into_iter().map(|object| object.version()).collect();
    assert_eq!(versions, [1, 2]);
}
