//! `PodDisruptionBudget` of `policy`: entry, rules and table.

use std::sync::Arc;

use tidings_api::{FieldError, FieldErrors};
use tidings_json::Value;

use crate::kinds::names;
use crate::model::{Draft, Generation, Kind, NameRule, Strategy, Subresource};
use crate::table::fields::{field, int, name};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, integer, string};

pub(super) fn kind() -> Kind {
    Kind {
        group: "policy".into(),
        kind: "PodDisruptionBudget".into(),
        plural: "poddisruptionbudgets".into(),
        printer: &PRINTER,
        short_names: names(["pdb"]),
        go_package: "policy",
        name_rule: NameRule::Segment, // upstream does not check the name
        generation: Generation::Counted,
        status: true,
        conditional_update: true,
        strategy: Arc::new(PodDisruptionBudgetStrategy),
        ..Kind::plain()
    }
}

#[derive(Debug)]
struct PodDisruptionBudgetStrategy;

impl Strategy for PodDisruptionBudgetStrategy {
    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        subresource: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        if subresource != Some(Subresource::Status) {
            return;
        }
        for name in [
            "disruptionsAllowed",
            "currentHealthy",
            "desiredHealthy",
            "expectedPods",
        ] {
            let count = new.at(&["status", name]).and_then(Value::as_i64);
            if let Some(count) = count.filter(|count| *count < 0) {
                let why = "must be greater than or equal to 0";
                errors.push(FieldError::invalid_value(
                    format!("status.{name}"),
                    count,
                    why,
                ));
            }
        }
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("Min Available", "Pods that must stay available."),
        string("Max Unavailable", "Pods that may be unavailable."),
        integer("Allowed Disruptions", "Pods that may be disrupted now."),
        AGE,
    ],
    cells: |object, now| {
        cells![
            name(object),
            amount(object, "minAvailable"),
            amount(object, "maxUnavailable"),
            int(object, &["status", "disruptionsAllowed"]),
            age(object, now),
        ]
    },
};

/// A number or a percentage of Pods, as text.
fn amount(object: &Value, key: &str) -> String {
    match field(object, &["spec", key]) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => "N/A".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn budgets_are_numbers_or_percentages() {
        let number = json!({
            "metadata": meta("p"),
            "spec": {"minAvailable": 2},
            "status": {"disruptionsAllowed": 1},
        });
        assert_eq!(print(&PRINTER, number), json!(["p", "2", "N/A", 1, "24s"]));
        let percentage = json!({"metadata": meta("p"), "spec": {"maxUnavailable": "25%"}});
        assert_eq!(
            print(&PRINTER, percentage),
            json!(["p", "N/A", "25%", 0, "24s"])
        );
    }
}
