//! The log of events that all handlers of an informer share.
//!
//! The controller appends batches, each with a snapshot of the store after it; every subscriber has a cursor. A batch is removed
//! when all subscribers have read it, or when the log is full. A subscriber whose next batch was removed compares the snapshot
//! that it saw last with the current one, and gets one event for each key that differs. So a slow subscriber costs at most the
//! objects that have changed, and never has a queue of its own.
//!
//! Bounds: events and bytes, see [`LogOptions`]. Only subscribers with [`Overflow::Block`] can make the controller wait.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use crate::event::Event;
use crate::stats::Lag;
use crate::store::Snapshot;
use crate::sync::{Mutex, lock};

/// How much the log keeps for its slowest subscriber.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LogOptions {
    /// The log removes its oldest events beyond this number.
    pub events_max: usize,
    /// The log removes its oldest events beyond this many bytes of objects.
    pub bytes_max: usize,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            events_max: 10_000,
            bytes_max: 32 << 20,
        }
    }
}

impl LogOptions {
    /// Options with these bounds.
    #[must_use]
    pub fn new(events_max: usize, bytes_max: usize) -> LogOptions {
        LogOptions {
            events_max,
            bytes_max,
        }
    }
}

/// What happens to a handler that falls behind the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overflow {
    /// It gets one event for each object that has changed: from the state that it saw last to the current one.
    #[default]
    Coalesce,
    /// It gets every object again: changed ones as with `Coalesce`, the others as [`Event::Resync`].
    DropToSnapshot,
    /// The store waits for it, and so do all other handlers. The reflector does not wait: its queue coalesces by key.
    Block,
    /// Its subscription ends with [`FellBehind`](super::FellBehind).
    Error,
}

/// Events that were appended together.
pub(super) struct LogBatch<K> {
    pub(super) events: Vec<Event<K>>,
    /// The batch is the initial state: its objects are in `after`, and have no events.
    pub(super) initial: bool,
    /// The store after these events.
    pub(super) after: Arc<Snapshot<K>>,
    pub(super) bytes: usize,
    /// Events and bytes appended before this batch, since the log was created.
    events_before: u64,
    bytes_before: u64,
    pub(super) appended: Instant,
}

/// A subscriber's cursor in the log.
struct Subscriber {
    /// Tells it from earlier subscribers in the same slot.
    generation: u64,
    /// The number of the batch that it reads next.
    next: u64,
    /// Events and bytes appended before that batch, since the log was created.
    events_before: u64,
    bytes_before: u64,
    /// When the oldest batch that it has not read was appended.
    waits_since: Option<Instant>,
    /// It uses [`Overflow::Block`].
    blocks: bool,
    /// Its subscription ends before this batch.
    stop_at: Option<u64>,
    waker: Option<Waker>,
}

/// The log under its lock.
struct LogState<K> {
    /// Each batch, and how many subscribers have not read it.
    batches: VecDeque<(Arc<LogBatch<K>>, usize)>,
    /// The number of the first batch in the log.
    first: u64,
    events: usize,
    bytes: usize,
    /// Events and bytes appended since the log was created.
    events_ever: u64,
    bytes_ever: u64,
    options: LogOptions,
    subscribers: slab::Slab<Subscriber>,
    generations: u64,
    /// The store after the last batch.
    state: Arc<Snapshot<K>>,
    synced: bool,
    closed: bool,
    /// The controller, if it waits for room.
    writer: Option<Waker>,
}

/// The log; clones share it.
pub(super) struct EventLog<K>(Arc<Mutex<LogState<K>>>);

impl<K> Clone for EventLog<K> {
    fn clone(&self) -> EventLog<K> {
        EventLog(Arc::clone(&self.0))
    }
}

/// Identifies a subscriber of a log. Ids of subscribers that have left match nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct SubscriberId {
    slot: usize,
    generation: u64,
}

/// A new subscriber, and the state that it begins with.
pub(super) struct SubscriptionStart<K> {
    pub(super) id: SubscriberId,
    pub(super) state: Arc<Snapshot<K>>,
    pub(super) synced: bool,
}

