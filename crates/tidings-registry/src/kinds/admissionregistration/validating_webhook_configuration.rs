//! `ValidatingWebhookConfiguration` of `admissionregistration.k8s.io`: entry, defaults and table.

use std::sync::Arc;

use tidings_admission::WebhookKind;

use super::webhooks::WebhooksStrategy;
use super::{WEBHOOK_COLUMNS, webhook_cells};
use crate::defaults::{TypeDefaults, defaults};
use crate::model::Kind;
use crate::table::TablePrinter;

pub(super) fn kind() -> Kind {
    Kind {
        kind: "ValidatingWebhookConfiguration".into(),
        plural: "validatingwebhookconfigurations".into(),
        printer: &PRINTER,
        strategy: Arc::new(WebhooksStrategy(WebhookKind::Validating)),
        ..super::plain()
    }
}

pub(in crate::kinds) const DEFAULTS: &[TypeDefaults] = &[defaults(
    "admissionregistration/v1.ValidatingWebhook",
    &[
        ("failurePolicy", r#""Fail""#),
        ("matchPolicy", r#""Equivalent""#),
        ("namespaceSelector", "{}"),
        ("objectSelector", "{}"),
        ("timeoutSeconds", "10"),
    ],
)];

static PRINTER: TablePrinter = TablePrinter {
    columns: WEBHOOK_COLUMNS,
    cells: webhook_cells,
};
