//! Subscriptions: a subscriber reads the log, and catches up by snapshots where it missed batches.

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

use super::log::{EventLog, LogBatch, LogRead, Overflow, SubscriberId};
use crate::event::Event;
use crate::stats::Lag;
use crate::store::{Snapshot, SnapshotDifference};
use crate::sync::{Mutex, lock};

/// The shortest time between resyncs: more frequent ones would be a busy loop.
const RESYNC_LEAST: Duration = Duration::from_secs(1);
/// Objects that a snapshot cursor fetches at a time.
const CHUNK: usize = 64;

/// Options of a handler or subscription.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[derive(Default)]
pub struct HandlerOptions {
    /// The name, for logs and metrics.
    pub name: Option<Arc<str>>,
    /// How often every object is delivered again as [`Event::Resync`]: at most once a second, never if unset or zero.
    pub resync: Option<Duration>,
    /// What happens when the handler falls behind the log.
    pub overflow: Overflow,
}

impl HandlerOptions {
    /// Sets the name for logs and metrics.
    #[must_use]
    pub fn name(mut self, name: impl Into<Arc<str>>) -> HandlerOptions {
        self.name = Some(name.into());
        self
    }

    /// Sets how often every object is delivered again.
    #[must_use]
    pub fn resync(mut self, every: Duration) -> HandlerOptions {
        self.resync = Some(every);
        self
    }

    /// Sets what happens when the handler falls behind the log.
    #[must_use]
    pub fn overflow(mut self, overflow: Overflow) -> HandlerOptions {
        self.overflow = overflow;
        self
    }
}

/// The handler fell behind the log, and its options say [`Overflow::Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the handler fell behind the changes; subscribe again")]
pub struct FellBehind;

/// The events of an informer: the state when the subscription began, then every change, once and in order.
///
/// Ends when the informer stops. Dropping it ends the subscription.
pub struct Subscription<K: Send + Sync + 'static> {
    log: EventLog<K>,
    subscriber_id: SubscriberId,
    overflow: Overflow,
    position: ReadPosition<K>,
    /// The state that the subscriber has seen when it has handled all events at its position.
    seen: Arc<Snapshot<K>>,
    synced: bool,
    fell_behind: bool,
    resync: Option<ResyncTimer>,
    control: Arc<SubscriptionControl>,
    /// Keeps the informer running.
    _alive: Option<Arc<dyn Send + Sync>>,
}

/// Aborts a subscription from another task, and measures its lag.
#[derive(Debug, Default)]
pub(super) struct SubscriptionControl {
    aborted: AtomicBool,
    /// Events that were read from the log and are not handled, including the one that was delivered last.
    taken: AtomicU64,
    details: Mutex<TakenEvents>,
}

/// When the unhandled events were appended, and their average size.
#[derive(Debug, Default)]
struct TakenEvents {
    since: Option<Instant>,
    bytes_each: u64,
}

impl SubscriptionControl {
    /// The lag of the events that the subscriber has read from the log.
    pub(super) fn lag(&self) -> Lag {
        let events = self.taken.load(Ordering::Relaxed);
        if events == 0 {
            return Lag::default();
        }
        let details = lock(&self.details);
        Lag {
            events,
            bytes: events * details.bytes_each,
            age: details
                .since
                .map_or(Duration::ZERO, |since| since.elapsed()),
        }
    }

    /// Records the events at a new position as read and not handled.
    fn took<K: Send + Sync + 'static>(&self, position: &ReadPosition<K>) {
        let (since, bytes) = match position {
            ReadPosition::Between | ReadPosition::End => return,
            ReadPosition::Snapshot { cursor, .. } => {
                (Instant::now(), cursor.snapshot.memory_bytes())
            }
            ReadPosition::Batch(batch, _) => (batch.appended, batch.bytes),
            ReadPosition::Missed(events) => {
                let bytes = events.as_slice().iter().map(Event::memory_bytes).sum();
                (Instant::now(), bytes)
            }
        };
        let events = position.left();
        *lock(&self.details) = TakenEvents {
            since: Some(since),
            bytes_each: (bytes / events.max(1)) as u64,
        };
        self.taken.store(events as u64, Ordering::Relaxed);
    }

    pub(super) fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
    }
}

