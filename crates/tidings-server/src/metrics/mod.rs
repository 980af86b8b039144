//! Metrics, under the names that dashboards for the API server know.

mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tidings_storage::Stats;

use crate::cache::CacheStats;
use crate::request::{Target, Verb};
use crate::served::Resource;

/// All values are from tables of this program or are status codes: the number of series is bounded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    subresource: &'static str,
    scope: &'static str,
    component: &'static str,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    verb: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    group: &'static str,
    resource: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchLabels {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types)]
enum RequestKind {
    mutating,
    readOnly,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InflightLabels {
    request_kind: RequestKind,
}

/// What watches of one kind count, without a lock.
#[derive(Debug, Default)]
pub(crate) struct WatchCounts {
    open: AtomicI64,
    events: AtomicU64,
    bytes: AtomicU64,
    initial: AtomicU64,
    fell_behind: AtomicU64,
}

/// The counters of one watch. Dropping it counts the watch as closed.
#[derive(Debug)]
pub(crate) struct WatchMetrics(Arc<WatchCounts>);

impl WatchMetrics {
    /// Counts a watch as open.
    pub(crate) fn open(counts: Arc<WatchCounts>) -> WatchMetrics {
        counts.open.fetch_add(1, Ordering::Relaxed);
        WatchMetrics(counts)
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

impl Drop for WatchMetrics {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Metrics {
    requests: Family<RequestLabels, Counter>,
    durations: Family<DurationLabels, Histogram, fn() -> Histogram>,
    rejected: Counter,
    garbage_known: Gauge,
    garbage_deleted: Counter,
}

fn duration_histogram() -> Histogram {
    Histogram::new([
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    ])
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        Metrics {
            requests: Family::default(),
            durations: Family::new_with_constructor(duration_histogram),
            rejected: Counter::default(),
            garbage_known: Gauge::default(),
            garbage_deleted: Counter::default(),
        }
    }

    /// How many objects the garbage collector keeps in mind.
    pub(crate) fn garbage_known(&self, objects: usize) {
        self.garbage_known.set(objects as i64);
    }

    /// The garbage collector has deleted an object, or begun to.
    pub(crate) fn garbage_deleted(&self) {
        self.garbage_deleted.inc();
    }

    pub(crate) fn request(
        &self,
        target: Option<&Target>,
        verb: Option<Verb>,
        code: u16,
        took: Duration,
    ) {
        let kind = target.map(|target| target.kind);
        let verb = match verb {
            Some(Verb::Get) => "GET",
            Some(Verb::List) => "LIST",
            Some(Verb::Watch) => "WATCH",
            Some(Verb::Create) => "POST",
            Some(Verb::Update) => "PUT",
            Some(Verb::Patch) => "PATCH",
            Some(Verb::Delete) => "DELETE",
            Some(Verb::DeleteCollection) => "DELETECOLLECTION",
            None => "other",
        };
        let scope = match target {
            Some(Target { name: Some(_), .. }) => "resource",
            Some(Target {
                namespace: Some(_), ..
            }) => "namespace",
            Some(_) => "cluster",
            None => "",
        };
        let subresource = match target.and_then(|target| target.subresource.as_deref()) {
            Some("status") => "status",
            Some("finalize") => "finalize",
            _ => "",
        };
        let (group, version, resource) =
            kind.map_or(("", "", ""), |kind| (kind.group, kind.version, kind.plural));
        let component = "apiserver";
        let labels = RequestLabels {
            verb,
            group,
            version,
            resource,
            subresource,
            scope,
            component,
            code,
        };
        self.requests.get_or_create(&labels).inc();
        if verb != "WATCH" {
            let labels = DurationLabels {
                verb,
                group,
                version,
                resource,
            };
            self.durations
                .get_or_create(&labels)
                .observe(took.as_secs_f64());
        }
    }

    pub(crate) fn reject(&self) {
        self.rejected.inc();
    }

    /// Everything, as Prometheus reads it.
    pub(crate) fn encode(
        &self,
        resources: &[Arc<Resource>],
        store: Stats,
        lost_log_lines: u64,
        inflight: (usize, usize),
    ) -> String {
        let mut registry = Registry::default();
        registry.register(
            "apiserver_request",
            "Requests by verb, resource and code",
            self.requests.clone(),
        );
        registry.register(
            "apiserver_request_duration_seconds",
            "How long requests took",
            self.durations.clone(),
        );
        registry.register(
            "apiserver_rejected_requests",
            "Requests answered with 429",
            self.rejected.clone(),
        );
        registry.register(
            "tidings_garbage_known_objects",
            "Objects that have owners or wait for dependents",
            self.garbage_known.clone(),
        );
        registry.register(
            "tidings_garbage_deleted_objects",
            "Objects deleted because their owners were",
            self.garbage_deleted.clone(),
        );
        register_watches(&mut registry, resources);
        register_caches(&mut registry, resources);
        store::register(&mut registry, &store);
        let lost = Counter::<u64>::default();
        lost.inc_by(lost_log_lines);
        registry.register(
            "tidings_log_lines_lost",
            "Log lines that could not be written, or came faster than they could be",
            lost,
        );
        let current = Family::<InflightLabels, Gauge>::default();
        for (request_kind, count) in [
            (RequestKind::mutating, inflight.0),
            (RequestKind::readOnly, inflight.1),
        ] {
            current
                .get_or_create(&InflightLabels { request_kind })
                .set(count as i64);
        }
        registry.register(
            "apiserver_current_inflight_requests",
            "Requests being served",
            current,
        );
        let mut text = String::new();
        match encode(&mut text, &registry) {
            Ok(()) => text,
            Err(error) => format!("# {error}\n"),
        }
    }
}

fn register_watches(registry: &mut Registry, resources: &[Arc<Resource>]) {
    let open = Family::<ResourceLabels, Gauge>::default();
    let events = Family::<WatchLabels, Counter>::default();
    let bytes = Family::<WatchLabels, Counter>::default();
    let initial = Family::<ResourceLabels, Counter>::default();
    let terminated = Family::<ResourceLabels, Counter>::default();
    for Resource {
        kind,
        watches: counts,
        ..
    } in resources.iter().map(|resource| &**resource)
    {
        let resource = ResourceLabels {
            group: kind.group,
            resource: kind.plural,
        };
        let watch = WatchLabels {
            group: kind.group,
            version: kind.version,
            kind: kind.kind,
        };
        open.get_or_create(&resource)
            .set(counts.open.load(Ordering::Relaxed));
        events
            .get_or_create(&watch)
            .inc_by(counts.events.load(Ordering::Relaxed));
        bytes
            .get_or_create(&watch)
            .inc_by(counts.bytes.load(Ordering::Relaxed));
        initial
            .get_or_create(&resource)
            .inc_by(counts.initial.load(Ordering::Relaxed));
        terminated
            .get_or_create(&resource)
            .inc_by(counts.fell_behind.load(Ordering::Relaxed));
    }
    registry.register(
        "apiserver_longrunning_requests",
        "Watches being served",
        open,
    );
    registry.register("apiserver_watch_events", "Events sent to watches", events);
    registry.register(
        "apiserver_watch_events_bytes",
        "Bytes of the events sent to watches",
        bytes,
    );
    registry.register(
        "apiserver_init_events",
        "Synthetic events sent at the start of watches",
        initial,
    );
    registry.register(
        "apiserver_terminated_watchers",
        "Watches that fell behind the log and ended",
        terminated,
    );
}

fn register_caches(registry: &mut Registry, resources: &[Arc<Resource>]) {
    let stats: Vec<_> = resources
        .iter()
        .map(|resource| (resource.kind, resource.cache.stats()))
        .collect();
    let mut gauge = |name: &str, help: &str, value: fn(&CacheStats) -> i64| {
        let family = Family::<ResourceLabels, Gauge>::default();
        for (kind, stats) in &stats {
            family
                .get_or_create(&ResourceLabels {
                    group: kind.group,
                    resource: kind.plural,
                })
                .set(value(stats));
        }
        registry.register(name, help, family);
    };
    gauge(
        "apiserver_resource_objects",
        "Objects of the resource",
        |stats| stats.objects as i64,
    );
    gauge(
        "apiserver_watch_cache_resource_version",
        "Revision of the cache",
        |stats| stats.revision as i64,
    );
    gauge(
        "tidings_watch_cache_oldest_revision",
        "The oldest revision that can be listed and watched from",
        |stats| stats.oldest as i64,
    );
    gauge("watch_cache_capacity", "Events in the log", |stats| {
        stats.log_events as i64
    });
    gauge(
        "tidings_watch_cache_log_bytes",
        "Bytes of the objects in the log",
        |stats| stats.log_bytes as i64,
    );
    gauge(
        "tidings_watch_cache_watches",
        "Watches registered with the cache",
        |stats| stats.watches as i64,
    );
    let set_aside = Family::<ResourceLabels, Gauge>::default();
    for resource in resources {
        let count = resource.set_aside.count();
        if count > 0 {
            let labels = ResourceLabels {
                group: resource.kind.group,
                resource: resource.kind.plural,
            };
            set_aside.get_or_create(&labels).set(count as i64);
        }
    }
    registry.register(
        "tidings_store_values_set_aside",
        "Values in the store that are no objects of this server; the log names them",
        set_aside,
    );
}
