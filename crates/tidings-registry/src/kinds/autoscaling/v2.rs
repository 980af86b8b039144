//! HorizontalPodAutoscalers of `autoscaling/v2`.

use tidings_json::{Map, Value, json};

use crate::complete::{TypeDefaults, defaults, is_empty};
use crate::kind::Kind;

pub(super) fn kind() -> Kind {
    Kind {
        version: "v2".into(),
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[defaults(
    "autoscaling/v2.HorizontalPodAutoscalerSpec",
    &[("minReplicas", "1")],
)
.and(complete_spec)];

fn complete_spec(spec: &mut Map) {
    if is_empty(spec.get("metrics")) {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        spec.insert("metrics".into(), json!([metric]));
    }
    let Some(Value::Object(behavior)) = spec.get_mut("behavior") else {
        return;
    };
    let by_percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let up = json!({
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, by_percent],
    });
    let down = json!({"selectPolicy": "Max", "policies": [by_percent]});
    for (name, mut rules) in [("scaleUp", up), ("scaleDown", down)] {
        let said = behavior.get(name).and_then(Value::as_object).cloned();
        for (name, value) in said
            .into_iter()
            .flatten()
            .filter(|(_, value)| !value.is_null())
        {
            rules[name] = value;
        }
        behavior.insert(name.to_owned(), rules);
    }
}
