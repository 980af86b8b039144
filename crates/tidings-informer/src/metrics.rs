//! Exports the metrics of informers and work queues to Prometheus.
//!
//! Nothing is counted here: a scrape reads the counters of the informers and queues. The metrics of an informer or queue end when
//! it is dropped. Labels are bounded: the names of the informers and queues that exist, fixed reasons, and at most
//! [`HANDLERS_MAX`] handlers of an informer.

use std::fmt;
use std::sync::{Arc, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::reflector::{RelistReason, WATCH_ENDS};
use crate::stats::{InformerStats, Lag, ObservedInformer};
use crate::sync::{Mutex, lock};
use crate::workqueue::metrics::{BUCKET_BOUNDS_SECONDS, HistogramSnapshot};
use crate::workqueue::{QueueKey, QueueMetrics, WorkQueue};

/// Handlers of an informer that have metrics of their own: those that are furthest behind.
pub const HANDLERS_MAX: usize = 64;

/// Reads the metrics of a queue; `None` when the queue is gone.
type QueueMetricsFunc = Box<dyn Fn() -> Option<QueueMetrics> + Send + Sync>;

/// Exports informers and work queues to Prometheus: `registry.register_collector(Box::new(metrics.clone()))`. Clones share it.
#[derive(Clone, Default)]
pub struct InformerMetrics {
    observed: Arc<Mutex<ObservedSet>>,
    /// The label `cluster` of what is exported from here on.
    cluster: Option<Arc<str>>,
}

/// The informers and queues that are exported, by name.
#[derive(Default)]
struct ObservedSet {
    informers: Vec<(ObservedName, Weak<dyn ObservedInformer>)>,
    queues: Vec<(ObservedName, QueueMetricsFunc)>,
}

/// The labels that every sample of an informer or a queue has.
#[derive(Clone, PartialEq, Eq)]
struct ObservedName {
    name: Arc<str>,
    /// One of several clusters, whose informers have equal names.
    cluster: Option<Arc<str>>,
}

/// The labels of a sample.
type Labels<'a> = Vec<(&'static str, &'a str)>;

impl ObservedName {
    fn labels<'a>(&'a self, more: Option<(&'static str, &'a str)>) -> Labels<'a> {
        let mut labels = vec![("name", &*self.name)];
        labels.extend(self.cluster.as_deref().map(|cluster| ("cluster", cluster)));
        labels.extend(more);
        labels
    }
}

impl InformerMetrics {
    /// A collector without informers and queues.
    pub fn new() -> InformerMetrics {
        InformerMetrics::default()
    }

    /// Exports informers and queues of one cluster to this collector, with the label `cluster`. Their names need to be unique in the cluster
    /// only.
    #[must_use]
    pub fn of_cluster(&self, cluster: impl Into<Arc<str>>) -> InformerMetrics {
        InformerMetrics {
            observed: Arc::clone(&self.observed),
            cluster: Some(cluster.into()),
        }
    }

    fn named(&self, name: Arc<str>) -> ObservedName {
        ObservedName {
            name,
            cluster: self.cluster.clone(),
        }
    }

    /// Exports an informer of any type. Returns false if another of that name is exported and has not stopped.
    pub(crate) fn observe_any(&self, observed: Weak<dyn ObservedInformer>) -> bool {
        let Some(name) = observed.upgrade().map(|observed| observed.name()) else {
            return false;
        };
        let name = self.named(name);
        let mut observed_set = lock(&self.observed);
        observed_set
            .informers
            .retain(|(_, informer)| informer.upgrade().is_some_and(|known| !known.is_stopped()));
        if observed_set
            .informers
            .iter()
            .any(|(known, _)| *known == name)
        {
            return false;
        }
        observed_set.informers.push((name, observed));
        true
    }

    /// Exports a work queue. Returns false if another of that name is exported.
    pub fn observe_queue<T: QueueKey>(
        &self,
        name: impl Into<Arc<str>>,
        queue: &WorkQueue<T>,
    ) -> bool {
        let name = self.named(name.into());
        let mut observed_set = lock(&self.observed);
        observed_set
            .queues
            .retain(|(_, figures)| figures().is_some());
        if observed_set.queues.iter().any(|(known, _)| *known == name) {
            return false;
        }
        let queue = queue.downgrade();
        observed_set
            .queues
            .push((name, Box::new(move || Some(queue.upgrade()?.metrics()))));
        true
    }
}

impl fmt::Debug for InformerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let observed_set = lock(&self.observed);
        f.debug_struct("InformerMetrics")
            .field("informers", &observed_set.informers.len())
            .field("queues", &observed_set.queues.len())
            .finish()
    }
}

/// The values that a scrape reads from one informer.
struct InformerReading {
    name: ObservedName,
    stats: InformerStats,
    lags: Vec<(Arc<str>, Lag)>,
    informer: Arc<dyn ObservedInformer>,
}

