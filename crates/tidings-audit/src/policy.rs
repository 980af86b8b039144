//! The audit policy: rules of which the first that fits a request says how much is written about it.

use serde::{Deserialize, Serialize};
use tidings_access::{Attributes, ResourceAttributes, ResourceOrPath, User};
use tidings_api::validate;
use tidings_config::{Checked, ConfigError, ConfigFile, Placed};

/// How much is written about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Level {
    /// Nothing.
    None,
    /// Who asked for what, and how it ended.
    Metadata,
    /// The body of the request too.
    Request,
    /// The body of the response too.
    RequestResponse,
}

impl Level {
    /// The name in events and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

/// When an event is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// When the request is known, before anything is done.
    RequestReceived,
    /// When the head of the response of a long request is sent, before its body.
    ResponseStarted,
    /// At the end.
    ResponseComplete,
    /// The server has failed.
    Panic,
}

/// A set of stages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages(u8);

impl Stages {
    /// True if the set has a stage.
    pub fn has(self, stage: Stage) -> bool {
        self.0 & 1 << stage as u8 != 0
    }

    fn and(self, other: Stages) -> Stages {
        Stages(self.0 | other.0)
    }
}

impl FromIterator<Stage> for Stages {
    fn from_iter<I: IntoIterator<Item = Stage>>(stages: I) -> Stages {
        Stages(
            stages
                .into_iter()
                .fold(0, |all, stage| all | 1 << stage as u8),
        )
    }
}

/// What the policy says about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditDecision {
    /// How much is written.
    pub level: Level,
    /// When nothing is written.
    pub omitted: Stages,
    /// Leave `managedFields` out of bodies.
    pub omit_managed_fields: bool,
}

/// The audit policy.
#[derive(Debug, Clone)]
pub struct AuditPolicy {
    rules: Vec<AuditRule>,
    omitted: Stages,
    omit_managed_fields: bool,
}

#[derive(Debug, Clone)]
struct AuditRule {
    given: GivenRule,
    omitted: Stages,
}

/// A policy as it is written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GivenPolicy {
    #[serde(rename = "apiVersion")]
    _version: Checked,
    #[serde(rename = "kind")]
    _kind: Checked,
    #[serde(rename = "metadata", default)]
    _metadata: Checked,
    rules: Vec<Placed<GivenRule>>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GivenRule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<GroupResources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs", default)]
    paths: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupResources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

impl AuditPolicy {
    /// Reads a policy (`audit.k8s.io/v1`, kind `Policy`).
    ///
    /// # Errors
    /// With the line, and what to change.
    pub fn read(file: &ConfigFile) -> Result<AuditPolicy, ConfigError> {
        let given: GivenPolicy = file.read("audit.k8s.io/v1", "Policy")?;
        if given.rules.is_empty() {
            return Err(file.wrong("it has no rules: add one, as `- level: Metadata`"));
        }
        let omitted: Stages = given.omit_stages.into_iter().collect();
        let mut rules = Vec::with_capacity(given.rules.len());
        for rule in given.rules {
            if let Some(why) = rule.problem() {
                return Err(file.wrong_at(&rule, why));
            }
            let given = rule.into_inner();
            rules.push(AuditRule {
                omitted: given
                    .omit_stages
                    .iter()
                    .copied()
                    .collect::<Stages>()
                    .and(omitted),
                given,
            });
        }
        Ok(AuditPolicy {
            rules,
            omitted,
            omit_managed_fields: given.omit_managed_fields,
        })
    }

    /// What is written about a request. `user` is `None` if nobody knows who asks.
    pub fn decide(&self, user: Option<&User>, asked: &Attributes<'_>) -> AuditDecision {
        let found = self.rules.iter().find(|rule| rule.given.fits(user, asked));
        found.map_or(
            AuditDecision {
                level: Level::None,
                omitted: self.omitted,
                omit_managed_fields: self.omit_managed_fields,
            },
            |rule| AuditDecision {
                level: rule.given.level,
                omitted: rule.omitted,
                omit_managed_fields: rule
                    .given
                    .omit_managed_fields
                    .unwrap_or(self.omit_managed_fields),
            },
        )
    }
}

fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|known| known == name)
}

impl GivenRule {
    /// What is wrong with the rule.
    fn problem(&self) -> Option<String> {
        let is_of_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if is_of_resources && !self.paths.is_empty() {
            return Some(
                "the rule has nonResourceURLs and resources or namespaces: make two rules of it"
                    .to_owned(),
            );
        }
        for path in self.paths.iter().filter(|path| *path != "*") {
            if !path.starts_with('/') {
                return Some(format!("the path {path:?} does not begin with a slash"));
            }
            if path[..path.len() - 1].contains('*') {
                return Some(format!(
                    "the path {path:?} has a star that is not at its end"
                ));
            }
        }
        for resources in &self.resources {
            let group = &resources.group;
            let is_name =
                group.is_empty() || group == "*" || validate::dns1123_subdomain(group).is_empty();
            if !is_name {
                return Some(format!(
                    "{group:?} is no API group: write it without a version, as rbac.authorization.k8s.io"
                ));
            }
            if !resources.resource_names.is_empty() && resources.resources.is_empty() {
                return Some("resourceNames need resources: name at least one".to_owned());
            }
        }
        None
    }

