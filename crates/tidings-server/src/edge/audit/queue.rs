//! Events that wait to be written: bounded, and with an answer for those who wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

/// How requests and the writing of their events go together, under kube-apiserver's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuditMode {
    /// Events wait in a buffer. Those that do not fit are lost, and counted.
    Batch,
    /// A request waits until its event is written, or cannot be.
    Blocking,
    /// As blocking; a request whose first event cannot be written is refused.
    BlockingStrict,
}

/// An event that waits to be written.
pub(super) struct WaitingEvent {
    pub(super) json: Bytes,
    written: Option<oneshot::Sender<bool>>,
}

impl WaitingEvent {
    /// True if a request waits for it.
    pub(super) fn is_awaited(&self) -> bool {
        self.written.is_some()
    }

    /// Tells who waits whether the event is written.
    pub(super) fn settle(self, written: bool) {
        if let Some(waiting) = self.written {
            let _ = waiting.send(written);
        }
    }
}

/// Counts of one destination.
#[derive(Debug, Default)]
pub(crate) struct AuditCounts {
    /// Events that could not be written.
    pub(crate) lost: AtomicU64,
    /// Events that wait.
    pub(crate) waiting: AtomicUsize,
}

/// The sending side of a queue.
#[derive(Debug)]
pub(super) struct EventQueue {
    events: Sender<WaitingEvent>,
    mode: AuditMode,
    counts: Arc<AuditCounts>,
}

impl EventQueue {
    /// A queue for at most `most` events.
    pub(super) fn new(mode: AuditMode, most: usize) -> (EventQueue, Receiver<WaitingEvent>) {
        let (events, waiting) = channel(most);
        let queue = EventQueue {
            events,
            mode,
            counts: Arc::default(),
        };
        (queue, waiting)
    }

    pub(super) fn mode(&self) -> AuditMode {
        self.mode
    }

    pub(super) fn counts(&self) -> Arc<AuditCounts> {
        self.counts.clone()
    }

    /// Queues an event without waiting. False if it is lost.
    pub(super) fn offer(&self, json: Bytes) -> bool {
        self.counts.waiting.fetch_add(1, Ordering::Relaxed);
        let event = WaitingEvent {
            json,
            written: None,
        };
        let queued = self.events.try_send(event).is_ok();
        if !queued {
            self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
        queued
    }

    /// Queues an event, and waits until it is written if requests do. False if it is lost.
    pub(super) async fn deliver(&self, json: Bytes) -> bool {
        if self.mode == AuditMode::Batch {
            return self.offer(json);
        }
        let (written, done) = oneshot::channel();
        self.counts.waiting.fetch_add(1, Ordering::Relaxed);
        let event = WaitingEvent {
            json,
            written: Some(written),
        };
        if self.events.send(event).await.is_err() {
            self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        done.await.unwrap_or(false)
    }
}