impl InformerReading {
    fn of(name: &ObservedName, informer: Arc<dyn ObservedInformer>) -> InformerReading {
        let mut lags = informer.lags();
        lags.sort_by_key(|(_, lag)| std::cmp::Reverse(lag.events));
        lags.truncate(HANDLERS_MAX);
        InformerReading {
            name: name.clone(),
            stats: informer.stats(),
            lags,
            informer,
        }
    }
}

impl Collector for InformerMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (informers, queues) = {
            let observed_set = lock(&self.observed);
            let informers: Vec<InformerReading> = observed_set
                .informers
                .iter()
                .filter_map(|(name, informer)| Some(InformerReading::of(name, informer.upgrade()?)))
                .collect();
            let queues: Vec<_> = observed_set
                .queues
                .iter()
                .filter_map(|(name, figures)| Some((name.clone(), figures()?)))
                .collect();
            (informers, queues)
        };
        encode_informers(&mut encoder, &informers)?;
        encode_queues(&mut encoder, &queues)
    }
}

/// A metric's name, its help text, and the function that reads its value.
type MetricSource<F> = (&'static str, &'static str, F);

/// Functions that read one value.
type InformerFigure<'a> = &'a dyn Fn(&InformerReading) -> f64;
type LagFigure = fn(&Lag) -> f64;
type QueueFigure = fn(&QueueMetrics) -> f64;
type QueueHistogram = fn(&QueueMetrics) -> &HistogramSnapshot;

/// One sample: its labels, and its value.
type Sample<'a> = (Labels<'a>, f64);

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: Vec<Sample<'_>>,
) -> fmt::Result {
    write_samples(encoder, name, help, MetricType::Gauge, samples)
}

/// Encodes a counter. The encoder appends `_total` to the name.
fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: Vec<Sample<'_>>,
) -> fmt::Result {
    write_samples(encoder, name, help, MetricType::Counter, samples)
}

fn write_samples(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    samples: Vec<Sample<'_>>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, figure) in samples {
        let mut sample = metric.encode_family(&labels)?;
        match kind {
            MetricType::Counter => sample.encode_counter::<NoLabelSet, f64, f64>(&figure, None)?,
            _ => sample.encode_gauge(&figure)?,
        }
    }
    Ok(())
}

fn by_reason<'a>(read: &'a InformerReading, reason: &'a str) -> Labels<'a> {
    read.name.labels(Some(("reason", reason)))
}

fn encode_informers(
    encoder: &mut DescriptorEncoder<'_>,
    informers: &[InformerReading],
) -> fmt::Result {
    use std::sync::atomic::Ordering::Relaxed;
    let each = |figure: &dyn Fn(&InformerReading) -> f64| -> Vec<Sample<'_>> {
        let samples = informers
            .iter()
            .map(|read| (read.name.labels(None), figure(read)));
        samples.collect()
    };

    let lists = informers.iter().flat_map(|read| {
        let reasons = RelistReason::ALL.into_iter();
        reasons.map(|reason| {
            let lists = read.informer.reflector().lists(reason);
            (by_reason(read, reason.as_str()), lists as f64)
        })
    });
    counter(
        encoder,
        "informer_lists",
        "Lists and requests for initial events, by reason",
        lists.collect(),
    )?;
    let ends = informers.iter().flat_map(|read| {
        let ends = read.informer.reflector().watch_ends.iter().zip(WATCH_ENDS);
        ends.map(|(count, reason)| (by_reason(read, reason), count.load(Relaxed) as f64))
    });
    counter(
        encoder,
        "informer_watch_ends",
        "Watches that ended, by reason",
        ends.collect(),
    )?;
    let watches = each(&|read| read.informer.reflector().watches() as f64);
    counter(encoder, "informer_watches", "Watches opened", watches)?;
    let objects = each(&|read| read.informer.reflector().objects_received() as f64);
    counter(
        encoder,
        "informer_received_objects",
        "Objects received in lists and events",
        objects,
    )?;
    let bytes = each(&|read| read.informer.reflector().bytes_received() as f64);
    counter(
        encoder,
        "informer_received_bytes",
        "Bytes of objects received",
        bytes,
    )?;
    let problems = each(&|read| read.informer.reflector().problems.load(Relaxed) as f64);
    counter(encoder, "informer_problems", "Problems reported", problems)?;
    let decoding = each(&|read| read.stats.decoding.as_secs_f64());
    counter(
        encoder,
        "informer_decode_seconds",
        "Time spent comparing and decoding objects",
        decoding,
    )?;
    let coalesced = each(&|read| read.stats.coalesced as f64);
    counter(
        encoder,
        "informer_coalesced_deltas",
        "Queued changes that a later change of the same object replaced",
        coalesced,
    )?;

    let gauges: [MetricSource<InformerFigure<'_>>; 10] = [
        (
            "informer_queued_items",
            "Changes that wait for the store",
            &|read| read.stats.queued as f64,
        ),
        (
            "informer_queued_bytes",
            "Bytes of objects that wait for the store",
            &|read| read.stats.queued_bytes as f64,
        ),
        (
            "informer_log_events",
            "Events that wait for the slowest handler",
            &|read| read.stats.logged as f64,
        ),
        (
            "informer_log_bytes",
            "Bytes of objects in those events",
            &|read| read.stats.logged_bytes as f64,
        ),
        ("informer_handlers", "Handlers and subscriptions", &|read| {
            read.stats.handlers as f64
        }),
        ("informer_objects", "Objects in the store", &|read| {
            read.stats.objects as f64
        }),
        (
            "informer_object_bytes",
            "Bytes of objects in the store",
            &|read| read.stats.object_bytes as f64,
        ),
        (
            "informer_quarantined_objects",
            "Objects left out because they cannot be decoded",
            &|read| read.stats.quarantined as f64,
        ),
        (
            "informer_seconds_since_progress",
            "Time since the server last sent something new",
            &|read| read.informer.reflector().since_progress().as_secs_f64(),
        ),
        // The last fifteen digits: a float is exact only for these.
        (
            "informer_store_resource_version",
            "The last fifteen digits of the store's resource version",
            &|read| {
                (read.stats.version.number().unwrap_or_default() % 1_000_000_000_000_000) as f64
            },
        ),
    ];
    for (metric, help, figure) in gauges {
        gauge(encoder, metric, help, each(figure))?;
    }

    let lag: [MetricSource<LagFigure>; 3] = [
        (
            "informer_handler_lag_events",
            "Events that a handler has not handled",
            |lag| lag.events as f64,
        ),
        (
            "informer_handler_lag_bytes",
            "Bytes of objects in those events",
            |lag| lag.bytes as f64,
        ),
        (
            "informer_handler_lag_seconds",
            "How long the oldest of them has waited",
            |lag| lag.age.as_secs_f64(),
        ),
    ];
    for (metric, help, figure) in lag {
        let samples = informers.iter().flat_map(|read| {
            let lags = read.lags.iter();
            lags.map(move |(handler, lag)| {
                (read.name.labels(Some(("handler", handler))), figure(lag))
            })
        });
        gauge(encoder, metric, help, samples.collect())?;
    }
    Ok(())
}

