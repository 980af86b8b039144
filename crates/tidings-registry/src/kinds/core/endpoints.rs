//! `Endpoints` of the core group: entry, defaults and table.

use tidings_json::Value;

use crate::defaults::{TypeDefaults, defaults};
use crate::kinds::names;
use crate::model::Kind;
use crate::table::fields::{int, list, name, text};
use crate::table::format::{age, some_of};
use crate::table::{AGE, NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "Endpoints".into(),
        warning: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
            .into(),
        plural: "endpoints".into(),
        store_prefix: "services/endpoints".into(),
        printer: &PRINTER,
        short_names: names(["ep"]),
        create_on_update: true,
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[defaults(
    "core/v1.EndpointPort",
    &[("protocol", r#""TCP""#)],
)];

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Endpoints", "Addresses and ports behind the service."),
        AGE,
    ],
    cells: |object, now| cells![name(object), endpoints(object), age(object, now)],
};

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

/// `address:port`, with brackets around an IPv6 address.
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

    #[test]
    fn endpoints_show_the_first_three() {
        let cell = |subsets| {
            let object = json!({"metadata": meta("e"), "subsets": subsets});
            print(&PRINTER, object)[1].clone()
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
