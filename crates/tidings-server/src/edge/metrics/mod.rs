//! Metrics, with the names of kube-apiserver's metrics where there are such, so that existing dashboards work.

mod audit;
mod flows;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tidings_cache::CacheStats;
use tidings_registry::Name;
use tidings_storage::Stats;

use super::audit::AuditFigures;
use super::request::Verb;
use crate::controllers::GarbageCounts;
use crate::core::{AdmissionCounts, ConversionCounts, FlowFigures, Resource, Target};

/// What other parts of the server count.
pub(crate) struct CollectedFigures<'a> {
    pub(crate) resources: &'a [Arc<Resource>],
    pub(crate) store: Stats,
    pub(crate) lost_log_lines: u64,
    /// Requests in flight that are not limited by flows: mutating, reading.
    pub(crate) inflight: (usize, usize),
    pub(crate) garbage: &'a GarbageCounts,
    pub(crate) audit: Option<AuditFigures>,
    pub(crate) flows: Option<FlowFigures>,
    pub(crate) refused_watches: u64,
    pub(crate) admission: &'a AdmissionCounts,
    pub(crate) conversions: &'a ConversionCounts,
}

/// The labels of `apiserver_request`. All values come from kinds, from tables of this program, or are status codes: the number of series grows
/// only with the kinds that were served since the start.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    group: Name,
    version: Name,
    resource: Name,
    subresource: &'static str,
    scope: &'static str,
    component: &'static str,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    verb: &'static str,
    group: Name,
    version: Name,
    resource: Name,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    group: Name,
    resource: Name,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchLabels {
    group: Name,
    version: Name,
    kind: Name,
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

#[derive(Debug)]
pub(crate) struct Metrics {
    requests: Family<RequestLabels, Counter>,
    durations: Family<DurationLabels, Histogram, fn() -> Histogram>,
    rejected: Counter,
    connections: Gauge,
    refused_connections: Counter,
    /// How many connections were refused when that was last logged.
    refused_logged: AtomicU64,
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
            connections: Gauge::default(),
            refused_connections: Counter::default(),
            refused_logged: AtomicU64::new(0),
        }
    }

    /// Counts a request.
    pub(crate) fn request(
        &self,
        target: Option<&Target>,
        verb: Option<Verb>,
        code: u16,
        took: Duration,
    ) {
        let kind = target.map(|target| &target.kind);
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
            Some(target) if target.name().is_some() => "resource",
            Some(target) if target.namespace().is_some() => "namespace",
            Some(_) => "cluster",
            None => "",
        };
        let subresource = target.and_then(|target| target.subresource);
        let subresource = subresource.map_or("", |part| part.as_str());
        let none = || (Name::default(), Name::default(), Name::default());
        let (group, version, resource) = kind.map_or_else(none, |kind| {
            (
                kind.group.clone(),
                kind.version.clone(),
                kind.plural.clone(),
            )
        });
        let component = "apiserver";
        let labels = RequestLabels {
            verb,
            group: group.clone(),
            version: version.clone(),
            resource: resource.clone(),
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

    /// Notes how many connections are open.
    pub(crate) fn note_connections(&self, open: usize) {
        self.connections.set(open as i64);
    }

    /// Counts a refused connection. True if it is worth a line in the log: the first, and then whenever there are twice as many.
    pub(crate) fn refuse_connection(&self) -> bool {
        let refused = self.refused_connections.inc() + 1;
        let is_told = refused >= self.refused_logged.load(Ordering::Relaxed) * 2;
        if is_told {
            self.refused_logged.store(refused, Ordering::Relaxed);
        }
        is_told
    }

    /// All metrics, in the text format of Prometheus.
    pub(crate) fn encode(&self, figures: &CollectedFigures<'_>) -> String {
        let CollectedFigures {
            resources,
            store,
            lost_log_lines,
            inflight,
            garbage,
            audit,
            flows,
            refused_watches,
            admission,
            conversions,
        } = figures;
        let mut registry = Registry::default();
        registry.register(
            "apiserver_request",
            "Counter of apiserver requests by verb, group, version, resource, scope, component and HTTP response code",
            self.requests.clone(),
        );
        registry.register(
            "apiserver_request_duration_seconds",
            "Response latency distribution in seconds by verb, group, version and resource",
            self.durations.clone(),
        );
        registry.register(
            "apiserver_rejected_requests",
            "Number of requests rejected with 429 because too many were in flight",
            self.rejected.clone(),
        );
        registry.register(
            "tidings_connections",
            "Number of open connections",
            self.connections.clone(),
        );
        registry.register(
            "tidings_refused_connections",
            "Number of connections that were closed at once, because as many as may be were open",
            self.refused_connections.clone(),
        );
        registry.register(
            "tidings_refused_watches",
            "Number of watches refused with 429, because as many as may be were open",
            counter(*refused_watches),
        );
        registry.register(
            "tidings_garbage_known_objects",
            "Number of objects in the graph of the garbage collector: they have owners or wait for dependents",
            gauge(garbage.known.load(Ordering::Relaxed) as i64),
        );
        registry.register(
            "tidings_garbage_deleted_objects",
            "Number of objects that the garbage collector deleted because their owners were gone",
            counter(garbage.deleted.load(Ordering::Relaxed)),
        );
        register_watches(&mut registry, resources);
        register_caches(&mut registry, resources);
        register_converted_caches(&mut registry, resources);
        store::register(&mut registry, store);
        if let Some(audit) = audit {
            audit::register(&mut registry, audit);
        }
        if let Some(flows) = flows {
            flows::register(&mut registry, flows);
        }
        admission.register(&mut registry);
        conversions.register(&mut registry);
        registry.register(
            "tidings_log_lines_lost",
            "Number of log lines that were lost because they could not be written, or not fast enough",
            counter(*lost_log_lines),
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
            "Number of requests in flight by request kind",
            current,
        );
        let mut text = String::new();
        match encode(&mut text, &registry) {
            Ok(()) => text,
            Err(error) => format!("# {error}\n"),
        }
    }
}

