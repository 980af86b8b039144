//! `Ingress` of `networking.k8s.io`: entry, rules and table.

use std::sync::Arc;

use tidings_api::Object;
use tidings_json::Value;

use crate::kinds::names;
use crate::model::{Generation, Kind, Strategy};
use crate::table::fields::{count, list, name, text, text_or};
use crate::table::format::{age, load_balancer};
use crate::table::{AGE, NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "Ingress".into(),
        plural: "ingresses".into(),
        store_prefix: "ingress".into(),
        printer: &PRINTER,
        short_names: names(["ing"]),
        generation: Generation::Counted,
        status: true,
        strategy: Arc::new(IngressStrategy),
        ..super::plain()
    }
}

#[derive(Debug)]
struct IngressStrategy;

impl Strategy for IngressStrategy {
    fn created_warnings(&self, object: &Object) -> Vec<String> {
        let old = object.annotation("kubernetes.io/ingress.class");
        let text = "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead";
        old.map(|_| text.to_owned()).into_iter().collect()
    }
}

static PRINTER: TablePrinter = TablePrinter {
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

/// The first three hosts of the rules. The number after them counts all other rules, also those without a host.
fn hosts(object: &Value) -> String {
    /// The number of hosts that a table shows.
    const HOSTS_MAX: usize = 3;
    let rules = list(object, &["spec", "rules"]);
    let mut hosts: Vec<&str> = Vec::new();
    let mut more = false;
    for rule in rules {
        let host = text(rule, &["host"]);
        more |= hosts.len() == HOSTS_MAX;
        if !more && !host.is_empty() {
            hosts.push(host);
        }
    }
    if hosts.is_empty() {
        "*".to_string()
    } else if more {
        format!("{} + {} more...", hosts.join(","), rules.len() - HOSTS_MAX)
    } else {
        hosts.join(",")
    }
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
            print(&PRINTER, ingress),
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
            print(&PRINTER, any),
            json!(["i", "<none>", "*", "", "80", "24s"])
        );
    }

    #[test]
    fn long_host_lists_are_cut() {
        let hosts = |hosts: &[&str]| {
            let rules: Vec<Value> = hosts.iter().map(|host| json!({"host": host})).collect();
            print(&PRINTER, json!({"spec": {"rules": rules}}))[2].clone()
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
}
