//! `HorizontalPodAutoscaler` of `autoscaling/v2`, the stored version: entry, defaults and table.

use tidings_json::{Map, Value, json};

use crate::defaults::{TypeDefaults, defaults, is_empty};
use crate::model::Kind;
use crate::table::fields::{field, has, int, int_or, list, name, quantity, text};
use crate::table::format::{age, some_of};
use crate::table::{AGE, NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        version: "v2".into(),
        printer: &PRINTER,
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

/// The table of both versions: it reads the stored object.
pub(super) static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Reference", "The object that is scaled."),
        string("Targets", "Current and wanted values of the metrics."),
        string("MinPods", "The least number of pods."),
        string("MaxPods", "The greatest number of pods."),
        string("Replicas", "How many pods there are."),
        AGE,
    ],
    cells: |object, now| {
        let kind = text(object, &["spec", "scaleTargetRef", "kind"]);
        let target = text(object, &["spec", "scaleTargetRef", "name"]);
        cells![
            name(object),
            format!("{kind}/{target}"),
            metrics(object),
            int_or(object, &["spec", "minReplicas"], 1).to_string(),
            int(object, &["spec", "maxReplicas"]),
            int(object, &["status", "currentReplicas"]),
            age(object, now),
        ]
    },
};

/// The first two metrics as `current/target`. An autoscaler without metrics has the default one, 80 % of CPU.
fn metrics(object: &Value) -> String {
    let default = [json!({
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"averageUtilization": 80}},
    })];
    let specs = match list(object, &["spec", "metrics"]) {
        [] => &default,
        specs => specs,
    };
    let statuses = list(object, &["status", "currentMetrics"]);
    let metrics: Vec<String> = specs
        .iter()
        .enumerate()
        .map(|(index, spec)| metric(spec, statuses.get(index).unwrap_or(&Value::Null)))
        .collect();
    some_of(&metrics, 2, ", ")
}

fn metric(spec: &Value, status: &Value) -> String {
    let kind = text(spec, &["type"]);
    let source = match kind {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_string(),
    };
    let spec = field(spec, &[source]).unwrap_or(&Value::Null);
    let status = field(status, &[source]);
    let resource = text(spec, &["name"]);
    let averages = has(spec, &["target", "averageValue"]);
    match kind {
        "Pods" => pair(spec, status, "averageValue"),
        "External" | "Object" if averages => {
            // An average may be missing although the metric is known.
            let status = status.filter(|status| has(status, &["current", "averageValue"]));
            format!("{} (avg)", pair(spec, status, "averageValue"))
        }
        "External" | "Object" => pair(spec, status, "value"),
        _ if averages => format!("{resource}: {}", pair(spec, status, "averageValue")),
        _ => {
            let percent =
                |object, group, unset: &str| match field(object, &[group, "averageUtilization"])
                    .and_then(Value::as_i64)
                {
                    Some(percent) => format!("{percent}%"),
                    None => unset.to_string(),
                };
            let current = percent(status.unwrap_or(&Value::Null), "current", "<unknown>");
            let target = percent(spec, "target", "<auto>");
            format!("{resource}: {current}/{target}")
        }
    }
}

/// The current and the target amount of a metric, as `current/target`.
fn pair(spec: &Value, status: Option<&Value>, key: &str) -> String {
    let amount = |object, group| {
        if has(object, &[group, key]) {
            quantity(object, &[group, key])
        } else {
            "<nil>".to_string()
        }
    };
    let current = match status {
        Some(status) => amount(status, "current"),
        None => "<unknown>".to_string(),
    };
    format!("{current}/{}", amount(spec, "target"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};

    fn autoscaler(metrics: Value, current: Value) -> Value {
        json!({
            "metadata": meta("h"),
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                "maxReplicas": 5,
                "metrics": metrics,
            },
            "status": {"currentMetrics": current, "currentReplicas": 3},
        })
    }

    #[track_caller]
    fn check(metrics: Value, current: Value, expected: &str) {
        assert_eq!(
            print(&PRINTER, autoscaler(metrics, current)),
            json!(["h", "Deployment/web", expected, "1", 5, 3, "24s"])
        );
    }

    #[test]
    fn resources_show_their_name() {
        check(json!(null), json!(null), "cpu: <unknown>/80%");
        let cpu =
            |target| json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        let current = json!({"averageUtilization": 33, "averageValue": "100m"});
        let current =
            json!([{"type": "Resource", "resource": {"name": "cpu", "current": current}}]);
        check(
            json!([cpu(json!({"averageUtilization": 70}))]),
            current.clone(),
            "cpu: 33%/70%",
        );
        check(
            json!([cpu(json!({"averageValue": "1000m"}))]),
            current,
            "cpu: 100m/1",
        );
        let memory = json!({"type": "ContainerResource", "containerResource":
            {"name": "memory", "target": {"averageValue": "1Gi"}}});
        check(
            json!([memory]),
            json!([{"containerResource": {"current": {"averageValue": "1024Ki"}}}]),
            "memory: 1Mi/1Gi",
        );
    }

    #[test]
    fn other_metrics_show_amounts() {
        let metric = |kind: &str, source: &str, target: Value| json!({"type": kind, source: {"target": target}});
        check(
            json!([
                metric("External", "external", json!({"value": "2000"})),
                metric("External", "external", json!({"averageValue": "20"})),
                metric("Object", "object", json!({"value": "20"})),
            ]),
            json!([
                {"external": {"current": {"value": "30"}}},
                {"external": {"current": {"value": "30"}}},
            ]),
            "30/2k, <unknown>/20 (avg) + 1 more...",
        );
        check(
            json!([
                metric("Object", "object", json!({"value": "20"})),
                metric("Object", "object", json!({"averageValue": "20"})),
            ]),
            json!([
                {"object": {"current": {"averageValue": "3"}}},
                {"object": {"current": {"averageValue": "3"}}},
            ]),
            "<nil>/20, 3/20 (avg)",
        );
        check(
            json!([metric("Pods", "pods", json!({"averageValue": "1k"}))]),
            json!([{"pods": {"current": {"averageValue": "12500m"}}}]),
            "12500m/1k",
        );
    }
}
