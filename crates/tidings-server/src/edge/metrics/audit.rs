//! Metrics of the audit log.

use std::sync::atomic::Ordering;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::counter;
use crate::edge::audit::AuditFigures;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LevelLabels {
    level: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PluginLabels {
    plugin: &'static str,
}

pub(super) fn register(registry: &mut Registry, audit: &AuditFigures) {
    registry.register(
        "apiserver_audit_event",
        "Number of audit events generated and sent to the audit backends",
        counter(audit.events),
    );
    registry.register(
        "apiserver_audit_requests_rejected",
        "Number of requests that were refused because their first audit event could not be written",
        counter(audit.refused),
    );
    let levels = Family::<LevelLabels, Counter>::default();
    for (level, count) in &audit.levels {
        let labels = LevelLabels {
            level: level.name(),
        };
        levels.get_or_create(&labels).inc_by(*count);
    }
    registry.register(
        "apiserver_audit_level",
        "Number of requests by the level of their audit",
        levels,
    );
    let lost = Family::<PluginLabels, Counter>::default();
    let waiting = Family::<PluginLabels, Gauge>::default();
    for (plugin, counts) in &audit.sinks {
        let labels = PluginLabels { plugin };
        lost.get_or_create(&labels)
            .inc_by(counts.lost.load(Ordering::Relaxed));
        let count = counts.waiting.load(Ordering::Relaxed);
        waiting.get_or_create(&labels).set(count as i64);
    }
    registry.register(
        "apiserver_audit_error",
        "Number of audit events that are lost, by plugin",
        lost,
    );
    registry.register(
        "tidings_audit_waiting_events",
        "Number of audit events that wait to be written, by plugin",
        waiting,
    );
}