    fn fits(&self, user: Option<&User>, asked: &Attributes<'_>) -> bool {
        let is_user = |user: &User| has(&self.users, &user.name);
        if !self.users.is_empty() && !user.is_some_and(is_user) {
            return false;
        }
        let in_group = |user: &User| {
            user.groups
                .iter()
                .any(|group| has(&self.user_groups, group))
        };
        if !self.user_groups.is_empty() && !user.is_some_and(in_group) {
            return false;
        }
        if !self.verbs.is_empty() && !has(&self.verbs, &asked.verb) {
            return false;
        }
        match &asked.on {
            ResourceOrPath::Resource(on) => self.paths.is_empty() && self.fits_resource(on),
            ResourceOrPath::Path(path) => {
                let fits = |known: &String| match known.strip_suffix('*') {
                    Some(front) => path.starts_with(front.trim_end_matches('*')),
                    None => known == path,
                };
                self.namespaces.is_empty()
                    && self.resources.is_empty()
                    && (self.paths.is_empty() || self.paths.iter().any(fits))
            }
        }
    }

    fn fits_resource(&self, on: &ResourceAttributes<'_>) -> bool {
        if !self.namespaces.is_empty() && !has(&self.namespaces, &on.namespace) {
            return false;
        }
        self.resources.is_empty() || self.resources.iter().any(|resources| resources.fit(on))
    }
}

impl GroupResources {
    fn fit(&self, on: &ResourceAttributes<'_>) -> bool {
        if self.group != *on.group && self.group != "*" {
            return false;
        }
        let is_named = self.resource_names.is_empty() || has(&self.resource_names, &on.name);
        let fits = |known: &String| match known.split_once('/') {
            _ if known == "*" => true,
            None => on.subresource.is_empty() && *known == *on.resource,
            Some(("*", part)) => !on.subresource.is_empty() && part == on.subresource,
            Some((resource, "*")) => resource == on.resource,
            Some((resource, part)) => resource == on.resource && part == on.subresource,
        };
        self.resources.is_empty() || (is_named && self.resources.iter().any(fits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rules: &str) -> Result<AuditPolicy, String> {
        let text = format!(
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n{rules}"
        );
        let file = ConfigFile::new("p.yaml", text.as_bytes()).unwrap();
        AuditPolicy::read(&file).map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let policy = read(
            "
- {level: None, users: [carl]}
- {level: None, nonResourceURLs: ['/healthz*', /version]}
- {level: Metadata, resources: [{resources: [secrets, pods/log]}]}
- {level: Request, userGroups: [staff], omitStages: [ResponseStarted], omitManagedFields: true}
- {level: RequestResponse, namespaces: [''], verbs: [get]}
- {level: RequestResponse, resources: [{group: apps, resources: ['*/scale', 'jobs/*']}, {resources: [pods], resourceNames: [p]}]}
- {level: Metadata, resources: [{group: '*'}]}",
        )
        .unwrap();
        let (ann, carl, sue) = (
            User::new("ann", &[]),
            User::new("carl", &[]),
            User::new("sue", &["staff"]),
        );
        let resource = |user, verb: &'static str, group, resource| {
            Attributes::resource(user, verb, group, resource).in_namespace("n")
        };
        for (asked, expected) in [
            (resource(&carl, "get", "", "secrets"), "None"),
            (Attributes::path(&ann, "get", "/healthz/x"), "None"),
            (Attributes::path(&ann, "get", "/version"), "None"),
            (Attributes::path(&ann, "get", "/versions"), "None"),
            (resource(&sue, "get", "", "secrets"), "Metadata"),
            (
                resource(&ann, "get", "", "pods").subresource("log"),
                "Metadata",
            ),
            (resource(&sue, "get", "", "pods"), "Request"),
            (Attributes::path(&sue, "get", "/x"), "Request"),
            (
                Attributes::resource(&ann, "get", "", "nodes"),
                "RequestResponse",
            ),
            (
                resource(&ann, "get", "apps", "deployments").subresource("scale"),
                "RequestResponse",
            ),
            (resource(&ann, "get", "apps", "jobs"), "RequestResponse"),
            (
                resource(&ann, "get", "", "pods").named("p"),
                "RequestResponse",
            ),
            (resource(&ann, "get", "", "pods").named("q"), "Metadata"),
            (resource(&ann, "get", "apps", "deployments"), "Metadata"),
        ] {
            let decision = policy.decide(Some(asked.user), &asked);
            assert_eq!(decision.level.name(), expected, "{asked:?}");
            assert!(decision.omitted.has(Stage::RequestReceived));
            assert_eq!(
                decision.omitted.has(Stage::ResponseStarted),
                decision.level == Level::Request
            );
            assert_eq!(
                decision.omit_managed_fields,
                decision.level == Level::Request
            );
        }
        let nobody = policy.decide(None, &resource(&carl, "get", "", "configmaps"));
        assert_eq!(nobody.level, Level::Metadata);
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_line() {
        for (rules, expected) in [
            ("- level: Loud\n", "p.yaml, line 5: unknown variant `Loud`"),
            (
                "- level: None\n  verb: [get]\n",
                "p.yaml, line 6: unknown field `verb`",
            ),
            (
                "- level: None\n- level: None\n  nonResourceURLs: [x]\n",
                "p.yaml, line 6: the path \"x\" does not begin with a slash",
            ),
            (
                "- level: None\n  nonResourceURLs: [/x*y]\n",
                "has a star that is not at its end",
            ),
            (
                "- level: None\n  nonResourceURLs: [/x]\n  namespaces: [y]\n",
                "make two rules of it",
            ),
            (
                "- level: None\n  resources: [{group: apps/v1}]\n",
                "\"apps/v1\" is no API group",
            ),
            (
                "- level: None\n  resources: [{resourceNames: [x]}]\n",
                "resourceNames need resources",
            ),
            ("- verbs: [get]\n", "missing field `level`"),
            ("  []\n", "it has no rules"),
        ] {
            let said = read(rules).unwrap_err();
            assert!(said.contains(expected), "{rules}: {said}");
        }
    }
}
