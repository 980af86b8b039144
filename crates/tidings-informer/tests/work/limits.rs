//! Rate limiters, the token bucket and backoff by id.

use std::time::Duration;

use tidings_informer::workqueue::{
    Backoff, ItemExponential, ItemFastSlow, MaxOf, RateLimiter, TokenBucket, WaitError,
    WithMaxWait, default_limiter,
};
use tokio::time::{Instant, timeout};

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn cr64_b116_item_exponential_doubles_by_item_and_forget_resets() {
    let now = Instant::now();
    let mut limiter = ItemExponential::new(millis(1), seconds(1));
    for expected in [1, 2, 4, 8, 16] {
        assert_eq!(limiter.when(&"one", now), millis(expected));
    }
    assert_eq!(limiter.when(&"two", now), millis(1));
    assert_eq!(limiter.num_requeues(&"one", now), 5);
    limiter.forget(&"one", now);
    assert_eq!(limiter.num_requeues(&"one", now), 0);
    assert_eq!(limiter.when(&"one", now), millis(1));
    assert_eq!(limiter.when(&"two", now), millis(2));
}

#[test]
fn b116_item_exponential_keeps_its_cap_and_does_not_overflow() {
    let now = Instant::now();
    let mut capped = ItemExponential::new(millis(1), seconds(1000));
    let mut last = Duration::ZERO;
    for _ in 0..5000 {
        let wait = capped.when(&1, now);
        assert!(wait >= last && wait <= seconds(1000));
        last = wait;
    }
    assert_eq!(last, seconds(1000));
    let mut endless = ItemExponential::new(seconds(u64::MAX), Duration::MAX);
    endless.when(&1, now);
    assert_eq!(endless.when(&1, now), Duration::MAX);
    let mut none = ItemExponential::new(Duration::ZERO, seconds(1));
    assert!((0..100).all(|_| none.when(&1, now) == Duration::ZERO));
}

#[test]
fn b117_fast_slow_switches_after_its_attempts() {
    let now = Instant::now();
    let mut limiter = ItemFastSlow::new(millis(5), seconds(10), 3);
    for _ in 0..3 {
        assert_eq!(limiter.when(&1, now), millis(5));
    }
    assert_eq!(limiter.when(&1, now), seconds(10));
    assert_eq!(limiter.when(&1, now), seconds(10));
    assert_eq!(limiter.when(&2, now), millis(5));
    assert_eq!(limiter.num_requeues(&1, now), 5);
    limiter.forget(&1, now);
    assert_eq!(limiter.when(&1, now), millis(5));
}

#[test]
fn b117_max_of_takes_the_longest_and_tells_every_limiter() {
    let now = Instant::now();
    let mut limiter = MaxOf::new(vec![
        Box::new(ItemExponential::new(millis(1), seconds(1))),
        Box::new(ItemFastSlow::new(millis(5), seconds(3), 3)),
    ]);
    let waits: Vec<Duration> = (0..5).map(|_| limiter.when(&1, now)).collect();
    assert_eq!(
        waits,
        [millis(5), millis(5), millis(5), seconds(3), seconds(3)]
    );
    assert_eq!(limiter.num_requeues(&1, now), 5);
    limiter.forget(&1, now);
    assert_eq!(limiter.num_requeues(&1, now), 0);
    assert_eq!(limiter.when(&1, now), millis(5));
}

#[test]
fn b117_max_wait_caps() {
    let now = Instant::now();
    let mut limiter = WithMaxWait::new(
        ItemExponential::new(millis(100), seconds(1000)),
        millis(300),
    );
    let waits: Vec<Duration> = (0..4).map(|_| limiter.when(&1, now)).collect();
    assert_eq!(waits, [millis(100), millis(200), millis(300), millis(300)]);
    assert_eq!(limiter.num_requeues(&1, now), 4);
    limiter.forget(&1, now);
    assert_eq!(limiter.when(&1, now), millis(100));
}

#[test]
fn the_default_limiter_backs_off_by_item_and_a_global_one_is_asked_for() {
    let now = Instant::now();
    let mut limiter = default_limiter();
    assert_eq!(limiter.when(&0, now), millis(5));
    assert_eq!(limiter.when(&0, now), millis(10));
    for item in 1..10_000 {
        assert_eq!(limiter.when(&item, now), millis(5));
    }
    let both: Vec<Box<dyn RateLimiter<i32>>> = vec![
        Box::new(default_limiter()),
        Box::new(TokenBucket::new(10.0, 100)),
    ];
    let mut limiter = MaxOf::new(both);
    for item in 0..100 {
        assert_eq!(limiter.when(&item, now), millis(5));
    }
    // The burst of a hundred is used up: from here on one in 100 ms.
    assert_eq!(limiter.when(&1000, now), millis(100));
    assert_eq!(limiter.when(&1001, now), millis(200));
}

