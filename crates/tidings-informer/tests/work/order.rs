//! The order of the queue: the rules of the core one by one.

use std::time::Duration;

use tidings_informer::workqueue::core::{AddResult, QueueCore};
use tidings_informer::workqueue::{Priority, QueueKey};
use tokio::time::Instant;

const AGE_STEP: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key(&'static str, u32);

impl QueueKey for Key {
    fn flow(&self) -> &str {
        self.0
    }
}

fn drain<T: QueueKey>(core: &mut QueueCore<T>, now: Instant) -> Vec<T> {
    let mut items = Vec::new();
    while let Some(popped) = core.pop(now) {
        core.done(&popped.item, now);
        items.push(popped.item);
    }
    items
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn kr4_b111_duplicates_collapse_and_keep_the_first_place() {
    let now = Instant::now();
    let mut core = QueueCore::new(AGE_STEP);
    assert_eq!(core.add(1_u32, Priority::NORMAL, now), AddResult::Queued);
    assert_eq!(core.add(2, Priority::NORMAL, now), AddResult::Queued);
    assert_eq!(core.add(1, Priority::NORMAL, now), AddResult::Merged);
    assert_eq!(core.len(), 2);
    assert_eq!(drain(&mut core, now), [1, 2]);
}

#[test]
fn b111_an_add_while_processing_is_queued_exactly_once_and_only_after_done() {
    let now = Instant::now();
    let mut core = QueueCore::new(AGE_STEP);
    core.add(1_u32, Priority::LOW, now);
    assert_eq!(core.pop(now).map(|popped| popped.item), Some(1));
    assert_eq!(core.add(1, Priority::LOW, now), AddResult::AfterProcessing);
    assert_eq!(core.add(1, Priority::HIGH, now), AddResult::Merged);
    assert_eq!(core.add(1, Priority::LOW, now), AddResult::Merged);
    assert_eq!(core.pop(now), None);
    assert_eq!(core.len(), 0);

    assert!(core.done(&1, now).is_some_and(|finished| finished.requeued));
    let again = core.pop(now).unwrap();
    assert_eq!((again.item, again.priority), (1, Priority::HIGH));
    assert!(
        core.done(&1, now)
            .is_some_and(|finished| !finished.requeued)
    );
    assert_eq!(core.pop(now), None);
    assert_eq!(core.done(&1, now), None);
}

#[test]
fn cr58_a_higher_priority_wins_and_keeps_the_place_of_the_first_add() {
    let now = Instant::now();
    let mut core = QueueCore::new(AGE_STEP);
    core.add(1_u32, Priority::LOW, now);
    core.add(2, Priority::NORMAL, now);
    core.add(3, Priority::NORMAL, now);
    core.add(1, Priority::NORMAL, now);
    core.add(3, Priority::HIGH, now);
    core.add(3, Priority::LOW, now);
    assert_eq!(core.len(), 3);
    assert_eq!(drain(&mut core, now), [3, 1, 2]);
}

#[test]
fn flows_take_turns_and_each_is_first_in_first_out() {
    let now = Instant::now();
    let mut core = QueueCore::new(AGE_STEP);
    for number in 0..1000 {
        core.add(Key("noisy", number), Priority::NORMAL, now);
    }
    core.add(Key("quiet", 0), Priority::NORMAL, now);
    core.add(Key("calm", 0), Priority::NORMAL, now);
    core.add(Key("quiet", 1), Priority::NORMAL, now);
    let served = drain(&mut core, now);
    let first = [
        Key("noisy", 0),
        Key("quiet", 0),
        Key("calm", 0),
        Key("noisy", 1),
        Key("quiet", 1),
        Key("noisy", 2),
    ];
    assert_eq!(served[..6], first);
    assert!(served[6..].iter().map(|key| key.1).eq(3..1000));
}

#[test]
fn an_aged_backlog_does_not_overtake_the_fresh_items_of_another_flow() {
    let start = Instant::now();
    let mut core = QueueCore::new(AGE_STEP);
    for number in 0..1000 {
        core.add(Key("noisy", number), Priority::NORMAL, start);
    }
    let later = start + seconds(3600);
    core.add(Key("quiet", 0), Priority::NORMAL, later);
    let served = drain(&mut core, later);
    let place = served.iter().position(|key| key.0 == "quiet");
    assert_eq!(place, Some(1));
}

#[test]
fn a_flow_that_runs_empty_wins_no_extra_turns() {
    let now = Instant::now();
    let mut core = QueueCore::new(AGE_STEP);
    for number in 0..100 {
        core.add(Key("full", number), Priority::NORMAL, now);
    }
    let mut full = 0;
    for number in 0..50 {
        core.add(Key("trickle", number), Priority::NORMAL, now);
        let item = core.pop(now).unwrap().item;
        core.done(&item, now);
        full += u32::from(item.0 == "full");
    }
    assert!(
        (24..=26).contains(&full),
        "{full} of 50 picks went to the full flow"
    );
}

/// One new item of high priority arrives for each pick.
#[test]
fn starvation_a_low_item_is_served_after_its_age_under_an_endless_flood() {
    let start = Instant::now();
    let mut core = QueueCore::new(AGE_STEP);
    core.add(Key("a", 0), Priority::LOW, start);
    let flood = |core: &mut QueueCore<Key>, number: u32, now: Instant| {
        core.add(Key("a", number), Priority::HIGH, now);
        let item = core.pop(now).unwrap().item;
        core.done(&item, now);
        item
    };
    // LOW is four below HIGH.
    let mut number = 1;
    for tick in 0..20 {
        let now = start + seconds(tick);
        for _ in 0..10 {
            assert_ne!(flood(&mut core, number, now), Key("a", 0), "after {tick} s");
            number += 1;
        }
    }
    let now = start + seconds(20);
    let served: Vec<Key> = (0..2)
        .map(|next| flood(&mut core, number + next, now))
        .collect();
    assert!(served.contains(&Key("a", 0)), "{served:?}");
}

#[test]
fn starvation_every_lane_has_its_share_once_all_have_aged() {
    let start = Instant::now();
    let mut core = QueueCore::new(AGE_STEP);
    for number in 0..300 {
        core.add(Key("low", number), Priority::LOW, start);
        core.add(Key("normal", number), Priority::NORMAL, start);
        core.add(Key("high", number), Priority::HIGH, start);
    }
    let served = drain(&mut core, start + seconds(60));
    for share in served.chunks(30).take(10) {
        for flow in ["low", "normal", "high"] {
            let count = share.iter().filter(|key| key.0 == flow).count();
            assert_eq!(count, 10, "{flow}");
        }
    }
}

#[test]
fn cr32_before_it_has_aged_the_initial_list_waits_for_changes() {
    let now = Instant::now();
    let mut core = QueueCore::new(AGE_STEP);
    for number in 0..10 {
        core.add(number, Priority::LOW, now);
        core.add(number + 100, Priority::NORMAL, now);
    }
    let served: Vec<u32> = drain(&mut core, now + seconds(9));
    assert!(
        served[..10].iter().all(|number| *number >= 100),
        "{served:?}"
    );
}

#[test]
fn kr13_b115_two_delayed_adds_fire_once_at_the_earlier_time_and_in_order() {
    let start = Instant::now();
    let mut core = QueueCore::new(AGE_STEP);
    let at = |count| start + seconds(count);
    assert_eq!(
        core.add_at("late", Priority::NORMAL, at(9), start),
        AddResult::Delayed
    );
    assert_eq!(
        core.add_at("x", Priority::NORMAL, at(8), start),
        AddResult::Delayed
    );
    assert_eq!(
        core.add_at("x", Priority::NORMAL, at(3), start),
        AddResult::Merged
    );
    assert_eq!(
        core.add_at("x", Priority::HIGH, at(5), start),
        AddResult::Merged
    );
    assert_eq!(
        core.add_at("early", Priority::HIGH, at(1), start),
        AddResult::Delayed
    );
    assert_eq!(
        core.add_at("now", Priority::NORMAL, start, start),
        AddResult::Queued
    );
    assert_eq!((core.len(), core.delayed_len()), (1, 3));
    assert_eq!(core.next_ready(), Some(at(1)));
    assert_eq!(drain(&mut core, start), ["now"]);
    assert!(drain(&mut core, at(1) - Duration::from_nanos(1)).is_empty());
    assert_eq!(drain(&mut core, at(1)), ["early"]);
    assert_eq!(core.next_ready(), Some(at(3)));
    assert_eq!(
        core.pop(at(3)).map(|x| (x.item, x.priority)),
        Some(("x", Priority::HIGH))
    );
    core.done(&"x", at(3));
    assert_eq!(drain(&mut core, at(100)), ["late"]);
    assert_eq!((core.next_ready(), core.delayed_len()), (None, 0));
}

#[test]
fn cr59_b115_a_delayed_item_survives_an_immediate_add() {
    let start = Instant::now();
    let mut core = QueueCore::new(AGE_STEP);
    core.add_at(1_u32, Priority::NORMAL, start + seconds(5), start);
    core.add(1, Priority::NORMAL, start);
    assert_eq!(drain(&mut core, start), [1]);
    assert_eq!(drain(&mut core, start + seconds(5)), [1]);
    assert!(drain(&mut core, start + seconds(50)).is_empty());
}

#[test]
fn d24_shutdown_reports_what_is_not_due_and_queues_what_is() {
    let start = Instant::now();
    let mut core = QueueCore::new(AGE_STEP);
    core.add_at(3_u32, Priority::NORMAL, start + seconds(30), start);
    core.add_at(2, Priority::NORMAL, start + seconds(20), start);
    core.add_at(1, Priority::NORMAL, start + seconds(10), start);
    core.shut_down(start + seconds(10));
    assert_eq!(core.take_undelivered(), [2, 3]);
    assert!(core.take_undelivered().is_empty());
    assert_eq!(
        core.add_at(4, Priority::NORMAL, start + seconds(99), start),
        AddResult::Refused
    );
    assert_eq!((core.next_ready(), core.delayed_len()), (None, 0));
    assert_eq!(drain(&mut core, start + seconds(10)), [1]);
    assert!(core.is_exhausted() && core.is_idle());
}

/// kube-rs searches its waiting set from the start at each pick: twice the keys take four times as long.
#[test]
fn k16_two_hundred_thousand_keys_are_served_in_order_and_fast() {
    const KEYS: u32 = 200_000;
    const FLOWS: [&str; 4] = ["a", "b", "c", "d"];
    let start = std::time::Instant::now();
    let now = Instant::now();
    let mut core = QueueCore::new(AGE_STEP);
    for number in 0..KEYS {
        core.add(Key(FLOWS[number as usize % 4], number), Priority::LOW, now);
    }
    // Raised in reverse: the removal from the middle must be cheap too, and keep the order.
    for number in (0..KEYS).rev() {
        core.add(
            Key(FLOWS[number as usize % 4], number),
            Priority::NORMAL,
            now,
        );
    }
    let mut held = Vec::new();
    for expected in 0..KEYS {
        let item = core.pop(now).unwrap().item;
        assert_eq!(item.0, FLOWS[3 - expected as usize % 4], "flows take turns");
        held.push(item);
    }
    for flow in FLOWS {
        let numbers = held.iter().filter(|key| key.0 == flow).map(|key| key.1);
        assert!(numbers.is_sorted(), "{flow} is first in, first out");
    }
    assert_eq!(core.processing_len(), KEYS as usize);
    for item in &held {
        core.done(item, now);
    }
    assert!(core.is_idle());
    // Quadratic cost would take minutes in a debug build; this takes about a second.
    assert!(start.elapsed() < seconds(30), "{:?}", start.elapsed());
}

#[test]
fn a_delay_that_is_cancelled_does_not_fire() {
    let start = Instant::now();
    let mut core = QueueCore::new(AGE_STEP);
    core.add_at(1_u32, Priority::NORMAL, start + seconds(5), start);
    core.add_at(2, Priority::NORMAL, start + seconds(6), start);
    core.add(1, Priority::NORMAL, start);
    assert!(core.cancel_delay(&1));
    assert!(!core.cancel_delay(&1));
    assert_eq!(
        (core.delayed_len(), core.next_ready()),
        (1, Some(start + seconds(6)))
    );
    // What is queued stays queued.
    assert_eq!(drain(&mut core, start), [1]);
    assert_eq!(drain(&mut core, start + seconds(50)), [2]);
}
