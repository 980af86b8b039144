//! Metrics of the store.

use std::fmt;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tidings_storage::{DiskStats, EncryptionStats, RemoteStats, Stats, SyncTimes};

pub(super) fn register(registry: &mut Registry, store: &Stats) {
    let mut all = StoreRegistry(registry);
    all.gauge(
        "revision",
        "Current revision of the store",
        store.revision.0,
    );
    all.gauge(
        "oldest_revision",
        "Oldest revision that was not compacted",
        store.oldest.0,
    );
    all.gauge(
        "oldest_age_seconds",
        "Age of the oldest revision that was not compacted, in the time that the server has been running",
        store.oldest_age.as_secs(),
    );
    all.gauge("keys", "Number of keys in the store", store.keys);
    all.gauge(
        "history_entries",
        "Number of older values kept as history",
        store.history_entries,
    );
    all.gauge(
        "history_bytes",
        "Size of the older values kept as history",
        store.history_bytes,
    );
    all.gauge(
        "tombstones",
        "Number of deletions kept because an older value of their key is still on disk",
        store.tombstones,
    );
    all.gauge(
        "queued_writes",
        "Number of writes that wait for a commit",
        store.queued,
    );
    all.counter("commits", "Number of commits made durable", store.commits);
    all.counter(
        "writes",
        "Number of writes in the commits made durable",
        store.writes,
    );
    all.counter(
        "failed_commits",
        "Number of commits that failed; their writes were refused",
        store.failed_commits,
    );
    all.counter(
        "failed_compactions",
        "Number of compactions that failed and are retried",
        store.failed_compactions,
    );
    if let Some(disk) = &store.disk {
        register_disk(&mut all, disk);
    }
    if let Some(encryption) = &store.encryption {
        register_encryption(&mut all, encryption);
    }
    if let Some(remote) = &store.remote {
        register_remote(registry, remote);
    }
}

fn register_disk(all: &mut StoreRegistry<'_>, disk: &DiskStats) {
    all.gauge("disk_bytes", "Size of the files of the store", disk.bytes);
    all.gauge("disk_segments", "Number of files of the log", disk.segments);
    all.gauge(
        "disk_reserve_bytes",
        "Disk space reserved for compaction on a full disk; 0 if the disk is full",
        disk.reserve_bytes,
    );
    if let Some(free_bytes) = disk.free_bytes {
        all.gauge(
            "disk_free_bytes",
            "Free space on the disk of the store",
            free_bytes,
        );
    }
    let help = "Latency distribution of the fsync calls that make commits durable";
    all.0.register(
        "tidings_store_sync_duration_seconds",
        help,
        SyncHistogram(disk.syncs),
    );
}

fn register_encryption(all: &mut StoreRegistry<'_>, counts: &EncryptionStats) {
    let counters = [
        (
            "encrypted_values",
            "Number of values encrypted",
            counts.sealed,
        ),
        (
            "decrypted_values",
            "Number of values decrypted",
            counts.opened,
        ),
        (
            "encryption_failures",
            "Number of values that could not be encrypted or decrypted",
            counts.failed,
        ),
    ];
    for (name, help, count) in counters {
        all.counter(name, help, count);
    }
}

fn register_remote(registry: &mut Registry, remote: &RemoteStats) {
    for (name, help, value) in [
        (
            "tidings_etcd_watched_revision",
            "Revision up to which the watch of etcd has delivered every change",
            remote.watched.0,
        ),
        (
            "tidings_etcd_watch_opened",
            "Number of times the watch of etcd was opened",
            remote.opened,
        ),
        (
            "tidings_etcd_unanswered",
            "Number of calls that no member of etcd answered",
            remote.unanswered,
        ),
        (
            "tidings_etcd_went_back",
            "Number of times etcd was found to have lost revisions",
            remote.went_back,
        ),
    ] {
        let gauge = Gauge::<i64>::default();
        gauge.set(value as i64);
        registry.register(name, help, gauge);
    }
}

/// Registers metrics of the store, whose names begin with `tidings_store_`.
struct StoreRegistry<'a>(&'a mut Registry);

impl StoreRegistry<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        let gauge = Gauge::<i64>::default();
        gauge.set(value as i64);
        self.0
            .register(format!("tidings_store_{name}"), help, gauge);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        let counter = Counter::<u64>::default();
        counter.inc_by(value);
        self.0
            .register(format!("tidings_store_{name}"), help, counter);
    }
}

/// A histogram whose buckets the store has counted.
#[derive(Debug)]
struct SyncHistogram(SyncTimes);

impl EncodeMetric for SyncHistogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let SyncTimes {
            count,
            sum,
            buckets,
        } = self.0;
        let mut before = 0;
        let mut own: Vec<(f64, u64)> = Vec::new();
        // The encoder adds up the buckets, so each gets only its own count.
        for (bound, up_to) in SyncTimes::BOUNDS.into_iter().zip(buckets) {
            own.push((bound, up_to - before));
            before = up_to;
        }
        own.push((f64::INFINITY, count - before));
        encoder.encode_histogram::<NoLabelSet>(sum.as_secs_f64(), count, &own, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
