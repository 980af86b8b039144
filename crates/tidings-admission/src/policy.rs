//! ValidatingAdmissionPolicies and their bindings: expressions that say whether an object may be.

use serde::Deserialize;
use tidings_api::LabelSelector;
use tidings_json::Value;
use tidings_structural::{CelFault, CelInput, CelProgram};

use crate::condition::{
    Conditions, Declared, MatchCondition, MatchVerdict, Variables, environment,
};
use crate::form::{FailurePolicy, Meta, NotReadable, or_default, read};
use crate::matching::MatchResources;

/// What all expressions of a policy may cost in one request, as upstream counts it.
const COST_MAX: u64 = 10_000_000;
/// How long a message that an expression makes may be.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;
/// How long an annotation of the audit log may be.
const ANNOTATION_BYTES_MAX: usize = 10 * 1024;
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// A compiled policy.
#[derive(Debug)]
pub struct Policy {
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
    validations: Vec<Validation>,
    annotations: Vec<(String, Compiled)>,
}

/// An expression and its text.
#[derive(Debug)]
struct Compiled {
    text: String,
    program: Result<CelProgram, String>,
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
struct Form<S: Default> {
    metadata: Meta,
    spec: S,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PolicySpec {
    param_kind: Option<ParamKind>,
    #[serde(deserialize_with = "or_default")]
    match_constraints: MatchResources,
    #[serde(deserialize_with = "or_default")]
    match_conditions: Vec<MatchCondition>,
    #[serde(deserialize_with = "or_default")]
    variables: Vec<MatchCondition>,
    #[serde(deserialize_with = "or_default")]
    validations: Vec<ValidationForm>,
    #[serde(deserialize_with = "or_default")]
    audit_annotations: Vec<AnnotationForm>,
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
        let params = spec.param_kind.is_some();
        let with = |authorizer| environment(Declared { params, authorizer });
        let (mut all, mut messages) = (with(true), with(false));
        let compile = |environment: &tidings_structural::CelEnvironment, text: &str| Compiled {
            text: text.trim().to_owned(),
            program: environment.compile(text.trim()),
        };
        let mut variables = Vec::new();
        for MatchCondition { name, expression } in &spec.variables {
            let compiled = compile(&all, expression);
            if let Ok(program) = &compiled.program {
                all.compose(name, program);
                messages.compose(name, program);
            }
            variables.push((name.clone(), compiled));
        }
        let validations = spec.validations.iter().map(|form| Validation {
            rule: compile(&all, &form.expression),
            message: form.message.trim().to_owned(),
            message_rule: (!form.message_expression.trim().is_empty())
                .then(|| compile(&messages, &form.message_expression)),
            reason: form.reason.clone(),
        });
        let annotations = spec.audit_annotations.iter();
        let annotations =
            annotations.map(|form| (form.key.clone(), compile(&all, &form.value_expression)));
        let conditions = spec.match_conditions.as_slice();
        Ok(Policy {
            validations: validations.collect(),
            annotations: annotations.collect(),
            conditions: Conditions::compile_in(&with(true), conditions, spec.failure_policy),
            name: metadata.name,
            matching: spec.match_constraints,
            param_kind: spec.param_kind.map(|kind| (kind.api_version, kind.kind)),
            failure_policy: spec.failure_policy,
            variables,
        })
    }

    /// Evaluates the policy. `None` if its conditions leave the request out.
    pub fn evaluate(&self, variables: &Variables<'_>) -> Option<Verdict> {
        let mut verdict = Verdict::default();
        if !self.conditions.is_empty() {
            match self.conditions.evaluate(variables) {
                MatchVerdict::Holds => {}
                MatchVerdict::Fails => return None,
                MatchVerdict::Error(message) => {
                    verdict.refusals.extend(self.failed(0, message));
                    return Some(verdict);
                }
            }
        }
        let mut input = variables.input(COST_MAX);
        for (at, validation) in self.validations.iter().enumerate() {
            match self.run(&mut input, &validation.rule) {
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
            match self.run(&mut input, compiled) {
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
        (self.failure_policy == FailurePolicy::Fail).then_some((at, Decision { message, reason }))
    }

    /// Evaluates an expression, and first the variables that it reads.
    fn run(&self, input: &mut CelInput<'_>, compiled: &Compiled) -> Result<Value, String> {
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

    /// Why a validation refuses.
    fn message(&self, input: &mut CelInput<'_>, validation: &Validation) -> String {
        let made = validation.message_rule.as_ref();
        let made = made.and_then(|rule| self.run(input, rule).ok());
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