fn gauge(value: i64) -> Gauge {
    let gauge = Gauge::default();
    gauge.set(value);
    gauge
}

fn counter(value: u64) -> Counter {
    let counter = Counter::default();
    counter.inc_by(value);
    counter
}

fn register_watches(registry: &mut Registry, resources: &[Arc<Resource>]) {
    let open = Family::<ResourceLabels, Gauge>::default();
    let events = Family::<WatchLabels, Counter>::default();
    let bytes = Family::<WatchLabels, Counter>::default();
    let initial = Family::<ResourceLabels, Counter>::default();
    let terminated = Family::<ResourceLabels, Counter>::default();
    for resource in resources {
        let kind = &resource.kind;
        let labels = resource_labels(resource);
        let watch = WatchLabels {
            group: kind.group.clone(),
            version: kind.version.clone(),
            kind: kind.kind.clone(),
        };
        let figures = resource.watches.figures();
        open.get_or_create(&labels).set(figures.open);
        events.get_or_create(&watch).inc_by(figures.events);
        bytes.get_or_create(&watch).inc_by(figures.bytes);
        initial.get_or_create(&labels).inc_by(figures.initial);
        terminated
            .get_or_create(&labels)
            .inc_by(figures.fell_behind);
    }
    registry.register(
        "apiserver_longrunning_requests",
        "Number of open watches",
        open,
    );
    registry.register(
        "apiserver_watch_events",
        "Number of events sent in watches",
        events,
    );
    registry.register(
        "apiserver_watch_events_bytes",
        "Size of the events sent in watches",
        bytes,
    );
    registry.register(
        "apiserver_init_events",
        "Number of initial events sent in watches",
        initial,
    );
    registry.register(
        "apiserver_terminated_watchers",
        "Number of watches that ended because they fell behind the event log",
        terminated,
    );
}