/// What a subscriber reads.
pub(super) enum LogRead<K> {
    Batch(Arc<LogBatch<K>>),
    /// Its next batch was removed; this is the current state.
    Gone {
        state: Arc<Snapshot<K>>,
        synced: bool,
    },
    /// The log was closed, or the subscriber was told to stop here.
    End,
}

impl<K: Send + Sync + 'static> EventLog<K> {
    pub(super) fn new(options: LogOptions, state: Arc<Snapshot<K>>) -> EventLog<K> {
        EventLog(Arc::new(Mutex::new(LogState {
            batches: VecDeque::new(),
            first: 0,
            events: 0,
            bytes: 0,
            events_ever: 0,
            bytes_ever: 0,
            options,
            subscribers: slab::Slab::new(),
            generations: 0,
            state,
            synced: false,
            closed: false,
            writer: None,
        })))
    }

    /// Adds a subscriber that has seen the current state.
    pub(super) fn subscribe(&self, overflow: Overflow) -> SubscriptionStart<K> {
        let mut log = lock(&self.0);
        log.generations += 1;
        let generation = log.generations;
        let subscriber = Subscriber {
            generation,
            next: log.end(),
            events_before: log.events_ever,
            bytes_before: log.bytes_ever,
            waits_since: None,
            blocks: overflow == Overflow::Block,
            stop_at: None,
            waker: None,
        };
        let slot = log.subscribers.insert(subscriber);
        SubscriptionStart {
            id: SubscriberId { slot, generation },
            state: Arc::clone(&log.state),
            synced: log.synced,
        }
    }

    pub(super) fn unsubscribe(&self, id: SubscriberId) {
        let mut log = lock(&self.0);
        let subscriber = log.subscribers.remove(id.slot);
        let skip = subscriber.next.saturating_sub(log.first) as usize;
        for (_, readers) in log.batches.iter_mut().skip(skip) {
            *readers -= 1;
        }
        log.trim();
        let writer = log.writer.take();
        drop(log);
        wake(writer);
    }

    /// Waits while the log is full and a subscriber with [`Overflow::Block`] has not read its first batch.
    pub(super) fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut log = lock(&self.0);
        if log.is_full() && log.is_held() && !log.closed {
            log.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Appends a batch and wakes the subscribers.
    pub(super) fn append(&self, events: Vec<Event<K>>, initial: bool, after: Arc<Snapshot<K>>) {
        tracing::trace!(target: "tidings::walk", "appends the events to the log that handlers share");
        let mut log = lock(&self.0);
        log.state = Arc::clone(&after);
        log.synced |= initial;
        if events.is_empty() && !initial {
            return;
        }
        let bytes = events.iter().map(Event::memory_bytes).sum();
        let batch = Arc::new(LogBatch {
            bytes,
            initial,
            after,
            events_before: log.events_ever,
            bytes_before: log.bytes_ever,
            appended: Instant::now(),
            events,
        });
        log.events += batch.events.len();
        log.bytes += bytes;
        log.events_ever += batch.events.len() as u64;
        log.bytes_ever += bytes as u64;
        let readers = log.subscribers.len();
        let appended = batch.appended;
        log.batches.push_back((batch, readers));
        for (_, subscriber) in &mut log.subscribers {
            subscriber.waits_since.get_or_insert(appended);
        }
        log.trim();
        let wakers: Vec<Waker> = log
            .subscribers
            .iter_mut()
            .filter_map(|(_, subscriber)| subscriber.waker.take())
            .collect();
        drop(log);
        for waker in wakers {
            waker.wake();
        }
    }

    pub(super) fn poll_next(
        &self,
        id: SubscriberId,
        context: &mut Context<'_>,
    ) -> Poll<LogRead<K>> {
        let mut guard = lock(&self.0);
        let log = &mut *guard;
        let end = log.end();
        let subscriber = &mut log.subscribers[id.slot];
        if subscriber
            .stop_at
            .is_some_and(|stop| subscriber.next >= stop)
        {
            return Poll::Ready(LogRead::End);
        }
        if subscriber.next < log.first {
            subscriber.next = end;
            subscriber.events_before = log.events_ever;
            subscriber.bytes_before = log.bytes_ever;
            subscriber.waits_since = None;
            let state = Arc::clone(&log.state);
            let synced = log.synced;
            // It skips the batches that are left.
            for (_, readers) in &mut log.batches {
                *readers -= 1;
            }
            log.trim();
            return Poll::Ready(LogRead::Gone { state, synced });
        }
        let index = (subscriber.next - log.first) as usize;
        if let Some((batch, readers)) = log.batches.get_mut(index) {
            subscriber.next += 1;
            *readers -= 1;
            let batch = Arc::clone(batch);
            subscriber.events_before = batch.events_before + batch.events.len() as u64;
            subscriber.bytes_before = batch.bytes_before + batch.bytes as u64;
            let following = log.batches.get(index + 1);
            subscriber.waits_since = following.map(|(batch, _)| batch.appended);
            log.trim();
            let writer = log.writer.take();
            drop(guard);
            wake(writer);
            return Poll::Ready(LogRead::Batch(batch));
        }
        if log.closed {
            return Poll::Ready(LogRead::End);
        }
        subscriber.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Lets a subscriber read what is in the log at this time, and then ends it.
    pub(super) fn stop_at_end(&self, id: SubscriberId) {
        let mut log = lock(&self.0);
        let end = log.end();
        let waker = log.subscriber(id).and_then(|subscriber| {
            subscriber.stop_at = Some(end);
            subscriber.waker.take()
        });
        drop(log);
        wake(waker);
    }

    /// Wakes a subscriber, so that it checks whether it was aborted.
    pub(super) fn wake(&self, id: SubscriberId) {
        let mut log = lock(&self.0);
        let waker = log
            .subscriber(id)
            .and_then(|subscriber| subscriber.waker.take());
        drop(log);
        wake(waker);
    }

    /// Closes the log. Subscribers can still read what it holds.
    pub(super) fn close(&self) {
        let mut log = lock(&self.0);
        log.closed = true;
        let mut wakers: Vec<Waker> = log
            .subscribers
            .iter_mut()
            .filter_map(|(_, subscriber)| subscriber.waker.take())
            .collect();
        wakers.extend(log.writer.take());
        drop(log);
        for waker in wakers {
            waker.wake();
        }
    }

    /// How far a subscriber is behind; zero if it has left.
    pub(super) fn lag(&self, id: SubscriberId) -> Lag {
        let mut log = lock(&self.0);
        let (events, bytes) = (log.events_ever, log.bytes_ever);
        let Some(subscriber) = log.subscriber(id) else {
            return Lag::default();
        };
        Lag {
            events: events - subscriber.events_before,
            bytes: bytes - subscriber.bytes_before,
            age: subscriber
                .waits_since
                .map_or(Duration::ZERO, |since| since.elapsed()),
        }
    }

    pub(super) fn subscribers(&self) -> usize {
        lock(&self.0).subscribers.len()
    }

    /// Events and bytes in the log.
    pub(super) fn size(&self) -> (usize, usize) {
        let log = lock(&self.0);
        (log.events, log.bytes)
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl<K> LogState<K> {
    fn subscriber(&mut self, id: SubscriberId) -> Option<&mut Subscriber> {
        let subscriber = self.subscribers.get_mut(id.slot)?;
        (subscriber.generation == id.generation).then_some(subscriber)
    }

    fn end(&self) -> u64 {
        self.first + self.batches.len() as u64
    }

    fn is_full(&self) -> bool {
        self.events > self.options.events_max || self.bytes > self.options.bytes_max
    }

    /// True if a subscriber with [`Overflow::Block`] has not read the first batch.
    fn is_held(&self) -> bool {
        let mut subscribers = self.subscribers.iter();
        subscribers.any(|(_, subscriber)| subscriber.blocks && subscriber.next <= self.first)
    }

    /// Removes batches that all subscribers have read, and the oldest ones while the log is too large. The last batch stays until
    /// all have read it.
    fn trim(&mut self) {
        while let Some((batch, readers)) = self.batches.front() {
            let taken = *readers == 0;
            let crowded = self.is_full() && self.batches.len() > 1;
            if !taken && (!crowded || self.is_held()) {
                break;
            }
            self.events -= batch.events.len();
            self.bytes -= batch.bytes;
            self.batches.pop_front();
            self.first += 1;
        }
        if self.batches.is_empty() && self.batches.capacity() > 1024 {
            self.batches.shrink_to(64);
        }
    }
}
