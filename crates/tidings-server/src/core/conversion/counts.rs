//! Counters of conversions, under upstream's names.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// How many series of definitions there may be. What would be more is not counted.
const SERIES_MAX: usize = 2000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    result: &'static str,
    failure_type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DefinitionLabels {
    crd_name: String,
    from_version: String,
    to_version: String,
    succeeded: &'static str,
}

/// Counts conversions by webhooks.
pub(crate) struct ConversionCounts {
    calls: Family<OutcomeLabels, Counter>,
    durations: Family<OutcomeLabels, Histogram, fn() -> Histogram>,
    definitions: Family<DefinitionLabels, Histogram, fn() -> Histogram>,
    series: Mutex<HashSet<DefinitionLabels>>,
}

impl Default for ConversionCounts {
    fn default() -> ConversionCounts {
        ConversionCounts {
            calls: Family::default(),
            durations: Family::new_with_constructor(|| {
                Histogram::new([
                    0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0,
                    60.0,
                ])
            }),
            definitions: Family::new_with_constructor(|| {
                Histogram::new((0..15).map(|power| 0.001 * f64::from(1 << power)))
            }),
            series: Mutex::default(),
        }
    }
}

/// A call of a conversion webhook.
pub(super) struct ConversionCall<'a> {
    /// The name of the definition.
    pub(super) definition: &'a str,
    pub(super) from_version: &'a str,
    pub(super) to_version: &'a str,
    /// What went wrong, if something did.
    pub(super) failure: Option<&'static str>,
}

impl ConversionCounts {
    /// Counts a call.
    pub(super) fn called(&self, call: &ConversionCall<'_>, took: Duration) {
        let (result, succeeded) = match call.failure {
            None => ("success", "true"),
            Some(_) => ("failure", "false"),
        };
        let outcome = OutcomeLabels {
            result,
            failure_type: call.failure.unwrap_or_default(),
        };
        self.calls.get_or_create(&outcome).inc();
        self.durations
            .get_or_create(&outcome)
            .observe(took.as_secs_f64());
        let labels = DefinitionLabels {
            crd_name: call.definition.to_owned(),
            from_version: call.from_version.to_owned(),
            to_version: call.to_version.to_owned(),
            succeeded,
        };
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        if series.contains(&labels) || (series.len() < SERIES_MAX && series.insert(labels.clone()))
        {
            self.definitions
                .get_or_create(&labels)
                .observe(took.as_secs_f64());
        }
    }

    /// Adds the counters to the metrics of the server.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_conversion_webhook_request",
            "Number of calls of conversion webhooks",
            self.calls.clone(),
        );
        registry.register(
            "apiserver_conversion_webhook_duration_seconds",
            "How long conversion webhooks took",
            self.durations.clone(),
        );
        registry.register(
            "apiserver_crd_conversion_webhook_duration_seconds",
            "How long conversion webhooks took, by definition and versions",
            self.definitions.clone(),
        );
    }
}
