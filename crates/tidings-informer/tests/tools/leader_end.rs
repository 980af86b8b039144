//! How the leader's work ends, and what happens after that.

use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::lease::{Board, Manner, held_by, seconds, stand};
use tidings_informer::leader::{ElectionEnd, ElectionOptions, LeaderElector, StopSignal};
use tidings_informer::{Action, RunOptions, WorkQueue, run_controller};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[tokio::test(start_paused = true)]
async fn b132_work_ends_in_its_own_time_before_the_lease_is_given_back() {
    let board = Arc::default();
    let (mut a, b) = (stand("a", &board), stand("b", &board));
    a.manner = Manner::Ends(seconds(25));
    let first = tokio::spawn(a.run(sleep(seconds(5))));
    sleep(seconds(1)).await;
    let second = b.spawn();
    // Longer than the lease duration: without renewals another candidate would hold the lease by now.
    sleep(millis(28_900)).await;
    assert!(a.leads() && !b.leads());
    assert_eq!(board.record().holder, "a");
    assert!(board.gaps("a update").iter().all(|gap| *gap <= seconds(2)));
    sleep(millis(101)).await;
    assert_eq!(first.await.unwrap(), ElectionEnd::Stopped);
    assert_eq!(
        a.diary.words(),
        [
            "new a",
            "started",
            "asked",
            "work ended",
            "stopped, held by nobody"
        ]
    );
    sleep(millis(4_400)).await;
    assert!(b.leads());
    second.abort();
}

#[tokio::test(start_paused = true)]
async fn b132_a_controller_finishes_its_reconcile_before_another_leads() {
    let board: Arc<Board> = Arc::default();
    let a = stand("a", &board);
    let elector = LeaderElector::new(Arc::clone(&a.lock), a.options.clone()).unwrap();
    let (sender, summary) = oneshot::channel();
    let mut sender = Some(sender);
    let seen = Arc::clone(&board);
    let work = move |stop: StopSignal| {
        let (sender, board) = (sender.take().unwrap(), Arc::clone(&seen));
        async move {
            let queue = WorkQueue::new();
            queue.add("key");
            let reconcile = move |_: &'static str| {
                let board = Arc::clone(&board);
                async move {
                    sleep(seconds(4)).await;
                    assert_eq!(board.record().holder, "a");
                    Ok::<_, std::fmt::Error>(Action::AwaitChange)
                }
            };
            let options = RunOptions::default();
            let summary = run_controller(queue, options, reconcile, stop.wait()).await;
            sender.send(summary).unwrap();
        }
    };
    let start = Instant::now();
    let end = elector.run(work, sleep(seconds(1))).await;
    assert_eq!(end, ElectionEnd::Stopped);
    assert_eq!(start.elapsed(), seconds(4));
    let summary = summary.await.unwrap();
    assert_eq!((summary.reconciles, summary.abandoned), (1, 0));
    assert_eq!((summary.errors, summary.panics), (0, 0));
    assert_eq!(board.record().holder, "");
}

