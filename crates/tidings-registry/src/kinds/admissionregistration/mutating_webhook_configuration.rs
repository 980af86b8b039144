//! `MutatingWebhookConfiguration` of `admissionregistration.k8s.io`: entry, defaults and table.

use std::sync::Arc;

use tidings_admission::WebhookKind;

use super::webhooks::WebhooksStrategy;
use super::{WEBHOOK_COLUMNS, webhook_cells};
use crate::defaults::{TypeDefaults, defaults};
use crate::model::Kind;
use crate::table::TablePrinter;

pub(super) fn kind() -> Kind {
    Kind {
        kind: "MutatingWebhookConfiguration".into(),
        plural: "mutatingwebhookconfigurations".into(),
        printer: &PRINTER,
        strategy: Arc::new(WebhooksStrategy(WebhookKind::Mutating)),
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[defaults(
    "admissionregistration/v1.MutatingWebhook",
    &[
        ("failurePolicy", r#""Fail""#),
        ("matchPolicy", r#""Equivalent""#),
        ("namespaceSelector", "{}"),
        ("objectSelector", "{}"),
        ("timeoutSeconds", "10"),
        ("reinvocationPolicy", r#""Never""#),
    ],
)];

static PRINTER: TablePrinter = TablePrinter {
    columns: WEBHOOK_COLUMNS,
    cells: webhook_cells,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn webhooks_are_counted() {
        let webhooks = json!({"metadata": meta("m"), "webhooks": [{}, {}]});
        assert_eq!(print(&PRINTER, webhooks), json!(["m", 2, "24s"]));
    }
}