fn resource_labels(resource: &Resource) -> ResourceLabels {
    ResourceLabels {
        group: resource.kind.group.clone(),
        resource: resource.kind.plural.clone(),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabels {
    group: Name,
    version: Name,
    resource: Name,
}

/// The caches of versions that a webhook converts.
fn register_converted_caches(registry: &mut Registry, resources: &[Arc<Resource>]) {
    let (objects, revisions, bytes) = (
        Family::<VersionLabels, Gauge>::default(),
        Family::<VersionLabels, Gauge>::default(),
        Family::<VersionLabels, Gauge>::default(),
    );
    for resource in resources {
        for (version, cache) in resource.converted_caches() {
            let (stats, group) = (cache.cache().stats(), resource.kind.group.clone());
            let labels = VersionLabels {
                group,
                version,
                resource: resource.kind.plural.clone(),
            };
            objects.get_or_create(&labels).set(stats.objects as i64);
            revisions.get_or_create(&labels).set(stats.revision as i64);
            bytes.get_or_create(&labels).set(stats.log_bytes as i64);
        }
    }
    registry.register(
        "tidings_converted_cache_objects",
        "Number of objects that the conversion webhook has converted to a version for lists and watches",
        objects,
    );
    registry.register(
        "tidings_converted_cache_revision",
        "Revision up to which objects are converted: it stands still while the webhook fails",
        revisions,
    );
    registry.register(
        "tidings_converted_cache_log_bytes",
        "Size of the converted objects in the event log of a version",
        bytes,
    );
}

fn register_caches(registry: &mut Registry, resources: &[Arc<Resource>]) {
    let stats: Vec<_> = resources
        .iter()
        .map(|resource| (resource_labels(resource), resource.cache().stats()))
        .collect();
    let mut gauge = |name: &str, help: &str, value: fn(&CacheStats) -> i64| {
        let family = Family::<ResourceLabels, Gauge>::default();
        for (labels, stats) in &stats {
            family.get_or_create(labels).set(value(stats));
        }
        registry.register(name, help, family);
    };
    gauge(
        "apiserver_resource_objects",
        "Number of objects in the watch cache by resource",
        |stats| stats.objects as i64,
    );
    gauge(
        "apiserver_watch_cache_resource_version",
        "Current revision of the watch cache by resource",
        |stats| stats.revision as i64,
    );
    gauge(
        "tidings_watch_cache_oldest_revision",
        "Oldest revision that can be listed and watched from, by resource",
        |stats| stats.oldest as i64,
    );
    gauge(
        "watch_cache_capacity",
        "Number of events in the event log by resource",
        |stats| stats.log_events as i64,
    );
    gauge(
        "tidings_watch_cache_log_bytes",
        "Size of the objects in the event log by resource",
        |stats| stats.log_bytes as i64,
    );
    gauge(
        "tidings_watch_cache_watches",
        "Number of watches registered with the watch cache by resource",
        |stats| stats.watches as i64,
    );
    gauge(
        "tidings_watch_cache_scopes",
        "Number of different parts of the objects that watches are of, by resource",
        |stats| stats.scopes as i64,
    );
    gauge(
        "tidings_watch_cache_listed_events",
        "Number of events that are listed for watches of parts of the objects, by resource",
        |stats| stats.listed_events as i64,
    );
    gauge(
        "tidings_watch_cache_indexes",
        "Number of indexes for lists by labels and fields, by resource",
        |stats| stats.indexes as i64,
    );
    let set_aside = Family::<ResourceLabels, Gauge>::default();
    for resource in resources {
        let count = resource.set_aside();
        if count > 0 {
            let labels = resource_labels(resource);
            set_aside.get_or_create(&labels).set(count as i64);
        }
    }
    registry.register(
        "tidings_store_values_set_aside",
        "Number of values in the store that are not objects of their keys; the server logs their keys",
        set_aside,
    );
}
