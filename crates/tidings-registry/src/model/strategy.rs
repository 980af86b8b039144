//! [`Strategy`], the rules of a single kind: how objects are filled in, checked, shown and deleted.
//!
//! Each kind with rules of its own has an implementation, and so have custom resources. The default methods are those of kinds without
//! such rules.

use std::fmt;

use jiff::Timestamp;
use tidings_api::{FieldErrors, FieldFacet, Object};
use tidings_go::quote;
use tidings_json::Value;

use super::draft::Draft;
use super::kind::{Kind, Subresource};

/// The rules of a single kind.
pub trait Strategy: fmt::Debug + Send + Sync {
    // Which fields can be selected, and the table.

    /// Checks that a field selector may name a field (W67).
    ///
    /// # Errors
    /// With the message for the client.
    fn check_field(&self, kind: &Kind, field: &str) -> Result<(), String> {
        check_builtin_field(kind, field)
    }

    /// The value of a selectable field in stored objects; `None` if the kind has no such field.
    fn field(&self, kind: &Kind, name: &str) -> Option<FieldFacet> {
        let known = kind.fields.iter().find(|known| known.name == name)?;
        let all = kind.field_paths();
        let paths = known.paths.iter().filter_map(|path| all.position(path));
        Some(FieldFacet::new(all, paths, known.absent))
    }

    /// The columns of a table, each as JSON.
    fn columns(&self, kind: &Kind) -> Vec<String> {
        let columns = kind.printer.columns.iter();
        columns.map(|column| column.to_json()).collect()
    }

    /// The cells of an object in a table.
    fn cells(&self, kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
        (kind.printer.cells)(object, now)
    }

    /// The conditions of a row in a table.
    fn row_conditions(&self, object: &Value) -> Vec<Value> {
        let _ = object;
        Vec::new()
    }

    // Which members are filled in.

    /// Fills in defaults that depend on several members or on the metadata. Returns true if it may have changed any part of the
    /// object.
    fn complete(&self, draft: &mut Draft) -> bool {
        let _ = draft;
        false
    }

    /// Fills in members of a new object that the creating client will own in managedFields.
    fn fill_in(&self, draft: &mut Draft) {
        let _ = draft;
    }

    /// Fills in members of a new object that no manager owns in managedFields.
    fn prepare_create(&self, draft: &mut Draft) {
        let _ = draft;
    }

    /// Restores members that a client may not change from the stored object, besides those that are restored for every kind.
    fn prepare_update(&self, new: &mut Draft, old: &Draft, subresource: Option<Subresource>) {
        let _ = (new, old, subresource);
    }

    // Checks.

    /// Refuses changes of immutable parts of the spec, besides the fields of [`Kind::fixed`].
    fn check_fixed(&self, new: &Draft, old: &Draft, errors: &mut FieldErrors) {
        let _ = (new, old, errors);
    }

    /// Refuses other changes that an update may not make.
    fn check_update(&self, new: &Draft, old: &Draft, errors: &mut FieldErrors) {
        let _ = (new, old, errors);
    }

    /// Refuses an invalid object; the metadata is checked elsewhere. `old` is the object that it replaces.
    fn check(
        &self,
        new: &Draft,
        old: Option<&Draft>,
        subresource: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        let _ = (new, old, subresource, errors);
    }

    /// True if [`Strategy::check`] takes milliseconds.
    fn is_slow_to_check(&self) -> bool {
        false
    }

    /// Warnings for the client that created an object.
    fn created_warnings(&self, object: &Object) -> Vec<String> {
        let _ = object;
        Vec::new()
    }

    // Deletion.

    /// Refuses the deletion of protected objects.
    ///
    /// # Errors
    /// With the reason.
    fn check_delete(&self, name: &str) -> Result<(), &'static str> {
        let _ = name;
        Ok(())
    }

    /// The grace period of a deletion, if objects of the kind are deleted gracefully (W162).
    fn grace_seconds(&self, draft: &Draft, requested: Option<i64>) -> Option<i64> {
        let _ = (draft, requested);
        None
    }

    /// True if a deletion ignores the propagation policy and waits only for the object's finalizers.
    fn ignores_policy(&self) -> bool {
        false
    }

    /// Adds the finalizers and conditions of an object that is being deleted. `now` is the time of the deletion.
    fn hold(&self, draft: &mut Draft, now: &str) {
        let _ = (draft, now);
    }

    /// Marks the object as being deleted; the deletionTimestamp is set elsewhere. `first` is false if it is marked already.
    fn mark_deleted(&self, draft: &mut Draft, grace_seconds: i64, first: bool) {
        if first && let Some(generation) = draft.meta.generation {
            draft.meta.generation = Some(generation.saturating_add(1));
        }
        draft.meta.deletion_grace_period_seconds = Some(grace_seconds);
    }

    /// True if finalizers outside of the metadata keep the object (W175).
    fn is_held(&self, draft: &Draft) -> bool {
        let _ = draft;
        false
    }
}

/// The strategy of built-in kinds without rules of their own.
#[derive(Debug)]
pub(crate) struct BuiltinStrategy;

impl Strategy for BuiltinStrategy {}

/// The message for a field that no selector may name.
pub(crate) fn unsupported_field(field: &str) -> String {
    format!("field label not supported: {field}")
}

/// The message for a field of a kind that has no selectable fields of its own.
fn unknown_field(field: &str) -> String {
    format!(
        "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        quote(field)
    )
}

/// Checks that a field selector may name a field of a built-in kind (W67).
pub(crate) fn check_builtin_field(kind: &Kind, field: &str) -> Result<(), String> {
    // Cluster-scoped kinds with selectable fields of their own do not support `metadata.namespace`.
    let in_namespaces = kind.namespaced || kind.fields.is_empty();
    let everywhere = field == "metadata.name" || (field == "metadata.namespace" && in_namespaces);
    if everywhere || kind.fields.iter().any(|known| known.name == field) {
        return Ok(());
    }
    Err(match kind.fields.as_slice() {
        [] => unknown_field(field),
        _ => unsupported_field(field),
    })
}