/// When the next resync is due.
struct ResyncTimer {
    every: Duration,
    timer: Pin<Box<Sleep>>,
}

/// Where a subscriber takes its next event from.
enum ReadPosition<K> {
    /// From the next batch of the log.
    Between,
    /// From a snapshot: the initial state or a resync.
    Snapshot {
        cursor: SnapshotCursor<K>,
        kind: SnapshotPurpose,
    },
    /// From a batch of the log, at an index.
    Batch(Arc<LogBatch<K>>, usize),
    /// From the differences that it has missed.
    Missed(std::vec::IntoIter<Event<K>>),
    End,
}

/// Why a snapshot is delivered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SnapshotPurpose {
    Initial,
    Resync,
}

impl<K: Send + Sync + 'static> ReadPosition<K> {
    fn snapshot(snapshot: &Arc<Snapshot<K>>, kind: SnapshotPurpose) -> ReadPosition<K> {
        ReadPosition::Snapshot {
            cursor: SnapshotCursor::new(Arc::clone(snapshot)),
            kind,
        }
    }

    /// The number of events left at this position.
    fn left(&self) -> usize {
        match self {
            ReadPosition::Between | ReadPosition::End => 0,
            ReadPosition::Snapshot { cursor, .. } => cursor.snapshot.len() - cursor.given,
            ReadPosition::Batch(batch, index) => batch.events.len().saturating_sub(*index),
            ReadPosition::Missed(events) => events.len(),
        }
    }
}

/// Iterates over a snapshot without borrowing it.
struct SnapshotCursor<K> {
    snapshot: Arc<Snapshot<K>>,
    given: usize,
    chunk: VecDeque<Arc<crate::object::Cached<K>>>,
    last: Option<ObjectKey>,
    done: bool,
}

