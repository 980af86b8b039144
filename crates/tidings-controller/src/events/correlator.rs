//! Decides what of the recorded events is written. Pure: the caller gives events, answers and the time.
//!
//! The first event of a kind is created. The second turns it into a series of two, which is written at once; later ones only count. The count is
//! written again every `refresh_every`, and once more when the series has ended. So any number of repeats takes a few writes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::events::event::{EventParts, EventSeries, ObjectReference};
use crate::events::limiter::EventLimiter;
use crate::events::lru::Lru;
use crate::events::options::EventOptions;
use crate::stats::EventStats;

/// How much longer than `retry_after` a write may wait: a quarter.
const JITTER: f64 = 0.25;

/// What makes two events repeats of one. The reporter is the same for all events of a recorder; the note may differ.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SeriesKey {
    kind: &'static str,
    action: String,
    reason: String,
    regarding: ObjectReference,
    related: Option<ObjectReference>,
}

impl SeriesKey {
    fn of(event: &EventParts) -> SeriesKey {
        let related = event.related.as_ref();
        SeriesKey {
            kind: event.kind,
            action: event.action.clone(),
            reason: event.reason.clone(),
            regarding: event.regarding.without_version(),
            related: related.map(ObjectReference::without_version),
        }
    }
}

/// An event with the name that it has on the server.
#[derive(Debug)]
pub(crate) struct NamedEvent {
    pub(crate) name: String,
    pub(crate) parts: EventParts,
}

/// An Event, and what the server knows of it.
#[derive(Debug)]
struct EventEntry {
    id: u64,
    event: Arc<NamedEvent>,
    count: u32,
    last_observed: Timestamp,
    last_recorded: Instant,
    /// The count that the server has accepted.
    written: u32,
    /// True if the server is thought to have the Event.
    exists: bool,
    /// A create got no answer: the Event may be there.
    lost_answer: bool,
    /// True if a write had a series; the next count is due at `refresh_at`.
    series_tried: bool,
    refresh_at: Instant,
    tries: u32,
    phase: WritePhase,
    /// Forgotten after its next write, unless it repeats before.
    ending: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WritePhase {
    Idle,
    Queued,
    InFlight,
}

impl EventEntry {
    fn is_idle(&self) -> bool {
        self.phase == WritePhase::Idle
    }

    /// True if the server does not have the count of the series. An event that did not repeat and was refused is not tried again.
    fn owes(&self) -> bool {
        self.count >= 2 && self.count > self.written
    }

    fn lost(&self) -> u64 {
        u64::from(self.count.saturating_sub(self.written))
    }
}

/// Which entry a write is of.
#[derive(Debug, Clone)]
pub(crate) struct WriteId {
    key: Arc<SeriesKey>,
    id: u64,
}

/// A write to send. Its answer must be settled.
#[derive(Debug)]
pub(crate) struct EventWrite {
    pub(crate) id: WriteId,
    pub(crate) event: Arc<NamedEvent>,
    /// True if the Event is thought to be there, and only its series is written.
    pub(crate) is_patch: bool,
    pub(crate) series: Option<EventSeries>,
}

/// What came of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteAnswer {
    Written,
    /// A create found an Event of this name.
    Exists,
    /// A patch found no Event of this name.
    Missing,
    /// The server refuses it, now and later.
    Refused,
    /// There was no answer, or one that says to try later: because the server was away, or not.
    Unanswered {
        outage: bool,
    },
}

/// Counts events, and queues what is to be written.
#[derive(Debug)]
pub(crate) struct Correlator {
    options: EventOptions,
    /// Bound: `entries_max`.
    entries: Lru<Arc<SeriesKey>, EventEntry>,
    /// Entries that had to make room before their last write. Bound: each has a pending write.
    detached: HashMap<u64, EventEntry>,
    limiter: EventLimiter,
    /// Writes by the time at which they are due. Bound, with those in flight: `writes_max`.
    outbox: BTreeMap<(Instant, u64), WriteId>,
    in_flight: usize,
    /// Numbers entries and queued writes.
    numbers: u64,
    last_nanos: i128,
    stats: EventStats,
}

/// What is due for an entry that waits.
enum DueWrite {
    Finish,
    Refresh,
}

impl Correlator {
    pub(crate) fn new(options: EventOptions) -> Correlator {
        let options = options.capped();
        let limiter = EventLimiter::new(options.entries_max, options.burst, options.refill);
        Correlator {
            options,
            entries: Lru::new(),
            detached: HashMap::new(),
            limiter,
            outbox: BTreeMap::new(),
            in_flight: 0,
            numbers: 0,
            last_nanos: 0,
            stats: EventStats::default(),
        }
    }

