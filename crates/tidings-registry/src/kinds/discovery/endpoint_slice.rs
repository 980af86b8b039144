//! `EndpointSlice` of `discovery.k8s.io`: entry, defaults and table.

use tidings_json::Value;

use crate::defaults::{TypeDefaults, defaults};
use crate::model::{Generation, Kind};
use crate::table::fields::{field, list, name, nonempty, text, texts};
use crate::table::format::{age, some_of};
use crate::table::{AGE, NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        group: "discovery.k8s.io".into(),
        kind: "EndpointSlice".into(),
        plural: "endpointslices".into(),
        printer: &PRINTER,
        go_package: "discovery",
        generation: Generation::CountedWithLabels,
        ..Kind::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[defaults(
    "discovery/v1.EndpointPort",
    &[("name", r#""""#), ("protocol", r#""TCP""#)],
)];

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("AddressType", "The type of the addresses."),
        string("Ports", "The ports of each endpoint."),
        string("Endpoints", "The addresses of the endpoints."),
        AGE,
    ],
    cells: |object, now| {
        cells![
            name(object),
            text(object, &["addressType"]),
            nonempty(&ports(object), "<unset>"),
            nonempty(&addresses(object), "<unset>"),
            age(object, now),
        ]
    },
};

/// A port without a number shows its name.
fn ports(object: &Value) -> String {
    let ports: Vec<String> = list(object, &["ports"])
        .iter()
        .map(|port| match field(port, &["port"]) {
            Some(number) => number.to_string(),
            None => text(port, &["name"]).to_string(),
        })
        .collect();
    some_of(&ports, 3, ",")
}

fn addresses(object: &Value) -> String {
    let addresses: Vec<String> = list(object, &["endpoints"])
        .iter()
        .flat_map(|endpoint| texts(endpoint, &["addresses"]))
        .map(str::to_string)
        .collect();
    some_of(&addresses, 3, ",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn slices_show_the_first_three() {
        let slice = json!({
            "metadata": meta("es"),
            "addressType": "IPv4",
            "ports": [{"port": 80}, {"port": 81}, {"port": 82}, {"port": 83}],
            "endpoints": [
                {"addresses": ["10.1.0.1"]},
                {"addresses": ["10.1.0.2", "10.1.0.3"]},
                {"addresses": ["10.1.0.4"]},
                {"addresses": ["10.1.0.5"]},
            ],
        });
        assert_eq!(
            print(&PRINTER, slice),
            json!([
                "es",
                "IPv4",
                "80,81,82 + 1 more...",
                "10.1.0.1,10.1.0.2,10.1.0.3 + 2 more...",
                "24s"
            ])
        );
    }

    #[test]
    fn ports_without_numbers() {
        let ports = |ports| print(&PRINTER, json!({"ports": ports}))[2].clone();
        assert_eq!(ports(json!([{"name": "a"}, {"name": "b"}])), "a,b");
        assert_eq!(ports(json!([{}])), "<unset>");
        assert_eq!(ports(json!([])), "<unset>");
    }
}
