//! The log of events that all handlers of an informer share.
//!
//! The controller appends batches, each with the state after it; every subscriber has a cursor. A batch goes when all have
//! taken it, or when the log is full. A subscriber that finds its place gone knows the state that it has seen and the state
//! now: what it missed is their difference, one event for each key. So a slow subscriber costs at most the objects that have
//! changed since, never a queue of its own.
//!
//! Bounds: events and bytes, see [`LogOptions`]. Only subscribers that block can make the controller wait.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::event::Event;
use crate::store::Snapshot;
use crate::sync::{Mutex, lock};

/// How much a log holds for its slowest subscriber.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LogOptions {
    /// Events beyond this are let go.
    pub events_max: usize,
    /// Bytes of objects beyond this are let go.
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
    /// Other bounds.
    #[must_use]
    pub fn new(events_max: usize, bytes_max: usize) -> LogOptions {
        LogOptions {
            events_max,
            bytes_max,
        }
    }
}

/// What happens to a handler that is slower than the changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overflow {
    /// It gets one event for each object that has changed since: from what it was told last to what is now.
    #[default]
    Coalesce,
    /// It gets every object again: changed ones as changes, the others as [`Event::Resync`].
    DropToSnapshot,
    /// The store waits for it, and with it every other handler. The reflector does not: its queue coalesces by key.
    Block,
    /// It is told that it fell behind, and gets nothing more.
    Error,
}

pub(super) struct LogBatch<K> {
    pub(super) events: Vec<Event<K>>,
    /// This is the initial state: `after` has it, and there is no event for each object.
    pub(super) initial: bool,
    pub(super) after: Arc<Snapshot<K>>,
    pub(super) bytes: usize,
    /// Events and bytes that were appended before this batch, ever.
    events_before: u64,
    bytes_before: u64,
    pub(super) appended: Instant,
}

struct Subscriber {
    /// Tells it from others that had its slot before.
    generation: u64,
    /// The batch that it reads next.
    next: u64,
    /// Events and bytes that were appended before that batch, ever.
    events_before: u64,
    bytes_before: u64,
    /// Since when something waits for it.
    waits_since: Option<Instant>,
    blocks: bool,
    /// It ends before this batch.
    stop_at: Option<u64>,
    waker: Option<Waker>,
}

struct Inner<K> {
    batches: VecDeque<(Arc<LogBatch<K>>, usize)>,
    /// The number of the first batch in the log.
    first: u64,
    events: usize,
    bytes: usize,
    events_ever: u64,
    bytes_ever: u64,
    options: LogOptions,
    subscribers: slab::Slab<Subscriber>,
    generations: u64,
    /// The state after the last batch.
    state: Arc<Snapshot<K>>,
    synced: bool,
    closed: bool,
    /// The controller, waiting for room.
    writer: Option<Waker>,
}

/// The log; clones share it.
pub(super) struct Log<K>(Arc<Mutex<Inner<K>>>);

impl<K> Clone for Log<K> {
    fn clone(&self) -> Log<K> {
        Log(Arc::clone(&self.0))
    }
}

/// Names a subscriber of a log, also when it has gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seat {
    slot: usize,
    generation: u64,
}

/// Where a subscriber begins.
pub(super) struct Start<K> {
    pub(super) seat: Seat,
    pub(super) state: Arc<Snapshot<K>>,
    pub(super) synced: bool,
}

/// What a subscriber finds.
pub(super) enum Found<K> {
    Batch(Arc<LogBatch<K>>),
    /// Its place is gone; this is the state now.
    Gone {
        state: Arc<Snapshot<K>>,
        synced: bool,
    },
    /// There is nothing more for it.
    End,
}

/// How far a handler is behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lag {
    /// Events that were published and are not done: objects of the initial state, and the event that is being handled, count.
    pub events: u64,
    /// About how many bytes their objects have.
    pub bytes: u64,
    /// How long the oldest of them has waited.
    pub age: Duration,
}

impl Lag {
    /// Behind by this, and with something older too.
    pub(super) fn and(self, older: Lag) -> Lag {
        Lag {
            events: self.events + older.events,
            bytes: self.bytes + older.bytes,
            age: self.age.max(older.age),
        }
    }
}

