//! Which priority level and which flow a request belongs to, by the FlowSchemas.

use std::sync::Arc;

use serde::Deserialize;
use tidings_access::{Attributes, ResourceAttributes, ResourceOrPath, User, service_account};

/// Where a request belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// The name of the schema.
    pub schema: Arc<str>,
    /// The uid of the schema.
    pub schema_uid: Arc<str>,
    /// The name of the priority level.
    pub level: Arc<str>,
    /// A hash: equal for requests of one flow.
    pub hash: u64,
}

#[derive(Debug)]
struct FlowSchema {
    name: Arc<str>,
    uid: Arc<str>,
    level: Arc<str>,
    precedence: i64,
    by: Distinguisher,
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Distinguisher {
    None,
    User,
    Namespace,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    subjects: Vec<Subject>,
    resource_rules: Vec<ResourceRule>,
    non_resource_rules: Vec<PathRule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Subject {
    kind: String,
    user: Named,
    group: Named,
    service_account: Account,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Account {
    namespace: String,
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResourceRule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    namespaces: Vec<String>,
    cluster_scope: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PathRule {
    verbs: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    urls: Vec<String>,
}

#[derive(Deserialize)]
struct WrittenSchema {
    metadata: WrittenMetadata,
    #[serde(default)]
    spec: WrittenSpec,
}

#[derive(Deserialize)]
struct WrittenMetadata {
    name: String,
    #[serde(default)]
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WrittenSpec {
    priority_level_configuration: Named,
    matching_precedence: i64,
    distinguisher_method: Option<WrittenMethod>,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct WrittenMethod {
    #[serde(rename = "type", default)]
    kind: String,
}

/// Puts requests into flows.
#[derive(Debug, Default)]
pub struct FlowClassifier {
    /// By precedence, then by name.
    schemas: Vec<FlowSchema>,
}

fn has(all: &[String], one: &str) -> bool {
    all.iter().any(|known| known == "*" || known == one)
}

impl FlowClassifier {
    /// A classifier by FlowSchemas in JSON. What cannot be read is left out, and so are schemas of levels that are not there (`has_level`).
    pub fn new<'a>(
        schemas: impl Iterator<Item = &'a [u8]>,
        has_level: impl Fn(&str) -> bool,
    ) -> FlowClassifier {
        let read = |json: &[u8]| {
            let written: WrittenSchema = serde_json::from_slice(json).ok()?;
            let spec = written.spec;
            let level = spec.priority_level_configuration.name;
            has_level(&level).then(|| FlowSchema {
                name: written.metadata.name.into(),
                uid: written.metadata.uid.into(),
                level: level.into(),
                precedence: spec.matching_precedence,
                by: match spec
                    .distinguisher_method
                    .as_ref()
                    .map(|by| by.kind.as_str())
                {
                    Some("ByUser") => Distinguisher::User,
                    Some("ByNamespace") => Distinguisher::Namespace,
                    _ => Distinguisher::None,
                },
                rules: spec.rules,
            })
        };
        let mut schemas: Vec<FlowSchema> = schemas.filter_map(read).collect();
        schemas.sort_by(|one, other| {
            (one.precedence, &one.name).cmp(&(other.precedence, &other.name))
        });
        FlowClassifier { schemas }
    }

    /// The flow of a request. `None` if no schema fits it.
    pub fn flow(&self, asked: &Attributes<'_>) -> Option<Flow> {
        let account = service_account(&asked.user.name);
        let schema = self.schemas.iter().find(|schema| {
            let mut rules = schema.rules.iter();
            rules.any(|rule| rule.fits(asked, account))
        })?;
        let distinct = match schema.by {
            Distinguisher::None => "",
            Distinguisher::User => &asked.user.name,
            Distinguisher::Namespace => asked.namespace(),
        };
        Some(Flow {
            schema: schema.name.clone(),
            schema_uid: schema.uid.clone(),
            level: schema.level.clone(),
            hash: tidings_api::fnv1a(schema.name.as_bytes())
                ^ tidings_api::fnv1a(distinct.as_bytes()).rotate_left(1),
        })
    }
}

impl Rule {
    fn fits(&self, asked: &Attributes<'_>, account: Option<(&str, &str)>) -> bool {
        let fits_what = match &asked.on {
            ResourceOrPath::Resource(on) => self
                .resource_rules
                .iter()
                .any(|rule| rule.fits(&asked.verb, on)),
            ResourceOrPath::Path(path) => self
                .non_resource_rules
                .iter()
                .any(|rule| rule.fits(&asked.verb, path)),
        };
        fits_what
            && self
                .subjects
                .iter()
                .any(|subject| subject.is(asked.user, account))
    }
}

impl Subject {
    fn is(&self, user: &User, account: Option<(&str, &str)>) -> bool {
        match self.kind.as_str() {
            "User" => self.user.name == "*" || self.user.name == user.name,
            "Group" => self.group.name == "*" || user.is_in(&self.group.name),
            "ServiceAccount" => account.is_some_and(|(namespace, name)| {
                let wanted = &self.service_account;
                wanted.namespace == namespace && (wanted.name == "*" || wanted.name == name)
            }),
            _ => false,
        }
    }
}

impl ResourceRule {
    fn fits(&self, verb: &str, on: &ResourceAttributes<'_>) -> bool {
        let is_resource = |known: &String| {
            known == "*"
                || match &*on.subresource {
                    "" => *known == *on.resource,
                    part => known
                        .split_once('/')
                        .is_some_and(|(resource, of)| *resource == *on.resource && of == part),
                }
        };
        let is_place = match &*on.namespace {
            "" => self.cluster_scope,
            namespace => has(&self.namespaces, namespace),
        };
        is_place
            && has(&self.verbs, verb)
            && has(&self.api_groups, &on.group)
            && self.resources.iter().any(is_resource)
    }
}

impl PathRule {
    fn fits(&self, verb: &str, path: &str) -> bool {
        let is_path = |known: &String| {
            known == "*"
                || match known.strip_suffix("/*") {
                    Some(front) => path
                        .strip_prefix(front)
                        .is_some_and(|rest| rest.starts_with('/')),
                    None => known == path,
                }
        };
        has(&self.verbs, verb) && self.urls.iter().any(is_path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_schema_that_fits_counts() {
        let schema = |name: &str,
                      level: &str,
                      precedence: i64,
                      by: &str,
                      subject: serde_json::Value,
                      rules: serde_json::Value| {
            let mut rule = rules;
            rule["subjects"] = json!([subject]);
            json!({"metadata": {"name": name, "uid": format!("{name}-uid")}, "spec": {
                "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence,
                "distinguisherMethod": {"type": by}, "rules": [rule],
            }})
            .to_string()
        };
        let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
        let all = json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        });
        let nodes = json!({"resourceRules": [{"verbs": ["get", "update"], "apiGroups": [""], "resources": ["nodes", "nodes/status"], "clusterScope": true}]});
        let account = json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}});
        let probes = json!({"nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez/*"]}]});
        let schemas = [
            schema("z-last", "low", 9000, "ByUser", group("all"), all.clone()),
            schema("probes", "exempt", 2, "", group("all"), probes),
            schema("nodes", "high", 400, "ByUser", group("nodes"), nodes),
            schema("system", "high", 900, "ByNamespace", account, all.clone()),
            schema("lost", "gone", 1, "ByUser", group("all"), all),
        ];
        let schemas = FlowClassifier::new(schemas.iter().map(String::as_bytes), |level| {
            level != "gone"
        });
        let node = User::new("node1", &["all", "nodes"]);
        let ann = User::new("ann", &["all"]);
        let eve = User::new("eve", &[]);
        let robot = User::new("system:serviceaccount:kube-system:x", &["all"]);
        let found = |asked: Attributes<'_>| {
            schemas
                .flow(&asked)
                .map(|flow| format!("{} {}", flow.schema, flow.level))
        };
        let on = |user, verb, resource| Attributes::resource(user, verb, "", resource);
        for (asked, expected) in [
            (on(&node, "get", "nodes"), Some("nodes high")),
            (
                on(&node, "update", "nodes").subresource("status"),
                Some("nodes high"),
            ),
            (
                on(&node, "update", "nodes").subresource("proxy"),
                Some("z-last low"),
            ),
            (on(&node, "delete", "nodes"), Some("z-last low")),
            (
                on(&node, "get", "nodes").in_namespace("x"),
                Some("z-last low"),
            ),
            (
                on(&robot, "get", "pods").in_namespace("x"),
                Some("system high"),
            ),
            (on(&ann, "get", "pods"), Some("z-last low")),
            (
                Attributes::path(&ann, "get", "/healthz"),
                Some("probes exempt"),
            ),
            (
                Attributes::path(&ann, "get", "/livez/ping"),
                Some("probes exempt"),
            ),
            (Attributes::path(&ann, "get", "/livezx"), Some("z-last low")),
            (on(&eve, "get", "pods"), None),
        ] {
            assert_eq!(found(asked.clone()).as_deref(), expected, "{asked:?}");
        }
        let hash = |asked: Attributes<'_>| schemas.flow(&asked).map(|flow| flow.hash);
        assert_eq!(
            hash(on(&ann, "get", "pods")),
            hash(on(&ann, "list", "secrets"))
        );
        assert_ne!(
            hash(on(&ann, "get", "pods")),
            hash(on(&node, "get", "pods"))
        );
        let in_namespace =
            |namespace: &'static str| hash(on(&robot, "get", "pods").in_namespace(namespace));
        assert_ne!(in_namespace("a"), in_namespace("b"));
    }
}
