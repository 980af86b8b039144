//! Watches: a reader of the log that is caught up from the records and then follows live.
//!
//! Each watch has a queue of the changes that it has not taken yet, bounded in bytes. A watch whose queue overflows loses
//! the queue, not the changes: it reads them from the records again.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_core::Stream;

use super::Shared;
use super::record::Record;
use crate::contract::{Change, Error, Event, Previous, Revision, WatchBatch};

/// What a watch may have waiting in memory.
const QUEUE_BYTES_MAX: usize = 4 << 20;
/// How much a watch that catches up takes from the records at once.
const CATCH_UP_BYTES: usize = 1 << 20;

/// A change as it is handed to watches.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) revision: Revision,
    pub(super) record: Record,
    /// The revision of the value before; `None` if the key did not exist.
    pub(super) previous: Option<Revision>,
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

pub(super) struct Watch {
    pub(super) shared: Arc<Shared>,
    pub(super) slot: Arc<Slot>,
    pub(super) previous: Previous,
    /// Everything up to here has been delivered.
    pub(super) position: Revision,
    /// The records have the changes up to here, the queue those after it.
    pub(super) live_after: Revision,
    pub(super) failed: bool,
}

impl Watch {
    /// The next batch, if there is one already.
    fn take(&mut self, waker: &Waker) -> Result<Option<WatchBatch>, Error> {
        if self.position < self.live_after {
            return self.catch_up().map(Some);
        }
        let state = self.shared.state();
        let mut queue = self.slot.lock();
        if queue.closed {
            return Err(Error::Closed);
        }
        let progress = std::mem::take(&mut queue.progress_requested);
        if queue.lagging {
            queue.lagging = false;
            self.live_after = state.revision;
            drop(queue);
            drop(state);
            return self.catch_up().map(Some);
        }
        if queue.events.is_empty() && !progress {
            queue.waker = Some(waker.clone());
            return Ok(None);
        }
        let events = std::mem::take(&mut queue.events);
        queue.bytes = 0;
        let revision = state.revision;
        drop(queue);
        drop(state);
        // A change may have been queued and also read from the records: a watch starts its queue before it catches up.
        let fresh = events.iter().filter(|live| live.revision > self.position);
        let events = fresh
            .map(|live| self.event(live.revision, &live.record, live.previous))
            .collect::<Result<_, _>>()?;
        self.position = revision;
        self.live_after = revision;
        Ok(Some(WatchBatch { events, revision }))
    }

    fn catch_up(&mut self) -> Result<WatchBatch, Error> {
        let mut found: Vec<(Revision, Record)> = Vec::new();
        let mut bytes = 0;
        let mut reached = self.live_after;
        self.shared
            .records
            .scan(self.position, self.live_after, &mut |revision, record| {
                if record.key.starts_with(&self.slot.prefix) {
                    bytes += record.bytes();
                    found.push((revision, record));
                }
                let enough = bytes >= CATCH_UP_BYTES;
                if enough {
                    reached = revision;
                }
                !enough
            })?;
        let oldest = self.shared.state().oldest;
        if self.position < oldest {
            return Err(Error::Compacted {
                requested: self.position,
                oldest,
            });
        }
        let with_previous = |(revision, record): &(Revision, Record)| {
            let before = self.shared.state().index.before(&record.key, *revision);
            self.event(*revision, record, before)
        };
        let events = found.iter().map(with_previous).collect::<Result<_, _>>()?;
        self.position = reached;
        Ok(WatchBatch {
            events,
            revision: reached,
        })
    }

    fn event(
        &self,
        revision: Revision,
        record: &Record,
        before: Option<Revision>,
    ) -> Result<Event, Error> {
        let change = record.value.clone().map_or(Change::Delete, Change::Put);
        let wanted = self.previous.is_wanted(&change);
        let previous = match before.filter(|_| wanted) {
            None => None,
            Some(before) => match self.shared.records.get(before)? {
                Some(record) => record.value,
                None => {
                    let oldest = self.shared.state().oldest;
                    return Err(Error::Compacted {
                        requested: self.position,
                        oldest,
                    });
                }
            },
        };
        Ok(Event {
            revision,
            key: record.key.clone(),
            change,
            created: before.is_none(),
            previous,
        })
    }
}

impl Stream for Watch {
    type Item = Result<WatchBatch, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.failed {
            return Poll::Ready(None);
        }
        let before = self.position;
        match self.take(context.waker()) {
            Ok(None) => Poll::Pending,
            Ok(Some(batch)) => {
                assert!(batch.revision >= before, "a watch never goes back");
                Poll::Ready(Some(Ok(batch)))
            }
            Err(error) => {
                self.failed = true;
                Poll::Ready(Some(Err(error)))
            }
        }
    }
}
