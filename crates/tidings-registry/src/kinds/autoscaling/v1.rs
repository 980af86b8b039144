//! `HorizontalPodAutoscaler` of `autoscaling/v1`: a view of the stored version v2.
//!
//! `targetCPUUtilizationPercentage` of v1 is a CPU metric in v2. Members of v2 that v1 does not have are annotations in v1.

use tidings_json::{Map, Value, json};

use super::v2::PRINTER;
use crate::model::{Kind, ViewOf};

/// The annotations of v1 that hold members of v2: the annotation, and the two names that lead to the member.
const AUTOSCALER_ANNOTATIONS: [(&str, &str, &str); 4] = [
    ("autoscaling.alpha.kubernetes.io/metrics", "spec", "metrics"),
    (
        "autoscaling.alpha.kubernetes.io/behavior",
        "spec",
        "behavior",
    ),
    (
        "autoscaling.alpha.kubernetes.io/current-metrics",
        "status",
        "currentMetrics",
    ),
    (
        "autoscaling.alpha.kubernetes.io/conditions",
        "status",
        "conditions",
    ),
];

pub(super) fn kind() -> Kind {
    Kind {
        version: "v1".into(),
        printer: &PRINTER,
        view_of: Some(ViewOf {
            stored: ("autoscaling", "v2", "HorizontalPodAutoscaler"),
            show,
            store,
        }),
        ..super::plain()
    }
}

/// `averageUtilization` below `values` of a metric of v2, if it is a CPU metric.
fn cpu_utilization<'a>(metric: &'a Value, values: &str) -> Option<&'a Value> {
    let resource = metric.get("resource")?;
    let cpu = metric.get("type")? == "Resource" && resource.get("name")? == "cpu";
    resource
        .get(values)?
        .get("averageUtilization")
        .filter(|_| cpu)
}

/// Converts the members of a stored autoscaler to v1.
fn show(members: &mut Map) {
    let mut kept = Vec::new();
    for (annotation, member, field) in AUTOSCALER_ANNOTATIONS {
        let Some(owner) = members.get_mut(member).and_then(Value::as_object_mut) else {
            continue;
        };
        let Some(mut value) = owner.remove(field) else {
            continue;
        };
        let (values, shown) = match field {
            "metrics" => ("target", "targetCPUUtilizationPercentage"),
            _ => ("current", "currentCPUUtilizationPercentage"),
        };
        if let Some(metrics) = value.as_array_mut() {
            let cpu = metrics
                .iter()
                .position(|metric| cpu_utilization(metric, values).is_some());
            if let Some(at) = cpu {
                let metric = metrics.remove(at);
                if let Some(percentage) = cpu_utilization(&metric, values) {
                    owner.insert(shown.to_owned(), percentage.clone());
                }
            }
        }
        let empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        if !empty {
            kept.push((annotation, value));
        }
    }
    if kept.is_empty() {
        return;
    }
    if let Some(metadata) = members.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        for (annotation, value) in kept {
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.insert(annotation.to_owned(), value.to_string().into());
            }
        }
    }
}

/// Converts the members of an autoscaler of v1 to v2, which is stored.
fn store(members: &mut Map) {
    let mut kept = Map::new();
    let annotations = members
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        for (annotation, _, field) in AUTOSCALER_ANNOTATIONS {
            let text = annotations.remove(annotation);
            let text = text.as_ref().and_then(Value::as_str).unwrap_or_default();
            if let Ok(value) = serde_json::from_str(text) {
                kept.insert(field.to_owned(), value);
            }
        }
    }
    let percentages = [
        (
            "spec",
            "targetCPUUtilizationPercentage",
            "metrics",
            "target",
        ),
        (
            "status",
            "currentCPUUtilizationPercentage",
            "currentMetrics",
            "current",
        ),
    ];
    for (member, shown, field, values) in percentages {
        let Some(owner) = members.get_mut(member).and_then(Value::as_object_mut) else {
            continue;
        };
        if let Some(percentage) = owner.remove(shown) {
            let mut value = json!({ "averageUtilization": percentage });
            if values == "target" {
                value = json!({ "type": "Utilization", "averageUtilization": percentage });
            }
            let metric =
                json!({ "type": "Resource", "resource": { "name": "cpu", values: value } });
            let metrics = kept.entry(field).or_insert_with(|| json!([]));
            if let Some(metrics) = metrics.as_array_mut() {
                metrics.insert(0, metric);
            }
        }
    }
    for (_, member, field) in AUTOSCALER_ANNOTATIONS {
        if let Some(value) = kept.remove(field)
            && let Some(owner) = members.get_mut(member).and_then(Value::as_object_mut)
        {
            owner.insert(field.to_owned(), value);
        }
    }
}
