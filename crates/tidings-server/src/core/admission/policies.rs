//! Evaluates admission policies.

use std::cell::OnceCell;
use std::sync::Arc;

use tidings_admission::{
    Decision, FailurePolicy, MissingParams, ParamRef, Policy, PolicyBase, PolicyBinding,
    PolicyVerdict, Variables,
};
use tidings_api::{Cause, Object, ObjectKey, Reason, Status};
use tidings_json::{Value, json};
use tidings_registry::Kind;

use super::index::Configured;
use super::questions::{Authorizing, request_resource};
use super::{Admitting, Objects};

/// The reason of a refusal that has none of its own.
const INVALID: &str = "Invalid";

/// Refuses what a policy refuses. The first refusal counts; all are evaluated, because warnings and the audit log tell of each.
pub(super) async fn check(
    admitting: &Admitting<'_>,
    index: &Configured,
    new: Option<&Object>,
    old: Option<&Object>,
) -> Result<(), Status> {
    let objects = Objects { new, old };
    let mut refused: Option<Status> = None;
    for (policy, bindings) in &index.policies {
        let Some(about) = admitting.about(&policy.base.matching) else {
            continue;
        };
        if !admitting.selects(&policy.base.matching, objects)? {
            continue;
        }
        let kind = admitting.kind_of(&about)?;
        admitting.prepare(&kind, objects).await?;
        let evaluation = Evaluation {
            admitting,
            policy,
            objects,
            kind,
            request: admitting.request.to_value(&about),
            object: OnceCell::new(),
            old_object: OnceCell::new(),
        };
        let mut annotations: Vec<(String, Vec<String>)> = Vec::new();
        for binding in bindings {
            for (decision, is_bound) in evaluation.bound(binding, &mut annotations)? {
                let binding = is_bound.then_some(&*binding.name);
                let status = || evaluation.refusal(binding, &decision);
                refused.get_or_insert_with(status);
            }
        }
        for (key, texts) in annotations {
            admitting.note(format!("{}/{key}", policy.base.name), texts.join(", "));
        }
    }
    refused.map_or(Ok(()), Err)
}

/// A policy and a request.
struct Evaluation<'e> {
    admitting: &'e Admitting<'e>,
    policy: &'e Policy,
    objects: Objects<'e>,
    kind: Arc<Kind>,
    request: Value,
    object: OnceCell<Value>,
    old_object: OnceCell<Value>,
}

impl Evaluation<'_> {
    /// Evaluates the policy with the parameters of a binding. Returns what refuses the request, and whether the binding is named in it.
    fn bound(
        &self,
        binding: &PolicyBinding,
        annotations: &mut Vec<(String, Vec<String>)>,
    ) -> Result<Vec<(Decision, bool)>, Status> {
        if !is_bound(self.admitting, binding, self.objects)? {
            return Ok(Vec::new());
        }
        let failed = |message: String, is_bound| match self.policy.base.failure_policy {
            FailurePolicy::Ignore => Vec::new(),
            FailurePolicy::Fail => {
                let decision = Decision {
                    message,
                    reason: String::new(),
                };
                vec![(decision, is_bound)]
            }
        };
        let params = match params(self.admitting, &self.policy.base, binding.params.as_ref()) {
            Ok(params) => params,
            Err(missing) => {
                let is_bound = matches!(missing, NoParams::Binding(_));
                return Ok(failed(missing.to_string(), is_bound));
            }
        };
        let mut refusals = Vec::new();
        for params in params {
            let Some(verdict) = self.evaluate(&params)? else {
                continue;
            };
            let PolicyVerdict {
                refusals: found,
                annotations: said,
                broken,
            } = verdict;
            for (at, decision) in found {
                self.act(binding, at, &decision);
                if binding.actions.iter().any(|action| action == "Deny") {
                    refusals.push((decision, true));
                }
            }
            refusals.extend(broken.into_iter().map(|decision| (decision, true)));
            for (key, text) in said {
                match annotations.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, texts)) if texts.contains(&text) => {}
                    Some((_, texts)) => texts.push(text),
                    None => annotations.push((key, vec![text])),
                }
            }
        }
        Ok(refusals)
    }

    fn evaluate(&self, params: &Value) -> Result<Option<PolicyVerdict>, Status> {
        let admitting = self.admitting;
        let shown = |cell: &OnceCell<Value>, object| -> Result<(), Status> {
            if cell.get().is_none() {
                let value = admitting.shown_value(&self.kind, object)?;
                cell.get_or_init(|| value);
            }
            Ok(())
        };
        shown(&self.object, self.objects.new)?;
        shown(&self.old_object, self.objects.old)?;
        let namespace = namespace_object(admitting)?;
        let null = Value::Null;
        Ok(self.policy.evaluate(&Variables {
            object: self.object.get().unwrap_or(&null),
            old_object: self.old_object.get().unwrap_or(&null),
            request: &self.request,
            namespace: &namespace,
            params: self.policy.base.param_kind.is_some().then_some(params),
            authorizer: Arc::new(Authorizing::new(admitting)),
            asked: Arc::new(request_resource(admitting)),
        }))
    }

    /// Warns, and tells the audit log, if the binding wants that.
    fn act(&self, binding: &PolicyBinding, at: usize, decision: &Decision) {
        let wants = |action: &str| binding.actions.iter().any(|known| known == action);
        if wants("Warn") {
            self.admitting.warn(&[format!(
                "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                self.policy.base.name, binding.name, decision.message
            )]);
        }
        if wants("Audit") {
            let failure = json!([{
                "message": decision.message,
                "policy": self.policy.base.name,
                "binding": binding.name,
                "expressionIndex": at,
                "validationActions": binding.actions,
            }]);
            let name = "validation.policy.admission.k8s.io/validation_failure";
            self.admitting.note(name, failure.to_string());
        }
    }

    /// The answer to a request that a policy refuses.
    fn refusal(&self, binding: Option<&str>, decision: &Decision) -> Status {
        let (policy, message) = (&self.policy.base.name, &decision.message);
        let message = match binding {
            Some(binding) => format!(
                "ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}"
            ),
            None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {message}"),
        };
        let admitting = self.admitting;
        let known = admitting.request.name;
        let name = match (known, self.objects.new) {
            ("", Some(object)) => object.name().into_owned(),
            _ => known.to_owned(),
        };
        let mut status = Status::forbidden(admitting.kind.group_resource(), &name, &message);
        let reason = match &*decision.reason {
            "" => INVALID,
            reason => reason,
        };
        (status.code, status.reason) = match reason {
            "Forbidden" => (403, Some(Reason::Forbidden)),
            "Unauthorized" => (401, Some(Reason::Unauthorized)),
            "RequestEntityTooLarge" => (413, Some(Reason::RequestEntityTooLarge)),
            _ => (422, Some(Reason::Invalid)),
        };
        status.with_cause(Cause {
            message,
            ..Cause::default()
        })
    }
}

