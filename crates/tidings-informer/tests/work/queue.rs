//! The queue that producers and workers share: exclusion, shutdown, delays, wake-ups and metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use tidings_informer::workqueue::{AddOptions, Priority, QueueKey, WorkQueue};
use tokio::task::JoinSet;
use tokio::time::{Instant, advance, sleep, timeout};

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Polls a future once and says whether it is still pending.
async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    tokio::select! {
        biased;
        _ = future => false,
        () = std::future::ready(()) => true,
    }
}

/// Lets every other task run until it waits.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cr57_b111_no_item_is_processed_by_two_workers_at_once() {
    const ADDS: u32 = 20_000;
    let queue: WorkQueue<u32> = WorkQueue::new();
    let busy: Arc<Vec<AtomicU32>> = Arc::new((0..8).map(|_| AtomicU32::new(0)).collect());
    // A worker records how many adds of the item it has seen; at the end no add may be unseen.
    let added: Arc<Vec<AtomicU32>> = Arc::new((0..8).map(|_| AtomicU32::new(0)).collect());
    let seen: Arc<Vec<AtomicU32>> = Arc::new((0..8).map(|_| AtomicU32::new(0)).collect());
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (queue, busy) = (queue.clone(), Arc::clone(&busy));
        let (added, seen) = (Arc::clone(&added), Arc::clone(&seen));
        tasks.spawn(async move {
            while let Some(lease) = queue.get().await {
                let item = *lease as usize;
                assert_eq!(
                    busy[item].fetch_add(1, SeqCst),
                    0,
                    "two workers have {item}"
                );
                seen[item].store(added[item].load(SeqCst), SeqCst);
                tokio::task::yield_now().await;
                busy[item].fetch_sub(1, SeqCst);
            }
        });
    }
    let mut producers = JoinSet::new();
    for producer in 0..2 {
        let (queue, added) = (queue.clone(), Arc::clone(&added));
        producers.spawn(async move {
            for number in 0..ADDS {
                let item = (number + producer) % 8;
                added[item as usize].fetch_add(1, SeqCst);
                queue.add(item);
                if number % 64 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    producers.join_all().await;
    let drained = timeout(seconds(30), queue.shut_down_with_drain()).await;
    assert!(drained.unwrap().is_empty());
    timeout(seconds(30), tasks.join_all()).await.unwrap();
    for (added, seen) in added.iter().zip(seen.iter()) {
        assert_eq!(
            added.load(SeqCst),
            seen.load(SeqCst),
            "the last add was not lost"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn kr2_b111_an_item_added_while_processing_goes_to_a_waiting_worker_after_done() {
    let queue = WorkQueue::new();
    queue.add("x");
    let lease = queue.get().await.unwrap();
    queue.add("x");
    queue.add("x");
    let mut other = Box::pin(queue.get());
    assert!(is_pending(&mut other).await);
    lease.done();
    assert_eq!(*timeout(seconds(1), other).await.unwrap().unwrap(), "x");
    assert!(queue.try_get().is_none());
    assert!(queue.is_empty());
}

#[tokio::test]
async fn a_worker_that_panics_gives_its_item_back() {
    let queue = WorkQueue::new();
    queue.add("x");
    let worker = queue.clone();
    let task = tokio::spawn(async move {
        let _lease = worker.get().await;
        panic!("on purpose");
    });
    assert!(task.await.is_err());
    queue.add("x");
    assert_eq!(queue.try_get().as_deref(), Some(&"x"));
}

#[tokio::test]
async fn b112_adds_after_shutdown_are_ignored_and_the_rest_is_handed_out() {
    let queue = WorkQueue::new();
    queue.add(1_u32);
    queue.add(2);
    assert!(!queue.is_shutting_down());
    queue.shut_down();
    assert!(queue.is_shutting_down());
    queue.add(3);
    queue.add_after(4, seconds(1));
    queue.add_rate_limited(5);
    assert_eq!(queue.len(), 2);
    assert_eq!(queue.get().await.as_deref(), Some(&1));
    assert_eq!(queue.get().await.as_deref(), Some(&2));
    assert!(queue.get().await.is_none());
    assert!(queue.get().await.is_none());
    assert_eq!(queue.metrics().refused_total, 3);
}

#[tokio::test(start_paused = true)]
async fn cr63_b112_shutdown_wakes_every_worker() {
    let queue: WorkQueue<u32> = WorkQueue::new();
    let mut workers = JoinSet::new();
    for _ in 0..10 {
        let queue = queue.clone();
        workers.spawn(async move { queue.get().await.is_none() });
    }
    settle().await;
    queue.shut_down();
    let ended = timeout(seconds(1), workers.join_all()).await.unwrap();
    assert_eq!(ended, [true; 10]);
}

#[tokio::test(start_paused = true)]
async fn b112_none_comes_only_when_no_item_can_come_again() {
    let queue = WorkQueue::new();
    queue.add(1_u32);
    let lease = queue.get().await.unwrap();
    queue.add(1);
    queue.shut_down();
    let (mut one, mut two) = (Box::pin(queue.get()), Box::pin(queue.get()));
    assert!(is_pending(&mut one).await && is_pending(&mut two).await);
    drop(lease);
    let again = timeout(seconds(1), one).await.unwrap();
    assert_eq!(again.as_deref(), Some(&1));
    // The item is still being processed, but cannot be added again.
    assert!(timeout(seconds(1), two).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn b113_drain_waits_for_what_is_queued_in_process_and_added_again() {
    let queue = WorkQueue::new();
    queue.add(1_u32);
    let lease = queue.get().await.unwrap();
    queue.add(1);
    queue.add(2);
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(is_pending(&mut drain).await);
    drop(lease);
    settle().await;
    assert!(is_pending(&mut drain).await, "two are queued");
    let second = queue.get().await.unwrap();
    let again = queue.get().await.unwrap();
    assert!(is_pending(&mut drain).await);
    let items = (*second, *again);
    assert!(items == (1, 2) || items == (2, 1));
    drop(second);
    assert!(is_pending(&mut drain).await);
    drop(again);
    assert!(timeout(seconds(1), drain).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn b113_a_later_shutdown_ends_the_drain_and_plain_shutdown_does_not_wait() {
    let queue = WorkQueue::new();
    queue.add(1_u32);
    let lease = queue.get().await.unwrap();
    queue.shut_down();
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(
        is_pending(&mut drain).await,
        "an earlier shutdown does not end it"
    );
    queue.shut_down();
    timeout(seconds(1), drain).await.unwrap();
    drop(lease);
    timeout(seconds(1), queue.shut_down_with_drain())
        .await
        .unwrap();
}

#[derive(Clone)]
struct Counted(Arc<()>);

impl PartialEq for Counted {
    fn eq(&self, other: &Counted) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Counted {}

impl std::hash::Hash for Counted {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        Arc::as_ptr(&self.0).hash(hasher);
    }
}

impl QueueKey for Counted {}

#[tokio::test(start_paused = true)]
async fn b114_nothing_is_kept_of_an_item_that_is_done() {
    let queue = WorkQueue::new();
    let item = Counted(Arc::new(()));
    queue.add_with(
        item.clone(),
        AddOptions {
            priority: Priority::LOW,
            ..AddOptions::default()
        },
    );
    queue.add(item.clone());
    queue.add_after(item.clone(), seconds(1));
    queue.add_rate_limited(item.clone());
    for _ in 0..3 {
        let lease = timeout(seconds(2), queue.get()).await.ok().flatten();
        if let Some(lease) = lease {
            queue.forget(&lease);
        }
    }
    assert_eq!(Arc::strong_count(&item.0), 1);
}

#[tokio::test(start_paused = true)]
async fn b114_the_queue_goes_with_its_last_handle() {
    let queue = WorkQueue::new();
    let item = Counted(Arc::new(()));
    queue.add_after(item.clone(), seconds(1000));
    let worker = queue.clone();
    let waiting = tokio::spawn(async move { worker.get().await.is_some() });
    settle().await;
    waiting.abort();
    assert!(waiting.await.is_err());
    drop(queue);
    assert_eq!(
        Arc::strong_count(&item.0),
        1,
        "no task holds what is delayed"
    );
}

#[tokio::test(start_paused = true)]
async fn kr12_b115_delayed_items_come_in_order_and_not_before_their_time() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    for (item, delay) in [
        ("c", 30),
        ("a", 10),
        ("b", 20),
        ("a", 15),
        ("c", 25),
        ("now", 0),
    ] {
        queue.add_after(item, seconds(delay));
    }
    let mut seen = Vec::new();
    for _ in 0..4 {
        let lease = queue.get().await.unwrap();
        seen.push((*lease, start.elapsed().as_secs()));
    }
    assert_eq!(seen, [("now", 0), ("a", 10), ("b", 20), ("c", 25)]);
    assert!(timeout(seconds(1000), queue.get()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn kr17_an_endless_delay_does_not_panic() {
    let queue = WorkQueue::new();
    queue.add_after("x", Duration::MAX);
    assert!(timeout(seconds(1_000_000), queue.get()).await.is_err());
    assert_eq!(queue.shut_down(), ["x"]);
}

#[tokio::test(start_paused = true)]
async fn rate_limited_adds_wait_longer_each_time_until_forgotten() {
    let queue = WorkQueue::new();
    let mut waits = Vec::new();
    for turn in 0..5 {
        if turn == 3 {
            queue.forget(&"x");
        }
        let start = Instant::now();
        queue.add_rate_limited("x");
        drop(queue.get().await);
        waits.push(start.elapsed().as_millis());
    }
    assert_eq!(waits, [5, 10, 20, 5, 10]);
    assert_eq!(queue.num_requeues(&"x"), 2);
    let start = Instant::now();
    let options = AddOptions {
        after: seconds(3),
        rate_limited: true,
        ..AddOptions::default()
    };
    queue.add_with("x", options);
    drop(queue.get().await);
    assert_eq!(start.elapsed(), seconds(3), "the longer of the two");
}

#[tokio::test(start_paused = true)]
async fn d24_drain_does_not_wait_for_delayed_items_but_reports_them() {
    let queue = WorkQueue::new();
    queue.add("queued");
    queue.add_after("due", seconds(10));
    queue.add_after("an hour", seconds(3600));
    queue.add_after("a minute", seconds(60));
    advance(seconds(10)).await;
    let worker = queue.clone();
    let worker = tokio::spawn(async move {
        let mut seen = Vec::new();
        while let Some(lease) = worker.get().await {
            sleep(seconds(1)).await;
            seen.push(*lease);
        }
        seen
    });
    let start = Instant::now();
    assert_eq!(queue.shut_down_with_drain().await, ["a minute", "an hour"]);
    assert_eq!(
        start.elapsed(),
        seconds(2),
        "as long as the work, no longer"
    );
    assert_eq!(worker.await.unwrap(), ["queued", "due"]);
}

#[tokio::test(start_paused = true)]
async fn d24_a_dropped_drain_still_reports_what_was_delayed() {
    let queue = WorkQueue::new();
    queue.add("queued");
    queue.add_after("delayed", seconds(3600));
    assert!(
        timeout(seconds(1), queue.shut_down_with_drain())
            .await
            .is_err()
    );
    assert_eq!(queue.shut_down(), ["delayed"]);
    assert!(queue.shut_down().is_empty(), "once");
}

#[tokio::test(start_paused = true)]
async fn cr61_b118_the_figures_follow_the_queue() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.add("a");
    queue.add("b");
    queue.add_after("c", seconds(100));
    let metrics = queue.metrics();
    assert_eq!(
        (metrics.depth, metrics.delayed, metrics.processing),
        (2, 1, 0)
    );
    // A delay that was asked for is no retry.
    assert_eq!((metrics.adds_total, metrics.retries_total), (2, 0));

    advance(seconds(5)).await;
    let a = queue.get().await.unwrap();
    advance(seconds(20)).await;
    let b = queue.get().await.unwrap();
    advance(seconds(3)).await;
    let metrics = queue.metrics();
    assert_eq!((metrics.depth, metrics.processing), (0, 2));
    assert!((metrics.unfinished_work_seconds - 26.0).abs() < 1e-6);
    assert!((metrics.longest_running_processor_seconds - 23.0).abs() < 1e-6);
    assert_eq!(metrics.queue_duration.count, 2);
    assert!((metrics.queue_duration.sum_seconds - 30.0).abs() < 1e-6);
    // 5 s and 25 s: the bounds of 1, 10 and 100 s.
    assert_eq!(metrics.queue_duration.cumulative[8..11], [0, 1, 2]);
    assert_eq!(metrics.work_duration.count, 0);

    drop((a, b));
    let metrics = queue.metrics();
    assert_eq!(metrics.processing, 0);
    assert_eq!(metrics.unfinished_work_seconds.to_bits(), 0);
    assert_eq!(metrics.longest_running_processor_seconds.to_bits(), 0);
    assert_eq!(metrics.work_duration.count, 2);
    assert_eq!(metrics.work_duration.cumulative[8..11], [0, 1, 2]);

    advance(seconds(100)).await;
    let metrics = queue.metrics();
    assert_eq!(
        (metrics.depth, metrics.delayed, metrics.adds_total),
        (1, 0, 3)
    );
}

/// client-go updates its metrics in a goroutine that must be stopped. Here the runtime has no task besides the test's.
#[tokio::test(start_paused = true)]
async fn b118_no_task_runs_behind_the_queue() {
    let queue = WorkQueue::new();
    queue.add_after("x", seconds(1));
    queue.add_rate_limited("y");
    drop(queue.get().await);
    assert_eq!(
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks(),
        0
    );
    let _ = queue.metrics();
    queue.shut_down();
    assert_eq!(
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks(),
        0
    );
}
