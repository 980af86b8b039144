//! Evaluates the policies that change objects.

use std::sync::Arc;

use bytes::Bytes;
use tidings_admission::{
    Change, FailurePolicy, MutatingPolicy, PolicyBase, PolicyBinding, Variables,
};
use tidings_api::{Cause, Object, Reason, Status};
use tidings_go::quote;
use tidings_json::Value;
use tidings_registry::{
    Draft, FieldValidation, Kind, Patch, PatchType, Subresource, unknown_fields, with_configuration,
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
    /// How often it was patched, whether that changed something or not.
    patches: usize,
    is_changed: bool,
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
            patches: 0,
            is_changed: false,
        })
    }

    pub(super) fn is_changed(&self) -> bool {
        self.is_changed
    }
}

/// Evaluates the policies in their order, and a second time those that want it if anything was changed. `again` evaluates only those: webhooks have
/// changed the object since.
pub(super) async fn change(
    admitting: &Admitting<'_>,
    index: &Configured,
    changing: &mut Changing,
    old: Option<&Object>,
    again: bool,
) -> Result<(), Status> {
    for round in usize::from(again)..2 {
        if round == 1 && !again && changing.patches == 0 {
            break;
        }
        let mut failures = Vec::new();
        // Which policies and bindings are meant is decided by the object as it is now, before the first of them changes it.
        let all = index.mutating_policies.iter();
        let due = all.filter(|(policy, _)| round == 0 || policy.reinvoked);
        let mut invocations = Vec::new();
        for (policy, bindings) in due {
            let bindings = bindings.as_slice();
            invoked(
                admitting,
                policy,
                bindings,
                changing,
                old,
                &mut invocations,
                &mut failures,
            )
            .await?;
        }
        for (binding, evaluation) in &invocations {
            let base = &evaluation.policy.base;
            let mut failed = |why: String| {
                failures.extend(Failure::of(base, Some(*binding), &why, true));
            };
            evaluation.run(changing, &mut failed).await?;
        }
        if !failures.is_empty() {
            return Err(refusal(admitting, changing, failures));
        }
    }
    Ok(())
}

impl Failure {
    /// `None` if failures of the policy do not matter.
    fn of(
        policy: &PolicyBase,
        binding: Option<&PolicyBinding>,
        why: &str,
        is_invalid: bool,
    ) -> Option<Failure> {
        let name = &policy.name;
        let message = match binding {
            Some(PolicyBinding { name: bound, .. }) => {
                format!("policy '{name}' with binding '{bound}' denied request: {why}")
            }
            None => format!("policy {} denied request: {why}", quote(name)),
        };
        (policy.failure_policy == FailurePolicy::Fail).then_some(Failure {
            message,
            is_invalid,
        })
    }
}

/// Adds the evaluations of a policy that are about the request: one for each binding and its parameters.
async fn invoked<'e>(
    admitting: &'e Admitting<'e>,
    policy: &'e MutatingPolicy,
    bindings: &'e [PolicyBinding],
    changing: &Changing,
    old: Option<&Object>,
    invocations: &mut Vec<(&'e PolicyBinding, Evaluation<'e>)>,
    failures: &mut Vec<Failure>,
) -> Result<(), Status> {
    let base = &policy.base;
    let Some(about) = admitting.about(&base.matching) else {
        return Ok(());
    };
    let objects = Objects {
        new: Some(&changing.object),
        old,
    };
    if !admitting.selects(&base.matching, objects)? {
        return Ok(());
    }
    let kind = admitting.kind_of(&about)?;
    admitting.prepare(&kind, objects).await?;
    for binding in bindings {
        if !is_bound(admitting, binding, objects)? {
            continue;
        }
        let params = match params(admitting, base, binding.params.as_ref()) {
            Ok(params) => params,
            Err(missing) => {
                let binding = match missing {
                    NoParams::Policy(_) => None,
                    NoParams::Binding(_) => Some(binding),
                };
                failures.extend(Failure::of(base, binding, &missing.to_string(), false));
                continue;
            }
        };
        for params in params {
            let evaluation = Evaluation {
                admitting,
                policy,
                kind: kind.clone(),
                request: admitting.request.to_value(&about),
                namespace: namespace_object(admitting)?,
                old: admitting.shown_value(&kind, old)?,
                params,
            };
            invocations.push((binding, evaluation));
        }
    }
    Ok(())
}

/// A policy, its parameters and a request.
struct Evaluation<'e> {
    admitting: &'e Admitting<'e>,
    policy: &'e MutatingPolicy,
    kind: Arc<Kind>,
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
    async fn run(
        &self,
        changing: &mut Changing,
        failed: &mut (dyn FnMut(String) + Send),
    ) -> Result<(), Status> {
        self.prepare(changing).await?;
        let first = self
            .admitting
            .shown_value(&self.kind, Some(&changing.object))?;
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
                .shown_value(&self.kind, Some(&changing.object))?;
            let change = self.policy.change(at, &self.variables(&object));
            if self.admitting.subresource == Some(Subresource::Scale) {
                let same = |changed: Option<Value>| changed.is_none_or(|changed| changed == object);
                match change
                    .and_then(|change| self.changed(object.clone(), change))
                    .map(same)
                {
                    Ok(true) => {}
                    Ok(false) => failed("changes of a Scale are not supported".to_owned()),
                    Err(why) => failed(why),
                }
                continue;
            }
            let is_patch = matches!(change, Ok(Change::Patch(_)));
            match change.and_then(|change| self.changed(object, change)) {
                Ok(Some(object)) => {
                    if is_patch {
                        self.check_fields(&object)?;
                    }
                    self.take(changing, object).await?;
                }
                Ok(None) => {}
                Err(why) => failed(why),
            }
        }
        Ok(())
    }

    /// Refuses an object with fields that its kind does not have.
    fn check_fields(&self, object: &Value) -> Result<(), Status> {
        let unknown = unknown_fields(&self.kind, object).map_err(Status::internal)?;
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
                let of_scale = self.admitting.subresource == Some(Subresource::Scale);
                let merged =
                    with_configuration((!of_scale).then_some(&*self.kind), &object, &configuration);
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

    async fn prepare(&self, changing: &Changing) -> Result<(), Status> {
        let objects = Objects {
            new: Some(&changing.object),
            old: None,
        };
        self.admitting.prepare(&self.kind, objects).await
    }

    async fn take(&self, changing: &mut Changing, object: Value) -> Result<(), Status> {
        changing.patches += 1;
        let changed = self
            .admitting
            .with_changes(&changing.draft, &self.kind, object);
        let draft = changed.await?;
        let object = draft.preview()?;
        if object.as_bytes() != changing.object.as_bytes() {
            (changing.draft, changing.object) = (draft, object);
            changing.is_changed = true;
            self.prepare(changing).await?;
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
