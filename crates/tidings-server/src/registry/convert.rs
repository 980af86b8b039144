//! Kinds that are another view of stored objects: events of `events.k8s.io`, and autoscalers of `autoscaling/v1`.

use std::borrow::Cow;

use tidings_api::{Object, go};
use tidings_json::{Map, Value, json};

use super::{Kind, Member, StoredAs};
use crate::custom;

/// What members of an event are called in `events.k8s.io`, and in the core group.
const EVENT_NAMES: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// Where `autoscaling/v1` keeps what it has no members for, and where that stands in v2.
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

impl Kind {
    /// The JSON of a stored object, as this kind shows it.
    pub(crate) fn shown<'a>(&self, object: &'a Object) -> Cow<'a, [u8]> {
        match (self.custom, self.stored_as) {
            (Some(custom), _) if !custom.is_version_of(object) => match custom.live() {
                Some(live) => custom::as_seen(&live, object).into(),
                None => object.as_bytes().into(),
            },
            (None, Some(_)) => self.converted(object).into(),
            _ => object.as_bytes().into(),
        }
    }

    /// A stored object as this kind shows it: JSON that begins as its objects do.
    fn converted(&self, object: &Object) -> Vec<u8> {
        let mut members: Map = serde_json::from_slice(object.as_bytes()).unwrap_or_default();
        match self.stored_as {
            None => return object.as_bytes().to_vec(),
            Some(StoredAs::CoreEvent) => {
                for (shown, stored) in EVENT_NAMES {
                    rename(&mut members, stored, shown);
                }
            }
            Some(StoredAs::AutoscalerV2) => autoscaler_to_v1(&mut members),
        }
        let mut json = self.object_head().into_bytes();
        json.extend_from_slice(b"\"metadata\":");
        json.extend(go::json(&members.get("metadata")).unwrap_or_default());
        for Member { name, absent, .. } in self.members {
            let value = match members.get(name).filter(|value| **value != "") {
                Some(value) => go::json(value).unwrap_or_default(),
                None if absent.is_empty() => continue,
                None => absent.as_bytes().to_vec(),
            };
            json.extend_from_slice(format!(",\"{name}\":").as_bytes());
            json.extend(value);
        }
        json.push(b'}');
        json
    }

    /// The members of an object that a client sent as this kind, as they are stored.
    pub(crate) fn to_stored(&self, members: &mut Map) {
        match self.stored_as {
            None => {}
            Some(StoredAs::CoreEvent) => {
                for (shown, stored) in EVENT_NAMES {
                    rename(members, shown, stored);
                }
            }
            Some(StoredAs::AutoscalerV2) => autoscaler_to_v2(members),
        }
    }
}

fn rename(members: &mut Map, from: &str, to: &str) {
    if let Some(value) = members.remove(from) {
        members.insert(to.to_owned(), value);
    }
}

/// The average use of CPU that a metric of v2 is about.
fn cpu_utilization<'a>(metric: &'a Value, values: &str) -> Option<&'a Value> {
    let resource = metric.get("resource")?;
    let cpu = metric.get("type")? == "Resource" && resource.get("name")? == "cpu";
    resource
        .get(values)?
        .get("averageUtilization")
        .filter(|_| cpu)
}

fn autoscaler_to_v1(members: &mut Map) {
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

fn autoscaler_to_v2(members: &mut Map) {
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::registry;

    #[test]
    fn an_autoscaler_keeps_all_metrics_through_v1() {
        let v1 = registry::find("autoscaling", "v1", "horizontalpodautoscalers").unwrap();
        let metrics = json!([
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
            {"type": "Pods", "pods": {"metric": {"name": "x"}, "target": {"type": "AverageValue", "averageValue": "1"}}},
        ]);
        let stored = json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "metrics": metrics}, "status": {}});
        let object = Object::parse(Bytes::from(stored.to_string())).unwrap();
        let shown: Value = serde_json::from_slice(&v1.converted(&object)).unwrap();
        assert_eq!(shown["apiVersion"], "autoscaling/v1");
        assert_eq!(shown["spec"]["targetCPUUtilizationPercentage"], 60);
        let mut back = shown.as_object().unwrap().clone();
        v1.to_stored(&mut back);
        assert_eq!(back.get("spec").unwrap()["metrics"], metrics);
        assert_eq!(back.get("metadata").unwrap()["annotations"], json!({}));
    }

    #[test]
    fn an_event_has_other_names_in_its_own_group() {
        let events = registry::find("events.k8s.io", "v1", "events").unwrap();
        let stored = json!({"metadata": {"name": "a"}, "involvedObject": {"name": "pod"}, "message": "hi", "count": 3});
        let object = Object::parse(Bytes::from(stored.to_string())).unwrap();
        let shown: Value = serde_json::from_slice(&events.converted(&object)).unwrap();
        assert_eq!(shown["kind"], "Event");
        assert_eq!(shown["regarding"]["name"], "pod");
        assert_eq!(shown["note"], "hi");
        assert_eq!(shown["deprecatedCount"], 3);
    }
}
