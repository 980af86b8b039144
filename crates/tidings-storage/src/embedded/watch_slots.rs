//! The queues of watches: each has the live changes of one prefix that its watch has not taken yet, bounded in bytes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Waker;

use bytes::Bytes;

use super::record::Record;
use crate::contract::Revision;

/// The maximum size of the queue of a watch.
const QUEUE_BYTES_MAX: usize = 4 << 20;

/// A change for the queues of watches.
#[derive(Debug)]
pub(super) struct LiveChange {
    pub(super) revision: Revision,
    pub(super) record: Record,
    /// True if the key did not exist before.
    pub(super) created: bool,
}

/// The prefix and the queue of a watch.
#[derive(Debug)]
pub(super) struct WatchSlot {
    pub(super) prefix: Bytes,
    queue: Mutex<WatchQueue>,
}

/// The live changes that a watch has not taken yet.
#[derive(Debug, Default)]
pub(super) struct WatchQueue {
    pub(super) events: VecDeque<Arc<LiveChange>>,
    pub(super) bytes: usize,
    /// True if the queue overflowed: the watch must read the records.
    pub(super) lagging: bool,
    pub(super) progress_requested: bool,
    pub(super) closed: bool,
    pub(super) waker: Option<Waker>,
}

impl WatchSlot {
    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, WatchQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a change to the queue. Called under the write lock of the state, so that the queue matches the current revision.
    pub(super) fn offer(&self, live: &Arc<LiveChange>) -> Option<Waker> {
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

/// All watches of a store.
#[derive(Debug, Default)]
pub(super) struct WatchSlots(Vec<Weak<WatchSlot>>);

impl WatchSlots {
    pub(super) fn add(&mut self, prefix: Bytes) -> Arc<WatchSlot> {
        let slot = Arc::new(WatchSlot {
            prefix,
            queue: Mutex::default(),
        });
        self.0.retain(|other| other.strong_count() > 0);
        self.0.push(Arc::downgrade(&slot));
        slot
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Arc<WatchSlot>> {
        self.0.iter().filter_map(Weak::upgrade)
    }
}
