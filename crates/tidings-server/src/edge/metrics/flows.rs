//! Metrics of priority and fairness.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::core::FlowFigures;

/// The number of levels is that of the PriorityLevelConfigurations.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LevelLabels {
    priority_level: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

pub(super) fn register(registry: &mut Registry, flows: &FlowFigures) {
    let seats = Family::<LevelLabels, Gauge>::default();
    let in_use = Family::<LevelLabels, Gauge>::default();
    let waiting = Family::<LevelLabels, Gauge>::default();
    for level in &flows.levels {
        let labels = LevelLabels {
            priority_level: level.name.to_string(),
        };
        for (family, count) in [
            (&seats, level.seats),
            (&in_use, level.in_use),
            (&waiting, level.waiting),
        ] {
            family.get_or_create(&labels).set(i64::from(count));
        }
    }
    registry.register(
        "apiserver_flowcontrol_nominal_limit_seats",
        "Number of requests of a priority level that may run at once, before it borrows or lends",
        seats,
    );
    registry.register(
        "apiserver_flowcontrol_current_executing_seats",
        "Number of requests of a priority level that run",
        in_use,
    );
    registry.register(
        "apiserver_flowcontrol_current_inqueue_requests",
        "Number of requests of a priority level that wait",
        waiting,
    );
    let refused = Family::<ReasonLabels, Counter>::default();
    for (reason, count) in flows.refused {
        refused
            .get_or_create(&ReasonLabels { reason })
            .inc_by(count);
    }
    registry.register(
        "apiserver_flowcontrol_rejected_requests",
        "Number of requests refused by priority and fairness, by reason",
        refused,
    );
}
