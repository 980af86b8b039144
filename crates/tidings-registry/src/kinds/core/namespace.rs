//! `Namespace` of the core group (W174, W175): entry, rules and table.

use std::sync::Arc;

use tidings_api::{FieldError, FieldErrors};
use tidings_json::{Value, json};

use crate::kinds::{names, selectable};
use crate::model::{Draft, Kind, NAMESPACE_FINALIZER, NameRule, Strategy, Subresource};
use crate::table::fields::{name, text_or};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, string};

/// The label that carries a namespace's own name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// Namespaces that cannot be deleted.
const PROTECTED: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) fn kind() -> Kind {
    Kind {
        kind: "Namespace".into(),
        plural: "namespaces".into(),
        printer: &PRINTER,
        short_names: names(["ns"]),
        namespaced: false,
        is_namespace: true,
        fields: vec![selectable("status.phase", &[&["status", "phase"]])],
        name_rule: NameRule::Label,
        status: true,
        own_parts: &[Subresource::Finalize],
        collection_delete: false,
        returns_deleted: true,
        strategy: Arc::new(NamespaceStrategy),
        ..super::plain()
    }
}

#[derive(Debug)]
struct NamespaceStrategy;

impl Strategy for NamespaceStrategy {
    fn fill_in(&self, draft: &mut Draft) {
        label(draft);
    }

    fn prepare_create(&self, draft: &mut Draft) {
        let finalizers = draft.at(&["spec", "finalizers"]).and_then(Value::as_array);
        let mut finalizers = finalizers.cloned().unwrap_or_default();
        if !finalizers
            .iter()
            .any(|finalizer| finalizer == NAMESPACE_FINALIZER)
        {
            finalizers.push(NAMESPACE_FINALIZER.into());
        }
        let spec = json!({ "finalizers": finalizers });
        draft.members.insert("spec".into(), spec);
        let status = json!({ "phase": "Active" });
        draft.members.insert("status".into(), status);
        label(draft);
    }

    fn prepare_update(&self, new: &mut Draft, old: &Draft, subresource: Option<Subresource>) {
        match subresource {
            None => {
                let spec = old.members.get("spec").cloned();
                let spec = spec.unwrap_or_else(|| json!({}));
                new.members.insert("spec".into(), spec);
            }
            Some(Subresource::Finalize) => {
                let finalizers = new.at(&["spec", "finalizers"]).cloned();
                let spec = finalizers.map_or_else(
                    || json!({}),
                    |finalizers| json!({ "finalizers": finalizers }),
                );
                new.members = old.members.clone();
                new.members.insert("spec".into(), spec);
            }
            Some(_) => {}
        }
        label(new);
    }

    fn check_update(&self, new: &Draft, _: &Draft, errors: &mut FieldErrors) {
        let phase = new.text(&["status", "phase"]);
        let wrong = match (new.meta.deletion_timestamp.is_some(), phase) {
            (false, "Active") | (true, "Terminating") => None,
            (false, _) => Some("may only be 'Active' if `deletionTimestamp` is empty"),
            (true, _) => Some("may only be 'Terminating' if `deletionTimestamp` is not empty"),
        };
        errors.extend(wrong.map(|why| FieldError::invalid("status.Phase", phase, why)));
    }

    fn check_delete(&self, name: &str) -> Result<(), &'static str> {
        match PROTECTED.contains(&name) {
            true => Err("this namespace may not be deleted"),
            false => Ok(()),
        }
    }

    fn mark_deleted(&self, draft: &mut Draft, _: i64, first: bool) {
        if first && let Some(generation) = draft.meta.generation {
            draft.meta.generation = Some(generation.saturating_add(1));
        }
        let status = json!({ "phase": "Terminating" });
        draft.members.insert("status".into(), status);
    }

    fn is_held(&self, draft: &Draft) -> bool {
        let finalizers = draft.at(&["spec", "finalizers"]).and_then(Value::as_array);
        finalizers.is_some_and(|finalizers| !finalizers.is_empty())
    }
}

fn label(draft: &mut Draft) {
    if !draft.meta.name.is_empty() {
        let name = draft.meta.name.clone();
        draft.meta.labels.insert(NAME_LABEL.into(), name);
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[NAME, string("Status", "The namespace's phase."), AGE],
    cells: |object, now| {
        let phase = text_or(object, &["status", "phase"], "Active");
        cells![name(object), phase, age(object, now)]
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};

    #[test]
    fn new_namespace_is_active() {
        let namespace = json!({"metadata": meta("default")});
        assert_eq!(
            print(&PRINTER, namespace),
            json!(["default", "Active", "24s"])
        );
    }
}
