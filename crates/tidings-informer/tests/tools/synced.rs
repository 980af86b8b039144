//! Waiting for several checkers, trackers, lazy values, and the store that pushes its state.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use crate::script::{Act, Answer, Script, object};
use tidings_informer::synced::{DoneChecker, NeverDone, SyncResult, WaitCause, wait_for};
use tidings_informer::synctrack::{AsyncTracker, LazyValue, SingleFileTracker};
use tidings_informer::{
    BoxFuture, Decode, HandlerOptions, ResourceEventHandler, ServerVersion, SharedInformer,
    UndeltaStore,
};
use tokio::time::{Instant, sleep_until};

const MINUTE: Duration = Duration::from_secs(60);

/// A checker that is done at a set time, or never.
struct Timed {
    name: String,
    at: Instant,
    outcome: Result<(), NeverDone>,
}

fn after(name: &str, seconds: u64) -> Timed {
    Timed {
        name: name.to_owned(),
        at: Instant::now() + Duration::from_secs(seconds),
        outcome: Ok(()),
    }
}

fn never_after(name: &str, seconds: u64, why: &str) -> Timed {
    Timed {
        outcome: Err(NeverDone::new(why)),
        ..after(name, seconds)
    }
}

impl DoneChecker for Timed {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_done(&self) -> bool {
        self.outcome.is_ok() && Instant::now() >= self.at
    }

