//! Leader election over a lease in memory.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use crate::lease::{Board, Manner, held_by, seconds, stand};
use tidings_informer::leader::{BadElection, ElectionEnd, ElectionOptions, LeaderElector};
use tokio::time::{Instant, sleep, timeout};

#[test]
fn cr70_b132_times_that_do_not_go_together_are_refused() {
    let board = Arc::default();
    let check = |identity, lease, renew, retry: f64| {
        let times = ElectionOptions::default().times(lease, renew, Duration::from_secs_f64(retry));
        LeaderElector::new(Arc::clone(&stand(identity, &board).lock), times).map(drop)
    };
    assert_eq!(check("a", seconds(15), seconds(10), 2.0), Ok(()));
    let message = |outcome: Result<(), BadElection>| outcome.unwrap_err().to_string();
    assert_eq!(
        message(check("a", seconds(10), seconds(10), 2.0)),
        "the lease duration (10s) must be greater than the renew deadline (10s)"
    );
    assert_eq!(
        message(check("a", seconds(15), seconds(6), 5.0)),
        "the renew deadline (6s) must be greater than 1.2 times the retry period (5s)"
    );
    assert_eq!(check("a", seconds(15), seconds(6), 4.9), Ok(()));
    assert_eq!(
        check("a", seconds(15), seconds(10), 0.0),
        Err(BadElection::RetryPeriodIsZero)
    );
    let uneven = Duration::from_millis(15_500);
    assert_eq!(
        check("a", uneven, seconds(10), 2.0),
        Err(BadElection::LeaseDurationIsNotInSeconds(uneven))
    );
    assert_eq!(
        check("", seconds(15), seconds(10), 2.0),
        Err(BadElection::NoIdentity)
    );
}

#[tokio::test(start_paused = true)]
async fn b132_a_free_lease_is_acquired_and_given_back() {
    let board = Arc::default();
    let a = stand("a", &board);
    let running = tokio::spawn(a.run(sleep(seconds(1))));
    sleep(Duration::from_millis(500)).await;
    let record = board.record();
    assert_eq!((record.holder.as_str(), record.transitions), ("a", 0));
    assert_eq!(record.lease_duration_seconds, 15);
    assert_eq!(running.await.unwrap(), ElectionEnd::Stopped);
    assert_eq!(board.calls(), ["a get", "a create", "a update"]);
    // The work ends before the lease is released, and `on_stopped_leading` comes last.
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
    let record = board.record();
    assert_eq!((record.holder.as_str(), record.transitions), ("", 0));
    assert_eq!(record.lease_duration_seconds, 1);
}

