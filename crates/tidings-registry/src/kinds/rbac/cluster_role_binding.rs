//! `ClusterRoleBinding` of `rbac.authorization.k8s.io`: entry, fixed fields and table.

use std::sync::Arc;

use super::checks::BindingStrategy;
use super::{BINDING_COLUMNS, FIXED_ROLE, binding_cells};
use crate::model::Kind;
use crate::table::TablePrinter;

pub(super) fn kind() -> Kind {
    Kind {
        kind: "ClusterRoleBinding".into(),
        plural: "clusterrolebindings".into(),
        printer: &PRINTER,
        namespaced: false,
        fixed: vec![FIXED_ROLE],
        strategy: Arc::new(BindingStrategy { namespaced: false }),
        ..super::plain()
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: BINDING_COLUMNS,
    cells: binding_cells,
};
