//! The state of the work queue and the order of its items, without a lock, a task or a clock.
//!
//! An item is *queued* (waits for a worker), *processing* (a worker has it), *delayed* (will be queued at a set time), or delayed
//! and one of the other two. It is never queued and processing at once: when an item is added while it is being processed, it is
//! queued again when the worker is done.
//!
//! Order. Each priority has a lane. Inside a lane flows take turns, and a flow is first in, first out. The lane with the highest
//! priority is served first, but a lane rises by one for each `age_step` that its oldest item has waited, up to the highest lane
//! that has items; lanes at the same height take turns. So a lane that is p below the top waits at most p * `age_step`; from then
//! on it gets at least one pick in n, where n is the number of lanes with items, and its flows share these picks fairly. Ageing
//! lifts a lane and not an item, so the backlog of one flow never overtakes the new items of another at the same priority.
//!
//! Cost: O(log n) for each operation; a pick also visits each lane (at most 256, in practice three). Memory: only for keys that
//! are queued, processing or delayed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::lane::Lane;
use super::{Priority, QueueKey, trim};

/// The effect of an add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddResult {
    /// The item was queued.
    Queued,
    /// The item is being processed, and will be queued again when the worker is done.
    AfterProcessing,
    /// The item was queued or delayed before. Its priority may have risen, or its time may be earlier.
    Merged,
    /// The item was delayed.
    Delayed,
    /// The queue is shutting down; the item was not added.
    Refused,
}

/// An item that a worker takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoppedItem<T> {
    /// The item.
    pub item: T,
    /// The highest priority that it was added with.
    pub priority: Priority,
    /// How long it was queued.
    pub waited: Duration,
}

/// An item that a worker is done with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishedItem {
    /// How long the worker had it.
    pub worked: Duration,
    /// True if it was added while it was processed, and is queued again.
    pub requeued: bool,
}

/// Where a queued item is in its lane.
#[derive(Debug, Clone, Copy)]
struct QueuedItem {
    priority: Priority,
    sequence: u64,
    since: Instant,
}

/// An item that a worker has.
#[derive(Debug)]
struct ProcessingItem {
    started: Instant,
    /// Set if the item was added while it was processed.
    again: Option<QueuedItem>,
}

/// An item that will be queued at the time `ready`.
#[derive(Debug, Clone, Copy)]
struct DelayedItem {
    priority: Priority,
    ready: Instant,
    sequence: u64,
}

/// The queue as a state machine; [`WorkQueue`](super::WorkQueue) puts a lock and a wait around it.
#[derive(Debug)]
pub struct QueueCore<T> {
    age_step: Duration,
    lanes: BTreeMap<Priority, Lane<T>>,
    queued: HashMap<T, QueuedItem>,
    processing: HashMap<T, ProcessingItem>,
    delayed: HashMap<T, DelayedItem>,
    /// The delayed items by time.
    timetable: BTreeMap<(Instant, u64), T>,
    /// How many items in `processing` will be queued again.
    again: usize,
    sequence: u64,
    picks: u64,
    adds: u64,
    shutting_down: bool,
    undelivered: Vec<T>,
}

impl<T: QueueKey> QueueCore<T> {
    /// An empty queue. An `age_step` below a millisecond counts as one.
    #[must_use]
    pub fn new(age_step: Duration) -> QueueCore<T> {
        QueueCore {
            age_step: age_step.max(Duration::from_millis(1)),
            lanes: BTreeMap::new(),
            queued: HashMap::new(),
            processing: HashMap::new(),
            delayed: HashMap::new(),
            timetable: BTreeMap::new(),
            again: 0,
            sequence: 0,
            picks: 0,
            adds: 0,
            shutting_down: false,
            undelivered: Vec::new(),
        }
    }

    /// Adds an item. Of several adds the highest priority counts; the item keeps the position of its first add.
    pub fn add(&mut self, item: T, priority: Priority, now: Instant) -> AddResult {
        if self.shutting_down {
            return AddResult::Refused;
        }
        self.advance(now);
        self.mark(item, priority, now)
    }

