//! Checks admission policies and their bindings.

use std::collections::HashSet;

use tidings_api::{FieldError, FieldErrors, validate};
use tidings_go::{json_text, quote};
use tidings_json::Value;
use tidings_structural::CelEnvironment;

use super::parts::{OPERATIONS, boolean, conditions, given, items, one_of, rule, selector, text};
use crate::condition::{Declared, environment};

/// How many annotations of the audit log a policy may make.
const ANNOTATIONS_MAX: usize = 20;
/// How long the expression of an annotation may be.
const ANNOTATION_BYTES_MAX: usize = 5 * 1024;
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];

/// The environments of the expressions of a policy, and of its messages.
type Environments = (CelEnvironment, CelEnvironment);

/// Appends the errors of what policies have in common. Conditions that are those of `old` need not be right.
fn check_base(
    new: &Value,
    old: Option<&Value>,
    errors: &mut FieldErrors,
    mutates: bool,
) -> Environments {
    let spec = &new["spec"];
    match given(spec, "failurePolicy").and_then(Value::as_str) {
        Some(policy) => one_of(
            policy,
            "spec.failurePolicy".into(),
            &["Fail", "Ignore"],
            errors,
        ),
        None if mutates => errors.push(FieldError::required("spec.failurePolicy", "")),
        None => {}
    }
    let params = given(spec, "paramKind");
    if let Some(kind) = params {
        param_kind(kind, "spec.paramKind", errors);
    }
    match given(spec, "matchConstraints") {
        None => errors.push(FieldError::required("spec.matchConstraints", "")),
        Some(matching) => {
            match_resources(matching, "spec.matchConstraints", errors);
            if items(matching, "resourceRules").is_empty() {
                let path = "spec.matchConstraints.resourceRules";
                errors.push(FieldError::required(path, ""));
            }
            if mutates {
                let path = "spec.matchConstraints.resourceRules.operations";
                changing_operations(matching, path, errors);
            }
        }
    }
    let with = |authorizer| {
        let params = params.is_some();
        environment(Declared { params, authorizer })
    };
    let has_old_conditions = old.is_some_and(|old| {
        let of = |policy: &Value| {
            let spec = &policy["spec"];
            (spec["paramKind"].clone(), spec["matchConditions"].clone())
        };
        of(old) == of(new)
    });
    if !has_old_conditions {
        conditions(spec, "spec.matchConditions", &with(true), errors);
    }
    let (mut all, mut messages) = (with(true), with(false));
    if !items(spec, "variables").is_empty() {
        (all, messages) = (all.composing(), messages.composing());
    }
    for (at, variable) in items(spec, "variables").iter().enumerate() {
        let path = format!("spec.variables[{at}]");
        compose(variable, &path, &mut all, &mut messages, errors);
    }
    (all, messages)
}

/// What a mutating policy may be for.
const OPERATIONS_OF_CHANGES: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];

/// What is deleted cannot be changed.
fn changing_operations(matching: &Value, path: &str, errors: &mut FieldErrors) {
    for rule in items(matching, "resourceRules") {
        for operation in items(rule, "operations") {
            let operation = operation.as_str().unwrap_or_default();
            one_of(operation, path.to_owned(), &OPERATIONS_OF_CHANGES, errors);
        }
    }
}

/// Appends the errors of a MutatingAdmissionPolicy. Conditions that are those of `old` need not be right.
pub fn check_mutating_policy(new: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let (all, _) = check_base(new, old, errors, true);
    let environment = all.making_objects();
    let spec = &new["spec"];
    let mutations = items(spec, "mutations");
    if mutations.is_empty() {
        let detail = "mutations must contain at least one item";
        errors.push(FieldError::required("spec.mutations", detail));
    }
    for (at, one) in mutations.iter().enumerate() {
        mutation(one, &format!("spec.mutations[{at}]"), &environment, errors);
    }
    let path = "spec.reinvocationPolicy";
    match text(spec, "reinvocationPolicy") {
        "" => errors.push(FieldError::required(path, "")),
        policy => one_of(policy, path.into(), &["IfNeeded", "Never"], errors),
    }
}

