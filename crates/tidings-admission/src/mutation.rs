//! MutatingAdmissionPolicies: expressions that say how an object is changed.

use serde::Deserialize;
use tidings_json::Value;

use crate::condition::Variables;
use crate::form::{NotReadable, or_default, read};
use crate::policy::{BaseSpec, COST_MAX, Compiled, Form, PolicyBase};

/// A compiled policy.
#[derive(Debug)]
pub struct MutatingPolicy {
    /// What policies have in common.
    pub base: PolicyBase,
    /// It is evaluated again if others have changed the object since.
    pub reinvoked: bool,
    mutations: Vec<Mutation>,
}

#[derive(Debug)]
struct Mutation {
    form: MutationForm,
    expression: Compiled,
}

/// What an expression makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MutationForm {
    Configuration,
    Patch,
}

/// A change of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Members to be merged into the object, as by server-side apply.
    Configuration(Value),
    /// The operations of a JSON patch.
    Patch(Value),
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct MutatingSpec {
    #[serde(flatten)]
    base: BaseSpec,
    #[serde(deserialize_with = "or_default")]
    mutations: Vec<SentMutation>,
    #[serde(deserialize_with = "or_default")]
    reinvocation_policy: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct SentMutation {
    #[serde(deserialize_with = "or_default")]
    patch_type: String,
    #[serde(deserialize_with = "or_default")]
    apply_configuration: SentExpression,
    #[serde(deserialize_with = "or_default")]
    json_patch: SentExpression,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SentExpression {
    #[serde(deserialize_with = "or_default")]
    expression: String,
}

impl MutatingPolicy {
    /// Reads a stored policy and compiles its expressions.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(object: &Value) -> Result<MutatingPolicy, NotReadable> {
        let Form { metadata, spec }: Form<MutatingSpec> = read(object)?;
        let (base, environments) = PolicyBase::compile(metadata.name, spec.base);
        let environment = environments.all.making_objects();
        let mutations = spec.mutations.iter().map(|sent| {
            let (form, text) = match &*sent.patch_type {
                "JSONPatch" => (MutationForm::Patch, &sent.json_patch),
                _ => (MutationForm::Configuration, &sent.apply_configuration),
            };
            Mutation {
                form,
                expression: Compiled::new(&environment, &text.expression),
            }
        });
        Ok(MutatingPolicy {
            mutations: mutations.collect(),
            base,
            reinvoked: spec.reinvocation_policy == "IfNeeded",
        })
    }

    /// How many changes the policy makes, one after the other.
    pub fn changes(&self) -> usize {
        self.mutations.len()
    }

    /// False if the conditions of the policy leave the request out.
    ///
    /// # Errors
    /// If a condition fails.
    pub fn applies(&self, variables: &Variables<'_>) -> Result<bool, String> {
        self.base.applies(variables)
    }

    /// Evaluates one of the changes, with the object as those before it have left it.
    ///
    /// # Errors
    /// Why there is none.
    pub fn change(&self, at: usize, variables: &Variables<'_>) -> Result<Change, String> {
        let Mutation { form, expression } = &self.mutations[at];
        let mut input = variables.input(COST_MAX);
        let made = self.base.run(&mut input, expression)?;
        Ok(match form {
            MutationForm::Configuration => Change::Configuration(made),
            MutationForm::Patch => Change::Patch(made),
        })
    }
}
