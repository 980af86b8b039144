//! `ValidatingAdmissionPolicyBinding` of `admissionregistration.k8s.io`: entry and table.

use std::sync::Arc;

use super::policies::BindingStrategy;
use super::{BINDING_COLUMNS, binding_cells};
use crate::model::Kind;
use crate::table::TablePrinter;

pub(super) fn kind() -> Kind {
    Kind {
        kind: "ValidatingAdmissionPolicyBinding".into(),
        plural: "validatingadmissionpolicybindings".into(),
        printer: &PRINTER,
        strategy: Arc::new(BindingStrategy),
        ..super::plain()
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: BINDING_COLUMNS,
    cells: binding_cells,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::{Value, json};

    #[test]
    fn bindings_show_their_parameters() {
        let params = |reference: Value| {
            let spec = json!({"policyName": "p", "paramRef": reference});
            let binding = json!({"metadata": meta("b"), "spec": spec});
            print(&PRINTER, binding)[2].clone()
        };
        assert_eq!(params(json!(null)), "<unset>");
        assert_eq!(params(json!({"name": "n"})), "*/n");
        assert_eq!(params(json!({"name": "n", "namespace": "ns"})), "ns/n");
        let selector = json!({
            "matchLabels": {"b": "1", "a": "2"},
            "matchExpressions": [
                {"key": "k", "operator": "In", "values": ["y", "x"]},
                {"key": "z", "operator": "Exists"},
            ],
        });
        assert_eq!(
            params(json!({"selector": selector})),
            "&LabelSelector{MatchLabels:map[string]string{a: 2,b: 1,},\
             MatchExpressions:[]LabelSelectorRequirement{\
             LabelSelectorRequirement{Key:k,Operator:In,Values:[y x],},\
             LabelSelectorRequirement{Key:z,Operator:Exists,Values:[],},},}"
        );
    }
}
