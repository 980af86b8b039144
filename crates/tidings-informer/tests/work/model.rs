//! Compares the core with a naive model over random histories. A seed repeats a history.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use tidings_informer::workqueue::core::QueueCore;
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

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// A model of the core that finds the next item by linear search.
#[derive(Default)]
struct Model {
    /// In order of first add.
    queued: Vec<(Key, i8, Instant, u64)>,
    processing: HashMap<Key, Option<(i8, Instant, u64)>>,
    delayed: Vec<(Key, i8, Instant)>,
    /// The order of flows with items, by lane.
    rings: BTreeMap<i8, Vec<&'static str>>,
    last_pick: HashMap<i8, u64>,
    picks: u64,
    sequence: u64,
    shutting_down: bool,
}

impl Model {
    fn add(&mut self, key: Key, priority: i8, since: Instant) {
        self.sequence += 1;
        let sequence = self.sequence;
        if let Some(again) = self.processing.get_mut(&key) {
            let (highest, since, sequence) = again.unwrap_or((priority, since, sequence));
            *again = Some((highest.max(priority), since, sequence));
            return;
        }
        match self.queued.iter().position(|entry| entry.0 == key) {
            None => self.queued.push((key, priority, since, sequence)),
            Some(place) => self.queued[place].1 = self.queued[place].1.max(priority),
        }
        self.queued.sort_by_key(|entry| entry.3);
        self.tidy(key);
    }

    /// Keeps in the rings exactly the flows that have items; only the flow of `key` can be missing.
    fn tidy(&mut self, key: Key) {
        for lane in -3..=3 {
            let ring = self.rings.entry(lane).or_default();
            let has = |flow: &str| {
                self.queued
                    .iter()
                    .any(|entry| entry.1 == lane && entry.0.0 == flow)
            };
            ring.retain(|flow| has(flow));
            if has(key.0) && !ring.contains(&key.0) {
                ring.push(key.0);
            }
        }
    }

    fn advance(&mut self, now: Instant) {
        self.delayed.sort_by_key(|entry| entry.2);
        while self.delayed.first().is_some_and(|entry| entry.2 <= now) {
            let (key, priority, ready) = self.delayed.remove(0);
            self.add(key, priority, ready);
        }
    }

    fn add_at(&mut self, key: Key, priority: i8, ready: Instant) {
        match self.delayed.iter_mut().find(|entry| entry.0 == key) {
            None => self.delayed.push((key, priority, ready)),
            Some(entry) => {
                entry.1 = entry.1.max(priority);
                entry.2 = entry.2.min(ready);
            }
        }
    }

    fn pop(&mut self, now: Instant) -> Option<(Key, i8)> {
        let lanes: HashSet<i8> = self.queued.iter().map(|entry| entry.1).collect();
        let top = i64::from(*lanes.iter().max()?);
        let rank = |lane: &i8| {
            let oldest = self
                .queued
                .iter()
                .find(|entry| entry.1 == *lane)
                .expect("lanes have items")
                .2;
            let steps = now.saturating_duration_since(oldest).as_secs() / AGE_STEP.as_secs();
            let height = (i64::from(*lane) + steps as i64).min(top);
            let rested = self.picks - self.last_pick.get(lane).copied().unwrap_or(0);
            (height, rested, *lane)
        };
        let lane = *lanes.iter().max_by_key(|lane| rank(lane))?;
        self.picks += 1;
        self.last_pick.insert(lane, self.picks);
        let flow = self.rings.get_mut(&lane)?.remove(0);
        let place = self
            .queued
            .iter()
            .position(|entry| entry.1 == lane && entry.0.0 == flow)?;
        let (key, ..) = self.queued.remove(place);
        self.processing.insert(key, None);
        self.tidy(key);
        Some((key, lane))
    }

    fn done(&mut self, key: Key) {
        if let Some(Some((priority, since, sequence))) = self.processing.remove(&key) {
            self.queued.push((key, priority, since, sequence));
            self.queued.sort_by_key(|entry| entry.3);
            self.tidy(key);
        }
    }
}

#[test]
fn the_core_agrees_with_a_naive_model_over_random_histories() {
    const FLOWS: [&str; 4] = ["a", "b", "c", ""];
    for seed in 0..60 {
        let mut numbers = Numbers(seed);
        let mut now = Instant::now();
        let (mut core, mut model) = (QueueCore::new(AGE_STEP), Model::default());
        let mut held: Vec<Key> = Vec::new();
        // Half of the histories get more adds than picks and grow long queues.
        let adds = 30 + (seed % 2) * 25;
        for step in 0..1500 {
            let place = format!("seed {seed}, step {step}");
            let key = Key(FLOWS[numbers.below(4) as usize], numbers.below(12) as u32);
            let level = numbers.below(7) as i8 - 3;
            let choice = numbers.below(100);
            let finishes = choice >= 88 && !held.is_empty();
            if !finishes {
                model.advance(now);
            }
            if choice < adds {
                core.add(key, Priority::new(level), now);
                if !model.shutting_down {
                    model.add(key, level, now);
                }
            } else if choice < 70 {
                // Whole milliseconds plus the step: no two items are due at one time, because the model does not order these.
                let ready = now
                    + Duration::from_millis(1 + numbers.below(9000))
                    + Duration::from_nanos(step);
                core.add_at(key, Priority::new(level), ready, now);
                if !model.shutting_down {
                    model.add_at(key, level, ready);
                }
            } else if !finishes {
                let popped = core
                    .pop(now)
                    .map(|popped| (popped.item, popped.priority.get()));
                assert_eq!(popped, model.pop(now), "{place}");
                held.extend(popped.map(|popped| popped.0));
            } else {
                let key = held.swap_remove(numbers.below(held.len() as u64) as usize);
                assert!(core.done(&key, now).is_some(), "{place}");
                model.done(key);
            }
            if step == 1400 {
                core.shut_down(now);
                model.advance(now);
                model.shutting_down = true;
                let undelivered: Vec<Key> = model.delayed.drain(..).map(|entry| entry.0).collect();
                assert_eq!(core.take_undelivered(), undelivered, "{place}");
            }
            assert_eq!(core.len(), model.queued.len(), "{place}");
            assert_eq!(core.processing_len(), model.processing.len(), "{place}");
            assert_eq!(core.delayed_len(), model.delayed.len(), "{place}");
            assert_eq!(
                core.next_ready(),
                model.delayed.iter().map(|entry| entry.2).min(),
                "{place}"
            );
            now += Duration::from_millis(numbers.below(400));
        }
        for key in held {
            core.done(&key, now);
            model.done(key);
        }
        while let Some((key, priority)) = model.pop(now) {
            let popped = core.pop(now).unwrap();
            assert_eq!(
                (popped.item, popped.priority.get()),
                (key, priority),
                "seed {seed}"
            );
            core.done(&key, now);
            model.done(key);
        }
        assert!(core.is_exhausted() && core.is_idle(), "seed {seed}");
    }
}
