//! `ServiceCIDR` of `networking.k8s.io`: entry and table.

use crate::model::Kind;
use crate::table::fields::{name, texts};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "ServiceCIDR".into(),
        plural: "servicecidrs".into(),
        printer: &PRINTER,
        namespaced: false,
        status: true,
        ..super::plain()
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[NAME, string("CIDRs", "Address ranges for services."), AGE],
    cells: |object, now| {
        cells![
            name(object),
            texts(object, &["spec", "cidrs"]).join(","),
            age(object, now),
        ]
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn service_cidrs() {
        let cidr =
            json!({"metadata": meta("c"), "spec": {"cidrs": ["10.77.0.0/24", "fd77::/112"]}});
        assert_eq!(
            print(&PRINTER, cidr),
            json!(["c", "10.77.0.0/24,fd77::/112", "24s"])
        );
    }
}
