//! ValidatingAdmissionPolicies and their bindings: expressions that say whether an object may be.

use serde::Deserialize;
use tidings_api::LabelSelector;
use tidings_json::Value;
use tidings_structural::{CelEnvironment, CelFault, CelInput, CelProgram};

use crate::condition::{
    Conditions, Declared, MatchCondition, MatchVerdict, Variables, environment,
};
use crate::form::{FailurePolicy, Meta, NotReadable, or_default, read};
use crate::matching::MatchResources;

/// What all expressions of a policy may cost in one request, as upstream counts it.
pub(crate) const COST_MAX: u64 = 10_000_000;
/// How long a message that an expression makes may be.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;
/// How long an annotation of the audit log may be.
const ANNOTATION_BYTES_MAX: usize = 10 * 1024;
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// A compiled policy.
#[derive(Debug)]
pub struct Policy {
    /// What policies have in common.
    pub base: PolicyBase,
    validations: Vec<Validation>,
    annotations: Vec<(String, Compiled)>,
}

/// What policies that validate and those that mutate have in common.
#[derive(Debug)]
pub struct PolicyBase {
    /// The name.
    pub name: String,
    /// Which requests it is for.
    pub matching: MatchResources,
    /// The apiVersion and kind of its parameters, if it has some.
    pub param_kind: Option<(String, String)>,
    /// What is done if it cannot be evaluated.
    pub failure_policy: FailurePolicy,
    conditions: Conditions,
    variables: Vec<(String, Compiled)>,
}

/// An expression and its text.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) text: String,
    pub(crate) program: Result<CelProgram, String>,
}

impl Compiled {
    pub(crate) fn new(environment: &CelEnvironment, text: &str) -> Compiled {
        Compiled {
            text: text.trim().to_owned(),
            program: environment.compile(text.trim()),
        }
    }
}

#[derive(Debug)]
struct Validation {
    rule: Compiled,
    message: String,
    message_rule: Option<Compiled>,
    reason: String,
}

/// A binding puts a policy into force.
#[derive(Debug)]
pub struct PolicyBinding {
    /// The name.
    pub name: String,
    /// The policy.
    pub policy: String,
    /// The parameters.
    pub params: Option<ParamRef>,
    /// Which of the requests that the policy is for.
    pub matching: Option<MatchResources>,
    /// What is done with an object that may not be: `Deny`, `Warn`, `Audit`.
    pub actions: Vec<String>,
}

/// Which objects are the parameters of a policy.
#[derive(Debug, Clone)]
pub struct ParamRef {
    /// The name, unless labels select them.
    pub name: String,
    /// The namespace; empty: that of the request.
    pub namespace: String,
    /// The labels, if no name is given.
    pub selector: Option<LabelSelector>,
    /// What is done if there are none.
    pub missing: MissingParams,
}

/// What is done if there are no parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingParams {
    /// The binding is left out.
    Allow,
    /// The request is refused.
    Deny,
}

