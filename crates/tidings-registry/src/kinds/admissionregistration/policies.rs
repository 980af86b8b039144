//! The rules of admission policies and their bindings.

use tidings_admission::{
    check_binding, check_mutating_binding, check_mutating_policy, check_policy,
};
use tidings_api::FieldErrors;
use tidings_json::Value;

use crate::model::{Draft, Strategy, Subresource};

/// The rules of ValidatingAdmissionPolicies.
#[derive(Debug)]
pub(super) struct PolicyStrategy;

impl Strategy for PolicyStrategy {
    fn check(
        &self,
        new: &Draft,
        old: Option<&Draft>,
        subresource: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        if subresource == Some(Subresource::Status) {
            return;
        }
        let members = |draft: &Draft| Value::Object(draft.members.clone());
        let old = old.map(members);
        check_policy(&new.meta.name, &members(new), old.as_ref(), errors);
    }

    fn is_slow_to_check(&self) -> bool {
        true // expressions are compiled
    }
}

/// The rules of MutatingAdmissionPolicies.
#[derive(Debug)]
pub(super) struct MutatingPolicyStrategy;

impl Strategy for MutatingPolicyStrategy {
    fn check(
        &self,
        new: &Draft,
        old: Option<&Draft>,
        _: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        let members = |draft: &Draft| Value::Object(draft.members.clone());
        let old = old.map(members);
        check_mutating_policy(&members(new), old.as_ref(), errors);
    }

    fn is_slow_to_check(&self) -> bool {
        true // expressions are compiled
    }
}

/// The rules of MutatingAdmissionPolicyBindings.
#[derive(Debug)]
pub(super) struct MutatingBindingStrategy;

impl Strategy for MutatingBindingStrategy {
    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        _: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        check_mutating_binding(&Value::Object(new.members.clone()), errors);
    }
}

/// The rules of ValidatingAdmissionPolicyBindings.
#[derive(Debug)]
pub(super) struct BindingStrategy;

impl Strategy for BindingStrategy {
    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        _: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        check_binding(&Value::Object(new.members.clone()), errors);
    }
}
