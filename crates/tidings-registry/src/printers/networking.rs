//! The networking group.

use tidings_json::Value;

use crate::table::fields::{count, field, list, name, text, text_or, texts};
use crate::table::format::{age, is_annotated, load_balancer, selector_or_none};
use crate::table::{AGE, NAME, TablePrinter, string};

pub(crate) static INGRESS: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Class", "The class that implements the ingress."),
        string("Hosts", "Host names the rules are about."),
        string("Address", "Addresses of the load balancer."),
        string("Ports", "Ports that are open."),
        AGE,
    ],
    cells: |object, now| {
        let ports = match count(object, &["spec", "tls"]) {
            0 => "80",
            _ => "80, 443",
        };
        cells![
            name(object),
            text_or(object, &["spec", "ingressClassName"], "<none>"),
            hosts(object),
            load_balancer(object),
            ports,
            age(object, now),
        ]
    },
};

pub(crate) static INGRESS_CLASS: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Controller", "The controller that handles the class."),
        string("Parameters", "The object with further settings."),
        AGE,
    ],
    cells: |object, now| {
        let mut name = name(object).to_string();
        if is_annotated(object, "ingressclass.kubernetes.io/is-default-class") {
            name.push_str(" (default)");
        }
        cells![
            name,
            text(object, &["spec", "controller"]),
            parameters(object),
            age(object, now),
        ]
    },
};

pub(crate) static NETWORK_POLICY: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Pod-Selector", "Labels of the pods it applies to."),
        AGE,
    ],
    cells: |object, now| {
        cells![
            name(object),
            selector_or_none(object, &["spec", "podSelector"]),
            age(object, now),
        ]
    },
};

pub(crate) static SERVICE_CIDR: TablePrinter = TablePrinter {
    columns: &[NAME, string("CIDRs", "Address ranges for services."), AGE],
    cells: |object, now| {
        cells![
            name(object),
            texts(object, &["spec", "cidrs"]).join(","),
            age(object, now),
        ]
    },
};

/// The age is an extra cell: kube-apiserver sends it without a column for it.
pub(crate) static IP_ADDRESS: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("ParentRef", "The object that uses the address."),
    ],
    cells: |object, now| cells![name(object), parent(object), age(object, now)],
};

/// The hosts of the first rules. The rest counts rules, with or without a host.
fn hosts(object: &Value) -> String {
    const MAX: usize = 3;
    let rules = list(object, &["spec", "rules"]);
    let mut hosts: Vec<&str> = Vec::new();
    let mut more = false;
    for rule in rules {
        let host = text(rule, &["host"]);
        more |= hosts.len() == MAX;
        if !more && !host.is_empty() {
            hosts.push(host);
        }
    }
    if hosts.is_empty() {
        "*".to_string()
    } else if more {
        format!("{} + {} more...", hosts.join(","), rules.len() - MAX)
    } else {
        hosts.join(",")
    }
}

fn parameters(object: &Value) -> String {
    let Some(reference) = field(object, &["spec", "parameters"]) else {
        return "<none>".to_string();
    };
    let kind = text(reference, &["kind"]);
    let name = text(reference, &["name"]);
    match field(reference, &["apiGroup"]).and_then(Value::as_str) {
        Some(group) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

/// The object that uses an address as `resource.group/namespace/name`.
fn parent(object: &Value) -> String {
    let Some(reference) = field(object, &["spec", "parentRef"]) else {
        return "<none>".to_string();
    };
    let mut parent = text(reference, &["resource"]).to_lowercase();
    let group = text(reference, &["group"]).to_lowercase();
    if !group.is_empty() {
        parent = format!("{parent}.{group}");
    }
    let namespace = text(reference, &["namespace"]);
    if !namespace.is_empty() {
        parent = format!("{parent}/{namespace}");
    }
    format!("{parent}/{}", text(reference, &["name"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn ingresses() {
        let ingress = json!({
            "metadata": meta("i"),
            "spec": {
                "ingressClassName": "nginx",
                "rules": [{"host": "a.example.com"}, {"host": "b.example.com"}],
                "tls": [{"hosts": ["a.example.com"]}],
            },
            "status": {"loadBalancer": {"ingress": [
                {"hostname": "a-very-long-name.example.com"},
                {"ip": "1.2.3.4"},
            ]}},
        });
        assert_eq!(
            print(&INGRESS, ingress),
            json!([
                "i",
                "nginx",
                "a.example.com,b.example.com",
                "1.2.3.4,a-very-long-name.example.com",
                "80, 443",
                "24s"
            ])
        );
        let any = json!({"metadata": meta("i"), "spec": {"rules": [{}]}});
        assert_eq!(
            print(&INGRESS, any),
            json!(["i", "<none>", "*", "", "80", "24s"])
        );
    }

    #[test]
    fn long_host_lists_are_cut() {
        let hosts = |hosts: &[&str]| {
            let rules: Vec<Value> = hosts.iter().map(|host| json!({"host": host})).collect();
            print(&INGRESS, json!({"spec": {"rules": rules}}))[2].clone()
        };
        assert_eq!(
            hosts(&["a.x", "b.x", "c.x", "d.x", "e.x"]),
            "a.x,b.x,c.x + 2 more..."
        );
        assert_eq!(
            hosts(&["a.x", "", "c.x", "d.x", ""]),
            "a.x,c.x,d.x + 2 more..."
        );
    }

    #[test]
    fn ingress_classes() {
        let mut class = json!({"metadata": meta("ic"), "spec": {
            "controller": "x.io/c",
            "parameters": {"apiGroup": "x.io", "kind": "P", "name": "n"},
        }});
        class["metadata"]["annotations"] =
            json!({"ingressclass.kubernetes.io/is-default-class": "true"});
        assert_eq!(
            print(&INGRESS_CLASS, class),
            json!(["ic (default)", "x.io/c", "P.x.io/n", "24s"])
        );
    }

    #[test]
    fn addresses_and_policies() {
        let gateway = json!({"group": "apps.example.com", "resource": "gateways", "name": "g"});
        let address = json!({"metadata": meta("10.77.0.7"), "spec": {"parentRef": gateway}});
        assert_eq!(
            print(&IP_ADDRESS, address),
            json!(["10.77.0.7", "gateways.apps.example.com/g", "24s"])
        );
        let service =
            json!({"group": "", "resource": "services", "namespace": "default", "name": "s"});
        assert_eq!(
            print(&IP_ADDRESS, json!({"spec": {"parentRef": service}}))[1],
            "services/default/s"
        );
        let cidr =
            json!({"metadata": meta("c"), "spec": {"cidrs": ["10.77.0.0/24", "fd77::/112"]}});
        assert_eq!(
            print(&SERVICE_CIDR, cidr),
            json!(["c", "10.77.0.0/24,fd77::/112", "24s"])
        );
        let policy = json!({"metadata": meta("np"), "spec": {"podSelector": {}}});
        assert_eq!(
            print(&NETWORK_POLICY, policy),
            json!(["np", "<none>", "24s"])
        );
    }
}
