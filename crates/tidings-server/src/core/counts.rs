//! Counters of watches, for metrics. Atomics, so that counting takes no lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The counters of all watches of one resource.
#[derive(Debug, Default)]
pub(crate) struct WatchCounts {
    open: AtomicI64,
    events: AtomicU64,
    bytes: AtomicU64,
    initial: AtomicU64,
    fell_behind: AtomicU64,
}

/// The values of [`WatchCounts`] at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchFigures {
    /// Open watches.
    pub(crate) open: i64,
    /// Events sent.
    pub(crate) events: u64,
    /// Bytes of the events sent.
    pub(crate) bytes: u64,
    /// Initial events sent.
    pub(crate) initial: u64,
    /// Watches that ended because they fell behind the event log.
    pub(crate) fell_behind: u64,
}

impl WatchCounts {
    pub(crate) fn figures(&self) -> WatchFigures {
        WatchFigures {
            open: self.open.load(Ordering::Relaxed),
            events: self.events.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            initial: self.initial.load(Ordering::Relaxed),
            fell_behind: self.fell_behind.load(Ordering::Relaxed),
        }
    }
}

/// Counts for one open watch. Dropping it counts the watch as closed.
#[derive(Debug)]
pub(crate) struct WatchCounter(Arc<WatchCounts>);

impl WatchCounter {
    /// Counts a watch as open.
    pub(crate) fn open(counts: Arc<WatchCounts>) -> WatchCounter {
        counts.open.fetch_add(1, Ordering::Relaxed);
        WatchCounter(counts)
    }

    pub(crate) fn sent(&self, events: u64, bytes: usize) {
        if events > 0 {
            self.0.events.fetch_add(events, Ordering::Relaxed);
            self.0.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn initial(&self, events: u64) {
        self.0.initial.fetch_add(events, Ordering::Relaxed);
    }

    pub(crate) fn fell_behind(&self) {
        self.0.fell_behind.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for WatchCounter {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
