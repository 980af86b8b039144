//! One subscriber's walk along the log.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tidings_api::ObjectKey;
use tokio::time::{Instant, Sleep, sleep_until};

use super::event::Event;
use super::log::{Found, Lag, Log, LogBatch, Overflow, Seat};
use crate::store::{Difference, Snapshot};
use crate::sync::{Mutex, lock};

/// A resync more often than this is a busy loop.
const RESYNC_LEAST: Duration = Duration::from_secs(1);
/// How many objects of a snapshot are looked up at once.
const CHUNK: usize = 64;

/// How a handler wants its events.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[derive(Default)]
pub struct HandlerOptions {
    /// The name, for logs and metrics.
    pub name: Option<Arc<str>>,
    /// Deliver every object again this often, as [`Event::Resync`]. Never unless set, and never if zero; at most once a second.
    pub resync: Option<Duration>,
    /// What happens when the handler is slower than the changes.
    pub overflow: Overflow,
}

impl HandlerOptions {
    /// A name for logs and metrics.
    #[must_use]
    pub fn name(mut self, name: impl Into<Arc<str>>) -> HandlerOptions {
        self.name = Some(name.into());
        self
    }

    /// Delivers every object again this often.
    #[must_use]
    pub fn resync(mut self, every: Duration) -> HandlerOptions {
        self.resync = Some(every);
        self
    }

    /// What happens when the handler is slower than the changes.
    #[must_use]
    pub fn overflow(mut self, overflow: Overflow) -> HandlerOptions {
        self.overflow = overflow;
        self
    }
}

/// The handler was slower than the changes, and asked to be told: [`Overflow::Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the handler fell behind the changes; subscribe again")]
pub struct FellBehind;

/// The events of an informer: the state as it was when the subscription began, and everything after it, once and in order.
///
/// Ends when the informer stops. Dropping it ends the subscription.
pub struct Subscription<K: Send + Sync + 'static> {
    log: Log<K>,
    seat: Seat,
    overflow: Overflow,
    place: Place<K>,
    /// What the subscriber has seen when it has taken everything up to its place.
    seen: Arc<Snapshot<K>>,
    synced: bool,
    fell_behind: bool,
    resync: Option<Resync>,
    control: Arc<Control>,
    /// Keeps the informer running.
    _alive: Option<Arc<dyn Send + Sync>>,
}

/// What is known of a subscription from outside, and how it is ended from there.
#[derive(Debug, Default)]
pub(super) struct Control {
    aborted: AtomicBool,
    /// Events that were taken from the log and are not done: those that wait, and the one that was handed out last.
    taken: AtomicU64,
    place: Mutex<Taken>,
}

/// Since when events are taken and not done, and how large they are on average.
#[derive(Debug, Default)]
struct Taken {
    since: Option<Instant>,
    bytes_each: u64,
}

impl Control {
    /// How far the subscriber is behind with what it has taken from the log.
    pub(super) fn lag(&self) -> Lag {
        let events = self.taken.load(Ordering::Relaxed);
        if events == 0 {
            return Lag::default();
        }
        let place = lock(&self.place);
        Lag {
            events,
            bytes: events * place.bytes_each,
            age: place.since.map_or(Duration::ZERO, |since| since.elapsed()),
        }
    }

    fn took<K: Send + Sync + 'static>(&self, place: &Place<K>) {
        let (since, bytes) = match place {
            Place::Between | Place::End => return,
            Place::Snapshot { walk, .. } => (Instant::now(), walk.snapshot.memory_bytes()),
            Place::Batch(batch, _) => (batch.appended, batch.bytes),
            Place::Missed(events) => {
                let bytes = events.as_slice().iter().map(Event::memory_bytes).sum();
                (Instant::now(), bytes)
            }
        };
        let events = place.left();
        *lock(&self.place) = Taken {
            since: Some(since),
            bytes_each: (bytes / events.max(1)) as u64,
        };
        self.taken.store(events as u64, Ordering::Relaxed);
    }

    pub(super) fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
    }
}

struct Resync {
    every: Duration,
    timer: Pin<Box<Sleep>>,
}

/// Where a subscriber is.
enum Place<K> {
    /// Between two batches.
    Between,
    /// In a snapshot.
    Snapshot {
        walk: Walk<K>,
        kind: Kind,
    },
    /// In a batch.
    Batch(Arc<LogBatch<K>>, usize),
    /// In what it has missed.
    Missed(std::vec::IntoIter<Event<K>>),
    End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Initial,
    Resync,
}