    fn done(&self) -> BoxFuture<'_, Result<(), NeverDone>> {
        Box::pin(async move {
            sleep_until(self.at).await;
            // Needs several polls to notice that it is done.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            self.outcome.clone()
        })
    }

    fn doing(&self) -> Option<String> {
        self.name.starts_with("busy").then(|| "busy".to_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn b105_an_empty_set_is_done() {
    let done = wait_for("nothing", &[], Duration::ZERO).await.unwrap();
    assert!(done.is_empty());
}

#[tokio::test(start_paused = true)]
async fn b105_the_order_of_completion_is_reported() {
    let start = Instant::now();
    let (a, b, c) = (after("a", 3), after("b", 1), after("c", 2));
    let done = wait_for("test", &[&a, &b, &c], MINUTE).await.unwrap();
    assert_eq!(done, ["b", "c", "a"]);
    assert_eq!(start.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn b105_a_timeout_lists_the_missing_sorted_with_the_cause() {
    let (z, done, busy) = (after("z", 99), after("done", 2), after("busy", 98));
    let stopped = never_after("stopped", 1, "it was refused");
    let error = wait_for("the test", &[&z, &stopped, &done, &busy], MINUTE)
        .await
        .unwrap_err();
    assert_eq!(error.done, ["done"]);
    assert_eq!(
        error.to_string(),
        "the test is waiting for busy (busy), stopped (it was refused), z"
    );
    assert!(matches!(error.cause, WaitCause::TimedOut(MINUTE)));
    assert_eq!(error.source().unwrap().to_string(), "timed out after 60s");
}

#[tokio::test(start_paused = true)]
async fn b105_what_is_done_already_counts_when_the_time_is_over() {
    // More than a task may do without yielding (tokio's coop budget).
    let trackers: Vec<_> = (0..500)
        .map(|n| SingleFileTracker::new(format!("t{n:03}")))
        .collect();
    for tracker in &trackers {
        tracker.upstream_has_synced();
    }
    let (now, late) = (after("now", 0), after("late", 1));
    let mut checkers: Vec<&dyn DoneChecker> = vec![&now];
    checkers.extend(trackers.iter().map(|tracker| tracker as &dyn DoneChecker));
    let done = wait_for("test", &checkers, Duration::ZERO).await.unwrap();
    assert_eq!(done.len(), 501);
    checkers.push(&late);
    let error = wait_for("test", &checkers, Duration::ZERO)
        .await
        .unwrap_err();
    assert_eq!((error.done.len(), error.missing.len()), (501, 1));
    assert_eq!(error.missing[0].name, "late");
}

#[tokio::test(start_paused = true)]
async fn b105_what_never_will_be_done_ends_it_when_the_others_are() {
    let start = Instant::now();
    let (never, late) = (never_after("never", 1, "it ended"), after("late", 5));
    let error = wait_for("test", &[&never, &late], MINUTE)
        .await
        .unwrap_err();
    assert_eq!(start.elapsed(), Duration::from_secs(5));
    assert_eq!(error.done, ["late"]);
    assert_eq!(
        error.source().unwrap().to_string(),
        "never will never be done"
    );
}

struct Quiet;

impl ResourceEventHandler<()> for Quiet {}

#[tokio::test(start_paused = true)]
async fn b105_informers_and_handlers_are_waited_for() {
    let script = Script::listing(
        vec![object("a", "1")],
        "2",
        [Answer::Stream(vec![Act::Hang])],
    );
    let informer = |script: &Arc<Script>, name: &str| {
        SharedInformer::builder(Arc::<Script>::clone(script), Decode::keys())
            .name(name.to_owned())
            .build()
    };
    let (pods, nodes) = (
        informer(&script, "pods"),
        informer(&Script::silent(), "nodes"),
    );
    let handler = pods
        .add_event_handler(Quiet, &HandlerOptions::default().name("quiet"))
        .unwrap();
    pods.start();
    nodes.start();
    let checkers: [&dyn DoneChecker; 3] = [&nodes, &handler, &pods];
    let error = wait_for("start", &checkers, MINUTE).await.unwrap_err();
    assert_eq!(error.done.len(), 2, "{error}");
    assert!(error.to_string().contains("nodes (listing"), "{error}");
    // A stopped informer will never be done, so the wait ends early.
    nodes.stop().await;
    let start = Instant::now();
    let error = wait_for("start", &checkers, MINUTE).await.unwrap_err();
    assert!(matches!(error.cause, WaitCause::Never { .. }), "{error}");
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn b106_the_error_names_the_missing_and_wraps_the_cause() {
    let (a, b, c) = (after("b", 90), after("a", 91), after("c", 1));
    let result = SyncResult::wait(&[&a, &b, &c], MINUTE).await;
    let synced: Vec<_> = result.synced.clone().into_iter().collect();
    let expected = [("a", false), ("b", false), ("c", true)];
    assert_eq!(synced, expected.map(|(name, done)| (name.to_owned(), done)));
    let error = result.as_error().unwrap_err();
    assert_eq!(error.to_string(), "failed to sync all caches: a, b");
    let cause = error.source().unwrap().downcast_ref::<WaitCause>();
    assert!(matches!(cause, Some(WaitCause::TimedOut(MINUTE))));
}

#[tokio::test(start_paused = true)]
async fn b106_no_error_if_all_have_synced() {
    let result = SyncResult::wait(&[&after("a", 1)], MINUTE).await;
    assert!(result.synced["a"]);
    result.as_error().unwrap();
}

#[test]
fn b108_single_file_tracker_truth_table() {
    // (upstream has synced, started, finished) -> has synced
    let table = [
        ((false, 0, 0), false),
        ((true, 0, 0), true),
        ((false, 1, 0), false),
        ((true, 1, 0), false),
        ((false, 1, 1), false),
        ((true, 1, 1), true),
        ((true, 3, 2), false),
        ((true, 3, 3), true),
    ];
    for ((upstream, started, finished), expected) in table {
        for upstream_first in [false, true] {
            let tracker = SingleFileTracker::new("test");
            for _ in 0..started {
                tracker.start();
            }
            if upstream && upstream_first {
                tracker.upstream_has_synced();
            }
            for _ in 0..finished {
                tracker.finished();
            }
            if upstream && !upstream_first {
                tracker.upstream_has_synced();
            }
            let row = (upstream, started, finished);
            assert_eq!(tracker.has_synced(), expected, "{row:?}");
        }
    }
}

#[test]
fn b108_trackers_stay_synced() {
    let single = SingleFileTracker::new("test");
    single.upstream_has_synced();
    single.start();
    assert!(single.has_synced());
    let many = AsyncTracker::new("test");
    many.upstream_has_synced();
    many.start("a");
    assert!(many.has_synced());
}

#[test]
fn b108_a_negative_count_panics() {
    let tracker = SingleFileTracker::new("test");
    tracker.start();
    tracker.finished();
    assert!(catch_unwind(AssertUnwindSafe(|| tracker.finished())).is_err());
}

#[tokio::test(start_paused = true)]
async fn b108_async_tracker_truth_table() {
    // (upstream has synced, started, finished) -> has synced
    type Row = (
        (bool, &'static [&'static str], &'static [&'static str]),
        bool,
    );
    let table: [Row; 7] = [
        ((false, &[], &[]), false),
        ((true, &[], &[]), true),
        ((true, &["a"], &[]), false),
        ((true, &["a", "b"], &["b"]), false),
        ((true, &["a", "b"], &["b", "a"]), true),
        ((true, &["a", "a"], &["a"]), true),
        ((true, &["a"], &["x", "x"]), false),
    ];
    for ((upstream, started, finished), expected) in table {
        for upstream_first in [false, true] {
            let tracker = AsyncTracker::new("test");
            started.iter().for_each(|key| tracker.start(*key));
            if upstream && upstream_first {
                tracker.upstream_has_synced();
            }
            finished.iter().for_each(|key| tracker.finished(key));
            if upstream && !upstream_first {
                tracker.upstream_has_synced();
            }
            assert_eq!(tracker.has_synced(), expected, "{started:?} {finished:?}");
            let waited = wait_for("test", &[&tracker], Duration::from_secs(1)).await;
            assert_eq!(waited.is_ok(), expected);
        }
    }
}

#[test]
fn b108_lazy_evaluates_once_per_notification() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let lazy: LazyValue<usize, ()> =
        LazyValue::new(move || Ok(counted.fetch_add(1, Ordering::SeqCst)));
    assert_eq!(count.load(Ordering::SeqCst), 0);
    assert_eq!([*lazy.get().unwrap(), *lazy.get().unwrap()], [0, 0]);
    lazy.notify();
    lazy.notify();
    assert_eq!([*lazy.get().unwrap(), *lazy.get().unwrap()], [1, 1]);
}

#[test]
fn b108_lazy_does_not_keep_errors() {
    let count = AtomicUsize::new(0);
    let lazy: LazyValue<usize, usize> =
        LazyValue::new(move || match count.fetch_add(1, Ordering::SeqCst) {
            failed @ 0..2 => Err(failed),
            worked => Ok(worked),
        });
    assert_eq!(lazy.get(), Err(0));
    assert_eq!(lazy.get(), Err(1));
    assert_eq!(lazy.get(), Ok(Arc::new(2)));
    assert_eq!(lazy.get(), Ok(Arc::new(2)));
}

#[test]
fn b108_concurrent_gets_share_one_evaluation() {
    const THREADS: usize = 8;
    let count = AtomicUsize::new(0);
    let barrier = Barrier::new(THREADS);
    let lazy: LazyValue<usize, ()> = LazyValue::new(move || {
        // Long enough for the others to ask.
        for _ in 0..1000 {
            std::thread::yield_now();
        }
        Ok(count.fetch_add(1, Ordering::SeqCst))
    });
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                barrier.wait();
                assert_eq!(*lazy.get().unwrap(), 0);
            });
        }
    });
}