    pub(crate) fn stats(&self) -> EventStats {
        self.stats
    }

    /// Writes that are queued or in flight.
    pub(crate) fn pending(&self) -> usize {
        self.outbox.len() + self.in_flight
    }

    /// When the next queued write is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.outbox.first_key_value().map(|((due, _), _)| *due)
    }

    fn has_room(&self, writes: usize) -> bool {
        self.pending() + writes <= self.options.writes_max.max(2)
    }

    /// Takes an event: counts it, queues its write, or drops it.
    pub(crate) fn record(&mut self, event: EventParts, now: Instant) {
        let key = Arc::new(SeriesKey::of(&event));
        let has_room = self.has_room(1);
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.count = entry.count.saturating_add(1);
            entry.last_observed = event.time;
            entry.last_recorded = now;
            entry.ending = false;
            self.stats.series += 1;
            // Without room the next tick queues it.
            if entry.is_idle() && !entry.series_tried && has_room {
                self.queue(&key, now);
            }
            return;
        }
        let is_full = self.entries.len() >= self.options.entries_max.max(1);
        let oldest = self.entries.oldest().filter(|_| is_full);
        let last_write = oldest.is_some_and(|oldest| oldest.is_idle() && oldest.owes());
        if !self.has_room(1 + usize::from(last_write)) {
            self.stats.dropped += 1;
            return;
        }
        if !self.limiter.allows(&event, now) {
            self.stats.limited += 1;
            return;
        }
        if is_full {
            self.make_room(now);
        }
        // Two events at one time need two names.
        self.last_nanos = event.time.as_nanosecond().max(self.last_nanos + 1);
        let entry = EventEntry {
            id: self.number(),
            count: 1,
            last_observed: event.time,
            last_recorded: now,
            written: 0,
            exists: false,
            lost_answer: false,
            series_tried: false,
            refresh_at: now,
            tries: 0,
            phase: WritePhase::Idle,
            ending: false,
            event: Arc::new(NamedEvent {
                name: event.name(self.last_nanos),
                parts: event,
            }),
        };
        self.entries.insert(Arc::clone(&key), entry);
        self.queue(&key, now);
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Takes out the entry that was recorded longest ago. What the server does not know of it is written before it is forgotten.
    fn make_room(&mut self, now: Instant) {
        let Some((key, mut oldest)) = self.entries.pop_oldest() else {
            return;
        };
        if oldest.is_idle() && !oldest.owes() {
            self.stats.lost += oldest.lost();
            return;
        }
        oldest.ending = true;
        if oldest.is_idle() {
            let number = self.number();
            oldest.phase = WritePhase::Queued;
            let id = WriteId { key, id: oldest.id };
            self.outbox.insert((now, number), id);
        }
        self.detached.insert(oldest.id, oldest);
    }

    /// Queues the write of an entry that is remembered.
    fn queue(&mut self, key: &Arc<SeriesKey>, due: Instant) {
        let number = self.number();
        let Some(entry) = self.entries.peek_mut(key) else {
            return;
        };
        debug_assert!(entry.is_idle());
        entry.phase = WritePhase::Queued;
        let id = WriteId {
            key: Arc::clone(key),
            id: entry.id,
        };
        self.outbox.insert((due, number), id);
    }

    /// Queues what has become due, and forgets what has ended.
    pub(crate) fn tick(&mut self, now: Instant) {
        let EventOptions { finish_after, .. } = self.options;
        let due = |entry: &EventEntry| {
            let quiet = now.saturating_duration_since(entry.last_recorded);
            if !entry.is_idle() {
                None
            } else if quiet >= finish_after {
                Some(DueWrite::Finish)
            } else if entry.owes() && (!entry.series_tried || now >= entry.refresh_at) {
                Some(DueWrite::Refresh)
            } else {
                None
            }
        };
        let due: Vec<_> = self
            .entries
            .iter()
            .filter_map(|(key, entry)| Some((Arc::clone(key), due(entry)?, entry.owes())))
            .collect();
        for (key, due, owes) in due {
            match due {
                DueWrite::Finish if !owes => {
                    let ended = self.entries.remove(&key);
                    self.stats.lost += ended.map_or(0, |ended| ended.lost());
                }
                _ if !self.has_room(1) => {} // the next tick will
                due => {
                    if let Some(entry) = self.entries.peek_mut(&key) {
                        entry.ending = matches!(due, DueWrite::Finish);
                    }
                    self.queue(&key, now);
                }
            }
        }
    }

    /// Queues the counts that the server does not have, as if all series had ended. Returns how many of them have no room yet.
    pub(crate) fn end_series(&mut self, now: Instant) -> usize {
        let mut owing: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.owes())
            .map(|(key, entry)| (entry.id, Arc::clone(key), entry.is_idle()))
            .collect();
        owing.sort_by_key(|(id, ..)| *id); // the oldest first, whatever the order of the map
        let mut left = 0;
        for (_, key, is_idle) in owing {
            if is_idle && !self.has_room(1) {
                left += 1;
                continue;
            }
            // One that is given up is forgotten then, instead of being queued again.
            if let Some(entry) = self.entries.peek_mut(&key) {
                entry.ending = true;
            }
            if is_idle {
                self.queue(&key, now);
            }
        }
        left
    }

    /// Takes the next write that is due.
    pub(crate) fn next_write(&mut self, now: Instant) -> Option<EventWrite> {
        let next = self.outbox.first_entry()?;
        if next.key().0 > now {
            return None;
        }
        let id = next.remove();
        let entry = self.find(&id)?;
        entry.phase = WritePhase::InFlight;
        let series = EventSeries {
            count: entry.count,
            last_observed: entry.last_observed,
        };
        let write = EventWrite {
            event: Arc::clone(&entry.event),
            is_patch: entry.exists,
            series: (entry.count >= 2).then_some(series),
            id,
        };
        self.in_flight += 1;
        Some(write)
    }

    fn find(&mut self, id: &WriteId) -> Option<&mut EventEntry> {
        let remembered = self.entries.peek_mut(&id.key);
        match remembered.filter(|entry| entry.id == id.id) {
            Some(entry) => Some(entry),
            None => self.detached.get_mut(&id.id),
        }
    }

    /// Takes the answer to a write. `random` is between 0 and 1. False if the write was given up.
    pub(crate) fn settle(
        &mut self,
        write: &EventWrite,
        answer: WriteAnswer,
        now: Instant,
        random: f64,
    ) -> bool {
        self.in_flight -= 1;
        let (mut created, number) = (0, self.number());
        let (tries_max, refresh_every) = (self.options.tries_max, self.options.refresh_every);
        let later = now + self.options.retry_after.mul_f64(1.0 + JITTER * random);
        let Some(entry) = self.find(&write.id) else {
            return true;
        };
        let sent = write.series.map_or(1, |series| series.count);
        entry.phase = WritePhase::Idle;
        // When to write the entry again, because this write did not reach the server.
        let mut again = None;
        let mut given_up = false;
        match answer {
            WriteAnswer::Written => {
                created = u64::from(!write.is_patch);
                entry.exists = true;
                entry.written = sent;
                entry.tries = 0;
            }
            // The create before this one was done, only its answer got lost.
            WriteAnswer::Exists if entry.lost_answer => {
                created = 1;
                entry.exists = true;
                entry.written = entry.written.max(1);
                again = entry.owes().then_some(now);
            }
            // It was there, was gone for the patch, and is there again.
            WriteAnswer::Exists if sent >= 2 => {
                entry.exists = true;
                entry.tries += 1;
                again = Some(later);
            }
            WriteAnswer::Exists => {
                entry.exists = true;
                given_up = true;
            }
            // Servers delete Events after an hour: create it again, with its count.
            WriteAnswer::Missing => {
                entry.exists = false;
                again = Some(now);
            }
            WriteAnswer::Refused => given_up = true,
            WriteAnswer::Unanswered { outage } => {
                entry.lost_answer |= !write.is_patch;
                entry.tries += u32::from(!outage);
                again = Some(if outage { now } else { later });
            }
        }
        if answer == WriteAnswer::Written || matches!(answer, WriteAnswer::Exists) {
            entry.lost_answer = false;
        }
        if again.is_some() && entry.tries >= tries_max {
            again = None;
            given_up = true;
        }
        if again.is_none() {
            entry.tries = 0;
            entry.refresh_at = now + refresh_every;
            entry.series_tried |= sent >= 2;
            // It repeated while the write was on its way.
            let missed = entry.owes() && !entry.series_tried;
            let unfinished = entry.owes() && entry.ending && !given_up;
            again = (missed || unfinished).then_some(now);
        }
        match again {
            Some(due) => {
                entry.phase = WritePhase::Queued;
                self.outbox.insert((due, number), write.id.clone());
            }
            None if entry.ending => self.forget(&write.id),
            None => {}
        }
        self.stats.created += created;
        self.stats.failed += u64::from(given_up);
        !given_up
    }

    fn forget(&mut self, id: &WriteId) {
        let detached = self.detached.remove(&id.id);
        let ended = detached.or_else(|| self.entries.remove(&id.key));
        self.stats.lost += ended.map_or(0, |ended| ended.lost());
    }
}

#[cfg(test)]
mod tests;
