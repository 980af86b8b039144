//! `FlowSchema` of `flowcontrol.apiserver.k8s.io`: entry, rules and table.

use std::sync::Arc;

use tidings_api::{FieldError, FieldErrors, validate};
use tidings_go::quote;
use tidings_json::Value;

use super::defaults::default_flow_schemas;
use crate::model::{Draft, Kind, Strategy, Subresource};
use crate::table::fields::{field, int, list, name, text, text_or};
use crate::table::format::age;
use crate::table::{AGE, NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        kind: "FlowSchema".into(),
        plural: "flowschemas".into(),
        printer: &PRINTER,
        strategy: Arc::new(FlowSchemaStrategy),
        ..super::plain()
    }
}

/// The greatest precedence of a schema.
const PRECEDENCE_MAX: i64 = 10_000;

const VERBS: [&str; 9] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];

#[derive(Debug)]
struct FlowSchemaStrategy;

impl Strategy for FlowSchemaStrategy {
    fn check(
        &self,
        new: &Draft,
        _: Option<&Draft>,
        part: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        if part != Some(Subresource::Status) {
            check_spec(new, errors);
            let fixed = default_flow_schemas();
            for fixed in [fixed.first(), fixed.last()].into_iter().flatten() {
                super::priority_level_configuration::check_fixed(new, fixed, errors);
            }
        }
        let conditions = new.at(&["status", "conditions"]).and_then(Value::as_array);
        let mut seen = std::collections::HashSet::new();
        for (at, condition) in conditions.into_iter().flatten().enumerate() {
            let path = format!("status.conditions[{at}].type");
            let kind = text(condition, &["type"]);
            if !seen.insert(kind.to_owned()) {
                errors.push(FieldError::duplicate(path.clone(), kind));
            }
            if kind.is_empty() {
                errors.push(FieldError::required(path, ""));
            }
        }
    }
}

fn check_spec(new: &Draft, errors: &mut FieldErrors) {
    let path = "spec.matchingPrecedence";
    let precedence = new
        .at(&["spec", "matchingPrecedence"])
        .and_then(Value::as_i64);
    let precedence = precedence.unwrap_or_default();
    if precedence <= 0 {
        errors.push(FieldError::invalid_value(
            path,
            precedence,
            "must be a positive value",
        ));
    }
    if precedence > PRECEDENCE_MAX {
        let why = format!("must not be greater than {PRECEDENCE_MAX}");
        errors.push(FieldError::invalid_value(path, precedence, why));
    }
    if precedence == 1 && new.meta.name != "exempt" {
        let why = "only the schema named 'exempt' may have matchingPrecedence 1";
        errors.push(FieldError::invalid_value(path, precedence, why));
    }
    let method = new
        .at(&["spec", "distinguisherMethod"])
        .filter(|method| !method.is_null());
    if method.is_some() {
        let kind = new.text(&["spec", "distinguisherMethod", "type"]);
        if !["ByNamespace", "ByUser"].contains(&kind) {
            let path = "spec.distinguisherMethod.type";
            errors.push(FieldError::not_supported(
                path,
                quote(kind),
                &["ByNamespace", "ByUser"],
            ));
        }
    }
    let level = new.text(&["spec", "priorityLevelConfiguration", "name"]);
    let path = "spec.priorityLevelConfiguration.name";
    if level.is_empty() {
        errors.push(FieldError::required(
            path,
            "must reference a priority level",
        ));
    } else {
        for why in validate::dns1123_subdomain(level) {
            errors.push(FieldError::invalid(path, level, why));
        }
    }
    let rules = new.at(&["spec", "rules"]).and_then(Value::as_array);
    for (at, rule) in rules.into_iter().flatten().enumerate() {
        check_rule(rule, &format!("spec.rules[{at}]"), errors);
    }
}

fn check_rule(rule: &Value, path: &str, errors: &mut FieldErrors) {
    let subjects = list(rule, &["subjects"]);
    if subjects.is_empty() {
        let why = "subjects must contain at least one value";
        errors.push(FieldError::required(format!("{path}.subjects"), why));
    }
    for (at, subject) in subjects.iter().enumerate() {
        check_subject(subject, &format!("{path}.subjects[{at}]"), errors);
    }
    let (on_resources, on_paths) = (
        list(rule, &["resourceRules"]),
        list(rule, &["nonResourceRules"]),
    );
    if on_resources.is_empty() && on_paths.is_empty() {
        let why = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.push(FieldError::required(path, why));
    }
    for (at, rule) in on_resources.iter().enumerate() {
        check_resource_rule(rule, &format!("{path}.resourceRules[{at}]"), errors);
    }
    for (at, rule) in on_paths.iter().enumerate() {
        let path = format!("{path}.nonResourceRules[{at}]");
        check_verbs(rule, &path, errors);
        let urls = texts(rule, "nonResourceURLs");
        let path = format!("{path}.nonResourceURLs");
        if urls.is_empty() {
            let why = "nonResourceURLs must contain at least one value";
            errors.push(FieldError::required(path, why));
        } else if urls.contains(&"*") {
            check_alone(&urls, path, "non-resource URLs", errors);
        } else {
            for (at, url) in urls.iter().enumerate() {
                let wrong = match url {
                    url if !url.starts_with('/') => "must start with slash",
                    url if url.contains(' ') => "must not contain white-space",
                    url if url.contains("//") => "must not contain double slash",
                    url if url[..url.len() - 1].contains('*') => {
                        "wildcard can only do suffix matching"
                    }
                    url if url.ends_with('*') && !url.ends_with("/*") => {
                        "wildcard can only do suffix matching"
                    }
                    _ => continue,
                };
                errors.push(FieldError::invalid(format!("{path}[{at}]"), url, wrong));
            }
        }
    }
}

