//! `CustomResourceDefinition` of `apiextensions.k8s.io` (W177, W186): entry and rules.

use std::sync::Arc;

use tidings_api::{FieldErrors, Object};
use tidings_json::{Value, json};
use tidings_structural::definition::{self, CLEANUP_FINALIZER};

use crate::kinds::names;
use crate::model::{Draft, Generation, Kind, Strategy, Subresource};

pub(super) fn kind() -> Kind {
    Kind {
        group: "apiextensions.k8s.io".into(),
        kind: "CustomResourceDefinition".into(),
        plural: "customresourcedefinitions".into(),
        short_names: names(["crd", "crds"]),
        categories: names(["api-extensions"]),
        go_package: "apiextensions",
        namespaced: false,
        generation: Generation::Counted,
        status: true,
        bare_finalizers: true,
        strategy: Arc::new(CustomResourceDefinitionStrategy),
        ..Kind::plain()
    }
}

#[derive(Debug)]
struct CustomResourceDefinitionStrategy;

impl Strategy for CustomResourceDefinitionStrategy {
    fn complete(&self, draft: &mut Draft) -> bool {
        let spec = filled(draft)["spec"].take();
        draft.members.insert("spec".into(), spec);
        true
    }

    fn prepare_create(&self, draft: &mut Draft) {
        note_stored_version(draft);
    }

    fn prepare_update(&self, new: &mut Draft, _: &Draft, subresource: Option<Subresource>) {
        if subresource.is_none() {
            note_stored_version(new);
        }
    }

    fn check(
        &self,
        new: &Draft,
        old: Option<&Draft>,
        subresource: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        let new = new.whole();
        match (old.map(Draft::whole), subresource) {
            (None, _) => definition::validate(&new, errors),
            (Some(old), Some(Subresource::Status)) => {
                definition::validate_status_update(&new, &old, errors);
            }
            (Some(old), _) => definition::validate_update(&new, &old, errors),
        }
    }

    fn is_slow_to_check(&self) -> bool {
        true // its schemas and rules are compiled
    }

    fn created_warnings(&self, object: &Object) -> Vec<String> {
        let definition = serde_json::from_slice(object.as_bytes()).unwrap_or_default();
        definition::warnings(&definition, None)
    }

    fn ignores_policy(&self) -> bool {
        true // a definition stays until the controller has deleted its objects
    }

    fn hold(&self, draft: &mut Draft, now: &str) {
        let meta = &mut draft.meta;
        if meta.deletion_timestamp.is_some() {
            return;
        }
        if !meta.finalizers.iter().any(|name| name == CLEANUP_FINALIZER) {
            meta.finalizers.push(CLEANUP_FINALIZER.into());
        }
        let status = draft.members.entry("status").or_insert_with(|| json!({}));
        definition::set_condition(
            status,
            "Terminating",
            "True",
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            now,
        );
    }

    fn mark_deleted(&self, _: &mut Draft, _: i64, _: bool) {}
}

/// The whole definition as JSON, with the defaults of the spec filled in.
fn filled(draft: &Draft) -> Value {
    let mut whole = draft.whole();
    definition::fill_in(&mut whole);
    whole
}

/// Sets `status.storedVersions`: all versions in which objects may be stored.
fn note_stored_version(draft: &mut Draft) {
    let mut filled = filled(draft);
    let stored = filled["status"]["storedVersions"].take();
    let status = draft.members.entry("status").or_insert_with(
        || json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}}),
    );
    status["storedVersions"] = stored;
}
