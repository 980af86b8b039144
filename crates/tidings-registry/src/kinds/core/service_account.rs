//! `ServiceAccount` of the core group: entry, rules and table.

use std::sync::Arc;

use tidings_api::Object;

use crate::kinds::names;
use crate::model::{Kind, Strategy, Subresource};
use crate::table::fields::name;
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "ServiceAccount".into(),
        plural: "serviceaccounts".into(),
        printer: &PRINTER,
        short_names: names(["sa"]),
        own_parts: &[Subresource::Token],
        returns_deleted: true,
        strategy: Arc::new(ServiceAccountStrategy),
        ..super::plain()
    }
}

#[derive(Debug)]
struct ServiceAccountStrategy;

impl Strategy for ServiceAccountStrategy {
    fn created_warnings(&self, object: &Object) -> Vec<String> {
        let old = object.annotation("kubernetes.io/enforce-mountable-secrets");
        let text = "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets";
        old.map(|_| text.to_owned()).into_iter().collect()
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[NAME, AGE],
    cells: |object, now| cells![name(object), age(object, now)],
};
