//! `IPAddress` of `networking.k8s.io`: entry and table.

use tidings_json::Value;

use crate::kinds::names;
use crate::model::{Kind, NameRule};
use crate::table::fields::{field, name, text};
use crate::table::format::age;
use crate::table::{NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "IPAddress".into(),
        plural: "ipaddresses".into(),
        printer: &PRINTER,
        short_names: names(["ip"]),
        namespaced: false,
        name_rule: NameRule::IpAddress,
        ..super::plain()
    }
}

/// Rows have one cell more than there are columns, the age: kube-apiserver sends it too.
static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("ParentRef", "The object that uses the address."),
    ],
    cells: |object, now| cells![name(object), parent(object), age(object, now)],
};

/// The object that uses the address, as `resource.group/namespace/name`.
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
    fn ip_addresses() {
        let gateway = json!({"group": "apps.example.com", "resource": "gateways", "name": "g"});
        let address = json!({"metadata": meta("10.77.0.7"), "spec": {"parentRef": gateway}});
        assert_eq!(
            print(&PRINTER, address),
            json!(["10.77.0.7", "gateways.apps.example.com/g", "24s"])
        );
        let service =
            json!({"group": "", "resource": "services", "namespace": "default", "name": "s"});
        assert_eq!(
            print(&PRINTER, json!({"spec": {"parentRef": service}}))[1],
            "services/default/s"
        );
    }
}