fn texts<'v>(value: &'v Value, name: &str) -> Vec<&'v str> {
    let all = list(value, &[name]).iter();
    all.filter_map(Value::as_str).collect()
}

fn check_alone(all: &[&str], path: String, what: &str, errors: &mut FieldErrors) {
    if all.len() > 1 {
        let shown: Vec<String> = all.iter().map(|text| quote(text)).collect();
        let why = format!("if '*' is present, must not specify other {what}");
        errors.push(FieldError::invalid_value(
            path,
            format!("[{}]", shown.join(",")),
            why,
        ));
    }
}

fn check_verbs(rule: &Value, path: &str, errors: &mut FieldErrors) {
    let (verbs, path) = (texts(rule, "verbs"), format!("{path}.verbs"));
    if verbs.is_empty() {
        errors.push(FieldError::required(
            path,
            "verbs must contain at least one value",
        ));
    } else if verbs.contains(&"*") {
        check_alone(&verbs, path, "verbs", errors);
    } else if !verbs.iter().all(|verb| VERBS.contains(verb)) {
        let shown: Vec<String> = verbs.iter().map(|verb| quote(verb)).collect();
        errors.push(FieldError::not_supported(
            path,
            format!("[{}]", shown.join(",")),
            &VERBS,
        ));
    }
}

fn check_resource_rule(rule: &Value, path: &str, errors: &mut FieldErrors) {
    check_verbs(rule, path, errors);
    for (name, missing, others) in [
        (
            "apiGroups",
            "resource rules must supply at least one api group",
            "api groups",
        ),
        (
            "resources",
            "resource rules must supply at least one resource",
            "resources",
        ),
    ] {
        let (all, path) = (texts(rule, name), format!("{path}.{name}"));
        if all.is_empty() {
            errors.push(FieldError::required(path, missing));
        } else if all.contains(&"*") {
            check_alone(&all, path, others, errors);
        }
    }
    let (all, path) = (texts(rule, "namespaces"), format!("{path}.namespaces"));
    let is_cluster = rule
        .get("clusterScope")
        .and_then(Value::as_bool)
        .unwrap_or_default();
    if all.is_empty() && !is_cluster {
        let why = "resource rules that are not cluster scoped must supply at least one namespace";
        errors.push(FieldError::required(path, why));
    } else if all.contains(&"*") {
        check_alone(&all, path, "namespaces", errors);
    } else {
        for (at, namespace) in all.iter().enumerate() {
            for why in validate::dns1123_label(namespace) {
                let why =
                    format!("each member of this list must be '*' or a DNS-1123 label; {why}");
                errors.push(FieldError::invalid(format!("{path}[{at}]"), namespace, why));
            }
        }
    }
}

fn check_subject(subject: &Value, path: &str, errors: &mut FieldErrors) {
    const KINDS: [(&str, &str); 3] = [
        ("ServiceAccount", "serviceAccount"),
        ("User", "user"),
        ("Group", "group"),
    ];
    let kind = text(subject, &["kind"]);
    let Some((_, own)) = KINDS.iter().find(|(known, _)| *known == kind) else {
        let supported = ["Group", "ServiceAccount", "User"];
        errors.push(FieldError::not_supported(
            format!("{path}.kind"),
            quote(kind),
            &supported,
        ));
        return;
    };
    let has = |member: &str| field(subject, &[member]).is_some_and(|value| !value.is_null());
    if !has(own) {
        let why = format!("{own} is required when subject kind is '{kind}'");
        errors.push(FieldError::required(format!("{path}.{own}"), why));
    } else {
        let of = |name: &str| text(subject, &[own, name]);
        let path = format!("{path}.{own}");
        if of("name").is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if kind == "ServiceAccount" && of("name") != "*" {
            for why in validate::dns1123_subdomain(of("name")) {
                errors.push(FieldError::invalid(format!("{path}.name"), of("name"), why));
            }
        }
        if kind == "ServiceAccount" {
            let (path, namespace) = (format!("{path}.namespace"), of("namespace"));
            if namespace.is_empty() {
                let why = "must specify namespace for service account";
                errors.push(FieldError::required(path, why));
            } else {
                for why in validate::dns1123_label(namespace) {
                    errors.push(FieldError::invalid(path.clone(), namespace, why));
                }
            }
        }
    }
    for (other, member) in KINDS {
        if other != kind && has(member) {
            let why = format!("{member} is forbidden when subject kind is not '{other}'");
            errors.push(FieldError::forbidden(format!("{path}.{member}"), why));
        }
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        string("PriorityLevel", "The priority level of its requests."),
        string(
            "MatchingPrecedence",
            "Of several that fit a request, the one with the smallest number counts.",
        ),
        string(
            "DistinguisherMethod",
            "What makes a flow of its own: the user or the namespace.",
        ),
        AGE,
        string("MissingPL", "Whether there is no such priority level."),
    ],
    cells: |object, now| {
        let dangling = list(object, &["status", "conditions"])
            .iter()
            .find(|condition| text(condition, &["type"]) == "Dangling");
        let missing = dangling.map_or("?", |condition| text(condition, &["status"]));
        cells![
            name(object),
            text(object, &["spec", "priorityLevelConfiguration", "name"]),
            int(object, &["spec", "matchingPrecedence"]),
            text_or(object, &["spec", "distinguisherMethod", "type"], "<none>"),
            age(object, now),
            missing,
        ]
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn flow_schemas() {
        let schema = json!({
            "metadata": meta("f"),
            "spec": {"priorityLevelConfiguration": {"name": "p"}, "matchingPrecedence": 7},
        });
        assert_eq!(
            print(&PRINTER, schema),
            json!(["f", "p", 7, "<none>", "24s", "?"])
        );
    }
}