fn mutation(one: &Value, path: &str, environment: &CelEnvironment, errors: &mut FieldErrors) {
    const FORMS: [(&str, &str); 2] = [
        ("JSONPatch", "jsonPatch"),
        ("ApplyConfiguration", "applyConfiguration"),
    ];
    let kind = text(one, "patchType");
    let at = |name: &str| format!("{path}.{name}");
    if kind.is_empty() {
        errors.push(FieldError::required(at("patchType"), ""));
        return;
    }
    let Some((_, member)) = FORMS.iter().find(|(known, _)| *known == kind) else {
        let known = ["ApplyConfiguration", "JSONPatch"];
        one_of(kind, at("patchType"), &known, errors);
        return;
    };
    match given(one, member) {
        None => {
            let detail = format!("must be specified when patchType is {kind}");
            errors.push(FieldError::required(at(member), detail));
        }
        Some(form) => change(form, &at(member), kind, environment, errors),
    }
    let other = FORMS.iter().map(|(_, other)| *other);
    for other in other.filter(|other| other != member) {
        if given(one, other).is_some() {
            let detail = format!("must not be specified when patchType is {kind}");
            let shown = format!("{{{other}}}");
            errors.push(FieldError::invalid(at(other), &shown, detail));
        }
    }
}

fn change(
    form: &Value,
    path: &str,
    kind: &str,
    environment: &CelEnvironment,
    errors: &mut FieldErrors,
) {
    let path = format!("{path}.expression");
    let expression = text(form, "expression").trim();
    if expression.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let detail = match environment.compile(expression) {
        Ok(program) if kind == "JSONPatch" && program.is_patch() => return,
        Ok(program) if kind != "JSONPatch" && program.is_object() => return,
        Ok(program) => {
            let wanted = match kind {
                "JSONPatch" => "list(JSONPatch)",
                _ => "Object",
            };
            format!("must evaluate to {wanted} but got {}", program.type_name())
        }
        Err(why) => format!("compilation failed: {why}"),
    };
    errors.push(FieldError::invalid(path, expression, detail));
}

/// Appends the errors of a MutatingAdmissionPolicyBinding.
pub fn check_mutating_binding(binding: &Value, errors: &mut FieldErrors) {
    let spec = &binding["spec"];
    check_bound(spec, errors);
    if let Some(matching) = given(spec, "matchResources") {
        let path = "spec.matchResources.resourceRules.operations";
        changing_operations(matching, path, errors);
    }
}

/// Appends the errors of a ValidatingAdmissionPolicy. Conditions that are those of `old` need not be right.
pub fn check_policy(name: &str, new: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let (all, messages) = check_base(new, old, errors, false);
    let spec = &new["spec"];
    let (validations, annotations) = (items(spec, "validations"), items(spec, "auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        for path in ["spec.validations", "spec.auditAnnotations"] {
            errors.push(FieldError::required(path, detail));
        }
        return;
    }
    for (at, one) in validations.iter().enumerate() {
        validation(
            one,
            &format!("spec.validations[{at}]"),
            &all,
            &messages,
            errors,
        );
    }
    if annotations.len() > ANNOTATIONS_MAX {
        let detail = format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations");
        let value = json_text(&spec["auditAnnotations"]);
        errors.push(FieldError::invalid_value(
            "spec.auditAnnotations",
            value,
            detail,
        ));
    }
    let mut keys = HashSet::new();
    for (at, one) in annotations.iter().enumerate() {
        let path = format!("spec.auditAnnotations[{at}]");
        annotation(name, one, &path, &all, errors);
        let key = text(one, "key");
        if !keys.insert(key) {
            errors.push(FieldError::duplicate(format!("{path}.key"), key));
        }
    }
}

/// Appends the errors of a ValidatingAdmissionPolicyBinding.
pub fn check_binding(binding: &Value, errors: &mut FieldErrors) {
    let spec = &binding["spec"];
    check_bound(spec, errors);
    check_actions(spec, errors);
}

/// Appends the errors of what bindings have in common.
fn check_bound(spec: &Value, errors: &mut FieldErrors) {
    match text(spec, "policyName") {
        "" => errors.push(FieldError::required("spec.policyName", "")),
        name => {
            for why in validate::dns1123_subdomain(name) {
                errors.push(FieldError::invalid("spec.policyName", name, why));
            }
        }
    }
    if let Some(params) = given(spec, "paramRef") {
        param_ref(params, errors);
    }
    if let Some(matching) = given(spec, "matchResources") {
        match_resources(matching, "spec.matchResources", errors);
    }
}

