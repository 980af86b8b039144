//! Exports the figures of controllers to Prometheus, under controller-runtime's names.
//!
//! Nothing is counted here: a scrape reads the counters of the controllers. The figures of a controller end when it is dropped.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use tidings_informer::workqueue::metrics::{BUCKET_BOUNDS_SECONDS, HistogramSnapshot};

use crate::shared::ControllerShared;
use crate::stats::ControllerStats;

/// Exports controllers: `registry.register_collector(Box::new(metrics.clone()))`. Clones share it.
///
/// A [`Manager`](crate::Manager) has one and serves it. A program with a port of its own registers one:
///
/// ```no_run
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use prometheus_client::encoding::text::encode;
/// use prometheus_client::registry::Registry;
/// use tidings_controller::{Action, Cluster, Controller, ControllerMetrics};
///
/// # async fn run(cluster: Cluster) -> Result<(), std::fmt::Error> {
/// let metrics = ControllerMetrics::new();
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(metrics.clone()));
/// let reconcile = async |_, _| Ok::<_, std::fmt::Error>(Action::AwaitChange);
/// let controller = Controller::<ConfigMap>::new(&cluster).with_metrics(&metrics).start(reconcile, ());
/// let mut text = String::new();
/// encode(&mut text, &registry)?; // for each scrape
/// # controller.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct ControllerMetrics(Arc<Mutex<Vec<Weak<ControllerShared>>>>);

impl ControllerMetrics {
    /// A collector without controllers.
    pub fn new() -> ControllerMetrics {
        ControllerMetrics::default()
    }

    pub(crate) fn observe(&self, shared: &Arc<ControllerShared>) {
        let mut controllers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        controllers.retain(|known| known.strong_count() > 0);
        controllers.push(Arc::downgrade(shared));
    }

    /// The figures of all controllers, with their labels.
    pub(crate) fn read(&self) -> Vec<(ControllerLabels, ControllerStats)> {
        let controllers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let controllers = controllers.iter().filter_map(Weak::upgrade);
        controllers
            .map(|shared| {
                let labels = ControllerLabels {
                    controller: shared.name.to_string(),
                    cluster: shared.cluster.label().map(str::to_owned),
                };
                (labels, shared.stats())
            })
            .collect()
    }
}

impl fmt::Debug for ControllerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ControllerMetrics")
            .field(&self.read().len())
            .finish()
    }
}

/// The labels of a controller's samples.
pub(crate) struct ControllerLabels {
    controller: String,
    /// The name of the cluster, where the program gave one: controllers of a fleet have equal names.
    cluster: Option<String>,
}

impl ControllerLabels {
    fn with<'a>(&'a self, more: Option<(&'a str, &'a str)>) -> Vec<(&'a str, &'a str)> {
        let mut labels = vec![("controller", &*self.controller)];
        labels.extend(self.cluster.as_deref().map(|cluster| ("cluster", cluster)));
        labels.extend(more);
        labels
    }
}

/// Reads one value of a controller.
type Figure = fn(&ControllerStats) -> u64;

/// Values of one metric by the label `result`.
type Results = [(&'static str, Figure)];

/// The results of reconciles, as controller-runtime labels them.
const RESULTS: [(&str, Figure); 3] = [
    ("success", |stats| stats.succeeded),
    ("requeue_after", |stats| stats.requeued),
    ("error", |stats| stats.failed),
];

/// What became of events.
const EVENT_RESULTS: [(&str, Figure); 5] = [
    ("created", |stats| stats.events.created),
    ("series", |stats| stats.events.series),
    ("dropped", |stats| stats.events.dropped),
    ("limited", |stats| stats.events.limited),
    ("failed", |stats| stats.events.failed),
];

/// Counters with the result as their label besides the name of the controller. The encoder appends `_total`.
const BY_RESULT: [(&str, &str, &Results); 2] = [
    (
        "controller_runtime_reconcile",
        "Reconciles by result",
        &RESULTS,
    ),
    (
        "tidings_controller_events",
        "Events about objects by what became of them",
        &EVENT_RESULTS,
    ),
];

/// Counters with the name of the controller as their only label. The encoder appends `_total`.
const COUNTERS: [(&str, &str, Figure); 6] = [
    (
        "controller_runtime_reconcile_errors",
        "Reconciles that failed",
        |stats| stats.failed,
    ),
    (
        "controller_runtime_terminal_reconcile_errors",
        "Reconciles that failed and are not retried",
        |stats| stats.terminal,
    ),
    (
        "controller_runtime_reconcile_panics",
        "Reconciles that panicked",
        |stats| stats.panicked,
    ),
    (
        "controller_runtime_reconcile_timeouts",
        "Reconciles that took longer than their timeout",
        |stats| stats.timed_out,
    ),
    (
        "tidings_controller_given_back",
        "Reconciles that failed while the server did not answer",
        |stats| stats.given_back,
    ),
    (
        "tidings_controller_stale_starts",
        "Reconciles that started before the cache had an own write",
        |stats| stats.stale_starts,
    ),
];

impl Collector for ControllerMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let controllers = self.read();
        for (name, help, results) in BY_RESULT {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (controller, stats) in &controllers {
                for (result, figure) in results {
                    let labels = controller.with(Some(("result", result)));
                    let mut sample = metric.encode_family(&labels)?;
                    sample.encode_counter::<NoLabelSet, u64, u64>(&figure(stats), None)?;
                }
            }
        }
        for (name, help, figure) in COUNTERS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (controller, stats) in &controllers {
                let labels = controller.with(None);
                let mut sample = metric.encode_family(&labels)?;
                sample.encode_counter::<NoLabelSet, u64, u64>(&figure(stats), None)?;
            }
        }
        let name = "controller_runtime_active_workers";
        let mut metric =
            encoder.encode_descriptor(name, "Reconciles that run", None, MetricType::Gauge)?;
        for (controller, stats) in &controllers {
            let labels = controller.with(None);
            metric.encode_family(&labels)?.encode_gauge(&stats.active)?;
        }
        let name = "controller_runtime_reconcile_time_seconds";
        let help = "How long reconciles took";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (controller, stats) in &controllers {
            let labels = controller.with(None);
            let HistogramSnapshot {
                cumulative,
                count,
                sum_seconds,
            } = &stats.duration;
            let mut before = 0;
            let mut buckets: Vec<(f64, u64)> = Vec::new();
            for (bound, total) in BUCKET_BOUNDS_SECONDS.into_iter().zip(cumulative) {
                buckets.push((bound, total - before));
                before = *total;
            }
            buckets.push((f64::MAX, count - before));
            let mut sample = metric.encode_family(&labels)?;
            sample.encode_histogram::<NoLabelSet>(*sum_seconds, *count, &buckets, None)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn no_controllers_are_no_samples() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ControllerMetrics::new()));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert!(
            text.contains("# TYPE controller_runtime_reconcile counter"),
            "{text}"
        );
        assert!(!text.contains('{'), "{text}");
    }
}