#[tokio::test(start_paused = true)]
async fn b132_a_leader_renews_without_looking() {
    let board = Arc::default();
    let a = stand("a", &board);
    let running = a.spawn();
    sleep(Duration::from_millis(1)).await;
    let acquired = board.record();
    board.clear_calls();
    sleep(seconds(60)).await;
    assert_eq!(board.calls(), vec!["a update"; 30]);
    assert!(board.gaps("a update").iter().all(|gap| *gap == seconds(2)));
    let record = board.record();
    assert_eq!(record.acquire_time, acquired.acquire_time);
    assert!(record.renew_time > acquired.renew_time);
    assert_eq!(record.transitions, 0);
    assert_eq!(a.diary.words(), ["new a", "started"]);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn b132_a_leader_looks_when_its_version_is_old() {
    let board: Arc<Board> = Arc::default();
    let a = stand("a", &board);
    let running = a.spawn();
    sleep(seconds(1)).await;
    let acquired = board.record();
    board.clear_calls();
    board.touch();
    sleep(seconds(2)).await;
    assert_eq!(board.calls(), ["a update", "a get", "a update"]);
    let record = board.record();
    assert_eq!(record.acquire_time, acquired.acquire_time);
    assert_eq!(record.transitions, 0);
    // A deleted lease is created again.
    board.clear_calls();
    *board.lease.lock().unwrap() = None;
    sleep(seconds(2)).await;
    assert_eq!(board.calls(), ["a update", "a get", "a create"]);
    assert_eq!(a.diary.words(), ["new a", "started"]);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn b132_an_expired_lease_is_taken_over_and_counted() {
    let board: Arc<Board> = Arc::default();
    board.put(held_by("b", 1));
    let a = stand("a", &board);
    let running = a.spawn();
    // The times in the lease do not count: its age counts from when this candidate first saw it.
    sleep(Duration::from_millis(14_900)).await;
    assert_eq!(a.diary.words(), ["new b"]);
    // A changed label is not a renewal.
    board.touch();
    sleep(Duration::from_millis(4_600)).await;
    assert_eq!(a.diary.words(), ["new b", "new a", "started"]);
    let record = board.record();
    assert_eq!((record.holder.as_str(), record.transitions), ("a", 5));
    assert!(record.acquire_time > SystemTime::UNIX_EPOCH);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn b132_a_lease_that_is_renewed_is_left_alone() {
    let board: Arc<Board> = Arc::default();
    let a = stand("a", &board);
    board.put(held_by("b", 0));
    let running = a.spawn();
    for renewals in 1..20 {
        sleep(seconds(14)).await;
        board.put(held_by("b", renewals));
    }
    assert_eq!(a.diary.words(), ["new b"]);
    assert!(board.calls().iter().all(|call| call == "a get"));
    // A candidate that waits reads the lease at random times.
    let gaps = board.gaps("a get");
    let within = |gap: &Duration| (seconds(2)..Duration::from_millis(4_401)).contains(gap);
    assert!(gaps.iter().all(within), "{gaps:?}");
    assert!(gaps.iter().any(|gap| *gap > seconds(3)), "{gaps:?}");
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn b132_its_own_lease_is_taken_up_again_at_once() {
    let board: Arc<Board> = Arc::default();
    board.put(held_by("a", 1));
    let a = stand("a", &board);
    let running = a.spawn();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(a.diary.words(), ["new a", "started"]);
    let record = board.record();
    assert_eq!(record.transitions, 4);
    assert_eq!(record.acquire_time, SystemTime::UNIX_EPOCH);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn b132_a_lease_that_nobody_holds_is_taken_at_once() {
    let board: Arc<Board> = Arc::default();
    board.put(held_by("", 1));
    let a = stand("a", &board);
    let running = a.spawn();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(a.diary.words(), ["new a", "started"]);
    assert_eq!(board.record().transitions, 5);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn b132_a_lease_that_was_given_back_is_taken_within_a_try() {
    let board = Arc::default();
    let (a, b) = (stand("a", &board), stand("b", &board));
    let first = tokio::spawn(a.run(sleep(seconds(30))));
    sleep(seconds(1)).await;
    let second = b.spawn();
    assert_eq!(first.await.unwrap(), ElectionEnd::Stopped);
    assert!(!b.leads());
    sleep(Duration::from_millis(4_400)).await;
    assert_eq!(b.diary.words(), ["new a", "new b", "started"]);
    let record = board.record();
    assert_eq!((record.holder.as_str(), record.transitions), ("b", 1));
    second.abort();
}

#[tokio::test(start_paused = true)]
async fn b132_giving_back_is_tried_again_after_a_conflict() {
    let board: Arc<Board> = Arc::default();
    let a = stand("a", &board);
    let running = tokio::spawn(a.run(sleep(seconds(1))));
    sleep(Duration::from_millis(500)).await;
    board.touch();
    board.clear_calls();
    running.await.unwrap();
    assert_eq!(board.calls(), ["a update", "a get", "a update"]);
    assert_eq!(board.record().holder, "");
}

#[tokio::test(start_paused = true)]
async fn b132_what_is_anothers_is_not_given_back() {
    let board: Arc<Board> = Arc::default();
    let a = stand("a", &board);
    let running = tokio::spawn(a.run(sleep(seconds(1))));
    sleep(Duration::from_millis(500)).await;
    board.put(held_by("b", 1));
    board.clear_calls();
    assert_eq!(running.await.unwrap(), ElectionEnd::Stopped);
    assert_eq!(board.calls(), ["a update", "a get"]);
    assert_eq!(board.record(), held_by("b", 1));
    let words = a.diary.words();
    assert_eq!(words.last().unwrap(), "stopped, held by b");
}

#[tokio::test(start_paused = true)]
async fn b132_giving_back_may_be_declined_and_does_not_last_for_ever() {
    let board: Arc<Board> = Arc::default();
    let mut a = stand("a", &board);
    a.options = a.options.release(false);
    a.run(sleep(seconds(1))).await;
    assert_eq!(board.record().holder, "a");

    let a = stand("a", &board);
    let running = tokio::spawn(a.run(sleep(seconds(1))));
    sleep(Duration::from_millis(500)).await;
    a.lock.hangs.store(true, Ordering::SeqCst);
    let start = Instant::now();
    assert_eq!(running.await.unwrap(), ElectionEnd::Stopped);
    assert_eq!(start.elapsed(), Duration::from_millis(10_500));
}

#[tokio::test(start_paused = true)]
async fn b132_a_leader_that_cannot_renew_stops_before_another_may_begin() {
    for hangs in [false, true] {
        let board = Arc::default();
        let (a, b) = (stand("a", &board), stand("b", &board));
        let first = a.spawn();
        sleep(seconds(1)).await;
        let second = b.spawn();
        // The last renewal is at second 4.
        sleep(seconds(4)).await;
        a.lock.down.store(true, Ordering::SeqCst);
        a.lock.hangs.store(hangs, Ordering::SeqCst);
        sleep(Duration::from_millis(8_999)).await;
        assert!(a.leads(), "hangs: {hangs}");
        sleep(Duration::from_millis(2)).await;
        assert!(!a.leads(), "hangs: {hangs}");
        assert_eq!(first.await.unwrap(), ElectionEnd::Lost);
        assert_eq!(
            a.diary.words(),
            [
                "new a",
                "started",
                "asked",
                "work ended",
                "stopped, held by a"
            ]
        );
        assert!(!b.leads());
        sleep(seconds(11)).await;
        assert_eq!(b.diary.words(), ["new a", "new b", "started"]);
        assert_eq!(board.record().transitions, 1);
        second.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn b132_a_short_failure_costs_nothing() {
    let board = Arc::default();
    let a = stand("a", &board);
    let running = a.spawn();
    sleep(seconds(1)).await;
    a.lock.down.store(true, Ordering::SeqCst);
    sleep(seconds(6)).await;
    a.lock.down.store(false, Ordering::SeqCst);
    sleep(seconds(60)).await;
    assert_eq!(a.diary.words(), ["new a", "started"]);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn b132_a_leader_that_finds_another_stops_at_once() {
    let board: Arc<Board> = Arc::default();
    let a = stand("a", &board);
    let running = a.spawn();
    sleep(seconds(1)).await;
    board.put(held_by("b", 1));
    sleep(Duration::from_millis(1_001)).await;
    assert_eq!(
        a.diary.words(),
        [
            "new a",
            "started",
            "new b",
            "work ended",
            "stopped, held by b"
        ]
    );
    assert_eq!(running.await.unwrap(), ElectionEnd::Lost);
    assert_eq!(board.record(), held_by("b", 1));
}

#[tokio::test(start_paused = true)]
async fn b132_being_told_to_stop_is_certain() {
    // A candidate that never led.
    let board: Arc<Board> = Arc::default();
    board.put(held_by("b", 1));
    let a = stand("a", &board);
    assert_eq!(a.run(sleep(seconds(3))).await, ElectionEnd::Stopped);
    assert_eq!(a.diary.words(), ["new b", "stopped, held by b"]);
    assert_eq!(board.record(), held_by("b", 1));

    // A leader whose future is dropped.
    let board = Arc::default();
    let a = stand("a", &board);
    let _ = timeout(seconds(1), a.run(pending())).await;
    sleep(Duration::from_millis(1)).await;
    let mut words = a.diary.words();
    words.sort();
    assert_eq!(
        words,
        ["new a", "started", "stopped, held by a", "work ended"]
    );
}

#[tokio::test(start_paused = true)]
async fn b132_work_that_panics_does_not_keep_the_lead() {
    let board: Arc<Board> = Arc::default();
    let mut a = stand("a", &board);
    a.manner = Manner::Panics(seconds(3));
    let ended = a.spawn().await;
    assert!(ended.unwrap_err().is_panic());
    assert_eq!(
        a.diary.words(),
        ["new a", "started", "work ended", "stopped, held by nobody"]
    );
}

#[tokio::test(start_paused = true)]
async fn b132_of_many_one_leads_at_any_time() {
    let board = Arc::default();
    let mut stands = Vec::new();
    for (seed, identity) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        let mut candidate = stand(identity, &board);
        candidate.options = candidate.options.seed(seed as u64);
        candidate.manner = Manner::Stays;
        stands.push((candidate.spawn(), candidate));
    }
    let mut leaders = Vec::new();
    for step in 0..2000_u64 {
        sleep(Duration::from_millis(100)).await;
        let leading: Vec<_> = stands
            .iter()
            .filter(|(_, stand)| stand.leads())
            .map(|(_, stand)| stand.lock.identity)
            .collect();
        assert!(leading.len() <= 1, "{leading:?}");
        if let [leader] = leading[..] {
            if leaders.last() != Some(&leader) {
                leaders.push(leader);
            }
            // Sometimes the leader's connection breaks for good.
            if step % 400 == 399 {
                let (_, stand) = stands
                    .iter()
                    .find(|(_, stand)| stand.lock.identity == leader)
                    .unwrap();
                stand.lock.down.store(true, Ordering::SeqCst);
            }
        }
    }
    assert_eq!(leaders.len(), 5, "{leaders:?}");
    assert_eq!(board.record().transitions, 4);
}
