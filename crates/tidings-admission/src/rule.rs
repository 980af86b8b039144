//! Rules: which requests a webhook or policy is for.

use serde::Deserialize;

use crate::form::or_default;
use crate::request::{AdmissionRequest, Operation, ResourceKind};

/// Which requests a webhook or policy is for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// What requests do; `*` is everything.
    #[serde(deserialize_with = "or_default")]
    pub operations: Vec<String>,
    /// The API groups.
    #[serde(deserialize_with = "or_default")]
    pub api_groups: Vec<String>,
    /// The versions.
    #[serde(deserialize_with = "or_default")]
    pub api_versions: Vec<String>,
    /// The resources: `pods`, `pods/status`, `pods/*`, `*/scale`, `*`, `*/*`.
    #[serde(deserialize_with = "or_default")]
    pub resources: Vec<String>,
    /// The names of objects; all if there are none. Only rules of policies have them.
    #[serde(deserialize_with = "or_default")]
    pub resource_names: Vec<String>,
    /// `Namespaced`, `Cluster` or `*`.
    #[serde(deserialize_with = "or_default")]
    pub scope: String,
}

fn has(items: &[String], wanted: &str) -> bool {
    items.iter().any(|item| item == "*" || item == wanted)
}

impl Rule {
    /// True if the rule is for a request, as if the request were about `on`.
    pub fn matches(&self, request: &AdmissionRequest<'_>, on: &ResourceKind) -> bool {
        let names = &self.resource_names;
        self.matches_scope(request, on)
            && self.matches_operation(request.operation)
            && has(&self.api_groups, &on.group)
            && has(&self.api_versions, &on.version)
            && self.matches_resource(&on.resource, request.subresource)
            && (names.is_empty() || names.iter().any(|name| name == request.name))
    }

    fn matches_operation(&self, operation: Operation) -> bool {
        has(&self.operations, operation.as_str())
    }

    /// Namespaces are in no namespace, although requests about them name one.
    fn matches_scope(&self, request: &AdmissionRequest<'_>, on: &ResourceKind) -> bool {
        let in_namespace = !request.namespace.is_empty() && !on.is_namespaces();
        match &*self.scope {
            "" | "*" => true,
            "Namespaced" => in_namespace,
            "Cluster" => !in_namespace,
            _ => false,
        }
    }

    fn matches_resource(&self, resource: &str, part: &str) -> bool {
        self.resources.iter().any(|rule| {
            let (named, named_part) = rule.split_once('/').unwrap_or((rule, ""));
            (named == "*" || named == resource) && (named_part == "*" || named_part == part)
        })
    }
}

#[cfg(test)]
mod tests {
    use tidings_access::User;

    use super::*;

    fn rule(resources: &[&str], scope: &str) -> Rule {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Rule {
            operations: texts(&["CREATE", "UPDATE"]),
            api_groups: texts(&["", "apps"]),
            api_versions: texts(&["v1"]),
            resources: texts(resources),
            scope: scope.to_owned(),
            ..Rule::default()
        }
    }

    #[test]
    fn rules_match_resources_and_parts_as_upstream() {
        for (resources, asked, expected) in [
            (&["pods"][..], "pods", true),
            (&["pods"], "pods/status", false),
            (&["pods/status"], "pods/status", true),
            (&["pods/*"], "pods/status", true),
            (&["pods/*"], "pods", true),
            (&["*"], "pods", true),
            (&["*"], "pods/status", false),
            (&["*/scale"], "deployments/scale", true),
            (&["*/scale"], "deployments", false),
            (&["*/*"], "pods/status", true),
            (&["services", "pods"], "pods", true),
        ] {
            let (resource, part) = asked.split_once('/').unwrap_or((asked, ""));
            let user = User::default();
            let on = ResourceKind::new("", "v1", resource, "");
            let mut request = AdmissionRequest::new(Operation::Update, on, &user);
            request.subresource = part;
            let found = rule(resources, "").matches(&request, &request.on);
            assert_eq!(found, expected, "{resources:?} {asked}");
        }
    }

    #[test]
    fn a_namespace_is_in_no_namespace() {
        let user = User::default();
        let of = |resource: &str, namespace| {
            let on = ResourceKind::new("", "v1", resource, "");
            AdmissionRequest::new(Operation::Create, on, &user).in_namespace(namespace)
        };
        let (pod, node, namespace) = (
            of("pods", "default"),
            of("nodes", ""),
            of("namespaces", "default"),
        );
        for (scope, expected) in [
            ("Namespaced", [true, false, false]),
            ("Cluster", [false, true, true]),
            ("*", [true; 3]),
        ] {
            let rule = rule(&["*"], scope);
            let found = [&pod, &node, &namespace].map(|asked| rule.matches(asked, &asked.on));
            assert_eq!(found, expected, "{scope}");
        }
        let mut delete = of("pods", "default");
        delete.operation = Operation::Delete;
        assert!(!rule(&["*"], "").matches(&delete, &delete.on));
    }
}