/// What a policy says of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// One for each validation that does not hold or failed, with its position.
    pub refusals: Vec<(usize, Decision)>,
    /// What the audit log gets.
    pub annotations: Vec<(String, String)>,
    /// Annotations that failed: the request is refused, whatever the binding does.
    pub broken: Vec<Decision>,
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Why.
    pub message: String,
    /// The reason for programs; empty: `Invalid`.
    pub reason: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct Form<S: Default> {
    pub(crate) metadata: Meta,
    pub(crate) spec: S,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PolicySpec {
    #[serde(flatten)]
    base: BaseSpec,
    #[serde(deserialize_with = "or_default")]
    validations: Vec<ValidationForm>,
    #[serde(deserialize_with = "or_default")]
    audit_annotations: Vec<AnnotationForm>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BaseSpec {
    param_kind: Option<ParamKind>,
    #[serde(deserialize_with = "or_default")]
    match_constraints: MatchResources,
    #[serde(deserialize_with = "or_default")]
    match_conditions: Vec<MatchCondition>,
    #[serde(deserialize_with = "or_default")]
    variables: Vec<MatchCondition>,
    #[serde(deserialize_with = "or_default")]
    failure_policy: FailurePolicy,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ParamKind {
    api_version: String,
    kind: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ValidationForm {
    expression: String,
    #[serde(deserialize_with = "or_default")]
    message: String,
    #[serde(deserialize_with = "or_default")]
    message_expression: String,
    #[serde(deserialize_with = "or_default")]
    reason: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct AnnotationForm {
    key: String,
    value_expression: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct BindingSpec {
    policy_name: String,
    param_ref: Option<ParamRefForm>,
    match_resources: Option<MatchResources>,
    #[serde(deserialize_with = "or_default")]
    validation_actions: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ParamRefForm {
    #[serde(deserialize_with = "or_default")]
    name: String,
    #[serde(deserialize_with = "or_default")]
    namespace: String,
    selector: Option<serde_json::Value>,
    #[serde(deserialize_with = "or_default")]
    parameter_not_found_action: String,
}

impl Policy {
    /// Reads a stored policy and compiles its expressions.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(object: &Value) -> Result<Policy, NotReadable> {
        let Form { metadata, spec }: Form<PolicySpec> = read(object)?;
        let (base, environments) = PolicyBase::compile(metadata.name, spec.base);
        let PolicyEnvironments { all, messages } = environments;
        let validations = spec.validations.iter().map(|form| Validation {
            rule: Compiled::new(&all, &form.expression),
            message: form.message.trim().to_owned(),
            message_rule: (!form.message_expression.trim().is_empty())
                .then(|| Compiled::new(&messages, &form.message_expression)),
            reason: form.reason.clone(),
        });
        let annotations = spec.audit_annotations.iter();
        let annotations = annotations.map(|form| {
            (
                form.key.clone(),
                Compiled::new(&all, &form.value_expression),
            )
        });
        Ok(Policy {
            validations: validations.collect(),
            annotations: annotations.collect(),
            base,
        })
    }

    /// Evaluates the policy. `None` if its conditions leave the request out.
    pub fn evaluate(&self, variables: &Variables<'_>) -> Option<Verdict> {
        let mut verdict = Verdict::default();
        match self.base.applies(variables) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(message) => {
                verdict.refusals.extend(self.failed(0, message));
                return Some(verdict);
            }
        }
        let mut input = variables.input(COST_MAX);
        for (at, validation) in self.validations.iter().enumerate() {
            match self.base.run(&mut input, &validation.rule) {
                Ok(Value::Bool(true)) => {}
                Ok(_) => {
                    let message = self.message(&mut input, validation);
                    let reason = validation.reason.clone();
                    let decision = Decision { message, reason };
                    verdict.refusals.push((at, decision));
                }
                Err(message) => verdict.refusals.extend(self.failed(at, message)),
            }
        }
        let mut input = variables.input(COST_MAX);
        for (key, compiled) in &self.annotations {
            match self.base.run(&mut input, compiled) {
                Ok(Value::String(text)) if !text.trim().is_empty() => {
                    let mut text = text.trim().to_owned();
                    let most = text.floor_char_boundary(ANNOTATION_BYTES_MAX);
                    text.truncate(most);
                    verdict.annotations.push((key.clone(), text));
                }
                Ok(_) => {}
                Err(message) => {
                    let failed = self.failed(0, message).into_iter();
                    verdict.broken.extend(failed.map(|(_, decision)| decision));
                }
            }
        }
        Some(verdict)
    }

    /// The refusal because of a failure, if failures matter.
    fn failed(&self, at: usize, message: String) -> Option<(usize, Decision)> {
        let reason = String::new();
        (self.base.failure_policy == FailurePolicy::Fail)
            .then_some((at, Decision { message, reason }))
    }

    /// Why a validation refuses.
    fn message(&self, input: &mut CelInput<'_>, validation: &Validation) -> String {
        let made = validation.message_rule.as_ref();
        let made = made.and_then(|rule| self.base.run(input, rule).ok());
        let made = made.as_ref().and_then(Value::as_str).unwrap_or_default();
        let made = made.trim();
        let is_fit = made.len() <= MESSAGE_BYTES_MAX && !made.contains('\n');
        match (made, &*validation.message) {
            (made, _) if is_fit && !made.is_empty() => made.to_owned(),
            (_, "") => format!("failed expression: {}", validation.rule.text),
            (_, message) => message.to_owned(),
        }
    }
}

/// The variables of the expressions of a policy: with the authorizer, and without it.
pub(crate) struct PolicyEnvironments {
    pub(crate) all: CelEnvironment,
    pub(crate) messages: CelEnvironment,
}

impl PolicyBase {
    /// Compiles what policies have in common.
    pub(crate) fn compile(name: String, spec: BaseSpec) -> (PolicyBase, PolicyEnvironments) {
        let params = spec.param_kind.is_some();
        let with = |authorizer| environment(Declared { params, authorizer });
        let (mut all, mut messages) = (with(true), with(false));
        let mut variables = Vec::new();
        for MatchCondition { name, expression } in &spec.variables {
            let compiled = Compiled::new(&all, expression);
            if let Ok(program) = &compiled.program {
                all.compose(name, program);
                messages.compose(name, program);
            }
            variables.push((name.clone(), compiled));
        }
        let conditions = spec.match_conditions.as_slice();
        let base = PolicyBase {
            conditions: Conditions::compile_in(&with(true), conditions, spec.failure_policy),
            name,
            matching: spec.match_constraints,
            param_kind: spec.param_kind.map(|kind| (kind.api_version, kind.kind)),
            failure_policy: spec.failure_policy,
            variables,
        };
        (base, PolicyEnvironments { all, messages })
    }

    /// False if the conditions of the policy leave the request out.
    pub(crate) fn applies(&self, variables: &Variables<'_>) -> Result<bool, String> {
        if self.conditions.is_empty() {
            return Ok(true);
        }
        match self.conditions.evaluate(variables) {
            MatchVerdict::Holds => Ok(true),
            MatchVerdict::Fails => Ok(false),
            MatchVerdict::Error(message) => Err(message),
        }
    }

    /// Evaluates an expression, and first the variables that it reads.
    pub(crate) fn run(
        &self,
        input: &mut CelInput<'_>,
        compiled: &Compiled,
    ) -> Result<Value, String> {
        let program = compiled
            .program
            .as_ref()
            .map_err(|why| format!("compilation error: {why}"))?;
        self.compose(input, program);
        input.evaluate(program).map_err(|fault| match fault {
            CelFault::Failed(why) => {
                format!("expression '{}' resulted in error: {why}", compiled.text)
            }
            CelFault::TooExpensive => OUT_OF_BUDGET.to_owned(),
        })
    }

    /// Evaluates the variables that an expression reads, and those that they read. Each comes before those that read it.
    fn compose(&self, input: &mut CelInput<'_>, program: &CelProgram) {
        for name in program.uses() {
            let found = self.variables.iter().find(|(known, _)| known == name);
            if let Some((name, variable)) = found
                && let Ok(variable) = &variable.program
                && !input.has(name)
            {
                self.compose(input, variable);
                input.compose(name, variable);
            }
        }
    }
}

impl PolicyBinding {
    /// Reads a stored binding.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(object: &Value) -> Result<PolicyBinding, NotReadable> {
        let Form { metadata, spec }: Form<BindingSpec> = read(object)?;
        let params = spec.param_ref.map(|form| {
            let selector = form.selector.map(Value::from);
            let selector = selector.map(|json| LabelSelector::of_json(&json));
            Ok(ParamRef {
                name: form.name,
                namespace: form.namespace,
                selector: selector
                    .transpose()
                    .map_err(|error| NotReadable(error.to_string()))?,
                missing: match &*form.parameter_not_found_action {
                    "Deny" => MissingParams::Deny,
                    _ => MissingParams::Allow,
                },
            })
        });
        Ok(PolicyBinding {
            name: metadata.name,
            policy: spec.policy_name,
            params: params.transpose()?,
            matching: spec.match_resources,
            actions: spec.validation_actions,
        })
    }
}
