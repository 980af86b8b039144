//! `RoleBinding` of `rbac.authorization.k8s.io`: entry, fixed fields and table.

use std::sync::Arc;

use super::checks::BindingStrategy;
use super::{BINDING_COLUMNS, FIXED_ROLE, binding_cells};
use crate::model::Kind;
use crate::table::TablePrinter;

pub(super) fn kind() -> Kind {
    Kind {
        kind: "RoleBinding".into(),
        plural: "rolebindings".into(),
        printer: &PRINTER,
        fixed: vec![FIXED_ROLE],
        strategy: Arc::new(BindingStrategy { namespaced: true }),
        ..super::plain()
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: BINDING_COLUMNS,
    cells: binding_cells,
};
