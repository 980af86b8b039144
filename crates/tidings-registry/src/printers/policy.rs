//! The policy group.

use tidings_json::Value;

use crate::table::fields::{field, int, name};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, integer, string};

pub(crate) static POD_DISRUPTION_BUDGET: TablePrinter = TablePrinter {
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

/// A number or a percentage.
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
        assert_eq!(
            print(&POD_DISRUPTION_BUDGET, number),
            json!(["p", "2", "N/A", 1, "24s"])
        );
        let percentage = json!({"metadata": meta("p"), "spec": {"maxUnavailable": "25%"}});
        assert_eq!(
            print(&POD_DISRUPTION_BUDGET, percentage),
            json!(["p", "N/A", "25%", 0, "24s"])
        );
    }
}