/// True if a binding is about a request.
pub(super) fn is_bound(
    admitting: &Admitting<'_>,
    binding: &PolicyBinding,
    objects: Objects<'_>,
) -> Result<bool, Status> {
    let Some(matching) = &binding.matching else {
        return Ok(true);
    };
    let equivalents = || admitting.equivalents();
    let includes = matching.includes(&admitting.request, &equivalents);
    Ok(includes && admitting.selects(matching, objects)?)
}

/// The namespace of the request, as expressions see it: null for namespaces themselves and what is in none.
pub(super) fn namespace_object(admitting: &Admitting<'_>) -> Result<Value, Status> {
    match admitting.request.namespace {
        "" => Ok(Value::Null),
        _ if admitting.kind.is_namespace => Ok(Value::Null),
        name => {
            let namespace = admitting.namespace(name)?;
            serde_json::from_slice(namespace.as_bytes()).map_err(Status::internal)
        }
    }
}

/// The parameters of a binding: null if it has none.
pub(super) fn params(
    admitting: &Admitting<'_>,
    policy: &PolicyBase,
    wanted: Option<&ParamRef>,
) -> Result<Vec<Value>, NoParams> {
    let Some((version, name)) = &policy.param_kind else {
        return Ok(vec![Value::Null]);
    };
    let (group, number) = version.split_once('/').unwrap_or(("", version));
    let served = &admitting.context.served;
    let Some((kind, Some(resource))) = served.find_kind(group, number, name) else {
        let kind = match group {
            "" => format!("/{number}, Kind={name}"),
            _ => format!("{version}, Kind={name}"),
        };
        let why = format!("failed to find resource referenced by paramKind: '{kind}'");
        return Err(NoParams::Policy(why));
    };
    let Some(wanted) = wanted else {
        return Ok(vec![Value::Null]);
    };
    let binding = |why: &str| Err(NoParams::Binding(why.to_owned()));
    let namespace = match (kind.namespaced, &*wanted.namespace) {
        (true, "") => admitting.request.namespace,
        (_, named) => named,
    };
    if kind.namespaced && namespace.is_empty() {
        return binding(
            "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources",
        );
    }
    if !kind.namespaced && !wanted.namespace.is_empty() {
        return binding("paramRef.namespace must not be provided for a cluster-scoped `paramKind`");
    }
    let found: Vec<Object> = match &wanted.selector {
        None => {
            let key = ObjectKey::new(namespace, &wanted.name);
            resource.get(&key).into_iter().collect()
        }
        Some(selector) => {
            let snapshot = resource.cache().snapshot();
            let objects = snapshot.state.iter().filter(|(key, object)| {
                key.namespace() == namespace && selector.matches(object.labels())
            });
            objects.map(|(_, object)| object.clone()).collect()
        }
    };
    if found.is_empty() && wanted.missing == MissingParams::Deny {
        return binding("no params found for policy binding with `Deny` parameterNotFoundAction");
    }
    let shown = |object: &Object| serde_json::from_slice(&kind.shown(object));
    let values: Result<Vec<Value>, _> = found.iter().map(shown).collect();
    values.map_err(|error| NoParams::Binding(error.to_string()))
}

/// Why there are no parameters.
pub(super) enum NoParams {
    /// The policy is wrong.
    Policy(String),
    /// The binding is.
    Binding(String),
}

impl std::fmt::Display for NoParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoParams::Policy(why) => write!(f, "failed to configure policy: {why}"),
            NoParams::Binding(why) => write!(f, "failed to configure binding: {why}"),
        }
    }
}