impl<K: Send + Sync + 'static> Place<K> {
    fn snapshot(snapshot: &Arc<Snapshot<K>>, kind: Kind) -> Place<K> {
        Place::Snapshot {
            walk: Walk::new(Arc::clone(snapshot)),
            kind,
        }
    }

    /// How many events are left here.
    fn left(&self) -> usize {
        match self {
            Place::Between | Place::End => 0,
            Place::Snapshot { walk, .. } => walk.snapshot.len() - walk.given,
            Place::Batch(batch, index) => batch.events.len().saturating_sub(*index),
            Place::Missed(events) => events.len(),
        }
    }
}

/// Walks a snapshot without borrowing it.
struct Walk<K> {
    snapshot: Arc<Snapshot<K>>,
    given: usize,
    chunk: VecDeque<Arc<crate::object::Cached<K>>>,
    last: Option<ObjectKey>,
    done: bool,
}

impl<K: Send + Sync + 'static> Walk<K> {
    fn new(snapshot: Arc<Snapshot<K>>) -> Walk<K> {
        Walk {
            snapshot,
            given: 0,
            chunk: VecDeque::new(),
            last: None,
            done: false,
        }
    }

    fn next(&mut self) -> Option<Arc<crate::object::Cached<K>>> {
        if self.chunk.is_empty() && !self.done {
            // No key is empty.
            let last = self.last.as_ref().map_or("", ObjectKey::as_str);
            self.chunk
                .extend(self.snapshot.after(last).take(CHUNK).cloned());
            self.last = self.chunk.back().map(|object| object.key().clone());
            self.done = self.chunk.len() < CHUNK;
        }
        self.given += usize::from(!self.chunk.is_empty());
        self.chunk.pop_front()
    }
}

