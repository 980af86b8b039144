//! Watches: a reader of the log that is caught up from the records and then follows live.
//!
//! Each watch has a queue of the changes that it has not taken yet, bounded in bytes. A watch whose queue overflows loses
//! the queue, not the changes: it reads them from the records again. The index says which those are, so that a watch reads the
//! records of its own prefix and no others.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_core::Stream;
use tokio::sync::oneshot;

use super::engine::{Engine, State};
use super::index::IndexedChange;
use super::reader::Reader;
use super::record::Record;
use crate::contract::{Change, Error, Event, Revision, WatchBatch};

/// What a watch may have waiting in memory.
const QUEUE_BYTES_MAX: usize = 4 << 20;
/// How much a watch that catches up takes from the records at once, and how many it asks for.
const CATCH_UP_BYTES: usize = 1 << 20;
const CATCH_UP_RECORDS: usize = 128;

/// A change as it is handed to watches.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) revision: Revision,
    pub(super) record: Record,
    /// The key did not exist before.
    pub(super) created: bool,
}

#[derive(Debug)]
pub(super) struct Slot {
    prefix: Bytes,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Arc<Live>>,
    bytes: usize,
    /// The queue overflowed: the records have what it lost.
    lagging: bool,
    progress_requested: bool,
    closed: bool,
    waker: Option<Waker>,
}

impl Slot {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called under the state's write lock, so that the queue and the current revision agree.
    pub(super) fn offer(&self, live: &Arc<Live>) -> Option<Waker> {
        if !live.record.key.starts_with(&self.prefix) {
            return None;
        }
        let mut queue = self.lock();
        if !queue.lagging {
            queue.bytes += live.record.bytes();
            queue.events.push_back(live.clone());
            if queue.bytes > QUEUE_BYTES_MAX {
                queue.events.clear();
                queue.bytes = 0;
                queue.lagging = true;
            }
        }
        queue.waker.take()
    }

    pub(super) fn request_progress(&self, prefix: &[u8]) {
        if *prefix != *self.prefix {
            return;
        }
        let mut queue = self.lock();
        queue.progress_requested = true;
        wake(queue.waker.take());
    }

    pub(super) fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        wake(queue.waker.take());
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The watches of a store.
#[derive(Debug, Default)]
pub(super) struct Slots(Vec<Weak<Slot>>);

impl Slots {
    pub(super) fn add(&mut self, prefix: Bytes) -> Arc<Slot> {
        let slot = Arc::new(Slot {
            prefix,
            queue: Mutex::default(),
        });
        self.0.retain(|other| other.strong_count() > 0);
        self.0.push(Arc::downgrade(&slot));
        slot
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Arc<Slot>> {
        self.0.iter().filter_map(Weak::upgrade)
    }
}

/// Changes that a watch has to read from the records.
#[derive(Debug)]
pub(super) struct Backlog {
    changes: VecDeque<IndexedChange>,
    /// Where the watch stands.
    position: Revision,
    /// The changes are all there are up to here.
    through: Revision,
}

impl Backlog {
    /// What a prefix has after a revision that can still be read.
    pub(super) fn collect(state: &State, prefix: &[u8], after: Revision) -> Result<Backlog, Error> {
        state.readable(Some(after))?;
        Ok(Backlog {
            changes: state.index.changes(prefix, after),
            position: after,
            through: state.revision,
        })
    }

    fn is_done(&self) -> bool {
        self.position >= self.through
    }