fn check_actions(spec: &Value, errors: &mut FieldErrors) {
    let path = "spec.validationActions";
    let mut seen = HashSet::new();
    for (at, action) in items(spec, "validationActions").iter().enumerate() {
        let action = action.as_str().unwrap_or_default();
        let path = format!("{path}[{at}]");
        one_of(action, path.clone(), &["Audit", "Deny", "Warn"], errors);
        if !seen.insert(action) {
            errors.push(FieldError::duplicate(path, action));
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        let value = json_text(&spec["validationActions"]);
        errors.push(FieldError::invalid_value(path, value, detail));
    }
    if seen.is_empty() {
        let detail = "at least one validation action is required";
        errors.push(FieldError::required(path, detail));
    }
}

fn param_kind(kind: &Value, path: &str, errors: &mut FieldErrors) {
    let at = |name: &str| format!("{path}.{name}");
    let version = text(kind, "apiVersion");
    match version.split('/').collect::<Vec<_>>().as_slice() {
        [""] => errors.push(FieldError::required(at("apiVersion"), "")),
        [number] => label(version, number, &at("apiVersion"), errors),
        [group, number] => {
            let wrong = validate::dns1123_subdomain(group);
            if !group.is_empty() && !wrong.is_empty() {
                errors.push(FieldError::invalid(
                    at("apiVersion"),
                    group,
                    wrong.join(","),
                ));
            }
            label(version, number, &at("apiVersion"), errors);
        }
        _ => {
            let detail = format!("unexpected GroupVersion string: {version}");
            errors.push(FieldError::invalid(at("apiVersion"), version, detail));
        }
    }
    match text(kind, "kind") {
        "" => errors.push(FieldError::required(at("kind"), "")),
        name => {
            let wrong = validate::dns1035_label(&name.to_lowercase());
            if !wrong.is_empty() {
                let wrong = wrong.join(",");
                let detail = format!("may have mixed case, but should otherwise match: {wrong}");
                errors.push(FieldError::invalid(at("kind"), name, detail));
            }
        }
    }
}

/// Checks the number of a version such as `apps/v1`.
fn label(version: &str, number: &str, path: &str, errors: &mut FieldErrors) {
    let wrong = validate::dns1035_label(number);
    if number.is_empty() {
        errors.push(FieldError::invalid(
            path,
            version,
            "version must be specified",
        ));
    } else if !wrong.is_empty() {
        errors.push(FieldError::invalid(path, number, wrong.join(",")));
    }
}

fn match_resources(matching: &Value, path: &str, errors: &mut FieldErrors) {
    let at = |name: &str| format!("{path}.{name}");
    match given(matching, "matchPolicy").and_then(Value::as_str) {
        None => errors.push(FieldError::required(at("matchPolicy"), "")),
        Some(policy) => one_of(policy, at("matchPolicy"), &["Equivalent", "Exact"], errors),
    }
    for name in ["namespaceSelector", "objectSelector"] {
        match given(matching, name) {
            None => errors.push(FieldError::required(at(name), "")),
            found => selector(found, &at(name), errors),
        }
    }
    for name in ["resourceRules", "excludeResourceRules"] {
        for (index, one) in items(matching, name).iter().enumerate() {
            let path = format!("{path}.{name}[{index}]");
            let mut seen = HashSet::new();
            for (index, name) in items(one, "resourceNames").iter().enumerate() {
                let name = name.as_str().unwrap_or_default();
                let path = format!("{path}.resourceNames[{index}]");
                for why in validate::path_segment(name) {
                    errors.push(FieldError::invalid(&path, name, why));
                }
                if !seen.insert(name) {
                    errors.push(FieldError::duplicate(path, name));
                }
            }
            rule(one, &path, &OPERATIONS, errors);
        }
    }
}

fn param_ref(params: &Value, errors: &mut FieldErrors) {
    const PATH: &str = "spec.paramRef";
    const BOTH: &str = "name and selector are mutually exclusive";
    let at = |name: &str| format!("{PATH}.{name}");
    let (name, selected) = (text(params, "name"), given(params, "selector"));
    if !name.is_empty() {
        for why in validate::path_segment(name) {
            errors.push(FieldError::invalid(at("name"), name, why));
        }
        if selected.is_some() {
            errors.push(FieldError::forbidden(at("name"), BOTH));
        }
    }
    if selected.is_some() {
        selector(selected, &at("selector"), errors);
        if !name.is_empty() {
            errors.push(FieldError::forbidden(at("selector"), BOTH));
        }
    } else if name.is_empty() {
        let detail = "one of name or selector must be specified";
        errors.push(FieldError::required(PATH, detail));
    }
    match text(params, "parameterNotFoundAction") {
        "" => errors.push(FieldError::required(at("parameterNotFoundAction"), "")),
        "Deny" | "Allow" => {}
        other => {
            let path = at("parameterNotFoundAction");
            errors.push(FieldError::not_supported(
                path,
                quote(other),
                &["Deny", "Allow"],
            ));
        }
    }
}

/// True for a name that an expression can select.
fn is_identifier(name: &str) -> bool {
    const RESERVED: [&str; 20] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
    ];
    let mut characters = name.chars();
    let starts = characters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
    starts
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !RESERVED.contains(&name)
        && name != "while"
}

