//! `NetworkPolicy` of `networking.k8s.io`: entry, defaults and table.

use crate::defaults::{TypeDefaults, defaults, is_empty, rule};
use crate::kinds::names;
use crate::model::{Generation, Kind};
use crate::table::fields::name;
use crate::table::format::{age, selector_or_none};
use crate::table::{AGE, NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "NetworkPolicy".into(),
        plural: "networkpolicies".into(),
        printer: &PRINTER,
        short_names: names(["netpol"]),
        generation: Generation::Counted,
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[
    defaults(
        "networking/v1.NetworkPolicyPort",
        &[("protocol", r#""TCP""#)],
    ),
    rule("networking/v1.NetworkPolicySpec", |spec| {
        if is_empty(spec.get("policyTypes")) {
            let mut types = vec!["Ingress"];
            if !is_empty(spec.get("egress")) {
                types.push("Egress");
            }
            spec.insert("policyTypes".into(), types.into());
        }
    }),
];

static PRINTER: TablePrinter = TablePrinter {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn network_policies() {
        let policy = json!({"metadata": meta("np"), "spec": {"podSelector": {}}});
        assert_eq!(print(&PRINTER, policy), json!(["np", "<none>", "24s"]));
    }
}