#[tokio::test(start_paused = true)]
async fn b132_work_that_does_not_end_when_asked_is_dropped() {
    for drain in [seconds(20), Duration::ZERO] {
        let board = Arc::default();
        let mut a = stand("a", &board);
        a.manner = Manner::Stays;
        a.options = a.options.drain(drain);
        let start = Instant::now();
        assert_eq!(a.run(sleep(seconds(1))).await, ElectionEnd::Stopped);
        assert_eq!(start.elapsed(), seconds(1) + drain);
        let words = a.diary.words();
        assert!(
            words.ends_with(&["work ended".into(), "stopped, held by nobody".into()]),
            "{words:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn b132_work_that_ignores_a_lost_lead_is_dropped_before_another_may_begin() {
    for hangs in [false, true] {
        let board = Arc::default();
        let (mut a, b) = (stand("a", &board), stand("b", &board));
        a.manner = Manner::Stays;
        let start = Instant::now();
        let first = a.spawn();
        sleep(seconds(1)).await;
        let second = b.spawn();
        // The last renewal is at second 4: the lead is lost at 14, and the lease expires at 19.
        sleep(seconds(4)).await;
        a.lock.down.store(true, Ordering::SeqCst);
        a.lock.hangs.store(hangs, Ordering::SeqCst);
        sleep_until(start + millis(13_999)).await;
        assert_eq!(a.diary.words(), ["new a", "started"], "hangs: {hangs}");
        sleep_until(start + millis(14_001)).await;
        assert_eq!(a.diary.words(), ["new a", "started", "asked"]);
        sleep_until(start + millis(17_999)).await;
        assert!(a.leads(), "hangs: {hangs}");
        sleep_until(start + millis(18_001)).await;
        assert!(!a.leads() && !b.leads(), "hangs: {hangs}");
        assert_eq!(first.await.unwrap(), ElectionEnd::Lost);
        sleep(seconds(7)).await;
        assert!(b.leads());
        second.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn b132_work_has_what_is_left_of_a_lost_lease() {
    let board: Arc<Board> = Arc::default();
    let mut a = stand("a", &board);
    a.manner = Manner::Ends(seconds(3));
    let start = Instant::now();
    let running = a.spawn();
    sleep(seconds(1)).await;
    a.lock.down.store(true, Ordering::SeqCst);
    assert_eq!(running.await.unwrap(), ElectionEnd::Lost);
    // Ten seconds without a renewal, and three for the work to end.
    assert_eq!(start.elapsed(), seconds(13));

    // If another candidate holds the lease, the work has no time left.
    let board: Arc<Board> = Arc::default();
    let mut a = stand("a", &board);
    a.manner = Manner::Ends(seconds(3));
    let start = Instant::now();
    let running = a.spawn();
    sleep(seconds(1)).await;
    board.put(held_by("b", 1));
    assert_eq!(running.await.unwrap(), ElectionEnd::Lost);
    assert_eq!(start.elapsed(), seconds(2));
}

#[tokio::test(start_paused = true)]
async fn b132_a_renewal_without_an_answer_gives_the_work_no_more_time() {
    let board = Arc::default();
    let (mut a, b) = (stand("a", &board), stand("b", &board));
    a.manner = Manner::Stays;
    let start = Instant::now();
    let first = a.spawn();
    let second = b.spawn();
    sleep(seconds(5)).await;
    // The last answered renewal is that of second 4. The renewal of second 6 was done, but its answer is lost; a read at 11 shows
    // it. Other candidates count from 6. Counted from 11, the lease would seem valid until 26.
    a.lock.loses_answer.store(true, Ordering::SeqCst);
    sleep_until(start + millis(14_001)).await;
    assert_eq!(a.diary.words(), ["new a", "started", "asked"]);
    sleep_until(start + millis(18_001)).await;
    assert!(!a.leads());
    assert_eq!(first.await.unwrap(), ElectionEnd::Lost);
    assert!(!b.leads());
    second.abort();
}

#[tokio::test(start_paused = true)]
async fn b132_a_lead_that_is_lost_while_the_work_ends_is_not_given_back() {
    let board: Arc<Board> = Arc::default();
    let mut a = stand("a", &board);
    a.manner = Manner::Stays;
    let start = Instant::now();
    let running = tokio::spawn(a.run(sleep(seconds(5))));
    sleep(seconds(6)).await;
    board.put(held_by("b", 1));
    // It was asked to stop, so it must not run another term.
    assert_eq!(running.await.unwrap(), ElectionEnd::Stopped);
    assert_eq!(start.elapsed(), seconds(6));
    assert_eq!(board.record(), held_by("b", 1));
    let words = a.diary.words();
    assert_eq!(words.last().unwrap(), "stopped, held by b");
}

#[tokio::test(start_paused = true)]
async fn b132_a_leader_whose_work_has_ended_leads_on() {
    let board: Arc<Board> = Arc::default();
    let mut a = stand("a", &board);
    a.manner = Manner::EndsItself(seconds(3));
    let start = Instant::now();
    let running = tokio::spawn(a.run(sleep(seconds(60))));
    sleep(seconds(59)).await;
    assert_eq!(a.diary.words(), ["new a", "started", "work ended"]);
    assert_eq!(board.record().holder, "a");
    assert!(board.gaps("a update").iter().all(|gap| *gap == seconds(2)));
    assert_eq!(running.await.unwrap(), ElectionEnd::Stopped);
    assert_eq!(start.elapsed(), seconds(60));
    assert_eq!(board.record().holder, "");
}

#[tokio::test(start_paused = true)]
async fn b132_who_lost_the_lead_stands_again_until_stopped() {
    let board: Arc<Board> = Arc::default();
    let a = stand("a", &board);
    let running = tokio::spawn(a.run_until_stopped(sleep(seconds(60))));
    sleep(seconds(1)).await;
    board.put(held_by("b", 1));
    sleep(seconds(30)).await;
    running.await.unwrap();
    assert_eq!(
        a.diary.words(),
        [
            "new a",
            "started",
            "new b",
            "work ended",
            "stopped, held by b",
            "new b",
            "new a",
            "started",
            "asked",
            "work ended",
            "stopped, held by nobody"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn cr68_b132_who_waits_for_another_term_stops_at_once() {
    let board: Arc<Board> = Arc::default();
    let a = stand("a", &board);
    let start = Instant::now();
    let running = tokio::spawn(a.run_until_stopped(sleep(seconds(5))));
    sleep(seconds(1)).await;
    board.put(held_by("b", 1));
    running.await.unwrap();
    assert_eq!(start.elapsed(), seconds(5));
    assert_eq!(board.record(), held_by("b", 1));
}

#[tokio::test(start_paused = true)]
async fn b132_the_signal_is_raised_when_the_election_is_dropped() {
    let board = Arc::default();
    let a = stand("a", &board);
    let elector = LeaderElector::new(Arc::clone(&a.lock), a.options.clone()).unwrap();
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    let work = move |stop: StopSignal| {
        *keep.lock().unwrap() = Some(stop);
        pending()
    };
    let _ = timeout(seconds(1), elector.run(work, pending())).await;
    let signal = kept.lock().unwrap().take().unwrap();
    signal.wait().await;
    assert!(signal.is_raised());
}

/// Without paused time: the work blocks a thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b132_no_term_begins_while_work_of_the_last_goes_on() {
    let board: Arc<Board> = Arc::default();
    let a = stand("a", &board);
    let times = ElectionOptions::default().times(seconds(1), millis(500), millis(50));
    let elector = LeaderElector::new(Arc::clone(&a.lock), times).unwrap();
    let (release, released) = mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let (at_work, terms) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let work = {
        let (at_work, terms) = (Arc::clone(&at_work), Arc::clone(&terms));
        move |stop: StopSignal| {
            let (at_work, terms) = (Arc::clone(&at_work), Arc::clone(&terms));
            let released = Arc::clone(&released);
            async move {
                assert_eq!(at_work.fetch_add(1, Ordering::SeqCst), 0);
                if terms.fetch_add(1, Ordering::SeqCst) == 0 {
                    let _ = released.lock().unwrap().recv();
                }
                at_work.fetch_sub(1, Ordering::SeqCst);
                stop.wait().await;
            }
        }
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(elector.run_until_stopped(work, async { drop(stopped.await) }));
    let term = async |wanted| {
        while terms.load(Ordering::SeqCst) < wanted {
            sleep(millis(5)).await;
        }
    };
    term(1).await;
    // The lead is lost and the lease expires: the next term could acquire it at once.
    board.put(held_by("b", 1));
    sleep(millis(2_500)).await;
    board.put(held_by("", 2));
    assert!(timeout(millis(500), term(2)).await.is_err());
    release.send(()).unwrap();
    timeout(seconds(10), term(2)).await.unwrap();
    stop.send(()).unwrap();
    running.await.unwrap();
}
