//! `ValidatingAdmissionPolicy` of `admissionregistration.k8s.io`: entry, defaults and table.

use std::sync::Arc;

use super::policies::PolicyStrategy;
use super::{PARAM_KIND, policy_cells};
use crate::defaults::{TypeDefaults, defaults};
use crate::model::Kind;
use crate::table::{AGE, NAME, TablePrinter, integer};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "ValidatingAdmissionPolicy".into(),
        plural: "validatingadmissionpolicies".into(),
        printer: &PRINTER,
        status: true, // a MutatingAdmissionPolicy has none
        strategy: Arc::new(PolicyStrategy),
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[defaults(
    "admissionregistration/v1.ValidatingAdmissionPolicySpec",
    &[("failurePolicy", r#""Fail""#)],
)];

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        integer("Validations", "How many rules check objects."),
        PARAM_KIND,
        AGE,
    ],
    cells: |object, now| policy_cells(object, "validations", now),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn rules_are_counted() {
        let policy = json!({"metadata": meta("p"), "spec": {
            "validations": [{"expression": "true"}],
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        }});
        assert_eq!(
            print(&PRINTER, policy),
            json!(["p", 1, "v1/ConfigMap", "24s"])
        );
    }
}
