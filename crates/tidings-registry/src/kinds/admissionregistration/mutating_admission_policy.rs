//! `MutatingAdmissionPolicy` of `admissionregistration.k8s.io`: entry, defaults and table.

use std::sync::Arc;

use super::policies::MutatingPolicyStrategy;
use super::{PARAM_KIND, policy_cells};
use crate::defaults::{TypeDefaults, defaults};
use crate::model::Kind;
use crate::table::{AGE, NAME, TablePrinter, integer};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "MutatingAdmissionPolicy".into(),
        plural: "mutatingadmissionpolicies".into(),
        printer: &PRINTER,
        strategy: Arc::new(MutatingPolicyStrategy),
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[defaults(
    "admissionregistration/v1.MutatingAdmissionPolicySpec",
    &[("failurePolicy", r#""Fail""#)],
)];

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        integer("Mutations", "How many rules change objects."),
        PARAM_KIND,
        AGE,
    ],
    cells: |object, now| policy_cells(object, "mutations", now),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn rules_are_counted() {
        let policy = json!({"metadata": meta("p"), "spec": {"mutations": [{}, {}]}});
        assert_eq!(print(&PRINTER, policy), json!(["p", 2, "<unset>", "24s"]));
    }
}