impl<K: Send + Sync + 'static> SnapshotCursor<K> {
    fn new(snapshot: Arc<Snapshot<K>>) -> SnapshotCursor<K> {
        SnapshotCursor {
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
    pub(super) fn new(log: EventLog<K>, options: &HandlerOptions) -> Subscription<K> {
        let start = log.subscribe(options.overflow);
        let position = if start.synced {
            ReadPosition::snapshot(&start.state, SnapshotPurpose::Initial)
        } else {
            ReadPosition::Between
        };
        let control = Arc::<SubscriptionControl>::default();
        control.took(&position);
        let resync = options.resync.filter(|every| !every.is_zero());
        let resync = resync.map(|every| {
            let every = every.max(RESYNC_LEAST);
            ResyncTimer {
                every,
                timer: Box::pin(sleep_until(Instant::now() + every)),
            }
        });
        Subscription {
            log,
            subscriber_id: start.id,
            overflow: options.overflow,
            position,
            seen: start.state,
            synced: false,
            fell_behind: false,
            resync,
            control,
            _alive: None,
        }
    }

    /// Keeps the informer running as long as the subscription exists.
    pub(super) fn keeping(mut self, alive: Arc<dyn Send + Sync>) -> Subscription<K> {
        self._alive = Some(alive);
        self
    }

    /// How far the subscriber is behind the store.
    pub fn lag(&self) -> Lag {
        self.log.lag(self.subscriber_id).and(self.control.lag())
    }

    /// Stops resyncs.
    pub fn stop_resync(&mut self) {
        self.resync = None;
    }

    /// Whether the stream ended because the subscriber fell behind.
    ///
    /// # Errors
    /// If it fell behind.
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

    pub(super) fn control(&self) -> (Arc<SubscriptionControl>, SubscriberId) {
        (Arc::clone(&self.control), self.subscriber_id)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Event<K>>> {
        loop {
            if self.control.aborted.load(Ordering::Acquire) {
                self.position = ReadPosition::End;
            }
            if let Some(event) = self.next_at_position() {
                let taken = self.position.left() as u64 + 1;
                self.control.taken.store(taken, Ordering::Relaxed);
                return Poll::Ready(Some(event));
            }
            self.control.taken.store(0, Ordering::Relaxed);
            if matches!(self.position, ReadPosition::End) {
                return Poll::Ready(None);
            }
            match self.log.poll_next(self.subscriber_id, context) {
                Poll::Ready(LogRead::Batch(batch)) => self.take(batch),
                Poll::Ready(LogRead::Gone { state, synced }) => {
                    if let Some(event) = self.jump(state, synced) {
                        return Poll::Ready(Some(event));
                    }
                }
                Poll::Ready(LogRead::End) => self.position = ReadPosition::End,
                // A resync starts only when no newer events wait.
                Poll::Pending => {
                    if !self.resync_is_due(context) {
                        return Poll::Pending;
                    }
                    self.enter(ReadPosition::snapshot(&self.seen, SnapshotPurpose::Resync));
                }
            }
        }
    }

    /// The next event at the current position.
    fn next_at_position(&mut self) -> Option<Event<K>> {
        let event = match &mut self.position {
            ReadPosition::Between | ReadPosition::End => return None,
            ReadPosition::Snapshot { cursor, kind } => match (cursor.next(), *kind) {
                (Some(object), SnapshotPurpose::Initial) => Some(Event::Added {
                    object,
                    initial: true,
                }),
                (Some(object), SnapshotPurpose::Resync) => Some(Event::Resync { object }),
                (None, SnapshotPurpose::Initial) => {
                    self.synced = true;
                    self.position = ReadPosition::Between;
                    return Some(Event::Synced);
                }
                (None, SnapshotPurpose::Resync) => None,
            },
            ReadPosition::Batch(batch, index) => {
                let event = batch.events.get(*index).cloned();
                *index += 1;
                event
            }
            ReadPosition::Missed(events) => events.next(),
        };
        if event.is_none() {
            self.position = ReadPosition::Between;
        }
        event
    }

    fn take(&mut self, batch: Arc<LogBatch<K>>) {
        tracing::trace!(target: "tidings::walk", "gives the events to one handler, at its own pace");
        self.seen = Arc::clone(&batch.after);
        self.enter(if batch.initial && !self.synced {
            ReadPosition::snapshot(&batch.after, SnapshotPurpose::Initial)
        } else {
            ReadPosition::Batch(batch, 0)
        });
    }

    fn enter(&mut self, position: ReadPosition<K>) {
        self.control.took(&position);
        self.position = position;
    }

    /// The subscriber's next batch was removed: continues at the current state as its options say.
    fn jump(&mut self, state: Arc<Snapshot<K>>, synced: bool) -> Option<Event<K>> {
        if self.overflow == Overflow::Error {
            self.fell_behind = true;
            self.position = ReadPosition::End;
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
        self.enter(ReadPosition::Missed(missed.into_iter()));
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

/// The events that lead from one state to another: deletions first, then the others, each sorted by key.
fn missed<K: Send + Sync + 'static>(
    before: &Snapshot<K>,
    after: &Snapshot<K>,
    initial: bool,
) -> Vec<Event<K>> {
    let (mut gone, mut rest) = (Vec::new(), Vec::new());
    for difference in before.differences(after) {
        let (old, new) = match difference {
            SnapshotDifference::Added(new) => (None, Some(new)),
            SnapshotDifference::Updated(old, new) if old.uid() == new.uid() => {
                rest.push(Event::Updated {
                    old: Arc::clone(old),
                    new: Arc::clone(new),
                });
                continue;
            }
            SnapshotDifference::Updated(old, new) => (Some(old), Some(new)),
            SnapshotDifference::Deleted(old) => (Some(old), None),
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
        self.log.unsubscribe(self.subscriber_id);
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
