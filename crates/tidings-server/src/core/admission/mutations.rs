//! Evaluates the policies that change objects.

use std::sync::Arc;

use bytes::Bytes;
use tidings_admission::{Change, FailurePolicy, MutatingPolicy, PolicyBinding, Variables};
use tidings_api::{Cause, Object, Reason, Status};
use tidings_go::quote;
use tidings_json::Value;
use tidings_registry::{
    Draft, FieldValidation, Kind, Patch, PatchType, unknown_fields, with_configuration,
};

use super::index::Configured;
use super::policies::{NoParams, is_bound, namespace_object, params};
use super::questions::{Authorizing, request_resource};
use super::{Admitting, Objects};

/// The operations of a JSON patch.
const OPERATIONS: [&str; 6] = ["add", "remove", "replace", "move", "copy", "test"];

/// An object on its way through the policies.
pub(super) struct Changing {
    pub(super) draft: Draft,
    object: Object,
    /// How often it was changed.
    changes: usize,
}

/// Why a policy refuses the request, and whether the reason is said.
struct Failure {
    message: String,
    is_invalid: bool,
}

impl Changing {
    pub(super) fn new(seen: Draft) -> Result<Changing, Status> {
        Ok(Changing {
            object: seen.preview()?,
            draft: seen,
            changes: 0,
        })
    }

    pub(super) fn is_changed(&self) -> bool {
        self.changes > 0
    }
}

/// Evaluates the policies in their order; those that want it a second time if a later one has changed the object. `again` evaluates only those:
/// webhooks have changed the object since.
pub(super) fn change(
    admitting: &Admitting<'_>,
    index: &Configured,
    changing: &mut Changing,
    old: Option<&Object>,
    again: bool,
) -> Result<(), Status> {
    // After which change each was evaluated.
    let mut seen = vec![None; index.mutating_policies.len()];
    for round in usize::from(again)..2 {
        let mut failures = Vec::new();
        for (at, (policy, bindings)) in index.mutating_policies.iter().enumerate() {
            let is_due = round == 0 || (policy.reinvoked && seen[at] != Some(changing.changes));
            if is_due {
                evaluate(admitting, policy, bindings, changing, old, &mut failures)?;
                seen[at] = Some(changing.changes);
            }
        }
        if !failures.is_empty() {
            return Err(refusal(admitting, changing, failures));
        }
    }
    Ok(())
}

fn evaluate(
    admitting: &Admitting<'_>,
    policy: &MutatingPolicy,
    bindings: &[PolicyBinding],
    changing: &mut Changing,
    old: Option<&Object>,
    failures: &mut Vec<Failure>,
) -> Result<(), Status> {
    let base = &policy.base;
    let Some(about) = admitting.about(&base.matching) else {
        return Ok(());
    };
    let before = changing.object.clone();
    let objects = Objects {
        new: Some(&before),
        old,
    };
    if !admitting.selects(&base.matching, objects)? {
        return Ok(());
    }
    let kind = admitting.kind_of(&about)?;
    let mut failed = |message: String, is_invalid| {
        if base.failure_policy == FailurePolicy::Fail {
            failures.push(Failure {
                message,
                is_invalid,
            });
        }
    };
    for binding in bindings {
        if !is_bound(admitting, binding, objects)? {
            continue;
        }
        let of_policy = |why: &str| format!("policy '{}' denied request: {why}", base.name);
        let of_binding = |why: &str| {
            let (policy, binding) = (&base.name, &binding.name);
            format!("policy '{policy}' with binding '{binding}' denied request: {why}")
        };
        let params = match params(admitting, base, binding.params.as_ref()) {
            Ok(params) => params,
            Err(missing) => {
                let why = missing.to_string();
                let why = match missing {
                    NoParams::Policy(_) => of_policy(&why),
                    NoParams::Binding(_) => of_binding(&why),
                };
                failed(why, false);
                continue;
            }
        };
        for params in params {
            let evaluation = Evaluation {
                admitting,
                policy,
                kind: &kind,
                request: admitting.request.to_value(&about),
                namespace: namespace_object(admitting)?,
                old: admitting.shown_value(&kind, old)?,
                params,
            };
            evaluation.run(changing, &mut |why| failed(of_binding(&why), true))?;
        }
    }
    Ok(())
}

/// A policy, its parameters and a request.
struct Evaluation<'e> {
    admitting: &'e Admitting<'e>,
    policy: &'e MutatingPolicy,
    kind: &'e Arc<Kind>,
    request: Value,
    namespace: Value,
    old: Value,
    params: Value,
}

