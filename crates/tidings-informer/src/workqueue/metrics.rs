//! The metrics of a work queue: counters, two histograms and the state of the workers.
//!
//! No task updates them: values that depend on the time, such as how long the slowest worker has been busy, are computed when
//! they are read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The upper bounds of the buckets in seconds: powers of ten as in client-go, so that dashboards for it work here.
pub const BUCKET_BOUNDS_SECONDS: [f64; 12] = [
    1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0,
];

/// The bounds in nanoseconds.
const BUCKET_BOUNDS_NANOS: [u128; 12] = [
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
    10_000_000_000,
    100_000_000_000,
    1_000_000_000_000,
];

/// A histogram of durations that many threads may write to.
#[derive(Debug, Default)]
pub struct Histogram {
    /// Not cumulative. The last bucket counts durations above every bound.
    buckets: [AtomicU64; BUCKET_BOUNDS_NANOS.len() + 1],
    sum_nanos: AtomicU64,
}

impl Histogram {
    /// Counts one duration.
    pub fn observe(&self, duration: Duration) {
        let nanos = duration.as_nanos();
        let bucket = BUCKET_BOUNDS_NANOS.partition_point(|bound| *bound < nanos);
        self.buckets[bucket].fetch_add(1, Relaxed);
        // 2^64 ns are 584 years of work.
        self.sum_nanos
            .fetch_add(u64::try_from(nanos).unwrap_or(u64::MAX), Relaxed);
    }

    /// The current counts.
    #[must_use]
    pub fn snapshot(&self) -> HistogramSnapshot {
        let mut count = 0;
        let mut cumulative = [0; BUCKET_BOUNDS_SECONDS.len()];
        for (bucket, total) in self.buckets.iter().zip(&mut cumulative) {
            count += bucket.load(Relaxed);
            *total = count;
        }
        count += self.buckets[BUCKET_BOUNDS_NANOS.len()].load(Relaxed);
        HistogramSnapshot {
            cumulative,
            count,
            sum_seconds: Duration::from_nanos(self.sum_nanos.load(Relaxed)).as_secs_f64(),
        }
    }
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramSnapshot {
    /// How many durations were at most each of [`BUCKET_BOUNDS_SECONDS`].
    pub cumulative: [u64; BUCKET_BOUNDS_SECONDS.len()],
    /// The number of durations.
    pub count: u64,
    /// Their sum.
    pub sum_seconds: f64,
}

/// The counters that are updated as events happen. The rest of [`QueueMetrics`] is read from the queue.
#[derive(Debug, Default)]
pub(super) struct QueueCounters {
    pub(super) retries: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) queue_duration: Histogram,
    pub(super) work_duration: Histogram,
}

/// The metrics of a queue at one moment, with client-go's names.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct QueueMetrics {
    /// Items that wait for a worker.
    pub depth: usize,
    /// Delayed items.
    pub delayed: usize,
    /// Items that workers have.
    pub processing: usize,
    /// How often an item was queued, or marked to be queued again; duplicates do not count.
    pub adds_total: u64,
    /// How often an item was added because it failed: with a rate limit. Items that are delayed on purpose do not count.
    pub retries_total: u64,
    /// How often an add was refused because the queue was shutting down.
    pub refused_total: u64,
    /// How long items were queued before a worker took them.
    pub queue_duration: HistogramSnapshot,
    /// How long workers had items.
    pub work_duration: HistogramSnapshot,
    /// The time spent so far on items that are not done, summed over all workers. If it only grows, workers are stuck.
    pub unfinished_work_seconds: f64,
    /// How long the slowest worker has been busy with its item.
    pub longest_running_processor_seconds: f64,
}