impl<K: Send + Sync + 'static> Subscription<K> {
    pub(super) fn new(log: Log<K>, options: &HandlerOptions) -> Subscription<K> {
        let start = log.subscribe(options.overflow);
        let place = if start.synced {
            Place::snapshot(&start.state, Kind::Initial)
        } else {
            Place::Between
        };
        let control = Arc::<Control>::default();
        control.took(&place);
        let resync = options.resync.filter(|every| !every.is_zero());
        let resync = resync.map(|every| {
            let every = every.max(RESYNC_LEAST);
            Resync {
                every,
                timer: Box::pin(sleep_until(Instant::now() + every)),
            }
        });
        Subscription {
            log,
            seat: start.seat,
            overflow: options.overflow,
            place,
            seen: start.state,
            synced: false,
            fell_behind: false,
            resync,
            control,
            _alive: None,
        }
    }

    /// Keeps something alive as long as the subscription.
    pub(super) fn keeping(mut self, alive: Arc<dyn Send + Sync>) -> Subscription<K> {
        self._alive = Some(alive);
        self
    }

    /// How far the subscriber is behind.
    pub fn lag(&self) -> Lag {
        self.log.lag(self.seat).and(self.control.lag())
    }

    /// No more resyncs.
    pub fn stop_resync(&mut self) {
        self.resync = None;
    }

    /// Set if the stream ended because the subscriber fell behind.
    ///
    /// # Errors
    /// If it did.
    pub fn outcome(&self) -> Result<(), FellBehind> {
        if self.fell_behind {
            Err(FellBehind)
        } else {
            Ok(())
        }
    }

    /// The next event; `None` when the informer has stopped. Cancel-safe.
    pub async fn next(&mut self) -> Option<Event<K>> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    pub(super) fn control(&self) -> (Arc<Control>, Seat) {
        (Arc::clone(&self.control), self.seat)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Event<K>>> {
        loop {
            if self.control.aborted.load(Ordering::Acquire) {
                self.place = Place::End;
            }
            if let Some(event) = self.here() {
                let taken = self.place.left() as u64 + 1;
                self.control.taken.store(taken, Ordering::Relaxed);
                return Poll::Ready(Some(event));
            }
            self.control.taken.store(0, Ordering::Relaxed);
            if matches!(self.place, Place::End) {
                return Poll::Ready(None);
            }
            match self.log.poll_next(self.seat, context) {
                Poll::Ready(Found::Batch(batch)) => self.take(batch),
                Poll::Ready(Found::Gone { state, synced }) => {
                    if let Some(event) = self.jump(state, synced) {
                        return Poll::Ready(Some(event));
                    }
                }
                Poll::Ready(Found::End) => self.place = Place::End,
                // Only who has caught up looks at everything again: what waits is newer.
                Poll::Pending => {
                    if !self.resync_is_due(context) {
                        return Poll::Pending;
                    }
                    self.enter(Place::snapshot(&self.seen, Kind::Resync));
                }
            }
        }
    }

    /// The next event of the place where the subscriber is.
    fn here(&mut self) -> Option<Event<K>> {
        let event = match &mut self.place {
            Place::Between | Place::End => return None,
            Place::Snapshot { walk, kind } => match (walk.next(), *kind) {
                (Some(object), Kind::Initial) => Some(Event::Added {
                    object,
                    initial: true,
                }),
                (Some(object), Kind::Resync) => Some(Event::Resync { object }),
                (None, Kind::Initial) => {
                    self.synced = true;
                    self.place = Place::Between;
                    return Some(Event::Synced);
                }
                (None, Kind::Resync) => None,
            },
            Place::Batch(batch, index) => {
                let event = batch.events.get(*index).cloned();
                *index += 1;
                event
            }
            Place::Missed(events) => events.next(),
        };
        if event.is_none() {
            self.place = Place::Between;
        }
        event
    }

    fn take(&mut self, batch: Arc<LogBatch<K>>) {
        self.seen = Arc::clone(&batch.after);
        self.enter(if batch.initial && !self.synced {
            Place::snapshot(&batch.after, Kind::Initial)
        } else {
            Place::Batch(batch, 0)
        });
    }

    fn enter(&mut self, place: Place<K>) {
        self.control.took(&place);
        self.place = place;
    }

    /// The log has gone on without the subscriber.
    fn jump(&mut self, state: Arc<Snapshot<K>>, synced: bool) -> Option<Event<K>> {
        if self.overflow == Overflow::Error {
            self.fell_behind = true;
            self.place = Place::End;
            return None;
        }
        let initial = !self.synced;
        let mut missed = missed(&self.seen, &state, initial);
        if self.overflow == Overflow::DropToSnapshot {
            let same = state.iter().filter(|object| {
                let seen = self.seen.get_by_key(object.key().as_str());
                seen.is_some_and(|seen| Arc::ptr_eq(seen, object))
            });
            missed.extend(same.map(|object| Event::Resync {
                object: Arc::clone(object),
            }));
        }
        if initial && synced {
            self.synced = true;
            missed.push(Event::Synced);
        }
        self.seen = state;
        self.enter(Place::Missed(missed.into_iter()));
        None
    }

    fn resync_is_due(&mut self, context: &mut Context<'_>) -> bool {
        let Some(resync) = &mut self.resync else {
            return false;
        };
        if !self.synced || resync.timer.as_mut().poll(context).is_pending() {
            return false;
        }
        let next = Instant::now() + resync.every;
        resync.timer.as_mut().reset(next);
        true
    }
}

/// What happened between two states: deletions first, then the rest, each in the order of the keys.
fn missed<K: Send + Sync + 'static>(
    before: &Snapshot<K>,
    after: &Snapshot<K>,
    initial: bool,
) -> Vec<Event<K>> {
    let (mut gone, mut rest) = (Vec::new(), Vec::new());
    for difference in before.differences(after) {
        let (old, new) = match difference {
            Difference::Added(new) => (None, Some(new)),
            Difference::Updated(old, new) if old.uid() == new.uid() => {
                rest.push(Event::Updated {
                    old: Arc::clone(old),
                    new: Arc::clone(new),
                });
                continue;
            }
            Difference::Updated(old, new) => (Some(old), Some(new)),
            Difference::Deleted(old) => (Some(old), None),
        };
        gone.extend(old.map(|old| Event::Deleted {
            last: Arc::clone(old),
            final_state_known: false,
        }));
        rest.extend(new.map(|new| Event::Added {
            object: Arc::clone(new),
            initial,
        }));
    }
    gone.append(&mut rest);
    gone
}

impl<K: Send + Sync + 'static> Stream for Subscription<K> {
    type Item = Event<K>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event<K>>> {
        self.get_mut().poll(context)
    }
}

impl<K: Send + Sync + 'static> Drop for Subscription<K> {
    fn drop(&mut self) {
        self.log.unsubscribe(self.seat);
    }
}

impl<K: Send + Sync + 'static> std::fmt::Debug for Subscription<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription")
            .field("synced", &self.synced)
            .field("overflow", &self.overflow)
            .finish_non_exhaustive()
    }
}
