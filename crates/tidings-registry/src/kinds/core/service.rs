//! Services, without what would need a network: addresses and their families.

use std::sync::Arc;

use tidings_api::{FieldError, FieldErrors};
use tidings_json::{Map, Value, json};

use crate::complete::{TypeDefaults, defaults, is_empty, text};
use crate::draft::Draft;
use crate::kind::{Kind, NameRule, SelectableField, Subresource};
use crate::kinds::{field, names};
use crate::printers::core as printers;
use crate::strategy::Strategy;

pub(super) fn kind() -> Kind {
    Kind {
        kind: "Service".into(),
        plural: "services".into(),
        store_prefix: "services/specs".into(),
        printer: &printers::SERVICE,
        short_names: names(["svc"]),
        categories: names(["all"]),
        fields: vec![
            field("spec.clusterIP", &[&["spec", "clusterIP"]]),
            SelectableField {
                absent: "ClusterIP",
                ..field("spec.type", &[&["spec", "type"]])
            },
        ],
        name_rule: NameRule::Label, // before 1.36 it also had to begin with a letter
        status: true,
        create_on_update: true,
        returns_deleted: true,
        strategy: Arc::new(Services),
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[
    defaults("core/v1.ServicePort", &[("protocol", r#""TCP""#)]),
    defaults(
        "core/v1.ServiceSpec",
        &[("sessionAffinity", r#""None""#), ("type", r#""ClusterIP""#)],
    )
    .and(complete_spec),
];

#[derive(Debug)]
struct Services;

impl Strategy for Services {
    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        _: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        let headless = new.text(&["spec", "clusterIP"]) == "None"
            || new.text(&["spec", "type"]) == "ExternalName";
        let ports = new.at(&["spec", "ports"]).and_then(Value::as_array);
        if !headless && ports.is_none_or(Vec::is_empty) {
            errors.push(FieldError::required("spec.ports", ""));
        }
    }
}

fn complete_spec(spec: &mut Map) {
    match text(spec, "sessionAffinity") {
        "None" => drop(spec.remove("sessionAffinityConfig")),
        "ClientIP" => {
            let config = spec.get("sessionAffinityConfig");
            let timeout = config.map(|config| &config["clientIP"]["timeoutSeconds"]);
            if timeout.is_none_or(Value::is_null) {
                let config = json!({"clientIP": {"timeoutSeconds": 10800}});
                spec.insert("sessionAffinityConfig".into(), config);
            }
        }
        _ => {}
    }
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        if is_empty(port.get("targetPort"))
            && let Some(number) = port.get("port").cloned()
        {
            port.insert("targetPort".into(), number);
        }
    }
    let kind = text(spec, "type").to_owned();
    let reached = matches!(&*kind, "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && !is_empty(spec.get("externalIPs")));
    let mut default = |name: &str, value: Value| {
        if is_empty(spec.get(name)) {
            spec.insert(name.to_owned(), value);
        }
    };
    if reached {
        default("externalTrafficPolicy", "Cluster".into());
    }
    if matches!(&*kind, "ClusterIP" | "NodePort" | "LoadBalancer") {
        default("internalTrafficPolicy", "Cluster".into());
    }
    let allocates = spec.get("allocateLoadBalancerNodePorts");
    if kind == "LoadBalancer" && allocates.is_none_or(Value::is_null) {
        spec.insert("allocateLoadBalancerNodePorts".into(), true.into());
    }
}