    /// Adds an item at the time `ready`. Of several adds the earliest time and the highest priority count.
    ///
    /// A delayed item stays delayed when it is also added at once, and is then processed twice: a check that must run in a minute
    /// is not replaced by one that runs earlier.
    pub fn add_at(
        &mut self,
        item: T,
        priority: Priority,
        ready: Instant,
        now: Instant,
    ) -> AddResult {
        if ready <= now || self.shutting_down {
            return self.add(item, priority, now);
        }
        self.advance(now);
        let Some(known) = self.delayed.get_mut(&item) else {
            let sequence = next(&mut self.sequence);
            self.timetable.insert((ready, sequence), item.clone());
            let delayed = DelayedItem {
                priority,
                ready,
                sequence,
            };
            self.delayed.insert(item, delayed);
            return AddResult::Delayed;
        };
        known.priority = known.priority.max(priority);
        if ready < known.ready {
            self.timetable.remove(&(known.ready, known.sequence));
            known.ready = ready;
            self.timetable.insert((ready, known.sequence), item);
        }
        AddResult::Merged
    }

    /// Removes the delay of an item: it is no longer added at that time. Does not touch an item that is queued. True if it was
    /// delayed.
    pub fn cancel_delay(&mut self, item: &T) -> bool {
        let Some(delayed) = self.delayed.remove(item) else {
            return false;
        };
        self.timetable.remove(&(delayed.ready, delayed.sequence));
        trim(&mut self.delayed);
        true
    }

    /// Queues the delayed items that are due.
    pub fn advance(&mut self, now: Instant) {
        while let Some(first) = self.timetable.first_entry() {
            let ready = first.key().0;
            if ready > now {
                break;
            }
            let item = first.remove();
            let priority = self
                .delayed
                .remove(&item)
                .map_or(Priority::NORMAL, |delayed| delayed.priority);
            trim(&mut self.delayed);
            self.mark(item, priority, ready);
        }
    }

    /// Takes the next item; the caller must call [`done`](QueueCore::done) for it.
    pub fn pop(&mut self, now: Instant) -> Option<PoppedItem<T>> {
        self.advance(now);
        let lane = self.choose(now)?;
        let lane = self.lanes.get_mut(&lane)?;
        self.picks += 1;
        lane.last_pick = self.picks;
        let item = lane.pop()?;
        let queued = self.queued.remove(&item)?;
        trim(&mut self.queued);
        let processing = ProcessingItem {
            started: now,
            again: None,
        };
        let earlier = self.processing.insert(item.clone(), processing);
        debug_assert!(earlier.is_none(), "an item is with one worker at a time");
        Some(PoppedItem {
            item,
            priority: queued.priority,
            waited: now.saturating_duration_since(queued.since),
        })
    }

    /// Ends the processing of an item; `None` if it was not being processed.
    pub fn done(&mut self, item: &T, now: Instant) -> Option<FinishedItem> {
        let (item, processing) = self.processing.remove_entry(item)?;
        trim(&mut self.processing);
        let requeued = processing.again.is_some();
        if let Some(queued) = processing.again {
            self.again -= 1;
            self.enqueue(item, queued);
        }
        Some(FinishedItem {
            worked: now.saturating_duration_since(processing.started),
            requeued,
        })
    }

    /// Refuses further adds. Queued items can still be taken; delayed items that are not due are kept for
    /// [`take_undelivered`](QueueCore::take_undelivered).
    pub fn shut_down(&mut self, now: Instant) {
        self.advance(now);
        self.shutting_down = true;
        self.delayed = HashMap::new();
        self.undelivered
            .extend(std::mem::take(&mut self.timetable).into_values());
    }

    /// The delayed items that were not due at the shutdown, sorted by time. Each is returned once.
    pub fn take_undelivered(&mut self) -> Vec<T> {
        std::mem::take(&mut self.undelivered)
    }

