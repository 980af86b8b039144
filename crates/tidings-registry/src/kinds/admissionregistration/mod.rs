//! The kinds of the group `admissionregistration.k8s.io`, and the defaults and columns that several of them share.

pub(super) mod mutating_admission_policy;
mod mutating_admission_policy_binding;
pub(super) mod mutating_webhook_configuration;
mod policies;
pub(super) mod validating_admission_policy;
mod validating_admission_policy_binding;
pub(super) mod validating_webhook_configuration;
mod webhooks;

use jiff::Timestamp;
use tidings_json::{Map, Value};

use crate::defaults::{TypeDefaults, defaults};
use crate::kinds::names;
use crate::model::{Generation, Kind};
use crate::table::fields::{count, field, list, map, name, text, texts};
use crate::table::format::age;
use crate::table::{AGE, Column, NAME, integer, string};

fn plain() -> Kind {
    Kind {
        group: "admissionregistration.k8s.io".into(),
        categories: names(["api-extensions"]),
        go_package: "admissionregistration",
        namespaced: false,
        generation: Generation::Counted,
        conditional_update: true,
        ..Kind::plain()
    }
}

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        mutating_admission_policy::kind(),
        mutating_admission_policy_binding::kind(),
        mutating_webhook_configuration::kind(),
        validating_admission_policy::kind(),
        validating_admission_policy_binding::kind(),
        validating_webhook_configuration::kind(),
    ]
}

/// The default of rules: they match resources of every scope.
const RULE_SCOPE: &[(&str, &str)] = &[("scope", r#""*""#)];

pub(super) const DEFAULTS: &[TypeDefaults] = &[
    defaults(
        "admissionregistration/v1.MatchResources",
        &[
            ("matchPolicy", r#""Equivalent""#),
            ("namespaceSelector", "{}"),
            ("objectSelector", "{}"),
        ],
    ),
    defaults("admissionregistration/v1.Rule", RULE_SCOPE),
    defaults("admissionregistration/v1.RuleWithOperations", RULE_SCOPE),
    defaults(
        "admissionregistration/v1.NamedRuleWithOperations",
        RULE_SCOPE,
    ),
    defaults(
        "admissionregistration/v1.ServiceReference",
        &[("port", "443")],
    ),
];

const WEBHOOK_COLUMNS: &[Column] = &[NAME, integer("Webhooks", "How many webhooks it has."), AGE];

fn webhook_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(object), count(object, &["webhooks"]), age(object, now)]
}

const PARAM_KIND: Column = string("ParamKind", "The kind of the policy's parameters.");

/// The cells of a policy. `rules` is the member of the spec that lists its rules.
fn policy_cells(object: &Value, rules: &str, now: Timestamp) -> Vec<Value> {
    let param_kind = match field(object, &["spec", "paramKind"]) {
        Some(kind) => format!("{}/{}", text(kind, &["apiVersion"]), text(kind, &["kind"])),
        None => "<unset>".to_string(),
    };
    cells![
        name(object),
        count(object, &["spec", rules]),
        param_kind,
        age(object, now),
    ]
}

const BINDING_COLUMNS: &[Column] = &[
    NAME,
    string("PolicyName", "The policy that is bound."),
    string("ParamRef", "The objects with the policy's parameters."),
    AGE,
];

fn binding_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    cells![
        name(object),
        text(object, &["spec", "policyName"]),
        params(object),
        age(object, now),
    ]
}

/// The ParamRef column: the name of the parameters, or else the selector of their labels.
fn params(object: &Value) -> String {
    let reference = field(object, &["spec", "paramRef"]).unwrap_or(&Value::Null);
    let name = text(reference, &["name"]);
    match (
        text(reference, &["namespace"]),
        field(reference, &["selector"]),
    ) {
        ("", _) if !name.is_empty() => format!("*/{name}"),
        (namespace, _) if !name.is_empty() => format!("{namespace}/{name}"),
        (_, Some(selector)) => selector_fields(selector),
        _ => "<unset>".to_string(),
    }
}

/// A label selector as Go prints the struct.
fn selector_fields(selector: &Value) -> String {
    let mut pairs: Vec<(&str, &str)> = map(selector, &["matchLabels"])
        .into_iter()
        .flat_map(Map::iter)
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
        .collect();
    pairs.sort_unstable();
    let labels: String = pairs
        .iter()
        .map(|(key, value)| format!("{key}: {value},"))
        .collect();
    let expressions: String = list(selector, &["matchExpressions"])
        .iter()
        .map(|expression| {
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
                text(expression, &["key"]),
                text(expression, &["operator"]),
                texts(expression, &["values"]).join(" "),
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}
