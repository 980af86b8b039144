//! `MutatingAdmissionPolicyBinding` of `admissionregistration.k8s.io`: entry and table.

use std::sync::Arc;

use super::policies::MutatingBindingStrategy;
use super::{BINDING_COLUMNS, binding_cells};
use crate::model::Kind;
use crate::table::TablePrinter;

pub(super) fn kind() -> Kind {
    Kind {
        kind: "MutatingAdmissionPolicyBinding".into(),
        plural: "mutatingadmissionpolicybindings".into(),
        printer: &PRINTER,
        strategy: Arc::new(MutatingBindingStrategy),
        ..super::plain()
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: BINDING_COLUMNS,
    cells: binding_cells,
};
