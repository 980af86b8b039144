//! What the queue holds and whose turn it is: no lock, no task, no clock of its own.
//!
//! An item is in up to three places: *queued* (it waits for a worker), *processing* (a worker has it) and *delayed* (it will be
//! queued at a time). It is never queued and processing at once: an add of an item that is being processed is kept beside it
//! and queued when it is done.
//!
//! Order. Each priority has a lane. Inside a lane flows take turns, and a flow is first in, first out. Between lanes the higher
//! priority goes first, but a lane rises by one for each `age_step` that its oldest item has waited, up to the highest lane that
//! has items; lanes at the same height take turns. So an item at priority p below the top waits p·`age_step`, and from then on
//! its lane has at least one pick in as many as there are lanes with items, and its flow a fair share of those. Ageing lifts a
//! lane and not an item, so that the backlog of one flow never overtakes the fresh items of another at the same priority.
//!
//! Cost: O(log n) for each operation, and a look at each lane (at most 256, in practice three) for a pick. Memory: what is
//! queued, processing or delayed, and nothing for a key that is none of these.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::lane::Lane;
use super::{Priority, QueueKey, trim};

/// What an add came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// The item is newly queued.
    Queued,
    /// The item is being processed; it will be queued again once it is done.
    AfterProcessing,
    /// The item was already going to be processed; its priority may have risen or its time come nearer.
    Merged,
    /// The item is newly delayed.
    Delayed,
    /// The queue is shutting down.
    Refused,
}

/// An item handed to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Popped<T> {
    /// The item.
    pub item: T,
    /// The highest priority that it was added with.
    pub priority: Priority,
    /// How long it was ready and waiting.
    pub waited: Duration,
}

/// A worker's hold on an item has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// How long the worker had it.
    pub worked: Duration,
    /// It was added meanwhile and is queued again.
    pub requeued: bool,
}

#[derive(Debug, Clone, Copy)]
struct Queued {
    priority: Priority,
    sequence: u64,
    since: Instant,
}

#[derive(Debug)]
struct Processing {
    started: Instant,
    again: Option<Queued>,
}

#[derive(Debug, Clone, Copy)]
struct Delayed {
    priority: Priority,
    ready: Instant,
    sequence: u64,
}

/// The queue as a state machine; [`WorkQueue`](super::WorkQueue) puts a lock and a wait around it.
#[derive(Debug)]
pub struct Core<T> {
    age_step: Duration,
    lanes: BTreeMap<Priority, Lane<T>>,
    queued: HashMap<T, Queued>,
    processing: HashMap<T, Processing>,
    delayed: HashMap<T, Delayed>,
    timetable: BTreeMap<(Instant, u64), T>,
    /// How many of `processing` will be queued again.
    again: usize,
    sequence: u64,
    picks: u64,
    adds: u64,
    shutting_down: bool,
    undelivered: Vec<T>,
}

