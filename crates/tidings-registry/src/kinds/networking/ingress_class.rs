//! `IngressClass` of `networking.k8s.io`: entry, defaults, fixed fields and table.

use tidings_json::Value;

use crate::defaults::{TypeDefaults, defaults};
use crate::kinds::immutable;
use crate::model::{Generation, Kind};
use crate::table::fields::{field, name, text};
use crate::table::format::{age, is_annotated};
use crate::table::{AGE, NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "IngressClass".into(),
        plural: "ingressclasses".into(),
        printer: &PRINTER,
        namespaced: false,
        generation: Generation::Counted,
        fixed: vec![immutable(&["spec", "controller"])],
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[defaults(
    "networking/v1.IngressClassParametersReference",
    &[("scope", r#""Cluster""#)],
)];

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Controller", "The controller that handles the class."),
        string("Parameters", "The object with further settings."),
        AGE,
    ],
    cells: |object, now| {
        let mut name = name(object).to_string();
        if is_annotated(object, "ingressclass.kubernetes.io/is-default-class") {
            name.push_str(" (default)");
        }
        cells![
            name,
            text(object, &["spec", "controller"]),
            parameters(object),
            age(object, now),
        ]
    },
};

fn parameters(object: &Value) -> String {
    let Some(reference) = field(object, &["spec", "parameters"]) else {
        return "<none>".to_string();
    };
    let kind = text(reference, &["kind"]);
    let name = text(reference, &["name"]);
    match field(reference, &["apiGroup"]).and_then(Value::as_str) {
        Some(group) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn ingress_classes() {
        let mut class = json!({"metadata": meta("ic"), "spec": {
            "controller": "x.io/c",
            "parameters": {"apiGroup": "x.io", "kind": "P", "name": "n"},
        }});
        class["metadata"]["annotations"] =
            json!({"ingressclass.kubernetes.io/is-default-class": "true"});
        assert_eq!(
            print(&PRINTER, class),
            json!(["ic (default)", "x.io/c", "P.x.io/n", "24s"])
        );
    }
}
