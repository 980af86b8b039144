//! Services and their endpoints.

use tidings_json::Value;

use crate::table::fields::{int, list, name, nonempty, text, text_or, texts};
use crate::table::format::{age, labels, load_balancer, some_of};
use crate::table::{AGE, NAME, SELECTOR, TablePrinter, string};

pub(crate) static SERVICE: TablePrinter = TablePrinter {
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
            kind(service),
            nonempty(cluster_ip, "<none>"),
            external_ip(service),
            nonempty(&ports(service), "<none>"),
            age(service, now),
            labels(service, &["spec", "selector"]),
        ]
    },
};

pub(crate) static ENDPOINTS: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Endpoints", "Addresses and ports behind the service."),
        AGE,
    ],
    cells: |object, now| cells![name(object), endpoints(object), age(object, now)],
};

fn kind(service: &Value) -> &str {
    text_or(service, &["spec", "type"], "ClusterIP")
}

fn external_ip(service: &Value) -> String {
    let external = texts(service, &["spec", "externalIPs"]).join(",");
    match kind(service) {
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

fn endpoints(object: &Value) -> String {
    let subsets = list(object, &["subsets"]);
    if subsets.is_empty() {
        return "<none>".to_string();
    }
    let mut endpoints = Vec::new();
    for subset in subsets {
        let addresses = || {
            list(subset, &["addresses"])
                .iter()
                .map(|address| text(address, &["ip"]))
        };
        let ports = list(subset, &["ports"]);
        if ports.is_empty() {
            endpoints.extend(addresses().map(str::to_string));
        }
        for port in ports {
            let port = int(port, &["port"]);
            endpoints.extend(addresses().map(|ip| host_port(ip, port)));
        }
    }
    some_of(&endpoints, 3, ",")
}

/// IPv6 addresses need brackets in front of a port.
fn host_port(ip: &str, port: i64) -> String {
    if ip.contains(':') {
        format!("[{ip}]:{port}")
    } else {
        format!("{ip}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    /// Checks the columns Type, Cluster-IP, External-IP and Port(s).
    #[track_caller]
    fn check(spec: Value, status: Value, expected: [&str; 4]) {
        let service = json!({"metadata": meta("s"), "spec": spec, "status": status});
        let [kind, cluster_ip, external_ip, ports] = expected;
        assert_eq!(
            print(&SERVICE, service),
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
        assert_eq!(print(&SERVICE, selected)[6], "a=2,b=1");
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
            print(&SERVICE, service)[3].clone()
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

    #[test]
    fn endpoints_show_the_first_three() {
        let cell = |subsets| {
            let object = json!({"metadata": meta("e"), "subsets": subsets});
            print(&ENDPOINTS, object)[1].clone()
        };
        assert_eq!(cell(json!(null)), "<none>");
        assert_eq!(
            cell(json!([
                {"addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}],
                 "ports": [{"port": 80}, {"port": 81}]},
                {"addresses": [{"ip": "fd00::1"}], "ports": [{"port": 9}]},
            ])),
            "10.0.0.1:80,10.0.0.2:80,10.0.0.1:81 + 2 more..."
        );
        assert_eq!(
            cell(json!([{"addresses": [{"ip": "fd00::1"}], "ports": [{"port": 9}]}])),
            "[fd00::1]:9"
        );
        assert_eq!(
            cell(json!([{"addresses": [{"ip": "10.0.0.1"}]}])),
            "10.0.0.1"
        );
        assert_eq!(
            cell(json!([{"notReadyAddresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 9}]}])),
            ""
        );
    }
}
