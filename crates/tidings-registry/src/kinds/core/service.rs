//! `Service` of the core group: entry, defaults, rules and table. No cluster IPs are allocated: there is no network.

use std::sync::Arc;

use tidings_api::{FieldError, FieldErrors};
use tidings_json::{Map, Value, json};

use crate::defaults::{TypeDefaults, defaults, is_empty, member_text};
use crate::kinds::{names, selectable};
use crate::model::{Draft, Kind, NameRule, SelectableField, Strategy, Subresource};
use crate::table::fields::{int, list, name, nonempty, text, text_or, texts};
use crate::table::format::{age, labels, load_balancer};
use crate::table::{AGE, NAME, SELECTOR, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "Service".into(),
        plural: "services".into(),
        store_prefix: "services/specs".into(),
        printer: &PRINTER,
        short_names: names(["svc"]),
        categories: names(["all"]),
        fields: vec![
            selectable("spec.clusterIP", &[&["spec", "clusterIP"]]),
            SelectableField {
                absent: "ClusterIP",
                ..selectable("spec.type", &[&["spec", "type"]])
            },
        ],
        name_rule: NameRule::Label, // before 1.36 it also had to begin with a letter
        status: true,
        create_on_update: true,
        returns_deleted: true,
        strategy: Arc::new(ServiceStrategy),
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
struct ServiceStrategy;

impl Strategy for ServiceStrategy {
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
    match member_text(spec, "sessionAffinity") {
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
    let kind = member_text(spec, "type").to_owned();
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

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Type", "How the service is exposed."),
        string("Cluster-IP", "The address inside the cluster."),
        string("External-IP", "The addresses outside the cluster."),
        string("Port(s)", "Ports, node ports and protocols."),
        AGE,
        SELECTOR,
    ],
    cells: |service, now| {
        let cluster_ip = texts(service, &["spec", "clusterIPs"])
            .first()
            .copied()
            .unwrap_or_else(|| text(service, &["spec", "clusterIP"]));
        cells![
            name(service),
            service_type(service),
            nonempty(cluster_ip, "<none>"),
            external_ip(service),
            nonempty(&ports(service), "<none>"),
            age(service, now),
            labels(service, &["spec", "selector"]),
        ]
    },
};

fn service_type(service: &Value) -> &str {
    text_or(service, &["spec", "type"], "ClusterIP")
}

fn external_ip(service: &Value) -> String {
    let external = texts(service, &["spec", "externalIPs"]).join(",");
    match service_type(service) {
        "ClusterIP" | "NodePort" => nonempty(&external, "<none>").to_string(),
        "LoadBalancer" => {
            let balancer = load_balancer(service);
            match (balancer.is_empty(), external.is_empty()) {
                (true, true) => "<pending>".to_string(),
                (false, false) => format!("{balancer},{external}"),
                _ => balancer + &external,
            }
        }
        "ExternalName" => text(service, &["spec", "externalName"]).to_string(),
        _ => "<unknown>".to_string(),
    }
}

fn ports(service: &Value) -> String {
    let ports: Vec<String> = list(service, &["spec", "ports"])
        .iter()
        .map(|item| {
            let port = int(item, &["port"]);
            let protocol = text_or(item, &["protocol"], "TCP");
            match int(item, &["nodePort"]) {
                ..=0 => format!("{port}/{protocol}"),
                node_port => format!("{port}:{node_port}/{protocol}"),
            }
        })
        .collect();
    ports.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};

    /// Checks the columns Type, Cluster-IP, External-IP and Port(s).
    #[track_caller]
    fn check(spec: Value, status: Value, expected: [&str; 4]) {
        let service = json!({"metadata": meta("s"), "spec": spec, "status": status});
        let [kind, cluster_ip, external_ip, ports] = expected;
        assert_eq!(
            print(&PRINTER, service),
            json!(["s", kind, cluster_ip, external_ip, ports, "24s", "<none>"])
        );
    }

    #[test]
    fn services_inside_the_cluster() {
        let ports = json!([{"name": "w", "port": 80}, {"port": 53, "protocol": "UDP"}]);
        check(
            json!({"clusterIPs": ["10.0.0.34"], "ports": ports}),
            json!({}),
            ["ClusterIP", "10.0.0.34", "<none>", "80/TCP,53/UDP"],
        );
        check(
            json!({"clusterIP": "None"}),
            json!({}),
            ["ClusterIP", "None", "<none>", "<none>"],
        );
        let selected = json!({"metadata": meta("s"), "spec": {"selector": {"b": "1", "a": "2"}}});
        assert_eq!(print(&PRINTER, selected)[6], "a=2,b=1");
    }

    #[test]
    fn services_outside_the_cluster() {
        let ports = json!([{"port": 80, "nodePort": 30123}]);
        check(
            json!({"type": "NodePort", "clusterIP": "10.0.0.174", "ports": ports,
                   "externalIPs": ["1.2.3.4", "1.2.3.5"]}),
            json!({}),
            ["NodePort", "10.0.0.174", "1.2.3.4,1.2.3.5", "80:30123/TCP"],
        );
        check(
            json!({"type": "ExternalName", "externalName": "x.example.com"}),
            json!({}),
            ["ExternalName", "<none>", "x.example.com", "<none>"],
        );
    }

    #[test]
    fn load_balancers() {
        let balancer = json!({"loadBalancer": {"ingress": [
            {"hostname": "very-long-name.example.com"},
            {"ip": "9.9.9.9"},
            {"ip": "9.9.9.9"},
        ]}});
        let external = |spec, status| {
            let service = json!({"spec": spec, "status": status});
            print(&PRINTER, service)[3].clone()
        };
        assert_eq!(
            external(json!({"type": "LoadBalancer"}), json!({})),
            "<pending>"
        );
        assert_eq!(
            external(json!({"type": "LoadBalancer"}), balancer.clone()),
            "9.9.9.9,very-long-name.example.com"
        );
        assert_eq!(
            external(
                json!({"type": "LoadBalancer", "externalIPs": ["1.2.3.4"]}),
                balancer
            ),
            "9.9.9.9,very-long-name.example.com,1.2.3.4"
        );
    }
}
