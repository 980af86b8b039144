//! The admissionregistration group.

use jiff::Timestamp;
use tidings_json::Value;

use crate::table::fields::{count, field, name, text};
use crate::table::format::{age, selector_fields};
use crate::table::{AGE, Column, NAME, TablePrinter, integer, string};

const WEBHOOK_COLUMNS: &[Column] = &[NAME, integer("Webhooks", "How many webhooks it has."), AGE];

const BINDING_COLUMNS: &[Column] = &[
    NAME,
    string("PolicyName", "The policy that is bound."),
    string("ParamRef", "The objects with the policy's parameters."),
    AGE,
];

const PARAM_KIND: Column = string("ParamKind", "The kind of the policy's parameters.");

pub(crate) static MUTATING_WEBHOOK_CONFIGURATION: TablePrinter = TablePrinter {
    columns: WEBHOOK_COLUMNS,
    cells: webhook_cells,
};

pub(crate) static VALIDATING_WEBHOOK_CONFIGURATION: TablePrinter = TablePrinter {
    columns: WEBHOOK_COLUMNS,
    cells: webhook_cells,
};

pub(crate) static VALIDATING_ADMISSION_POLICY: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        integer("Validations", "How many rules check objects."),
        PARAM_KIND,
        AGE,
    ],
    cells: |object, now| policy_cells(object, "validations", now),
};

pub(crate) static MUTATING_ADMISSION_POLICY: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        integer("Mutations", "How many rules change objects."),
        PARAM_KIND,
        AGE,
    ],
    cells: |object, now| policy_cells(object, "mutations", now),
};

pub(crate) static VALIDATING_ADMISSION_POLICY_BINDING: TablePrinter = TablePrinter {
    columns: BINDING_COLUMNS,
    cells: binding_cells,
};

pub(crate) static MUTATING_ADMISSION_POLICY_BINDING: TablePrinter = TablePrinter {
    columns: BINDING_COLUMNS,
    cells: binding_cells,
};

fn webhook_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(object), count(object, &["webhooks"]), age(object, now)]
}

fn policy_cells(object: &Value, rules: &str, now: Timestamp) -> Vec<Value> {
    let param_kind = match field(object, &["spec", "paramKind"]) {
        Some(kind) => format!("{}/{}", text(kind, &["apiVersion"]), text(kind, &["kind"])),
        None => "<unset>".to_string(),
    };
    cells![
        name(object),
        count(object, &["spec", rules]),
        param_kind,
        age(object, now),
    ]
}

fn binding_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    cells![
        name(object),
        text(object, &["spec", "policyName"]),
        params(object),
        age(object, now),
    ]
}

/// Parameters are named, or else selected by their labels.
fn params(object: &Value) -> String {
    let reference = field(object, &["spec", "paramRef"]).unwrap_or(&Value::Null);
    let name = text(reference, &["name"]);
    match (
        text(reference, &["namespace"]),
        field(reference, &["selector"]),
    ) {
        ("", _) if !name.is_empty() => format!("*/{name}"),
        (namespace, _) if !name.is_empty() => format!("{namespace}/{name}"),
        (_, Some(selector)) => selector_fields(selector),
        _ => "<unset>".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn rules_are_counted() {
        let webhooks = json!({"metadata": meta("m"), "webhooks": [{}, {}]});
        assert_eq!(
            print(&MUTATING_WEBHOOK_CONFIGURATION, webhooks),
            json!(["m", 2, "24s"])
        );
        let policy = json!({"metadata": meta("p"), "spec": {
            "validations": [{"expression": "true"}],
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        }});
        assert_eq!(
            print(&VALIDATING_ADMISSION_POLICY, policy),
            json!(["p", 1, "v1/ConfigMap", "24s"])
        );
        let policy = json!({"metadata": meta("p"), "spec": {"mutations": [{}, {}]}});
        assert_eq!(
            print(&MUTATING_ADMISSION_POLICY, policy),
            json!(["p", 2, "<unset>", "24s"])
        );
    }

    #[test]
    fn bindings_show_their_parameters() {
        let params = |reference: Value| {
            let spec = json!({"policyName": "p", "paramRef": reference});
            let binding = json!({"metadata": meta("b"), "spec": spec});
            print(&VALIDATING_ADMISSION_POLICY_BINDING, binding)[2].clone()
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