#[test]
fn b108_lazy_notified_while_it_works_does_not_keep_the_old_value() {
    let count = AtomicUsize::new(0);
    let (inside, go_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let gates = (Arc::clone(&inside), Arc::clone(&go_on));
    let lazy: LazyValue<usize, ()> = LazyValue::new(move || {
        let value = count.fetch_add(1, Ordering::SeqCst);
        if value == 0 {
            gates.0.wait();
            gates.1.wait();
        }
        Ok(value)
    });
    std::thread::scope(|scope| {
        let first = scope.spawn(|| *lazy.get().unwrap());
        inside.wait();
        lazy.notify();
        // A call after `notify` does not wait for the outdated value.
        assert_eq!(*lazy.get().unwrap(), 1);
        go_on.wait();
        assert_eq!(first.join().unwrap(), 0);
    });
    assert_eq!(*lazy.get().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn b16_one_push_for_each_write_and_none_for_a_read() {
    let objects = vec![object("a", "1"), object("b", "2"), object("c", "3")];
    let source = Script::listing(objects, "3", []);
    let informer = SharedInformer::builder(source, Decode::keys()).start();
    informer.wait_synced().await.unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| informer.store().get("default", name).unwrap());

    let pushes: Arc<Mutex<Vec<String>>> = Arc::default();
    let pushed = Arc::clone(&pushes);
    let store = UndeltaStore::<()>::new(move |state| {
        let names: Vec<&str> = state.iter().map(|object| object.name()).collect();
        pushed.lock().unwrap().push(names.join(" "));
    });
    store.put(Arc::clone(&a));
    store.put(Arc::clone(&b));
    store.put(Arc::clone(&b));
    store.delete(a.key());
    store.delete(a.key());
    store.replace([Arc::clone(&a), c], &ServerVersion::new("9"));
    store.replace([], &ServerVersion::new("10"));
    let expected = ["a", "a b", "a b", "b", "b", "a c", ""];
    assert_eq!(*pushes.lock().unwrap(), expected);

    store.put(a);
    let before = pushes.lock().unwrap().len();
    assert_eq!(store.len(), 1);
    assert!(store.get("default", "a").is_some() && store.get_by_key("default/x").is_none());
    assert_eq!((store.list().len(), store.list_keys().len()), (1, 1));
    assert_eq!(store.snapshot().len(), 1);
    assert_eq!(pushes.lock().unwrap().len(), before);
}
