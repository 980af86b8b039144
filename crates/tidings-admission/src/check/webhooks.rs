//! Checks the configurations of webhooks.

use std::collections::HashSet;

use tidings_api::{FieldError, FieldErrors, validate};
use tidings_json::Value;
use tidings_structural::definition::check_webhook_client;

use super::parts::{OPERATIONS, conditions, given, items, one_of, rule, selector, text};
use crate::condition::matching;

/// What webhooks may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookKind {
    /// Change objects.
    Mutating,
    /// Refuse them.
    Validating,
}

/// Versions of AdmissionReview that can be sent.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];

/// Appends the errors of the webhooks of a configuration. Of those that it had before, `old`, conditions need not be right.
pub fn check_webhooks(
    kind: WebhookKind,
    new: &Value,
    old: Option<&Value>,
    errors: &mut FieldErrors,
) {
    let has_old_conditions = old.is_some_and(|old| {
        let of = |webhooks: &Value| {
            let hooks = items(webhooks, "webhooks").iter();
            let conditions = hooks.map(|hook| items(hook, "matchConditions").to_vec());
            conditions.collect::<Vec<_>>()
        };
        of(old) == of(new)
    });
    let mut names = HashSet::new();
    for (index, hook) in items(new, "webhooks").iter().enumerate() {
        let path = format!("webhooks[{index}]");
        webhook(kind, hook, !has_old_conditions, &path, errors);
        versions(hook, &format!("{path}.admissionReviewVersions"), errors);
        let name = text(hook, "name");
        if !name.is_empty() && !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), name));
        }
    }
}

fn webhook(
    kind: WebhookKind,
    hook: &Value,
    checks_conditions: bool,
    path: &str,
    errors: &mut FieldErrors,
) {
    let at = |name: &str| format!("{path}.{name}");
    qualified(text(hook, "name"), &at("name"), errors);
    for (index, one) in items(hook, "rules").iter().enumerate() {
        rule(one, &format!("{path}.rules[{index}]"), &OPERATIONS, errors);
    }
    let supported = |name: &str, supported: &[&str], errors: &mut FieldErrors| {
        if let Some(said) = given(hook, name).and_then(Value::as_str) {
            one_of(said, at(name), supported, errors);
        }
    };
    supported("failurePolicy", &["Fail", "Ignore"], errors);
    supported("matchPolicy", &["Equivalent", "Exact"], errors);
    match given(hook, "sideEffects") {
        None => {
            let detail = format!("must specify one of {}", SIDE_EFFECTS.join(", "));
            errors.push(FieldError::required(at("sideEffects"), detail));
        }
        Some(_) => supported("sideEffects", &SIDE_EFFECTS, errors),
    }
    let timeout = given(hook, "timeoutSeconds").and_then(Value::as_i64);
    if let Some(seconds) = timeout.filter(|seconds| !(1..=30).contains(seconds)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid_value(
            at("timeoutSeconds"),
            seconds,
            detail,
        ));
    }
    selector(
        given(hook, "namespaceSelector"),
        &at("namespaceSelector"),
        errors,
    );
    selector(given(hook, "objectSelector"), &at("objectSelector"), errors);
    if kind == WebhookKind::Mutating {
        supported("reinvocationPolicy", &["IfNeeded", "Never"], errors);
    }
    check_webhook_client(&hook["clientConfig"], &at("clientConfig"), errors);
    if checks_conditions {
        conditions(hook, &at("matchConditions"), matching(), errors);
    }
}

/// Checks a name of at least three parts.
fn qualified(name: &str, path: &str, errors: &mut FieldErrors) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let wrong = validate::dns1123_subdomain(name);
    if !wrong.is_empty() {
        errors.push(FieldError::invalid(path, name, wrong.join(",")));
    } else if name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(path, name, detail));
    }
}

fn versions(hook: &Value, path: &str, errors: &mut FieldErrors) {
    let named = items(hook, "admissionReviewVersions");
    if named.is_empty() {
        let detail = format!("must specify one of {}", VERSIONS.join(", "));
        errors.push(FieldError::required(path, detail));
        return;
    }
    let mut seen = HashSet::new();
    for (index, version) in named.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let version = version.as_str().unwrap_or_default();
        if !seen.insert(version) {
            errors.push(FieldError::invalid(path, version, "duplicate version"));
            continue;
        }
        for why in validate::dns1035_label(version) {
            errors.push(FieldError::invalid(&path, version, why));
        }
    }
    if !VERSIONS.iter().any(|version| seen.contains(version)) {
        let detail = format!("must include at least one of {}", VERSIONS.join(", "));
        let value = tidings_go::json_text(&hook["admissionReviewVersions"]);
        errors.push(FieldError::invalid_value(path, value, detail));
    }
}
