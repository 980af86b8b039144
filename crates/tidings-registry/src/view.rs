//! Kinds that are views: their objects are stored as another kind. They are Event of `events.k8s.io` and HorizontalPodAutoscaler
//! of `autoscaling/v1`; their files convert the members.

use tidings_api::Object;
use tidings_json::Map;

use crate::kind::{Kind, KindView};

/// The JSON of a stored object as a view shows it, beginning with [`Kind::object_head`].
pub(crate) fn shown(kind: &Kind, view: &KindView, object: &Object) -> Vec<u8> {
    let mut members: Map = serde_json::from_slice(object.as_bytes()).unwrap_or_default();
    (view.show)(&mut members);
    let mut json = kind.object_head().into_bytes();
    json.extend_from_slice(b"\"metadata\":");
    json.extend(tidings_go::json(&members.get("metadata")).unwrap_or_default());
    for member in kind.members() {
        let value = match members.get(member.name).filter(|value| **value != "") {
            Some(value) => tidings_go::json(value).unwrap_or_default(),
            None => match &member.unset {
                Some(unset) => unset.to_string().into_bytes(),
                None => continue,
            },
        };
        json.extend_from_slice(format!(",\"{}\":", member.name).as_bytes());
        json.extend(value);
    }
    json.push(b'}');
    json
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::test_kinds::kind_of;
    use tidings_json::{Value, json};

    #[test]
    fn an_autoscaler_keeps_all_metrics_through_v1() {
        let v1 = kind_of("autoscaling", "v1", "horizontalpodautoscalers");
        let metrics = json!([
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
            {"type": "Pods", "pods": {"metric": {"name": "x"}, "target": {"type": "AverageValue", "averageValue": "1"}}},
        ]);
        let stored = json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "metrics": metrics}, "status": {}});
        let object = Object::parse(Bytes::from(stored.to_string())).unwrap();
        let shown: Value = serde_json::from_slice(&v1.shown(&object)).unwrap();
        assert_eq!(shown["apiVersion"], "autoscaling/v1");
        assert_eq!(shown["spec"]["targetCPUUtilizationPercentage"], 60);
        let mut back = shown.as_object().unwrap().clone();
        (v1.view.as_ref().unwrap().store)(&mut back);
        assert_eq!(back.get("spec").unwrap()["metrics"], metrics);
        assert_eq!(back.get("metadata").unwrap()["annotations"], json!({}));
    }

    #[test]
    fn an_event_has_other_names_in_its_own_group() {
        let events = kind_of("events.k8s.io", "v1", "events");
        let stored = json!({"metadata": {"name": "a"}, "involvedObject": {"name": "pod"}, "message": "hi", "count": 3});
        let object = Object::parse(Bytes::from(stored.to_string())).unwrap();
        let shown: Value = serde_json::from_slice(&events.shown(&object)).unwrap();
        assert_eq!(shown["kind"], "Event");
        assert_eq!(shown["regarding"]["name"], "pod");
        assert_eq!(shown["note"], "hi");
        assert_eq!(shown["deprecatedCount"], 3);
    }
}
