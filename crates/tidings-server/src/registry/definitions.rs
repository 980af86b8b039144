//! The rules for definitions of custom resources (W177, W186).

use tidings_api::FieldErrors;
use tidings_json::{Value, json};
use tidings_structural::definition::{self, CLEANUP_FINALIZER};

use super::Special;
use super::draft::Draft;
use crate::clock;

impl Draft {
    /// The definition as a whole, with the spec filled in.
    fn filled(&self) -> Value {
        let mut whole = self.whole();
        definition::fill_in(&mut whole);
        whole
    }

    /// Fills in names and what else follows from others. True if it is a definition.
    pub(super) fn complete_definition(&mut self) -> bool {
        let is_definition = self.kind.special == Special::Definition;
        if is_definition {
            let spec = self.filled()["spec"].take();
            self.members.insert("spec".into(), spec);
        }
        is_definition
    }

    /// Notes in which version objects may be stored.
    pub(super) fn note_stored_version(&mut self) {
        if self.kind.special != Special::Definition {
            return;
        }
        let mut filled = self.filled();
        let stored = filled["status"]["storedVersions"].take();
        let status = self.members.entry("status").or_insert_with(
            || json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}}),
        );
        status["storedVersions"] = stored;
    }

    pub(super) fn check_definition(
        &self,
        old: Option<&Draft>,
        subresource: Option<&str>,
        errors: &mut FieldErrors,
    ) {
        let new = self.whole();
        match (old.map(Draft::whole), subresource) {
            (None, _) => definition::validate(&new, errors),
            (Some(old), Some("status")) => definition::validate_status_update(&new, &old, errors),
            (Some(old), _) => definition::validate_update(&new, &old, errors),
        }
    }

    /// A definition that is deleted stays until its objects are gone.
    pub(crate) fn hold_definition(&mut self) {
        let meta = &mut self.meta;
        if self.kind.special != Special::Definition || meta.deletion_timestamp.is_some() {
            return;
        }
        if !meta.finalizers.iter().any(|name| name == CLEANUP_FINALIZER) {
            meta.finalizers.push(CLEANUP_FINALIZER.into());
        }
        let status = self.members.entry("status").or_insert_with(|| json!({}));
        definition::set_condition(
            status,
            "Terminating",
            "True",
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            &clock::now(),
        );
    }
}
