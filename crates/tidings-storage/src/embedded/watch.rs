//! Watches: a watch first reads past changes from the records, then follows live changes.
//!
//! Each watch has a queue of changes that it has not taken yet, bounded in bytes. When the queue overflows, it is dropped and the
//! watch reads the changes from the records instead. The index knows which records belong to the watch's prefix, so that it reads
//! no others.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_core::Stream;
use tokio::sync::oneshot;

use super::engine::{Engine, EngineState};
use super::index::IndexedChange;
use super::reader::DiskReader;
use super::record::Record;
use super::watch_slots::WatchSlot;
use crate::contract::{Change, Error, Event, Revision, WatchBatch};

/// The size of a batch that a watch reads from the records.
const CATCH_UP_BYTES: usize = 1 << 20;
/// The number of records of one read.
const CATCH_UP_RECORDS: usize = 128;

/// Changes that a watch has to read from the records.
#[derive(Debug)]
pub(super) struct Backlog {
    changes: VecDeque<IndexedChange>,
    /// The revision that the watch has reached.
    position: Revision,
    /// The changes are complete up to this revision.
    through: Revision,
}

impl Backlog {
    /// The changes of a prefix after a revision. Fails if that revision is compacted.
    pub(super) fn collect(
        state: &EngineState,
        prefix: &[u8],
        after: Revision,
    ) -> Result<Backlog, Error> {
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

/// The result of a read: the rest of the backlog, and the batch.
type BacklogRead = (Backlog, Result<WatchBatch, Error>);

/// The stream of a watch.
pub(super) struct EmbeddedWatch {
    engine: Arc<Engine>,
    /// The reading thread; `None` if the records are in memory.
    reader: Option<Arc<DiskReader>>,
    slot: Arc<WatchSlot>,
    /// All changes up to this revision have been delivered.
    position: Revision,
    /// Changes that are not in the queue.
    backlog: Option<Backlog>,
    reading: Option<oneshot::Receiver<BacklogRead>>,
    failed: bool,
}

impl EmbeddedWatch {
    pub(super) fn start(
        engine: Arc<Engine>,
        reader: Option<Arc<DiskReader>>,
        prefix: &Bytes,
        after: Revision,
    ) -> Result<EmbeddedWatch, Error> {
        // The queue starts before the backlog ends; changes that are in both are delivered once.
        let slot = engine.state_mut().slots.add(prefix.clone());
        let backlog = Backlog::collect(&engine.state(), prefix, after)?;
        Ok(EmbeddedWatch {
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

    /// Takes the queue. `None` if it is empty, or if it has overflowed and `backlog` was filled instead.
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

impl Stream for EmbeddedWatch {
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
