//! Parts that webhooks and policies share: rules, selectors, conditions.

use std::collections::HashSet;

use tidings_api::{FieldError, FieldErrors, validate};
use tidings_go::{json_text, quote};
use tidings_json::{Map, Value};
use tidings_structural::CelEnvironment;

/// How many match conditions there may be.
const CONDITIONS_MAX: usize = 64;

/// The elements of a list member.
pub(super) fn items<'v>(of: &'v Value, name: &str) -> &'v [Value] {
    let items = of.get(name).and_then(Value::as_array).map(Vec::as_slice);
    items.unwrap_or_default()
}

/// A text member; empty if it is not there.
pub(super) fn text<'v>(of: &'v Value, name: &str) -> &'v str {
    of.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A member that is there and not null.
pub(super) fn given<'v>(of: &'v Value, name: &str) -> Option<&'v Value> {
    of.get(name).filter(|value| !value.is_null())
}

/// Refuses a text that is not one of the supported ones.
pub(super) fn one_of(value: &str, path: String, supported: &[&str], errors: &mut FieldErrors) {
    if !supported.contains(&value) {
        errors.push(FieldError::not_supported(path, quote(value), supported));
    }
}

fn texts<'v>(of: &'v Value, name: &str) -> Vec<&'v str> {
    let items = items(of, name).iter();
    items
        .map(|item| item.as_str().unwrap_or_default())
        .collect()
}

/// A list of texts as Go's `%v` prints it in errors of fields.
fn printed(of: &Value, name: &str) -> String {
    json_text(of.get(name).unwrap_or(&Value::Null))
}

/// What may be done, in rules of webhooks and of policies that check.
pub(super) const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

/// Checks a rule with operations.
pub(super) fn rule(rule: &Value, path: &str, operations: &[&str], errors: &mut FieldErrors) {
    let asked = texts(rule, "operations");
    let at = |name: &str| format!("{path}.{name}");
    if asked.is_empty() {
        errors.push(FieldError::required(at("operations"), ""));
    }
    if asked.len() > 1 && asked.contains(&"*") {
        let detail = "if '*' is present, must not specify other operations";
        let value = printed(rule, "operations");
        errors.push(FieldError::invalid_value(at("operations"), value, detail));
    }
    for (index, operation) in asked.iter().enumerate() {
        one_of(
            operation,
            format!("{path}.operations[{index}]"),
            operations,
            errors,
        );
    }
    for (name, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let named = texts(rule, name);
        if named.is_empty() {
            errors.push(FieldError::required(at(name), ""));
        }
        if named.len() > 1 && named.contains(&"*") {
            let detail = format!("if '*' is present, must not specify other {what}");
            let value = printed(rule, name);
            errors.push(FieldError::invalid_value(at(name), value, detail));
        }
    }
    for (index, version) in texts(rule, "apiVersions").iter().enumerate() {
        if version.is_empty() {
            errors.push(FieldError::required(
                format!("{path}.apiVersions[{index}]"),
                "",
            ));
        }
    }
    resources(rule, &at("resources"), errors);
    if let Some(scope) = given(rule, "scope").and_then(Value::as_str) {
        one_of(scope, at("scope"), &["*", "Cluster", "Namespaced"], errors);
    }
}

fn resources(rule: &Value, path: &str, errors: &mut FieldErrors) {
    let named = texts(rule, "resources");
    if named.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let (mut all_parts, mut of_all) = (HashSet::new(), HashSet::new());
    let mut has_plain = false;
    for (index, name) in named.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        let Some((resource, part)) = name.split_once('/') else {
            has_plain = *name != "*";
            continue;
        };
        if all_parts.contains(resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {name}");
            errors.push(FieldError::invalid(&path, name, detail));
        }
        if of_all.contains(part) {
            let detail = format!("if '*/{part}' is present, must not specify {name}");
            errors.push(FieldError::invalid(&path, name, detail));
        }
        if part == "*" {
            all_parts.insert(resource);
        }
        if resource == "*" {
            of_all.insert(part);
        }
    }
    let mut refuse = |detail: &str| {
        let value = printed(rule, "resources");
        errors.push(FieldError::invalid_value(path, value, detail));
    };
    if named.len() > 1 && named.contains(&"*/*") {
        refuse("if '*/*' is present, must not specify other resources");
    }
    if named.contains(&"*") && has_plain {
        refuse("if '*' is present, must not specify other resources without subresources");
    }
}

/// Checks a label selector.
pub(super) fn selector(selector: Option<&Value>, path: &str, errors: &mut FieldErrors) {
    let Some(selector) = selector else {
        return;
    };
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    for (key, value) in labels.into_iter().flat_map(Map::iter) {
        let path = format!("{path}.matchLabels");
        let value = value.as_str().unwrap_or_default();
        for why in validate::qualified_name(key) {
            errors.push(FieldError::invalid(&path, key, why));
        }
        for why in validate::label_value(value) {
            errors.push(FieldError::invalid(&path, value, why));
        }
    }
    for (index, term) in items(selector, "matchExpressions").iter().enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        let (operator, values) = (text(term, "operator"), texts(term, "values"));
        match operator {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                format!("{path}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
                format!("{path}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(FieldError::invalid(
                format!("{path}.operator"),
                other,
                "not a valid selector operator",
            )),
        }
        let key = text(term, "key");
        for why in validate::qualified_name(key) {
            errors.push(FieldError::invalid(format!("{path}.key"), key, why));
        }
        for (index, value) in values.iter().enumerate() {
            for why in validate::label_value(value) {
                errors.push(FieldError::invalid(
                    format!("{path}.values[{index}]"),
                    value,
                    why,
                ));
            }
        }
    }
}

/// Checks match conditions: names, and expressions that are true or false.
pub(super) fn conditions(
    of: &Value,
    path: &str,
    environment: &CelEnvironment,
    errors: &mut FieldErrors,
) {
    let conditions = items(of, "matchConditions");
    if conditions.len() > CONDITIONS_MAX {
        errors.push(FieldError::too_many(path, conditions.len(), CONDITIONS_MAX));
    }
    let mut names = HashSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let (name, expression) = (
            text(condition, "name"),
            text(condition, "expression").trim(),
        );
        match expression {
            "" => errors.push(FieldError::required(format!("{path}.expression"), "")),
            expression => boolean(
                environment,
                expression,
                &format!("{path}.expression"),
                errors,
            ),
        }
        match name {
            "" => errors.push(FieldError::required(format!("{path}.name"), "")),
            name => {
                for why in validate::qualified_name(name) {
                    errors.push(FieldError::invalid(format!("{path}.name"), name, why));
                }
                if !names.insert(name) {
                    errors.push(FieldError::duplicate(format!("{path}.name"), name));
                }
            }
        }
    }
}

/// Checks an expression that must be true or false.
pub(super) fn boolean(
    environment: &CelEnvironment,
    expression: &str,
    path: &str,
    errors: &mut FieldErrors,
) {
    let detail = match environment.compile(expression) {
        Ok(program) if program.is_bool() => return,
        Ok(program) => format!("must evaluate to bool but got {}", program.type_name()),
        Err(why) => format!("compilation failed: {why}"),
    };
    errors.push(FieldError::invalid(path, expression, detail));
}
