//! Counters of admission, under upstream's names.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Codes above this are counted as this, because webhooks can make them up.
const CODE_MAX: u16 = 600;
/// How many series there may be of each metric. What would be more is not counted.
const SERIES_MAX: usize = 2000;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    code: u16,
    rejected: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    rejected: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RejectionLabels {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    error_type: &'static str,
    rejection_code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabels {
    name: String,
    r#type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConditionLabels {
    name: String,
    kind: &'static str,
    r#type: &'static str,
    operation: &'static str,
}

/// What a call of a webhook came to.
pub(super) struct CallOutcome<'a> {
    pub(super) name: &'a str,
    /// `admit` or `validating`.
    pub(super) step: &'static str,
    /// What the request does.
    pub(super) operation: &'static str,
    /// The code that the webhook gave.
    pub(super) code: u16,
    /// True if the request was refused.
    pub(super) rejected: bool,
    /// Why, if it was.
    pub(super) error: &'static str,
}

/// Counts what admission does.
pub(crate) struct AdmissionCounts {
    calls: Family<CallLabels, Counter>,
    durations: Family<DurationLabels, Histogram, fn() -> Histogram>,
    // Gauges, because counters would get the suffix `_total`, which upstream's names do not have.
    rejections: Family<RejectionLabels, Gauge>,
    failed_open: Family<NameLabels, Gauge>,
    left_out: Family<ConditionLabels, Counter>,
    series: std::sync::Mutex<std::collections::HashSet<(String, &'static str, &'static str, u16)>>,
}

impl Default for AdmissionCounts {
    fn default() -> AdmissionCounts {
        AdmissionCounts {
            calls: Family::default(),
            durations: Family::new_with_constructor(|| {
                Histogram::new([0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0])
            }),
            rejections: Family::default(),
            failed_open: Family::default(),
            left_out: Family::default(),
            series: std::sync::Mutex::default(),
        }
    }
}

fn flag(flag: bool) -> &'static str {
    if flag { "true" } else { "false" }
}

impl AdmissionCounts {
    /// True if there is room for the series of a name.
    fn has_room(&self, name: &str, step: &'static str, operation: &'static str, code: u16) -> bool {
        let series = self.series.lock();
        let mut series = series.unwrap_or_else(std::sync::PoisonError::into_inner);
        let key = (name.to_owned(), step, operation, code);
        series.contains(&key) || (series.len() < SERIES_MAX && series.insert(key))
    }

    /// Counts a call.
    pub(super) fn called(&self, outcome: &CallOutcome<'_>, took: Duration) {
        let code = outcome.code.min(CODE_MAX);
        if !self.has_room(outcome.name, outcome.step, outcome.operation, code) {
            return;
        }
        let (name, rejected) = (outcome.name.to_owned(), flag(outcome.rejected));
        self.calls
            .get_or_create(&CallLabels {
                name: name.clone(),
                r#type: outcome.step,
                operation: outcome.operation,
                code,
                rejected,
            })
            .inc();
        self.durations
            .get_or_create(&DurationLabels {
                name: name.clone(),
                r#type: outcome.step,
                operation: outcome.operation,
                rejected,
            })
            .observe(took.as_secs_f64());
        if outcome.rejected {
            let labels = RejectionLabels {
                name,
                r#type: outcome.step,
                operation: outcome.operation,
                error_type: outcome.error,
                rejection_code: code,
            };
            self.rejections.get_or_create(&labels).inc();
        }
    }

    /// Counts a call that failed and did not matter.
    pub(super) fn failed_open(&self, name: &str, step: &'static str) {
        if self.has_room(name, step, "", 0) {
            let labels = NameLabels {
                name: name.to_owned(),
                r#type: step,
            };
            self.failed_open.get_or_create(&labels).inc();
        }
    }

    /// Counts a request that conditions left out.
    pub(super) fn left_out(
        &self,
        name: &str,
        kind: &'static str,
        step: &'static str,
        operation: &'static str,
    ) {
        if self.has_room(name, step, operation, 0) {
            let labels = ConditionLabels {
                name: name.to_owned(),
                kind,
                r#type: step,
                operation,
            };
            self.left_out.get_or_create(&labels).inc();
        }
    }

    /// Adds the counters to the metrics of the server.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_admission_webhook_request",
            "Number of calls of webhooks, by the code that they gave",
            self.calls.clone(),
        );
        registry.register(
            "apiserver_admission_webhook_admission_duration_seconds",
            "How long webhooks took",
            self.durations.clone(),
        );
        registry.register(
            "apiserver_admission_webhook_rejection_count",
            "Number of requests that were refused because of a webhook",
            self.rejections.clone(),
        );
        registry.register(
            "apiserver_admission_webhook_fail_open_count",
            "Number of calls of webhooks that failed, and the request went on",
            self.failed_open.clone(),
        );
        registry.register(
            "apiserver_admission_match_condition_exclusions",
            "Number of requests that match conditions left out",
            self.left_out.clone(),
        );
    }
}
