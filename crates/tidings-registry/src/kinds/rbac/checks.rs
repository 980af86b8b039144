//! What roles and bindings must say: a role that grants nothing by a slip, or a binding of nobody, is refused.

use tidings_api::{FieldError, FieldErrors, validate};
use tidings_go::{json_text, quote};
use tidings_json::Value;

use super::GROUP;
use crate::model::{Draft, Strategy, Subresource};

/// The rules of `Role` and `ClusterRole`.
#[derive(Debug)]
pub(super) struct RoleStrategy {
    pub(super) namespaced: bool,
}

impl Strategy for RoleStrategy {
    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        _: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        for (at, rule) in items(new.members.get("rules")).iter().enumerate() {
            check_rule(rule, self.namespaced, &format!("rules[{at}]"), errors);
        }
        let aggregation = new.members.get("aggregationRule");
        if aggregation.is_some_and(|aggregation| !aggregation.is_null())
            && items(new.at(&["aggregationRule", "clusterRoleSelectors"])).is_empty()
        {
            errors.push(FieldError::required(
                "aggregationRule.clusterRoleSelectors",
                "at least one clusterRoleSelector required if aggregationRule is non-nil",
            ));
        }
    }
}

/// The rules of `RoleBinding` and `ClusterRoleBinding`.
#[derive(Debug)]
pub(super) struct BindingStrategy {
    pub(super) namespaced: bool,
}

impl Strategy for BindingStrategy {
    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        _: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        let of = |name: &str| new.text(&["roleRef", name]);
        if !["", GROUP].contains(&of("apiGroup")) {
            let path = "roleRef.apiGroup";
            errors.push(not_supported(path, of("apiGroup"), &[GROUP]));
        }
        let kinds: &[&str] = match self.namespaced {
            true => &["Role", "ClusterRole"],
            false => &["ClusterRole"],
        };
        if !kinds.contains(&of("kind")) {
            errors.push(not_supported("roleRef.kind", of("kind"), kinds));
        }
        match of("name") {
            "" => errors.push(FieldError::required("roleRef.name", "")),
            name => {
                let wrong = validate::path_segment(name).into_iter();
                errors.extend(wrong.map(|why| FieldError::invalid("roleRef.name", name, why)));
            }
        }
        for (at, subject) in items(new.members.get("subjects")).iter().enumerate() {
            check_subject(subject, self.namespaced, &format!("subjects[{at}]"), errors);
        }
    }
}

fn items(value: Option<&Value>) -> &[Value] {
    let items = value.and_then(Value::as_array).map(Vec::as_slice);
    items.unwrap_or_default()
}

fn not_supported(path: impl Into<String>, value: &str, supported: &[&str]) -> FieldError {
    FieldError::not_supported(path, quote(value), supported)
}

fn check_rule(rule: &Value, namespaced: bool, path: &str, errors: &mut FieldErrors) {
    let has = |name: &str| !items(rule.get(name)).is_empty();
    if !has("verbs") {
        let why = "verbs must contain at least one value";
        errors.push(FieldError::required(format!("{path}.verbs"), why));
    }
    if let Some(paths) = rule
        .get("nonResourceURLs")
        .filter(|_| has("nonResourceURLs"))
    {
        let mut wrong = |why: &str| {
            let path = format!("{path}.nonResourceURLs");
            errors.push(FieldError::invalid_value(path, json_text(paths), why));
        };
        if namespaced {
            wrong("namespaced rules cannot apply to non-resource URLs");
        }
        if has("apiGroups") || has("resources") || has("resourceNames") {
            wrong("rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    for (name, why) in [
        (
            "apiGroups",
            "resource rules must supply at least one api group",
        ),
        (
            "resources",
            "resource rules must supply at least one resource",
        ),
    ] {
        if !has(name) {
            errors.push(FieldError::required(format!("{path}.{name}"), why));
        }
    }
}

fn check_subject(subject: &Value, namespaced: bool, path: &str, errors: &mut FieldErrors) {
    let of = |name: &str| {
        let text = subject.get(name).and_then(Value::as_str);
        text.unwrap_or_default()
    };
    let name = of("name");
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    let group_path = format!("{path}.apiGroup");
    match of("kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                let wrong = validate::dns1123_subdomain(name).into_iter();
                let path = format!("{path}.name");
                errors.extend(wrong.map(|why| FieldError::invalid(path.clone(), name, why)));
            }
            if !of("apiGroup").is_empty() {
                errors.push(not_supported(group_path, of("apiGroup"), &[""]));
            }
            if !namespaced && of("namespace").is_empty() {
                errors.push(FieldError::required(format!("{path}.namespace"), ""));
            }
        }
        "User" | "Group" => {
            if of("apiGroup") != GROUP {
                errors.push(not_supported(group_path, of("apiGroup"), &[GROUP]));
            }
        }
        kind => errors.push(not_supported(
            format!("{path}.kind"),
            kind,
            &["ServiceAccount", "User", "Group"],
        )),
    }
}