    /// When the next delayed item is due.
    #[must_use]
    pub fn next_ready(&self) -> Option<Instant> {
        self.timetable
            .first_key_value()
            .map(|((ready, _), _)| *ready)
    }

    /// The number of items that wait for a worker.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queued.len()
    }

    /// Whether no item waits for a worker.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// The number of delayed items.
    #[must_use]
    pub fn delayed_len(&self) -> usize {
        self.delayed.len()
    }

    /// The number of items that workers have.
    #[must_use]
    pub fn processing_len(&self) -> usize {
        self.processing.len()
    }

    /// How often an item was queued, or marked to be queued again; duplicates do not count.
    #[must_use]
    pub fn adds(&self) -> u64 {
        self.adds
    }

    /// Whether adds are refused.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.shutting_down
    }

    /// Whether no item is queued and no worker has one.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queued.is_empty() && self.processing.is_empty()
    }

    /// Whether no item will ever be taken again: the queue is shut down, no item is queued, and none will be queued again.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.shutting_down && self.queued.is_empty() && self.again == 0
    }

    /// When each worker took its item.
    pub fn started(&self) -> impl Iterator<Item = Instant> + '_ {
        self.processing
            .values()
            .map(|processing| processing.started)
    }

    /// Queues an item, or marks it to be queued again when its worker is done.
    fn mark(&mut self, item: T, priority: Priority, since: Instant) -> AddResult {
        if let Some(processing) = self.processing.get_mut(&item) {
            if let Some(again) = &mut processing.again {
                again.priority = again.priority.max(priority);
                return AddResult::Merged;
            }
            // Numbered at the add, so that its position does not depend on when the worker is done.
            let sequence = next(&mut self.sequence);
            processing.again = Some(QueuedItem {
                priority,
                sequence,
                since,
            });
            self.again += 1;
            self.adds += 1;
            return AddResult::AfterProcessing;
        }
        if let Some(known) = self.queued.get(&item).copied() {
            if priority > known.priority {
                self.raise(item, QueuedItem { priority, ..known }, known.priority);
            }
            return AddResult::Merged;
        }
        let sequence = next(&mut self.sequence);
        self.adds += 1;
        self.enqueue(
            item,
            QueuedItem {
                priority,
                sequence,
                since,
            },
        );
        AddResult::Queued
    }

    fn raise(&mut self, item: T, queued: QueuedItem, from: Priority) {
        if let Some(lane) = self.lanes.get_mut(&from) {
            lane.remove(item.flow(), queued.sequence);
        }
        self.enqueue(item, queued);
    }

    fn enqueue(&mut self, item: T, queued: QueuedItem) {
        self.lanes
            .entry(queued.priority)
            .or_insert_with(Lane::new)
            .insert(item.flow(), queued.sequence, queued.since, item.clone());
        self.queued.insert(item, queued);
    }

    /// The priority of the lane that is served next.
    fn choose(&self, now: Instant) -> Option<Priority> {
        let waiting = || {
            self.lanes
                .iter()
                .filter_map(|(priority, lane)| Some((*priority, lane, lane.oldest()?)))
        };
        let (top, ..) = waiting().next_back()?;
        // The highest lane; among equals the one that was served least recently, then the one with the higher priority.
        let rank = |(priority, lane, oldest): &(Priority, &Lane<T>, Instant)| {
            let steps =
                now.saturating_duration_since(*oldest).as_nanos() / self.age_step.as_nanos();
            let steps = i32::try_from(steps).unwrap_or(i32::MAX);
            let height = i32::from(priority.get()).saturating_add(steps);
            (
                height.min(i32::from(top.get())),
                Reverse(lane.last_pick),
                *priority,
            )
        };
        waiting().max_by_key(rank).map(|(priority, ..)| priority)
    }
}

fn next(counter: &mut u64) -> u64 {
    *counter += 1;
    *counter
}
