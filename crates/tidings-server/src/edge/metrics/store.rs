//! Metrics of the store.

use std::fmt;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tidings_storage::{DiskStats, RemoteStats, Stats, SyncTimes};

pub(super) fn register(registry: &mut Registry, store: &Stats) {
    let mut all = StoreRegistry(registry);
    all.gauge("revision", "The current revision", store.revision.0);
    all.gauge("oldest_revision", "Where history starts", store.oldest.0);
    all.gauge(
        "oldest_age_seconds",
        "How long ago history starts, in the time that the server has been running",
        store.oldest_age.as_secs(),
    );
    all.gauge("keys", "Keys that exist", store.keys);
    all.gauge(
        "history_entries",
        "Values kept as history",
        store.history_entries,
    );
    all.gauge("history_bytes", "Their size", store.history_bytes);
    all.gauge(
        "tombstones",
        "Deletions kept because a value of their key still stands on disk",
        store.tombstones,
    );
    all.gauge(
        "queued_writes",
        "Writes that wait for a commit",
        store.queued,
    );
    all.counter("commits", "Durable commits", store.commits);
    all.counter("writes", "Writes in those commits", store.writes);
    all.counter(
        "failed_commits",
        "Commits that failed; their writes were refused",
        store.failed_commits,
    );
    all.counter(
        "failed_compactions",
        "Compactions that failed and are tried again",
        store.failed_compactions,
    );
    if let Some(disk) = &store.disk {
        register_disk(&mut all, disk);
    }
    if let Some(remote) = &store.remote {
        register_remote(registry, remote);
    }
}

fn register_disk(all: &mut StoreRegistry<'_>, disk: &DiskStats) {
    all.gauge("disk_bytes", "What the files of the store take", disk.bytes);
    all.gauge("disk_segments", "Files of the log", disk.segments);
    all.gauge(
        "disk_reserve_bytes",
        "Room that is kept for compaction on a full disk; 0 if the disk is full",
        disk.reserve_bytes,
    );
    if let Some(free_bytes) = disk.free_bytes {
        all.gauge("disk_free_bytes", "What can still be written", free_bytes);
    }
    let help = "How long commits took to become durable";
    all.0.register(
        "tidings_store_sync_duration_seconds",
        help,
        SyncHistogram(disk.syncs),
    );
}

fn register_remote(registry: &mut Registry, remote: &RemoteStats) {
    for (name, help, value) in [
        (
            "tidings_etcd_watched_revision",
            "The revision up to which every change has come",
            remote.watched.0,
        ),
        (
            "tidings_etcd_watch_opened",
            "How often the watch of etcd was opened",
            remote.opened,
        ),
        (
            "tidings_etcd_unanswered",
            "Calls that no member answered",
            remote.unanswered,
        ),
        (
            "tidings_etcd_went_back",
            "How often etcd was found to have lost revisions",
            remote.went_back,
        ),
    ] {
        let gauge = Gauge::<i64>::default();
        gauge.set(value as i64);
        registry.register(name, help, gauge);
    }
}

/// Takes figures of the store under their names.
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

/// A histogram that the store has counted.
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
        // The encoder adds them up.
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