    /// Reads the next changes.
    pub(super) fn read(&mut self, engine: &Engine) -> Result<WatchBatch, Error> {
        let mut events = Vec::new();
        let mut bytes = 0;
        while bytes < CATCH_UP_BYTES && !self.changes.is_empty() {
            let count = self.changes.len().min(CATCH_UP_RECORDS);
            let changes: Vec<_> = self.changes.drain(..count).collect();
            let revisions: Vec<_> = changes.iter().map(|change| change.revision).collect();
            for (change, record) in changes.iter().zip(engine.records.read(&revisions)?) {
                let Some(record) = record else {
                    return Err(Error::Compacted {
                        requested: self.position,
                        oldest: engine.state().oldest,
                    });
                };
                bytes += record.bytes();
                events.push(event(change.revision, record, change.created));
            }
        }
        let last = events.last().map(|event| event.revision);
        self.position = match last {
            Some(last) if !self.changes.is_empty() => last,
            _ => self.through,
        };
        Ok(WatchBatch {
            events,
            revision: self.position,
        })
    }
}

fn event(revision: Revision, record: Record, created: bool) -> Event {
    Event {
        revision,
        key: record.key,
        change: record.value.map_or(Change::Delete, Change::Put),
        created,
    }
}

/// What a reading thread gives back: the rest of the backlog, and what was read of it.
type Read = (Backlog, Result<WatchBatch, Error>);

pub(super) struct Watch {
    engine: Arc<Engine>,
    /// Who reads the records; `None` if that takes no time.
    reader: Option<Arc<Reader>>,
    slot: Arc<Slot>,
    /// Everything up to here has been delivered.
    position: Revision,
    /// What the queue does not have.
    backlog: Option<Backlog>,
    reading: Option<oneshot::Receiver<Read>>,
    failed: bool,
}

impl Watch {
    pub(super) fn start(
        engine: Arc<Engine>,
        reader: Option<Arc<Reader>>,
        prefix: &Bytes,
        after: Revision,
    ) -> Result<Watch, Error> {
        // The queue begins before the backlog ends: what both have is told once.
        let slot = engine.state_mut().slots.add(prefix.clone());
        let backlog = Backlog::collect(&engine.state(), prefix, after)?;
        Ok(Watch {
            engine,
            reader,
            slot,
            position: after,
            backlog: (!backlog.is_done()).then_some(backlog),
            reading: None,
            failed: false,
        })
    }

    fn poll_batch(&mut self, context: &mut Context<'_>) -> Poll<Result<WatchBatch, Error>> {
        loop {
            if let Some(reading) = &mut self.reading {
                let read = std::task::ready!(Pin::new(reading).poll(context));
                self.reading = None;
                return Poll::Ready(match read {
                    Ok((backlog, batch)) => self.caught_up(backlog, batch),
                    Err(_) => Err(Error::Closed),
                });
            }
            if let Some(mut backlog) = self.backlog.take() {
                let engine = self.engine.clone();
                let read = move || {
                    let batch = backlog.read(&engine);
                    (backlog, batch)
                };
                match &self.reader {
                    Some(reader) => {
                        self.reading = Some(reader.run(read));
                        continue;
                    }
                    None => {
                        let (backlog, batch) = read();
                        return Poll::Ready(self.caught_up(backlog, batch));
                    }
                }
            }
            match self.take(context.waker()) {
                Ok(None) if self.backlog.is_some() => {}
                Ok(None) => return Poll::Pending,
                Ok(Some(batch)) => return Poll::Ready(Ok(batch)),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn caught_up(
        &mut self,
        backlog: Backlog,
        batch: Result<WatchBatch, Error>,
    ) -> Result<WatchBatch, Error> {
        let batch = batch?;
        self.position = batch.revision;
        self.backlog = (!backlog.is_done()).then_some(backlog);
        Ok(batch)
    }

    /// What the queue has. `None` if it is empty, or has lost what is in the backlog now.
    fn take(&mut self, waker: &Waker) -> Result<Option<WatchBatch>, Error> {
        let state = self.engine.state();
        let mut queue = self.slot.lock();
        if queue.closed {
            return Err(Error::Closed);
        }
        if queue.lagging {
            queue.lagging = false;
            drop(queue);
            let backlog = Backlog::collect(&state, &self.slot.prefix, self.position)?;
            self.backlog = Some(backlog);
            return Ok(None);
        }
        let progress = std::mem::take(&mut queue.progress_requested);
        if queue.events.is_empty() && !progress {
            queue.waker = Some(waker.clone());
            return Ok(None);
        }
        let events = std::mem::take(&mut queue.events);
        queue.bytes = 0;
        let revision = state.revision;
        drop(queue);
        drop(state);
        let fresh = events.iter().filter(|live| live.revision > self.position);
        let events = fresh.map(|live| event(live.revision, live.record.clone(), live.created));
        let events = events.collect();
        self.position = revision;
        Ok(Some(WatchBatch { events, revision }))
    }
}

impl Stream for Watch {
    type Item = Result<WatchBatch, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.failed {
            return Poll::Ready(None);
        }
        let before = self.position;
        self.poll_batch(context).map(|batch| {
            if let Ok(batch) = &batch {
                assert!(batch.revision >= before, "a watch never goes back");
            }
            self.failed = batch.is_err();
            Some(batch)
        })
    }
}
