//! Conditions in CEL that a request must meet, and the variables of all expressions of admission.

use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use tidings_json::Value;
use tidings_structural::{
    AccessCheck, CelAuthorizer, CelEnvironment, CelFault, CelInput, CelProgram, CelType, CelValue,
};

use crate::form::{FailurePolicy, or_default};

/// What all conditions of a webhook or policy may cost together, as upstream counts it.
pub const MATCH_COST_MAX: u64 = 2_500_000;

/// Which variables there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Declared {
    pub(crate) params: bool,
    pub(crate) authorizer: bool,
}

/// The variables of expressions.
pub(crate) fn environment(declared: Declared) -> CelEnvironment {
    let text = || CelType::Text;
    let version_kind = || {
        CelType::Members(vec![
            ("group", CelType::Text),
            ("version", CelType::Text),
            ("kind", CelType::Text),
        ])
    };
    let version_resource = || {
        CelType::Members(vec![
            ("group", CelType::Text),
            ("version", CelType::Text),
            ("resource", CelType::Text),
        ])
    };
    let request = CelType::Members(vec![
        ("kind", version_kind()),
        ("resource", version_resource()),
        ("subResource", text()),
        ("requestKind", version_kind()),
        ("requestResource", version_resource()),
        ("requestSubResource", text()),
        ("name", text()),
        ("namespace", text()),
        ("operation", text()),
        (
            "userInfo",
            CelType::Members(vec![
                ("username", text()),
                ("uid", text()),
                ("groups", CelType::Texts),
                ("extra", CelType::TextsByName),
            ]),
        ),
        ("dryRun", CelType::Bool),
        ("options", CelType::Any),
    ]);
    let namespace = CelType::Members(vec![
        (
            "metadata",
            CelType::Members(vec![
                ("name", text()),
                ("generateName", text()),
                ("namespace", text()),
                ("labels", CelType::TextByName),
                ("annotations", CelType::TextByName),
                ("UID", text()),
                ("creationTimestamp", CelType::Time),
                ("deletionGracePeriodSeconds", CelType::Int),
                ("deletionTimestamp", CelType::Time),
                ("generation", CelType::Int),
                ("resourceVersion", text()),
                ("finalizers", CelType::Texts),
            ]),
        ),
        (
            "spec",
            CelType::Members(vec![("finalizers", CelType::Texts)]),
        ),
        ("status", CelType::Members(vec![("phase", text())])),
    ]);
    let mut variables = vec![
        ("object", CelType::Any),
        ("oldObject", CelType::Any),
        ("namespaceObject", namespace),
        ("request", request),
    ];
    if declared.params {
        variables.push(("params", CelType::Any));
    }
    if declared.authorizer {
        variables.push(("authorizer", CelType::Authorizer));
    }
    CelEnvironment::new(&variables)
}

/// The environment of match conditions of webhooks.
static MATCHING: LazyLock<CelEnvironment> = LazyLock::new(|| {
    environment(Declared {
        params: false,
        authorizer: true,
    })
});

pub(crate) fn matching() -> &'static CelEnvironment {
    &MATCHING
}

/// A condition, as an object says it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MatchCondition {
    #[serde(deserialize_with = "or_default")]
    pub(crate) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) expression: String,
}

/// What the variables of expressions stand for in one request.
pub struct Variables<'a> {
    /// `object`: null when it is deleted.
    pub object: &'a Value,
    /// `oldObject`: null when it is created.
    pub old_object: &'a Value,
    /// `request`.
    pub request: &'a Value,
    /// `namespaceObject`: null for what is in no namespace.
    pub namespace: &'a Value,
    /// `params`, where they are known.
    pub params: Option<&'a Value>,
    /// `authorizer`.
    pub authorizer: Arc<dyn CelAuthorizer>,
    /// `authorizer.requestResource`.
    pub asked: Arc<AccessCheck>,
}

impl std::fmt::Debug for Variables<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Variables")
    }
}

impl<'a> Variables<'a> {
    /// The input of expressions, with what they may cost together.
    pub(crate) fn input(&self, budget: u64) -> CelInput<'a> {
        let mut values = vec![
            ("object", CelValue::Json(self.object)),
            ("oldObject", CelValue::Json(self.old_object)),
            ("namespaceObject", CelValue::Json(self.namespace)),
            ("request", CelValue::Json(self.request)),
            (
                "authorizer",
                CelValue::Authorizer(self.authorizer.clone(), self.asked.clone()),
            ),
        ];
        values.extend(self.params.map(|params| ("params", CelValue::Json(params))));
        CelInput::new(values, budget)
    }
}

/// What conditions say of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MatchVerdict {
    /// All hold.
    Holds,
    /// One does not hold, or none failed where failures are ignored: the webhook or policy is left out.
    Fails,
    /// One could not be evaluated: the request is refused, for this reason.
    Error(String),
}

/// Compiled conditions.
#[derive(Debug, Default)]
pub struct Conditions {
    /// The texts, and what they were compiled to.
    programs: Vec<(String, Result<CelProgram, String>)>,
    policy: FailurePolicy,
}

impl Conditions {
    pub(crate) fn compile(conditions: &[MatchCondition], policy: FailurePolicy) -> Conditions {
        Conditions::compile_in(matching(), conditions, policy)
    }

    pub(crate) fn compile_in(
        environment: &CelEnvironment,
        conditions: &[MatchCondition],
        policy: FailurePolicy,
    ) -> Conditions {
        let conditions = conditions.iter();
        Conditions {
            programs: conditions
                .map(|condition| {
                    let text = condition.expression.trim();
                    (text.to_owned(), environment.compile(text))
                })
                .collect(),
            policy,
        }
    }

    /// True if nothing is asked.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty()
    }

    /// Evaluates the conditions. One that does not hold counts more than one that fails.
    pub fn evaluate(&self, variables: &Variables<'_>) -> MatchVerdict {
        let mut input = variables.input(MATCH_COST_MAX);
        let mut errors = Vec::new();
        for (text, program) in &self.programs {
            let answer = match program {
                Ok(program) => input.evaluate(program),
                Err(why) => Err(CelFault::Failed(format!("compilation error: {why}"))),
            };
            match answer {
                Ok(Value::Bool(true)) => {}
                Ok(Value::Bool(false)) => return MatchVerdict::Fails,
                Ok(_) => errors.push("the result is not of the type bool".to_owned()),
                Err(CelFault::Failed(why)) => {
                    errors.push(format!("expression '{text}' resulted in error: {why}"));
                }
                Err(CelFault::TooExpensive) => {
                    errors.push(
                        "validation failed due to running out of cost budget, no further validation rules will be run"
                            .to_owned(),
                    );
                    break;
                }
            }
        }
        match (errors.as_slice(), self.policy) {
            ([], _) => MatchVerdict::Holds,
            (_, FailurePolicy::Ignore) => MatchVerdict::Fails,
            ([one], FailurePolicy::Fail) => MatchVerdict::Error(one.clone()),
            (_, FailurePolicy::Fail) => MatchVerdict::Error(format!("[{}]", errors.join(", "))),
        }
    }
}