impl Evaluation<'_> {
    fn variables<'v>(&'v self, object: &'v Value) -> Variables<'v> {
        let has_params = self.policy.base.param_kind.is_some();
        Variables {
            object,
            old_object: &self.old,
            request: &self.request,
            namespace: &self.namespace,
            params: has_params.then_some(&self.params),
            authorizer: Arc::new(Authorizing::new(self.admitting)),
            asked: Arc::new(request_resource(self.admitting)),
        }
    }

    /// Makes the changes, one after the other. One that fails changes nothing.
    fn run(&self, changing: &mut Changing, failed: &mut dyn FnMut(String)) -> Result<(), Status> {
        let first = self
            .admitting
            .shown_value(self.kind, Some(&changing.object))?;
        match self.policy.applies(&self.variables(&first)) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(why) => {
                failed(why);
                return Ok(());
            }
        }
        for at in 0..self.policy.changes() {
            let object = self
                .admitting
                .shown_value(self.kind, Some(&changing.object))?;
            let change = self.policy.change(at, &self.variables(&object));
            let is_patch = matches!(change, Ok(Change::Patch(_)));
            match change.and_then(|change| self.changed(object, change)) {
                Ok(Some(object)) => {
                    if is_patch {
                        self.check_fields(&object)?;
                    }
                    self.take(changing, object)?;
                }
                Ok(None) => {}
                Err(why) => failed(why),
            }
        }
        Ok(())
    }

    /// Refuses an object with fields that its kind does not have.
    fn check_fields(&self, object: &Value) -> Result<(), Status> {
        let unknown = unknown_fields(self.kind, object).map_err(Status::internal)?;
        if unknown.is_empty() {
            return Ok(());
        }
        let unknown = unknown.iter();
        let unknown: Vec<String> = unknown
            .map(|path| format!("unknown field {}", quote(path)))
            .collect();
        let unknown = unknown.join(", ");
        Err(Status::internal(format!(
            "strict decoding error: {unknown}"
        )))
    }

    /// The object after a change; `None` if that does not fit the object and is left out.
    fn changed(&self, object: Value, change: Change) -> Result<Option<Value>, String> {
        match change {
            Change::Configuration(configuration) => {
                let merged = with_configuration(self.kind, &object, &configuration);
                merged
                    .map(Some)
                    .map_err(|why| format!("error applying patch: {why}"))
            }
            Change::Patch(operations) => {
                let all = operations.as_array().into_iter().flatten();
                let mut all = all.filter_map(|operation| operation["op"].as_str());
                if let Some(odd) = all.find(|op| !OPERATIONS.contains(op)) {
                    return Err(format!("JSON Patch: Unexpected kind: {odd}"));
                }
                let operations = Bytes::from(operations.to_string());
                let patch = Patch::read(PatchType::Json, &operations, FieldValidation::Ignore);
                let patch = patch.map_err(|status| format!("JSON Patch: {}", status.message))?;
                match patch.apply_to(object) {
                    Ok(object) => Ok(Some(object)),
                    // A test that does not hold leaves the object as it is.
                    Err(why) if why.to_string().contains("test failed") => Ok(None),
                    Err(why) => Err(format!("JSON Patch: {why}")),
                }
            }
        }
    }

    fn take(&self, changing: &mut Changing, object: Value) -> Result<(), Status> {
        let draft = changing.draft.with_changes(self.kind, object)?;
        let object = draft.preview()?;
        if object.as_bytes() != changing.object.as_bytes() {
            (changing.draft, changing.object) = (draft, object);
            changing.changes += 1;
        }
        Ok(())
    }
}

/// The answer to a request that policies refuse.
fn refusal(admitting: &Admitting<'_>, changing: &Changing, failures: Vec<Failure>) -> Status {
    let name = match admitting.request.name {
        "" => changing.object.name().into_owned(),
        name => name.to_owned(),
    };
    let mut status = Status::forbidden(admitting.kind.group_resource(), &name, "");
    for (at, failure) in failures.into_iter().enumerate() {
        let Failure {
            message,
            is_invalid,
        } = failure;
        if at == 0 {
            status.message.clone_from(&message);
            if is_invalid {
                status.reason = Some(Reason::Invalid);
            }
        }
        status = status.with_cause(Cause {
            message,
            ..Cause::default()
        });
    }
    status
}
