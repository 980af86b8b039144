//! What a scraper reads of a queue: counters, two histograms and the state of the workers.
//!
//! No task keeps these up to date. What depends on the time, such as how long the slowest worker has been busy, is computed when
//! it is read, so nothing needs to be stopped with the queue.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The upper bounds of the buckets in seconds: powers of ten as in client-go, so that dashboards carry over.
pub const BUCKET_BOUNDS_SECONDS: [f64; 12] = [
    1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0,
];

/// The same bounds as they are compared with.
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
    /// Not cumulative; the last is what exceeds every bound.
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

    /// The counts as they are now.
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
    /// How many durations there were.
    pub count: u64,
    /// Their sum.
    pub sum_seconds: f64,
}

/// What is counted as it happens; the rest of [`Metrics`] is read off the queue.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) retries: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) queue_duration: Histogram,
    pub(super) work_duration: Histogram,
}

/// A queue at one moment, under client-go's names.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Metrics {
    /// Items that wait for a worker.
    pub depth: usize,
    /// Items that wait for their time.
    pub delayed: usize,
    /// Items that are with a worker.
    pub processing: usize,
    /// How often an item became in need of processing; duplicates do not count.
    pub adds_total: u64,
    /// How often an item was added with a delay or a rate limit.
    pub retries_total: u64,
    /// How often an add was refused because the queue was shutting down.
    pub refused_total: u64,
    /// How long items waited between being ready and being handed out.
    pub queue_duration: HistogramSnapshot,
    /// How long workers had them.
    pub work_duration: HistogramSnapshot,
    /// The time spent so far on work that is not done, over all workers. If it grows by more than workers do, some are stuck.
    pub unfinished_work_seconds: f64,
    /// How long the slowest worker has been busy with its item.
    pub longest_running_processor_seconds: f64,
}