#[test]
fn d26_failures_that_nobody_forgets_expire() {
    let start = Instant::now();
    let mut limiter = ItemExponential::new(millis(5), seconds(1000));
    for item in 0..10_000 {
        limiter.when(&item, start);
        limiter.when(&item, start);
    }
    assert_eq!(limiter.tracked(), 10_000);
    // The failure counts until twice the maximum has passed. After that the item starts over even if it was not swept.
    assert_eq!(limiter.when(&9_999, start + seconds(2000)), millis(20));
    assert_eq!(limiter.tracked(), 10_000);
    let later = start + seconds(2001);
    assert_eq!(limiter.num_requeues(&5_000, later), 0);
    assert_eq!(limiter.when(&5_000, later), millis(5));
    // Successes of other items remove expired items, a few at a time.
    let before = limiter.tracked();
    limiter.forget(&77_777, later);
    assert!((1..=8).contains(&(before - limiter.tracked())));
    for _ in 0..3000 {
        limiter.forget(&77_777, later);
    }
    assert_eq!(limiter.tracked(), 2, "the two that failed of late");
}

#[test]
fn d26_the_map_holds_no_more_than_the_failures_of_one_expiry() {
    let start = Instant::now();
    let mut fast = ItemFastSlow::new(millis(1), millis(2), 3);
    let mut slow = ItemExponential::new(millis(1), millis(2)).with_expiry(seconds(10));
    for number in 0..100_000_u64 {
        let now = start + millis(number * 100);
        fast.when(&number, now);
        slow.when(&number, now);
        assert!(fast.tracked() <= 3002, "five minutes at ten a second");
        assert!(slow.tracked() <= 102);
    }
}

#[test]
fn d26_a_small_maximum_does_not_forget_an_item_while_a_slow_worker_has_it() {
    let start = Instant::now();
    let mut limiter = ItemExponential::new(millis(1), millis(4));
    let waits: Vec<Duration> = (0..4)
        .map(|turn| limiter.when(&1, start + seconds(turn * 60)))
        .collect();
    assert_eq!(waits, [millis(1), millis(2), millis(4), millis(4)]);
}

#[test]
fn b119_backoff_doubles_and_caps_by_id() {
    let mut now = Instant::now();
    let mut backoff = Backoff::new(seconds(1), seconds(10));
    assert_eq!(backoff.get(&"id"), Duration::ZERO);
    for expected in [1, 2, 4, 8, 10, 10] {
        backoff.next("id", now, now);
        assert_eq!(backoff.get(&"id"), seconds(expected));
        now += seconds(expected);
    }
    backoff.next("other", now, now);
    assert_eq!(backoff.get(&"other"), seconds(1));
    backoff.reset(&"id");
    assert_eq!(backoff.get(&"id"), Duration::ZERO);
    assert_eq!(backoff.len(), 1);
}

#[test]
fn b119_backoff_starts_anew_after_twice_the_maximum() {
    let start = Instant::now();
    let mut backoff = Backoff::new(seconds(1), seconds(10));
    backoff.next("id", start, start);
    backoff.next("id", start, start);
    let at_limit = start + seconds(20);
    backoff.next("id", at_limit, at_limit);
    assert_eq!(backoff.get(&"id"), seconds(4));
    let beyond = at_limit + seconds(20) + millis(1);
    assert!(!backoff.is_in_backoff_since(&"id", beyond, beyond));
    backoff.next("id", beyond, beyond);
    assert_eq!(backoff.get(&"id"), seconds(1));
}

#[test]
fn b119_backoff_knows_what_is_still_too_early() {
    let start = Instant::now();
    let mut backoff = Backoff::new(seconds(4), seconds(10));
    assert!(!backoff.is_in_backoff_since(&"id", start, start));
    assert!(!backoff.is_in_backoff_since_update(&"id", start));
    backoff.next("id", start, start);
    assert!(backoff.is_in_backoff_since(&"id", start, start + seconds(3)));
    assert!(!backoff.is_in_backoff_since(&"id", start, start + seconds(4)));
    assert!(backoff.is_in_backoff_since(&"id", start + seconds(3), start + seconds(6)));
    assert!(backoff.is_in_backoff_since_update(&"id", start + seconds(3)));
    assert!(!backoff.is_in_backoff_since_update(&"id", start + seconds(4)));
}

#[test]
fn b119_gc_removes_what_has_expired_and_no_more() {
    let start = Instant::now();
    let mut backoff = Backoff::new(seconds(1), seconds(10));
    backoff.next("old", start, start);
    backoff.next("new", start + seconds(5), start + seconds(5));
    backoff.gc(start + seconds(20));
    assert_eq!(backoff.len(), 2);
    backoff.gc(start + seconds(21));
    assert_eq!(
        (backoff.len(), backoff.get(&"old"), backoff.get(&"new")),
        (1, Duration::ZERO, seconds(1))
    );
    backoff.gc(start + seconds(26));
    assert!(backoff.is_empty());
}