fn compose(
    variable: &Value,
    path: &str,
    all: &mut CelEnvironment,
    messages: &mut CelEnvironment,
    errors: &mut FieldErrors,
) {
    let (name, expression) = (text(variable, "name"), text(variable, "expression"));
    if name.trim().is_empty() {
        let path = format!("{path}.name");
        errors.push(FieldError::required(path, "name is not specified"));
    } else if !is_identifier(name) {
        let detail = "must be a valid CEL identifier";
        errors.push(FieldError::invalid(format!("{path}.name"), name, detail));
    }
    let path = format!("{path}.expression");
    if expression.trim().is_empty() {
        errors.push(FieldError::required(path, "expression is not specified"));
        return;
    }
    match all.compile(expression) {
        Ok(program) => {
            all.compose(name, &program);
            messages.compose(name, &program);
        }
        Err(why) => {
            let detail = format!("compilation failed: {why}");
            errors.push(FieldError::invalid(path, expression, detail));
        }
    }
}

fn validation(
    one: &Value,
    path: &str,
    all: &CelEnvironment,
    messages: &CelEnvironment,
    errors: &mut FieldErrors,
) {
    let at = |name: &str| format!("{path}.{name}");
    let expression = text(one, "expression");
    match expression.trim() {
        "" => {
            let detail = "expression is not specified";
            errors.push(FieldError::required(at("expression"), detail));
        }
        _ => boolean(all, expression, &at("expression"), errors),
    }
    const EMPTY: &str = "must be non-empty if specified";
    let made = text(one, "messageExpression");
    if !made.is_empty() && made.trim().is_empty() {
        errors.push(FieldError::invalid(at("messageExpression"), made, EMPTY));
    } else if !made.is_empty() {
        let detail = match messages.compile(made) {
            Ok(program) if program.is_text() => None,
            Ok(program) => Some(format!(
                "must evaluate to string but got {}",
                program.type_name()
            )),
            Err(why) => Some(format!("compilation failed: {why}")),
        };
        if let Some(detail) = detail {
            errors.push(FieldError::invalid(at("messageExpression"), made, detail));
        }
    }
    let message = text(one, "message");
    if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid(at("message"), message, EMPTY));
    } else if message.trim().contains(['\n', '\r']) {
        let detail = "must not contain line breaks";
        errors.push(FieldError::invalid(at("message"), message, detail));
    }
    if let Some(reason) = given(one, "reason").and_then(Value::as_str) {
        one_of(reason, at("reason"), &REASONS, errors);
    }
}

fn annotation(
    policy: &str,
    one: &Value,
    path: &str,
    environment: &CelEnvironment,
    errors: &mut FieldErrors,
) {
    let key = text(one, "key");
    if policy.is_empty() {
        let detail = "requires metadata.name be non-empty";
        errors.push(FieldError::invalid(format!("{path}.key"), key, detail));
    } else {
        let full = format!("{policy}/{key}");
        for why in validate::qualified_name(&full) {
            errors.push(FieldError::invalid(format!("{path}.key"), &full, why));
        }
    }
    let path = format!("{path}.valueExpression");
    let expression = text(one, "valueExpression");
    match expression.trim() {
        "" => {
            let detail = "valueExpression is not specified";
            errors.push(FieldError::required(path, detail));
        }
        trimmed if trimmed.len() > ANNOTATION_BYTES_MAX => {
            let detail = format!("must not exceed {ANNOTATION_BYTES_MAX} bytes in length");
            errors.push(FieldError::required(path, detail));
        }
        trimmed => {
            let detail = match environment.compile(trimmed) {
                Ok(program) if program.is_text() || program.is_null() => return,
                Ok(program) => format!(
                    "must evaluate to one of [string null_type] but got {}",
                    program.type_name()
                ),
                Err(why) => format!("compilation failed: {why}"),
            };
            errors.push(FieldError::invalid(path, expression, detail));
        }
    }
}