impl<K: Send + Sync + 'static> Log<K> {
    pub(super) fn new(options: LogOptions, state: Arc<Snapshot<K>>) -> Log<K> {
        Log(Arc::new(Mutex::new(Inner {
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

    /// A cursor behind the current state, and that state.
    pub(super) fn subscribe(&self, overflow: Overflow) -> Start<K> {
        let mut inner = lock(&self.0);
        inner.generations += 1;
        let generation = inner.generations;
        let subscriber = Subscriber {
            generation,
            next: inner.end(),
            events_before: inner.events_ever,
            bytes_before: inner.bytes_ever,
            waits_since: None,
            blocks: overflow == Overflow::Block,
            stop_at: None,
            waker: None,
        };
        let slot = inner.subscribers.insert(subscriber);
        Start {
            seat: Seat { slot, generation },
            state: Arc::clone(&inner.state),
            synced: inner.synced,
        }
    }

    pub(super) fn unsubscribe(&self, seat: Seat) {
        let mut inner = lock(&self.0);
        let subscriber = inner.subscribers.remove(seat.slot);
        let skip = subscriber.next.saturating_sub(inner.first) as usize;
        for (_, readers) in inner.batches.iter_mut().skip(skip) {
            *readers -= 1;
        }
        inner.trim();
        let writer = inner.writer.take();
        drop(inner);
        wake(writer);
    }

    /// Waits until no subscriber that blocks is further behind than the log is long.
    pub(super) fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut inner = lock(&self.0);
        if inner.is_full() && inner.is_held() && !inner.closed {
            inner.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Appends a batch and wakes who waits for one.
    pub(super) fn append(&self, events: Vec<Event<K>>, initial: bool, after: Arc<Snapshot<K>>) {
        let mut inner = lock(&self.0);
        inner.state = Arc::clone(&after);
        inner.synced |= initial;
        if events.is_empty() && !initial {
            return;
        }
        let bytes = events.iter().map(Event::memory_bytes).sum();
        let batch = Arc::new(LogBatch {
            bytes,
            initial,
            after,
            events_before: inner.events_ever,
            bytes_before: inner.bytes_ever,
            appended: Instant::now(),
            events,
        });
        inner.events += batch.events.len();
        inner.bytes += bytes;
        inner.events_ever += batch.events.len() as u64;
        inner.bytes_ever += bytes as u64;
        let readers = inner.subscribers.len();
        let appended = batch.appended;
        inner.batches.push_back((batch, readers));
        for (_, subscriber) in &mut inner.subscribers {
            subscriber.waits_since.get_or_insert(appended);
        }
        inner.trim();
        let wakers: Vec<Waker> = inner
            .subscribers
            .iter_mut()
            .filter_map(|(_, subscriber)| subscriber.waker.take())
            .collect();
        drop(inner);
        for waker in wakers {
            waker.wake();
        }
    }

    pub(super) fn poll_next(&self, seat: Seat, context: &mut Context<'_>) -> Poll<Found<K>> {
        let mut guard = lock(&self.0);
        let inner = &mut *guard;
        let end = inner.end();
        let subscriber = &mut inner.subscribers[seat.slot];
        if subscriber
            .stop_at
            .is_some_and(|stop| subscriber.next >= stop)
        {
            return Poll::Ready(Found::End);
        }
        if subscriber.next < inner.first {
            subscriber.next = end;
            subscriber.events_before = inner.events_ever;
            subscriber.bytes_before = inner.bytes_ever;
            subscriber.waits_since = None;
            let state = Arc::clone(&inner.state);
            let synced = inner.synced;
            // The batches that are left have been jumped over.
            for (_, readers) in &mut inner.batches {
                *readers -= 1;
            }
            inner.trim();
            return Poll::Ready(Found::Gone { state, synced });
        }
        let index = (subscriber.next - inner.first) as usize;
        if let Some((batch, readers)) = inner.batches.get_mut(index) {
            subscriber.next += 1;
            *readers -= 1;
            let batch = Arc::clone(batch);
            subscriber.events_before = batch.events_before + batch.events.len() as u64;
            subscriber.bytes_before = batch.bytes_before + batch.bytes as u64;
            let following = inner.batches.get(index + 1);
            subscriber.waits_since = following.map(|(batch, _)| batch.appended);
            inner.trim();
            let writer = inner.writer.take();
            drop(guard);
            wake(writer);
            return Poll::Ready(Found::Batch(batch));
        }
        if inner.closed {
            return Poll::Ready(Found::End);
        }
        subscriber.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Lets a subscriber take what is there now, and then end.
    pub(super) fn stop_at_end(&self, seat: Seat) {
        let mut inner = lock(&self.0);
        let end = inner.end();
        let waker = inner.subscriber(seat).and_then(|subscriber| {
            subscriber.stop_at = Some(end);
            subscriber.waker.take()
        });
        drop(inner);
        wake(waker);
    }

    /// Wakes a subscriber, to look at something else than the log.
    pub(super) fn wake(&self, seat: Seat) {
        let mut inner = lock(&self.0);
        let waker = inner
            .subscriber(seat)
            .and_then(|subscriber| subscriber.waker.take());
        drop(inner);
        wake(waker);
    }

    /// Nothing comes any more. What is there can still be taken.
    pub(super) fn close(&self) {
        let mut inner = lock(&self.0);
        inner.closed = true;
        let mut wakers: Vec<Waker> = inner
            .subscribers
            .iter_mut()
            .filter_map(|(_, subscriber)| subscriber.waker.take())
            .collect();
        wakers.extend(inner.writer.take());
        drop(inner);
        for waker in wakers {
            waker.wake();
        }
    }

    /// Nothing if the subscriber has gone.
    pub(super) fn lag(&self, seat: Seat) -> Lag {
        let mut inner = lock(&self.0);
        let (events, bytes) = (inner.events_ever, inner.bytes_ever);
        let Some(subscriber) = inner.subscriber(seat) else {
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
        let inner = lock(&self.0);
        (inner.events, inner.bytes)
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl<K> Inner<K> {
    fn subscriber(&mut self, seat: Seat) -> Option<&mut Subscriber> {
        let subscriber = self.subscribers.get_mut(seat.slot)?;
        (subscriber.generation == seat.generation).then_some(subscriber)
    }

    fn end(&self) -> u64 {
        self.first + self.batches.len() as u64
    }

    fn is_full(&self) -> bool {
        self.events > self.options.events_max || self.bytes > self.options.bytes_max
    }

    /// A subscriber that blocks has not taken the first batch.
    fn is_held(&self) -> bool {
        let mut subscribers = self.subscribers.iter();
        subscribers.any(|(_, subscriber)| subscriber.blocks && subscriber.next <= self.first)
    }

    /// Lets go what everyone has taken, and what there is no room for. The last batch stays while someone needs it.
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
