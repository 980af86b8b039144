//! What a controller counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidings_informer::workqueue::metrics::{Histogram, HistogramSnapshot};

/// The counters of a controller.
#[derive(Debug, Default)]
pub(crate) struct ControllerCounters {
    pub(crate) succeeded: AtomicU64,
    pub(crate) requeued: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) terminal: AtomicU64,
    pub(crate) panicked: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) given_back: AtomicU64,
    pub(crate) stale_starts: AtomicU64,
    pub(crate) active: AtomicU64,
    pub(crate) duration: Histogram,
}

/// The figures of a controller at one moment.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ControllerStats {
    /// Reconciles that succeeded and wait for a change.
    pub succeeded: u64,
    /// Reconciles that succeeded and asked to run again later.
    pub requeued: u64,
    /// Reconciles that failed, panicked or took too long. Those that only met a server that did not answer are not among them.
    pub failed: u64,
    /// Failures that are not retried, by [`ErrorPolicy::Terminal`](crate::ErrorPolicy::Terminal).
    pub terminal: u64,
    /// Reconciles that panicked.
    pub panicked: u64,
    /// Reconciles that took longer than the timeout.
    pub timed_out: u64,
    /// Reconciles that failed while the server did not answer: their keys were given back without a penalty.
    pub given_back: u64,
    /// Reconciles that started without what this process had written, because the cache did not get it in time.
    pub stale_starts: u64,
    /// Reconciles that run now.
    pub active: u64,
    /// How long reconciles took.
    pub duration: HistogramSnapshot,
    /// What became of the events that it recorded.
    pub events: EventStats,
}

/// What became of the events of an [`EventRecorder`](crate::EventRecorder).
///
/// Each recorded event is counted once: in `series`, `dropped` or `limited`, or, when the server has answered, in `created` or `failed`.
/// `failed` counts writes of series too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventStats {
    /// Events that the server created.
    pub created: u64,
    /// Repeats, which count in an Event instead of being one.
    pub series: u64,
    /// Events that were dropped because too many writes were waiting.
    pub dropped: u64,
    /// Events that were dropped by the rate limit.
    pub limited: u64,
    /// Writes that were given up: the server refused them, or did not answer them often enough.
    pub failed: u64,
    /// Of what was not dropped: events that no Event on the server counts, because its writes were given up. Known when the Event is forgotten.
    pub lost: u64,
}

impl ControllerStats {
    /// All reconciles that have ended.
    pub fn reconciles(&self) -> u64 {
        self.succeeded + self.requeued + self.failed + self.given_back
    }
}

impl ControllerCounters {
    /// The figures, without those of events: the recorder has them.
    pub(crate) fn snapshot(&self) -> ControllerStats {
        ControllerStats {
            succeeded: self.succeeded.load(Relaxed),
            requeued: self.requeued.load(Relaxed),
            failed: self.failed.load(Relaxed),
            terminal: self.terminal.load(Relaxed),
            panicked: self.panicked.load(Relaxed),
            timed_out: self.timed_out.load(Relaxed),
            given_back: self.given_back.load(Relaxed),
            stale_starts: self.stale_starts.load(Relaxed),
            active: self.active.load(Relaxed),
            duration: self.duration.snapshot(),
            events: EventStats::default(),
        }
    }

    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }
}