impl<T: QueueKey> Core<T> {
    /// An empty queue. An `age_step` below a millisecond counts as one.
    #[must_use]
    pub fn new(age_step: Duration) -> Core<T> {
        Core {
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

    /// Marks an item as in need of processing. Of two priorities the higher counts; the item keeps the place of its first add.
    pub fn add(&mut self, item: T, priority: Priority, now: Instant) -> Added {
        if self.shutting_down {
            return Added::Refused;
        }
        self.advance(now);
        self.mark(item, priority, now)
    }

    /// Marks an item as in need of processing from `ready` on. Of two times the earlier counts, of two priorities the higher.
    ///
    /// A delayed item stays delayed when it is also added at once, and is then processed twice: whoever asked for a look in a
    /// minute may not be served by a look now.
    pub fn add_at(&mut self, item: T, priority: Priority, ready: Instant, now: Instant) -> Added {
        if ready <= now || self.shutting_down {
            return self.add(item, priority, now);
        }
        self.advance(now);
        let Some(known) = self.delayed.get_mut(&item) else {
            let sequence = next(&mut self.sequence);
            self.timetable.insert((ready, sequence), item.clone());
            let delayed = Delayed {
                priority,
                ready,
                sequence,
            };
            self.delayed.insert(item, delayed);
            return Added::Delayed;
        };
        known.priority = known.priority.max(priority);
        if ready < known.ready {
            self.timetable.remove(&(known.ready, known.sequence));
            known.ready = ready;
            self.timetable.insert((ready, known.sequence), item);
        }
        Added::Merged
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

    /// Takes the item whose turn it is; the caller must call [`done`](Core::done) for it.
    pub fn pop(&mut self, now: Instant) -> Option<Popped<T>> {
        self.advance(now);
        let lane = self.choose(now)?;
        let lane = self.lanes.get_mut(&lane)?;
        self.picks += 1;
        lane.last_pick = self.picks;
        let item = lane.pop()?;
        let queued = self.queued.remove(&item)?;
        trim(&mut self.queued);
        let processing = Processing {
            started: now,
            again: None,
        };
        let earlier = self.processing.insert(item.clone(), processing);
        debug_assert!(earlier.is_none(), "an item is with one worker at a time");
        Some(Popped {
            item,
            priority: queued.priority,
            waited: now.saturating_duration_since(queued.since),
        })
    }

    /// Ends the processing of an item; `None` if it was not being processed.
    pub fn done(&mut self, item: &T, now: Instant) -> Option<Finished> {
        let (item, processing) = self.processing.remove_entry(item)?;
        trim(&mut self.processing);
        let requeued = processing.again.is_some();
        if let Some(queued) = processing.again {
            self.again -= 1;
            self.enqueue(item, queued);
        }
        Some(Finished {
            worked: now.saturating_duration_since(processing.started),
            requeued,
        })
    }

    /// Refuses adds from now on. What is queued is still handed out; what is delayed and not due is set aside for
    /// [`take_undelivered`](Core::take_undelivered).
    pub fn shut_down(&mut self, now: Instant) {
        self.advance(now);
        self.shutting_down = true;
        self.delayed = HashMap::new();
        self.undelivered
            .extend(std::mem::take(&mut self.timetable).into_values());
    }

    /// The delayed items that the shutdown cut off, by ready time: each is reported once.
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

    /// How many items wait for a worker.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queued.len()
    }

    /// Whether no item waits for a worker.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// How many items wait for their time.
    #[must_use]
    pub fn delayed_len(&self) -> usize {
        self.delayed.len()
    }

    /// How many items are with a worker.
    #[must_use]
    pub fn processing_len(&self) -> usize {
        self.processing.len()
    }

    /// How often an item became in need of processing; duplicates do not count.
    #[must_use]
    pub fn adds(&self) -> u64 {
        self.adds
    }

    /// Whether adds are refused.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.shutting_down
    }

    /// Whether nothing is queued and no worker has anything.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queued.is_empty() && self.processing.is_empty()
    }

    /// Whether no item will ever be handed out again: shut down, nothing queued, and nothing in process that was added again.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.shutting_down && self.queued.is_empty() && self.again == 0
    }

    /// Since when each worker has had its item.
    pub fn started(&self) -> impl Iterator<Item = Instant> + '_ {
        self.processing
            .values()
            .map(|processing| processing.started)
    }

    fn mark(&mut self, item: T, priority: Priority, since: Instant) -> Added {
        if let Some(processing) = self.processing.get_mut(&item) {
            if let Some(again) = &mut processing.again {
                again.priority = again.priority.max(priority);
                return Added::Merged;
            }
            // The number is taken now: its place is that of the add, not of the end of the work.
            let sequence = next(&mut self.sequence);
            processing.again = Some(Queued {
                priority,
                sequence,
                since,
            });
            self.again += 1;
            self.adds += 1;
            return Added::AfterProcessing;
        }
        if let Some(known) = self.queued.get(&item).copied() {
            if priority > known.priority {
                self.raise(item, Queued { priority, ..known }, known.priority);
            }
            return Added::Merged;
        }
        let sequence = next(&mut self.sequence);
        self.adds += 1;
        self.enqueue(
            item,
            Queued {
                priority,
                sequence,
                since,
            },
        );
        Added::Queued
    }

    fn raise(&mut self, item: T, queued: Queued, from: Priority) {
        if let Some(lane) = self.lanes.get_mut(&from) {
            lane.remove(item.flow(), queued.sequence);
        }
        self.enqueue(item, queued);
    }

    fn enqueue(&mut self, item: T, queued: Queued) {
        self.lanes
            .entry(queued.priority)
            .or_insert_with(Lane::new)
            .insert(item.flow(), queued.sequence, queued.since, item.clone());
        self.queued.insert(item, queued);
    }

    /// The lane that is served next.
    fn choose(&self, now: Instant) -> Option<Priority> {
        let waiting = || {
            self.lanes
                .iter()
                .filter_map(|(priority, lane)| Some((*priority, lane, lane.oldest()?)))
        };
        let (top, ..) = waiting().next_back()?;
        // The highest; of those the one that has waited longest for its turn; of new ones the higher priority.
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
