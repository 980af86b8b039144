//! The controller loop: retries, panics, the limit on concurrency, and the stop.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidings_informer::workqueue::{AddOptions, Priority, WorkQueue};
use tidings_informer::{Action, RunOptions, RunSummary, run_controller};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

type ReconcileResult = Result<Action, &'static str>;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

async fn after(delay: Duration) {
    sleep(delay).await;
}

/// Runs until `stop_after` and returns the times in milliseconds at which reconciles began.
async fn times_of<F>(
    queue: WorkQueue<&'static str>,
    stop_after: Duration,
    reconcile: F,
) -> (Vec<(&'static str, u64)>, RunSummary)
where
    F: Fn(&'static str, usize) -> ReconcileResult + Send + Sync + 'static,
{
    let start = Instant::now();
    let times = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&times);
    let reconcile = Arc::new(reconcile);
    let summary = run_controller(
        queue,
        RunOptions::default(),
        move |key| {
            let (noted, reconcile) = (Arc::clone(&noted), Arc::clone(&reconcile));
            async move {
                let turn = {
                    let mut noted = noted.lock().expect("not poisoned");
                    noted.push((key, start.elapsed().as_millis() as u64));
                    noted.iter().filter(|(other, _)| *other == key).count()
                };
                reconcile(key, turn)
            }
        },
        after(stop_after),
    )
    .await;
    let times = times.lock().expect("not poisoned").clone();
    (times, summary)
}

#[tokio::test(start_paused = true)]
async fn k16_backoff_grows_by_key_and_resets_on_success() {
    let queue = WorkQueue::new();
    queue.add("x");
    queue.add("well");
    let (times, summary) = times_of(queue.clone(), seconds(1), |key, turn| match (key, turn) {
        // The fourth succeeds and asks to run again; the fifth fails as if for the first time.
        ("x", 4) => Ok(Action::RequeueAfter(Duration::from_millis(100))),
        ("x", turn) if turn < 6 => Err("no"),
        _ => Ok(Action::AwaitChange),
    })
    .await;
    let x: Vec<u64> = times
        .iter()
        .filter(|(key, _)| *key == "x")
        .map(|(_, time)| *time)
        .collect();
    assert_eq!(x, [0, 5, 15, 35, 135, 140]);
    assert_eq!(times.iter().filter(|(key, _)| *key == "well").count(), 1);
    assert_eq!(
        (summary.reconciles, summary.errors, summary.panics),
        (7, 4, 0)
    );
    assert_eq!(queue.num_requeues(&"x"), 0);
}

#[tokio::test(start_paused = true)]
async fn kr14_requeue_after_runs_again_and_await_change_does_not() {
    let queue = WorkQueue::new();
    queue.add("x");
    let (times, summary) = times_of(queue, seconds(3600), |_, turn| match turn {
        1 | 2 => Ok(Action::RequeueAfter(seconds(60))),
        _ => Ok(Action::AwaitChange),
    })
    .await;
    assert_eq!(times, [("x", 0), ("x", 60_000), ("x", 120_000)]);
    assert_eq!(
        (summary.reconciles, summary.errors, summary.left),
        (3, 0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_error_of_its_key_with_backoff_and_no_more() {
    let queue = WorkQueue::new();
    queue.add("bad");
    queue.add("good");
    let (times, summary) = times_of(queue, seconds(1), |key, turn| {
        assert!(key != "bad" || turn > 3, "on purpose");
        Ok(Action::AwaitChange)
    })
    .await;
    assert_eq!(
        times,
        [
            ("bad", 0),
            ("good", 0),
            ("bad", 5),
            ("bad", 15),
            ("bad", 35)
        ]
    );
    assert_eq!(
        (summary.reconciles, summary.errors, summary.panics),
        (5, 0, 3)
    );
}

/// The closure may also panic before it returns a future.
#[tokio::test(start_paused = true)]
async fn a_panic_before_the_first_await_does_not_end_the_loop() {
    let queue = WorkQueue::new();
    queue.add("x");
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let reconcile = move |_| {
        assert!(counted.fetch_add(1, SeqCst) > 0, "on purpose");
        std::future::ready(ReconcileResult::Ok(Action::AwaitChange))
    };
    let summary = run_controller(queue, RunOptions::default(), reconcile, after(seconds(1))).await;
    assert_eq!((summary.reconciles, summary.panics), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn kr8_no_more_run_at_once_than_allowed_and_never_a_key_twice() {
    let queue = WorkQueue::new();
    for key in 0..100_u32 {
        queue.add(key);
    }
    let running = Arc::new(Mutex::new(Vec::new()));
    let most = Arc::new(AtomicUsize::new(0));
    let (inside, peak, adder) = (Arc::clone(&running), Arc::clone(&most), queue.clone());
    let reconcile = move |key| {
        let (inside, peak, adder) = (Arc::clone(&inside), Arc::clone(&peak), adder.clone());
        async move {
            {
                let mut inside = inside.lock().unwrap();
                assert!(!inside.contains(&key), "{key} runs twice");
                inside.push(key);
                peak.fetch_max(inside.len(), SeqCst);
            }
            adder.add((key * 7) % 100);
            sleep(Duration::from_millis(u64::from(key % 5) + 1)).await;
            inside.lock().unwrap().retain(|other| *other != key);
            ReconcileResult::Ok(Action::AwaitChange)
        }
    };
    let options = RunOptions {
        concurrency: 7,
        ..RunOptions::default()
    };
    let summary = run_controller(queue, options, reconcile, after(seconds(10))).await;
    assert_eq!(most.load(SeqCst), 7);
    assert_eq!(summary.panics, 0);
    assert!(summary.reconciles > 1000);
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_of_none_counts_as_one() {
    let queue = WorkQueue::new();
    queue.add("x");
    queue.shut_down();
    let options = RunOptions {
        concurrency: 0,
        ..RunOptions::default()
    };
    let reconcile = |_| std::future::ready(ReconcileResult::Ok(Action::AwaitChange));
    let summary = timeout(
        seconds(1),
        run_controller(queue, options, reconcile, pending()),
    )
    .await;
    assert_eq!(summary.unwrap().reconciles, 1);
}

#[tokio::test(start_paused = true)]
async fn at_the_stop_running_reconciles_finish_and_no_new_ones_start() {
    let queue = WorkQueue::new();
    for key in 0..5_u32 {
        queue.add(key);
    }
    queue.add_after(9, seconds(3600));
    let adder = queue.clone();
    tokio::spawn(async move {
        sleep(seconds(4)).await;
        adder.add(0);
    });
    let options = RunOptions {
        concurrency: 2,
        grace: seconds(60),
    };
    let start = Instant::now();
    let reconcile = |_| async {
        sleep(seconds(10)).await;
        ReconcileResult::Ok(Action::AwaitChange)
    };
    let summary = run_controller(queue.clone(), options, reconcile, after(seconds(5))).await;
    assert_eq!(
        start.elapsed(),
        seconds(10),
        "it waits for those that run, not for the grace"
    );
    assert_eq!(
        (summary.reconciles, summary.abandoned, summary.left),
        (2, 0, 5)
    );
    assert!(queue.is_shutting_down());
}

#[tokio::test(start_paused = true)]
async fn after_the_grace_what_still_runs_is_aborted() {
    let queue = WorkQueue::new();
    for key in 0..3_u32 {
        queue.add(key);
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    struct OnDrop(Arc<AtomicUsize>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let options = RunOptions {
        grace: seconds(7),
        ..RunOptions::default()
    };
    let counted = Arc::clone(&dropped);
    let reconcile = move |key| {
        let guard = OnDrop(Arc::clone(&counted));
        async move {
            let _guard = guard;
            if key == 0 {
                sleep(seconds(6)).await;
                return Err("late");
            }
            pending().await
        }
    };
    let start = Instant::now();
    let summary = run_controller(queue.clone(), options, reconcile, after(seconds(1))).await;
    assert_eq!(start.elapsed(), seconds(8));
    assert_eq!(
        (summary.reconciles, summary.errors, summary.abandoned),
        (1, 1, 2)
    );
    assert_eq!(
        dropped.load(SeqCst),
        3,
        "aborted futures are gone when the loop returns"
    );
    assert_eq!(queue.metrics().processing, 0, "and their keys are free");
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_shut_down_is_drained_first() {
    let queue = WorkQueue::new();
    for key in 0..20_u32 {
        queue.add(key);
    }
    let reconcile = |_| async {
        sleep(seconds(1)).await;
        ReconcileResult::Ok(Action::AwaitChange)
    };
    let run = tokio::spawn(run_controller(
        queue.clone(),
        RunOptions::default(),
        reconcile,
        pending(),
    ));
    sleep(Duration::from_millis(500)).await;
    assert!(queue.shut_down_with_drain().await.is_empty());
    assert_eq!(run.await.unwrap().reconciles, 20);
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_heeded_while_the_last_ones_of_a_drained_queue_run() {
    let queue = WorkQueue::new();
    queue.add("x");
    queue.shut_down();
    let options = RunOptions {
        grace: seconds(1),
        ..RunOptions::default()
    };
    let reconcile = |_| pending::<ReconcileResult>();
    let run = timeout(
        seconds(60),
        run_controller(queue, options, reconcile, after(seconds(5))),
    )
    .await;
    assert_eq!(run.unwrap().abandoned, 1);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_loop_aborts_its_reconciles_and_frees_their_keys() {
    let queue = WorkQueue::new();
    queue.add("x");
    let (sender, receiver) = oneshot::channel::<()>();
    let held = Arc::new(Mutex::new(Some(sender)));
    let finished = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&finished);
    let reconcile = move |_| {
        let (sender, end) = (held.lock().unwrap().take(), Arc::clone(&end));
        async move {
            let _sender = sender;
            sleep(seconds(100)).await;
            end.store(true, SeqCst);
            ReconcileResult::Ok(Action::AwaitChange)
        }
    };
    let run = run_controller(queue.clone(), RunOptions::default(), reconcile, pending());
    assert!(timeout(seconds(1), run).await.is_err());
    assert!(timeout(seconds(1), receiver).await.unwrap().is_err());
    assert!(!finished.load(SeqCst));
    assert_eq!(queue.metrics().processing, 0);
}

/// Retries keep the priority of the item: many failures from the initial list do not delay changes.
#[tokio::test(start_paused = true)]
async fn cr14_a_retry_keeps_the_priority() {
    let again = Action::RequeueAfter(Duration::from_millis(10));
    for outcome in [Err("no"), Ok(again)] {
        let queue = WorkQueue::new();
        let options = AddOptions {
            priority: Priority::LOW,
            ..AddOptions::default()
        };
        queue.add_with("x", options);
        let reconcile = move |_| async move { outcome };
        let run = run_controller(queue.clone(), RunOptions::default(), reconcile, pending());
        assert!(timeout(Duration::from_millis(14), run).await.is_err());
        let lease = queue.get().await.unwrap();
        assert_eq!(lease.priority(), Priority::LOW, "{outcome:?}");
    }
}