fn encode_queues(
    encoder: &mut DescriptorEncoder<'_>,
    queues: &[(ObservedName, QueueMetrics)],
) -> fmt::Result {
    let each = |figure: fn(&QueueMetrics) -> f64| -> Vec<Sample<'_>> {
        let samples = queues
            .iter()
            .map(|(name, figures)| (name.labels(None), figure(figures)));
        samples.collect()
    };
    let adds = each(|figures| figures.adds_total as f64);
    counter(encoder, "workqueue_adds", "Items added", adds)?;
    let retries = each(|figures| figures.retries_total as f64);
    counter(
        encoder,
        "workqueue_retries",
        "Items added again after a failure",
        retries,
    )?;
    let gauges: [MetricSource<QueueFigure>; 4] = [
        (
            "workqueue_depth",
            "Items that wait for a worker",
            |figures| figures.depth as f64,
        ),
        ("workqueue_delayed", "Delayed items", |figures| {
            figures.delayed as f64
        }),
        (
            "workqueue_unfinished_work_seconds",
            "Time that running items have taken so far",
            |figures| figures.unfinished_work_seconds,
        ),
        (
            "workqueue_longest_running_processor_seconds",
            "Time that the longest running item has taken",
            |figures| figures.longest_running_processor_seconds,
        ),
    ];
    for (metric, help, figure) in gauges {
        gauge(encoder, metric, help, each(figure))?;
    }
    let histograms: [MetricSource<QueueHistogram>; 2] = [
        (
            "workqueue_queue_duration_seconds",
            "How long items were queued",
            |figures| &figures.queue_duration,
        ),
        (
            "workqueue_work_duration_seconds",
            "How long workers had items",
            |figures| &figures.work_duration,
        ),
    ];
    for (metric, help, figure) in histograms {
        let mut descriptor =
            encoder.encode_descriptor(metric, help, None, MetricType::Histogram)?;
        for (name, figures) in queues {
            let histogram = figure(figures);
            let mut below = 0;
            let buckets: Vec<(f64, u64)> = BUCKET_BOUNDS_SECONDS
                .iter()
                .zip(histogram.cumulative)
                .map(|(bound, cumulative)| {
                    let inside = cumulative - below;
                    below = cumulative;
                    (*bound, inside)
                })
                .chain([(
                    f64::INFINITY,
                    histogram.count - histogram.cumulative.last().unwrap_or(&0),
                )])
                .collect();
            let labels = name.labels(None);
            let mut sample = descriptor.encode_family(&labels)?;
            sample.encode_histogram::<NoLabelSet>(
                histogram.sum_seconds,
                histogram.count,
                &buckets,
                None,
            )?;
        }
    }
    Ok(())
}
