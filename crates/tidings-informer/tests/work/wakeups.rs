//! Waiting for an item: no wake-up is lost when workers leave, and one worker always waits for delayed items.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidings_informer::workqueue::WorkQueue;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

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

#[tokio::test(start_paused = true)]
async fn b115_a_nearer_delay_wakes_the_worker_that_watches_the_clock() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("later", seconds(100));
    let mut workers = JoinSet::new();
    for _ in 0..3 {
        let queue = queue.clone();
        workers.spawn(async move {
            queue
                .get()
                .await
                .map(|lease| (*lease, Instant::now() - start))
        });
    }
    settle().await;
    queue.add_after("sooner", seconds(10));
    assert_eq!(
        workers.join_next().await.unwrap().unwrap(),
        Some(("sooner", seconds(10)))
    );
    assert_eq!(
        workers.join_next().await.unwrap().unwrap(),
        Some(("later", seconds(100)))
    );
}

#[tokio::test(start_paused = true)]
async fn b115_a_delay_is_seen_by_workers_that_already_wait() {
    let queue = WorkQueue::new();
    let worker = queue.clone();
    let waiting = tokio::spawn(async move { worker.get().await.map(|lease| *lease) });
    settle().await;
    for delay in [20, 10] {
        queue.add_after(delay, seconds(delay));
        settle().await;
    }
    let start = Instant::now();
    assert_eq!(
        timeout(seconds(60), waiting).await.unwrap().unwrap(),
        Some(10)
    );
    assert_eq!(start.elapsed(), seconds(10));
}

/// Workers that wait for the delayed item are dropped one after the other; each later one has just been woken to take over.
#[tokio::test(start_paused = true)]
async fn the_watch_is_passed_on_when_its_worker_is_dropped() {
    for leave in 1..5 {
        let queue = WorkQueue::new();
        queue.add_after("x", seconds(10));
        let mut waits: Vec<_> = (0..leave).map(|_| Box::pin(queue.get())).collect();
        for wait in &mut waits {
            assert!(is_pending(wait).await);
        }
        let worker = queue.clone();
        let stays = tokio::spawn(async move { worker.get().await.is_some() });
        settle().await;
        for wait in waits {
            drop(wait);
        }
        assert!(
            timeout(seconds(11), stays)
                .await
                .is_ok_and(|got| got.unwrap()),
            "{leave} left"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_watch_is_passed_on_when_its_worker_takes_an_item() {
    let queue = WorkQueue::new();
    queue.add_after("x", seconds(10));
    let mut first = Box::pin(queue.get());
    let mut second = Box::pin(queue.get());
    assert!(is_pending(&mut first).await && is_pending(&mut second).await);
    queue.add("y");
    assert_eq!(*first.await.unwrap(), "y");
    assert_eq!(*timeout(seconds(11), second).await.unwrap().unwrap(), "x");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_get_loses_neither_an_item_nor_a_wake_up() {
    let queue = WorkQueue::new();
    let mut first = Box::pin(queue.get());
    let mut second = Box::pin(queue.get());
    assert!(is_pending(&mut first).await && is_pending(&mut second).await);
    queue.add("x");
    // The wake-up went to the first.
    drop(first);
    assert_eq!(*timeout(seconds(1), second).await.unwrap().unwrap(), "x");
}

#[tokio::test(start_paused = true)]
async fn items_that_come_due_together_wake_as_many_workers() {
    let queue = WorkQueue::new();
    for item in 0..5_u32 {
        queue.add_after(item, seconds(10));
    }
    let held = Arc::new(Mutex::new(Vec::new()));
    let mut workers = JoinSet::new();
    for _ in 0..5 {
        let (queue, held) = (queue.clone(), Arc::clone(&held));
        workers.spawn(async move {
            let lease = queue.get().await;
            held.lock().unwrap().push(lease);
        });
    }
    assert!(timeout(seconds(11), workers.join_all()).await.is_ok());
    assert_eq!(held.lock().unwrap().iter().flatten().count(), 5);
}

/// Adds, delays, drops of waiting workers and many workers at once: every item is seen after its last add.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_when_workers_come_and_go() {
    let queue: WorkQueue<u64> = WorkQueue::new();
    let seen = Arc::new(Mutex::new(HashMap::<u64, u32>::new()));
    let mut workers = JoinSet::new();
    for worker in 0..8_u64 {
        let (queue, seen) = (queue.clone(), Arc::clone(&seen));
        workers.spawn(async move {
            loop {
                // Some workers drop their wait repeatedly.
                let patience = Duration::from_micros(50 + worker * 300);
                match timeout(patience, queue.get()).await {
                    Err(_) => {}
                    Ok(None) => return,
                    Ok(Some(lease)) => *seen.lock().unwrap().entry(*lease).or_default() += 1,
                }
            }
        });
    }
    for item in 0..5000 {
        if item % 3 == 0 {
            queue.add_after(item, Duration::from_micros(item % 7 * 500));
        } else {
            queue.add(item);
        }
        if item % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let all = async {
        while seen.lock().unwrap().len() < 5000 {
            tokio::task::yield_now().await;
        }
    };
    timeout(seconds(30), all).await.unwrap();
    let drained = timeout(seconds(30), queue.shut_down_with_drain()).await;
    assert!(drained.unwrap().is_empty());
    timeout(seconds(30), workers.join_all()).await.unwrap();
    assert!(seen.lock().unwrap().values().all(|count| *count == 1));
}
