//! One rule of a role, and what it allows.

use serde::{Deserialize, Deserializer, Serialize};
use tidings_go::quote;

use crate::attributes::{Attributes, ResourceAttributes, ResourceOrPath};

/// A rule of a role: verbs on resources, or on paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    /// What may be done; `*` is everything.
    #[serde(deserialize_with = "list")]
    pub verbs: Vec<String>,
    /// The API groups; `*` are all.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// The resources, as `pods`, `pods/status` or `*/scale`; `*` are all with all their parts.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// The only objects that are meant; empty if all are.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths that are not those of resources; `*` at the end stands for anything.
    #[serde(
        rename = "nonResourceURLs",
        deserialize_with = "list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub paths: Vec<String>,
}

/// A list that may be null.
pub(crate) fn list<'de, D, T>(source: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Vec<T>>::deserialize(source)?.unwrap_or_default())
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|known| known == wanted)
}

fn has_or_all(list: &[String], wanted: &str) -> bool {
    list.iter().any(|known| known == "*" || known == wanted)
}

fn has_all(list: &[String], wanted: &[String]) -> bool {
    wanted.iter().all(|wanted| has(list, wanted))
}

/// True if a path of a rule means a path. A pattern ends with `*`.
fn is_path_in(pattern: &str, path: &str) -> bool {
    pattern == path || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}

impl PolicyRule {
    /// True if the rule allows what is asked for.
    pub fn allows(&self, asked: &Attributes<'_>) -> bool {
        has_or_all(&self.verbs, &asked.verb)
            && match &asked.on {
                ResourceOrPath::Path(path) => {
                    self.paths.iter().any(|known| is_path_in(known, path))
                }
                ResourceOrPath::Resource(on) => {
                    has_or_all(&self.api_groups, &on.group)
                        && self.means_resource(on)
                        && (self.resource_names.is_empty() || has(&self.resource_names, &on.name))
                }
            }
    }

    fn means_resource(&self, on: &ResourceAttributes<'_>) -> bool {
        let (resource, part) = (&*on.resource, &*on.subresource);
        self.resources.iter().any(|known| {
            if known == "*" {
                return true;
            }
            if part.is_empty() {
                return known == resource;
            }
            let of = |resource| known.strip_prefix(resource)?.strip_prefix('/');
            of(resource) == Some(part) || of("*") == Some(part)
        })
    }

    /// True if this rule alone allows everything that `part` does.
    pub(crate) fn covers(&self, part: &PolicyRule) -> bool {
        let verbs = has(&self.verbs, "*") || has_all(&self.verbs, &part.verbs);
        let groups = has(&self.api_groups, "*") || has_all(&self.api_groups, &part.api_groups);
        let is_covered = |resource: &String| {
            has(&self.resources, "*")
                || has(&self.resources, resource)
                || resource
                    .split_once('/')
                    .is_some_and(|(_, part)| has(&self.resources, &format!("*/{part}")))
        };
        let resources = part.resources.iter().all(is_covered);
        let names = self.resource_names.is_empty()
            || (!part.resource_names.is_empty()
                && has_all(&self.resource_names, &part.resource_names));
        let is_path_covered =
            |path: &String| self.paths.iter().any(|known| is_path_in(known, path));
        verbs && groups && resources && names && part.paths.iter().all(is_path_covered)
    }

    /// How many parts the rule has.
    pub(crate) fn part_count(&self) -> usize {
        let lists = [&self.api_groups, &self.resources, &self.verbs];
        let names = self.resource_names.len().max(1);
        let product = lists
            .iter()
            .fold(names, |product, list| product.saturating_mul(list.len()));
        product.saturating_add(self.paths.len().saturating_mul(self.verbs.len()))
    }

    /// The rule in parts that have at most one of everything.
    pub(crate) fn parts(&self) -> Vec<PolicyRule> {
        let mut parts = Vec::new();
        let one = |text: &String| vec![text.clone()];
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let part = PolicyRule {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        ..PolicyRule::default()
                    };
                    if self.resource_names.is_empty() {
                        parts.push(part);
                        continue;
                    }
                    parts.extend(self.resource_names.iter().map(|name| PolicyRule {
                        resource_names: one(name),
                        ..part.clone()
                    }));
                }
            }
        }
        for path in &self.paths {
            parts.extend(self.verbs.iter().map(|verb| PolicyRule {
                verbs: one(verb),
                paths: one(path),
                ..PolicyRule::default()
            }));
        }
        parts
    }

    /// The rule as upstream shows it in refusals.
    pub(crate) fn brief(&self) -> String {
        let members = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.paths),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let shown: Vec<String> = members
            .iter()
            .filter(|(_, values)| !values.is_empty())
            .map(|(name, values)| format!("{name}:{}", quoted(values)))
            .collect();
        format!("{{{}}}", shown.join(", "))
    }
}

/// A list of texts as Go's `%q` shows it.
pub(crate) fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quote(text)).collect();
    format!("[{}]", texts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::User;

    fn rule(json: &str) -> PolicyRule {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_rule_means_verbs_groups_resources_parts_and_names() {
        let user = User::new("u", &[]);
        let ask = |verb, group, resource, part, name| {
            Attributes::resource(&user, verb, group, resource)
                .subresource(part)
                .named(name)
        };
        let known = rule(
            r#"{"verbs":["get"],"apiGroups":["apps"],"resources":["deployments","*/scale","pods/log"],"resourceNames":["a",""]}"#,
        );
        for (asked, allowed) in [
            (ask("get", "apps", "deployments", "", "a"), true),
            (ask("get", "apps", "deployments", "", ""), true),
            (ask("list", "apps", "deployments", "", "a"), false),
            (ask("get", "", "deployments", "", "a"), false),
            (ask("get", "apps", "deployments", "status", "a"), false),
            (ask("get", "apps", "deployments", "scale", "a"), true),
            (ask("get", "apps", "statefulsets", "scale", "a"), true),
            (ask("get", "apps", "pods", "log", "a"), true),
            (ask("get", "apps", "pods/log", "", "a"), true),
            (ask("get", "apps", "pods", "", "a"), false),
            (ask("get", "apps", "deployments", "", "b"), false),
        ] {
            assert_eq!(known.allows(&asked), allowed, "{asked:?}");
        }
        let all =
            rule(r#"{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"resourceNames":null}"#);
        assert!(all.allows(&ask("get", "x", "y", "z", "a")));
        assert!(!all.allows(&Attributes::path(&user, "get", "/x")));
    }

    #[test]
    fn a_path_of_a_rule_may_end_with_a_star() {
        let user = User::new("u", &[]);
        let known = rule(r#"{"verbs":["get"],"nonResourceURLs":["/a","/b/*","/c*"]}"#);
        for (path, allowed) in [
            ("/a", true),
            ("/a/", false),
            ("/b/", true),
            ("/b", false),
            ("/b/x/y", true),
            ("/cd", true),
            ("/c", true),
        ] {
            let asked = Attributes::path(&user, "get", path);
            assert_eq!(known.allows(&asked), allowed, "{path}");
        }
        let all = rule(r#"{"verbs":["*"],"nonResourceURLs":["*"]}"#);
        assert!(all.allows(&Attributes::path(&user, "put", "/x")));
    }
}