#[test]
fn b119_jitter_stays_within_its_factor_and_the_maximum() {
    let now = Instant::now();
    let mut backoff = Backoff::new(seconds(1), seconds(60)).with_jitter(0.5);
    let mut distinct = std::collections::HashSet::new();
    for id in 0..200 {
        backoff.next(id, now, now);
        let first = backoff.get(&id);
        assert!(first >= seconds(1) && first < millis(1500), "{first:?}");
        distinct.insert(first);
        backoff.next(id, now, now);
        let second = backoff.get(&id);
        assert!(
            second >= first * 2 && second < first.mul_f64(2.5),
            "{second:?} after {first:?}"
        );
        for _ in 0..10 {
            backoff.next(id, now, now);
        }
        assert_eq!(backoff.get(&id), seconds(60));
    }
    assert!(
        distinct.len() > 100,
        "{} waits of 200 differ",
        distinct.len()
    );
    let mut fixed = Backoff::new(seconds(1), seconds(60))
        .with_jitter(0.5)
        .with_random(|| 0.5);
    fixed.next(1, now, now);
    assert_eq!(fixed.get(&1), millis(1250));
}

#[test]
fn b119_the_expiry_rule_can_be_replaced() {
    let start = Instant::now();
    let mut backoff = Backoff::new(seconds(1), seconds(10))
        .with_expiry(|event, updated, max| event.duration_since(updated) >= max * 3);
    backoff.next("id", start, start);
    let late = start + seconds(29);
    backoff.gc(late);
    backoff.next("id", late, late);
    assert_eq!(backoff.get(&"id"), seconds(2));
    backoff.next("id", late + seconds(30), late + seconds(30));
    assert_eq!(backoff.get(&"id"), seconds(1));
    backoff.gc(late + seconds(60));
    assert!(backoff.is_empty());
}

#[test]
fn b120_the_bucket_gives_its_burst_and_then_its_rate() {
    let start = Instant::now();
    let bucket = TokenBucket::new(10.0, 3);
    assert!((0..3).all(|_| bucket.try_accept(start)));
    assert!(!bucket.try_accept(start));
    assert!(!bucket.try_accept(start + millis(99)));
    assert!(bucket.try_accept(start + millis(101)));
    assert!(!bucket.try_accept(start + millis(101)));
    let later = start + seconds(100);
    assert_eq!(
        (0..100).filter(|_| bucket.try_accept(later)).count(),
        3,
        "idle time does not pile up"
    );
    assert_eq!(bucket.reserve(later), millis(100));
    assert_eq!(bucket.reserve(later), millis(200));
    assert!(
        !bucket.try_accept(later + millis(150)),
        "promised to those who wait"
    );
}

#[test]
fn b120_a_bucket_without_a_rate_never_refills_and_does_not_panic() {
    let start = Instant::now();
    for rate in [0.0, -1.0, f64::NAN, 1e-300] {
        let bucket = TokenBucket::new(rate, 0);
        assert!(bucket.try_accept(start));
        assert!(!bucket.try_accept(start + seconds(1_000_000)));
        assert!(bucket.reserve(start) > seconds(1_000_000));
    }
}

#[tokio::test(start_paused = true)]
async fn b120_wait_is_in_order_and_at_the_rate() {
    let bucket = TokenBucket::new(10.0, 1);
    let start = Instant::now();
    bucket.wait(None).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    let (first, second) = tokio::join!(
        async { bucket.wait(None).await.map(|()| start.elapsed()) },
        async { bucket.wait(None).await.map(|()| start.elapsed()) },
    );
    assert_eq!((first, second), (Ok(millis(100)), Ok(millis(200))));
}

#[tokio::test(start_paused = true)]
async fn b120_wait_honours_the_deadline_without_waiting_or_spending() {
    let bucket = TokenBucket::new(1.0, 1);
    let start = Instant::now();
    bucket.wait(Some(start)).await.unwrap();
    assert_eq!(
        bucket.wait(Some(start + millis(999))).await,
        Err(WaitError::Deadline)
    );
    assert_eq!(start.elapsed(), Duration::ZERO);
    bucket.wait(Some(start + seconds(1))).await.unwrap();
    assert_eq!(start.elapsed(), seconds(1));
}

#[tokio::test(start_paused = true)]
async fn b120_a_wait_that_is_dropped_gives_its_token_back() {
    let bucket = TokenBucket::new(1.0, 1);
    let start = Instant::now();
    bucket.wait(None).await.unwrap();
    assert!(timeout(millis(500), bucket.wait(None)).await.is_err());
    bucket.wait(None).await.unwrap();
    assert_eq!(start.elapsed(), seconds(1));
}

#[tokio::test(start_paused = true)]
async fn b120_a_token_given_back_does_not_let_two_through_at_once() {
    let bucket = TokenBucket::new(1.0, 1);
    let start = Instant::now();
    bucket.wait(None).await.unwrap();
    let (dropped, second, third) = tokio::join!(
        timeout(millis(500), bucket.wait(None)),
        async { bucket.wait(None).await.map(|()| start.elapsed()) },
        async {
            tokio::time::sleep(millis(600)).await;
            bucket.wait(None).await.map(|()| start.elapsed())
        },
    );
    assert!(dropped.is_err());
    assert_eq!((second, third), (Ok(seconds(2)), Ok(seconds(3))));
}
