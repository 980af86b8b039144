//! Roles and bindings, by the users and groups that they are for.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use imbl::OrdMap;
use serde::Deserialize;
use tidings_go::quote;

use crate::attributes::Attributes;
use crate::rule::{PolicyRule, list};
use crate::user::{User, service_account_user};

type Rules = Arc<[PolicyRule]>;
type NamespacedName = (Arc<str>, Arc<str>);

/// Roles and bindings. A clone shares everything with the original until one of them changes.
///
/// Bound: what the store has of roles and bindings.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    cluster_roles: OrdMap<Arc<str>, Rules>,
    roles: OrdMap<NamespacedName, Rules>,
    /// The namespace of ClusterRoleBindings is empty.
    bindings: OrdMap<NamespacedName, Arc<Binding>>,
    by_subject: OrdMap<SubjectEntry, Arc<Binding>>,
    resolved: Arc<ResolvedSubjects>,
}

/// What users have been found to have: they ask again and again. Dropped with every change.
#[derive(Debug, Default)]
struct ResolvedSubjects {
    hasher: RandomState,
    /// By a hash of the user's name and groups and the namespace; another user with the same hash takes the place of the first.
    ///
    /// Bound: [`RESOLVED_MAX`].
    found: Mutex<HashMap<u64, Arc<ResolvedUser>>>,
}

/// Of how many users, in a namespace each, it is remembered what they have.
const RESOLVED_MAX: usize = 4096;

/// What a user has in a namespace.
#[derive(Debug)]
struct ResolvedUser {
    name: String,
    groups: Vec<String>,
    namespace: String,
    bindings: Vec<ResolvedBinding>,
}

#[derive(Debug)]
struct ResolvedBinding {
    binding: Arc<Binding>,
    rules: Result<Rules, RoleNotFound>,
}

/// Where a binding stands for one of its subjects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SubjectEntry {
    namespace: Arc<str>,
    is_group: bool,
    subject: Arc<str>,
    binding: Arc<str>,
}

/// The role that a binding grants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleReference {
    /// The group of the kind.
    pub api_group: String,
    /// `Role` or `ClusterRole`.
    pub kind: String,
    /// The name of the role.
    pub name: String,
}

#[derive(Debug)]
struct Binding {
    namespace: Arc<str>,
    name: Arc<str>,
    role: RoleReference,
    subjects: Vec<Subject>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StoredBinding {
    role_ref: RoleReference,
    #[serde(deserialize_with = "list")]
    subjects: Vec<Subject>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredRole {
    #[serde(deserialize_with = "list")]
    rules: Vec<PolicyRule>,
}

/// A binding names a role that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RoleNotFound(String);

impl AsRef<str> for RoleNotFound {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// What an object says, or nothing if it cannot be read: then it grants nothing.
fn read<'j, T: Default + Deserialize<'j>>(json: &'j [u8]) -> T {
    serde_json::from_slice(json).unwrap_or_default()
}

impl Subject {
    /// The user or group that is meant by a binding of a namespace, and whether it is a group.
    fn meant(&self, namespace: &str) -> Option<(bool, String)> {
        match &*self.kind {
            "User" => Some((false, self.name.clone())),
            "Group" => Some((true, self.name.clone())),
            "ServiceAccount" => {
                let of = match &*self.namespace {
                    "" => namespace,
                    of => of,
                };
                (!of.is_empty()).then(|| (false, service_account_user(of, &self.name)))
            }
            _ => None,
        }
    }

    fn is(&self, user: &User, namespace: &str) -> bool {
        match self.meant(namespace) {
            Some((true, group)) => user.is_in(&group),
            Some((false, name)) => user.name == name,
            None => false,
        }
    }
}

impl Binding {
    fn entries(&self) -> Vec<SubjectEntry> {
        let meant = |subject: &Subject| subject.meant(&self.namespace);
        let entry = |(is_group, subject): (bool, String)| SubjectEntry {
            namespace: self.namespace.clone(),
            is_group,
            subject: subject.into(),
            binding: self.name.clone(),
        };
        self.subjects.iter().filter_map(meant).map(entry).collect()
    }

    /// Says who is bound to what, in upstream's words.
    fn describe(&self, user: &User) -> String {
        let (kind, name) = match &*self.namespace {
            "" => ("ClusterRoleBinding", self.name.to_string()),
            namespace => ("RoleBinding", format!("{}/{namespace}", self.name)),
        };
        let subject = self
            .subjects
            .iter()
            .find(|subject| subject.is(user, &self.namespace));
        let subject = subject.cloned().unwrap_or_default();
        let shown = match (&*subject.kind, &*subject.namespace) {
            ("ServiceAccount", "") => format!("{}/{}", subject.name, self.namespace),
            ("ServiceAccount", namespace) => format!("{}/{namespace}", subject.name),
            _ => subject.name,
        };
        format!(
            "{kind} {} of {} {} to {} {}",
            quote(&name),
            self.role.kind,
            quote(&self.role.name),
            subject.kind,
            quote(&shown)
        )
    }
}

impl Policy {
    /// Puts a ClusterRole in the place of the one with its name. `object` is its JSON.
    pub fn put_cluster_role(&mut self, name: &str, object: &[u8]) {
        self.resolved = Arc::default();
        let role: StoredRole = read(object);
        self.cluster_roles.insert(name.into(), role.rules.into());
    }

    /// Removes a ClusterRole.
    pub fn remove_cluster_role(&mut self, name: &str) {
        self.resolved = Arc::default();
        self.cluster_roles.remove(name);
    }

    /// Puts a Role in the place of the one with its name. `object` is its JSON.
    pub fn put_role(&mut self, namespace: &str, name: &str, object: &[u8]) {
        self.resolved = Arc::default();
        let role: StoredRole = read(object);
        self.roles
            .insert((namespace.into(), name.into()), role.rules.into());
    }

    /// Removes a Role.
    pub fn remove_role(&mut self, namespace: &str, name: &str) {
        self.resolved = Arc::default();
        self.roles.remove(&(namespace.into(), name.into()));
    }

    /// Puts a RoleBinding, or without a namespace a ClusterRoleBinding, in the place of the one with its name. `object` is its JSON.
    pub fn put_binding(&mut self, namespace: &str, name: &str, object: &[u8]) {
        self.remove_binding(namespace, name);
        let stored: StoredBinding = read(object);
        let binding = Arc::new(Binding {
            namespace: namespace.into(),
            name: name.into(),
            role: stored.role_ref,
            subjects: stored.subjects,
        });
        for entry in binding.entries() {
            self.by_subject.insert(entry, binding.clone());
        }
        let key = (binding.namespace.clone(), binding.name.clone());
        self.bindings.insert(key, binding);
    }

    /// Removes a RoleBinding, or without a namespace a ClusterRoleBinding.
    pub fn remove_binding(&mut self, namespace: &str, name: &str) {
        self.resolved = Arc::default();
        if let Some(binding) = self.bindings.remove(&(namespace.into(), name.into())) {
            for entry in binding.entries() {
                self.by_subject.remove(&entry);
            }
        }
    }

    /// How many bindings there are.
    pub fn bindings(&self) -> usize {
        self.bindings.len()
    }

    /// The rules of a role that a binding of a namespace (empty: a ClusterRoleBinding) names.
    ///
    /// # Errors
    /// If there is no such role.
    pub fn rules_of(
        &self,
        role: &RoleReference,
        namespace: &str,
    ) -> Result<Arc<[PolicyRule]>, RoleNotFound> {
        let (found, resource) = match &*role.kind {
            "ClusterRole" => (self.cluster_roles.get(&*role.name), "clusterrole"),
            "Role" => (
                self.roles.get(&(namespace.into(), (&*role.name).into())),
                "role",
            ),
            kind => {
                let why = format!("unsupported role reference kind: {}", quote(kind));
                return Err(RoleNotFound(why));
            }
        };
        let missing = || {
            let name = quote(&role.name);
            RoleNotFound(format!(
                "{resource}.rbac.authorization.k8s.io {name} not found"
            ))
        };
        found.cloned().ok_or_else(missing)
    }

    /// The bindings of a user in a namespace (empty: ClusterRoleBindings), each once.
    fn bindings_of(&self, user: &User, namespace: &str) -> Vec<&Arc<Binding>> {
        let groups = user.groups.iter().map(|group| (true, group));
        let subjects = std::iter::once((false, &user.name)).chain(groups);
        let mut found = Vec::new();
        for (is_group, subject) in subjects {
            let start = SubjectEntry {
                namespace: namespace.into(),
                is_group,
                subject: subject.as_str().into(),
                binding: "".into(),
            };
            let range = (Bound::Included(&start), Bound::Unbounded);
            let entries = self.by_subject.range::<_, SubjectEntry>(range);
            let here = |entry: &SubjectEntry| {
                entry.is_group == is_group
                    && entry.subject == start.subject
                    && entry.namespace == start.namespace
            };
            found.extend(
                entries
                    .take_while(|(entry, _)| here(entry))
                    .map(|(_, binding)| binding),
            );
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found.dedup_by(|a, b| Arc::ptr_eq(a, b));
        found
    }

    /// The bindings of a user in a namespace (empty: everywhere), those for all namespaces first, with what they grant.
    fn resolve(&self, user: &User, namespace: &str) -> Arc<ResolvedUser> {
        let resolved = &self.resolved;
        let hash = resolved
            .hasher
            .hash_one((&user.name, &user.groups, namespace));
        let found = || {
            let found = resolved.found.lock();
            found.unwrap_or_else(PoisonError::into_inner)
        };
        let is_meant = |known: &&Arc<ResolvedUser>| {
            known.name == user.name && known.groups == user.groups && known.namespace == namespace
        };
        if let Some(known) = found().get(&hash).filter(is_meant) {
            return known.clone();
        }
        let scopes = [Some(""), Some(namespace).filter(|name| !name.is_empty())];
        let mut bindings = Vec::new();
        for scope in scopes.into_iter().flatten() {
            for binding in self.bindings_of(user, scope) {
                bindings.push(ResolvedBinding {
                    binding: binding.clone(),
                    rules: self.rules_of(&binding.role, scope),
                });
            }
        }
        let known = Arc::new(ResolvedUser {
            name: user.name.clone(),
            groups: user.groups.clone(),
            namespace: namespace.to_owned(),
            bindings,
        });
        let mut found = found();
        if found.len() >= RESOLVED_MAX {
            found.clear();
        }
        found.insert(hash, known.clone());
        known
    }

    /// True if something is allowed.
    pub fn allows(&self, asked: &Attributes<'_>) -> bool {
        let resolved = self.resolve(asked.user, asked.namespace());
        let granted = resolved
            .bindings
            .iter()
            .filter_map(|known| known.rules.as_ref().ok());
        granted
            .flat_map(|rules| rules.iter())
            .any(|rule| rule.allows(asked))
    }

    /// Why something is allowed, in upstream's words.
    ///
    /// # Errors
    /// With the roles that bindings name and that are missing, if nothing allows it.
    pub(crate) fn allowed_by(&self, asked: &Attributes<'_>) -> Result<String, Vec<RoleNotFound>> {
        let resolved = self.resolve(asked.user, asked.namespace());
        let mut missing = Vec::new();
        for ResolvedBinding { binding, rules } in &resolved.bindings {
            match rules {
                Ok(rules) if rules.iter().any(|rule| rule.allows(asked)) => {
                    return Ok(binding.describe(asked.user));
                }
                Ok(_) => {}
                Err(error) => missing.push(error.clone()),
            }
        }
        Err(missing)
    }

    /// All rules of a user in a namespace (empty: everywhere), and the roles that are missing.
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<PolicyRule>, Vec<RoleNotFound>) {
        let resolved = self.resolve(user, namespace);
        let (mut all, mut missing) = (Vec::new(), Vec::new());
        for ResolvedBinding { rules, .. } in &resolved.bindings {
            match rules {
                Ok(rules) => all.extend(rules.iter().cloned()),
                Err(error) => missing.push(error.clone()),
            }
        }
        (all, missing)
    }
}

/// Errors as Go joins them, each once.
pub(crate) fn aggregate(errors: &[impl AsRef<str>]) -> String {
    let mut texts: Vec<&str> = Vec::new();
    for text in errors.iter().map(AsRef::as_ref) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [one] => (*one).to_owned(),
        texts => format!("[{}]", texts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Attributes;

    /// Everything as lists, without an index: what the index must agree with.
    #[derive(Default)]
    struct NaivePolicy {
        cluster_roles: Vec<(String, Vec<PolicyRule>)>,
        roles: Vec<(String, String, Vec<PolicyRule>)>,
        bindings: Vec<Binding>,
    }

    impl NaivePolicy {
        fn allows(&self, asked: &Attributes<'_>) -> bool {
            let namespace = asked.namespace();
            let here = |binding: &&Binding| {
                binding.namespace.is_empty()
                    || (!namespace.is_empty() && *binding.namespace == *namespace)
            };
            self.bindings.iter().filter(here).any(|binding| {
                let of = &*binding.namespace;
                let is_bound = binding.subjects.iter().any(|subject| match &*subject.kind {
                    "User" => subject.name == asked.user.name,
                    "Group" => asked.user.groups.contains(&subject.name),
                    "ServiceAccount" => {
                        let namespace = match &*subject.namespace {
                            "" => of,
                            given => given,
                        };
                        !namespace.is_empty()
                            && asked.user.name
                                == format!("system:serviceaccount:{namespace}:{}", subject.name)
                    }
                    _ => false,
                });
                let name = &binding.role.name;
                let rules = match &*binding.role.kind {
                    "ClusterRole" => self
                        .cluster_roles
                        .iter()
                        .find(|role| role.0 == *name)
                        .map(|role| &role.1),
                    _ => self
                        .roles
                        .iter()
                        .find(|role| role.0 == of && role.1 == *name)
                        .map(|role| &role.2),
                };
                is_bound && rules.into_iter().flatten().any(|rule| rule.allows(asked))
            })
        }
    }

    fn pick<'a>(random: &mut fastrand::Rng, of: &[&'a str]) -> &'a str {
        of[random.usize(..of.len())]
    }

    #[test]
    fn the_index_decides_as_lists_would_after_any_changes() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut policy, mut naive) = (Policy::default(), NaivePolicy::default());
            for step in 0..60 {
                let namespace = pick(&mut random, &["a", "b"]);
                let name = pick(&mut random, &["r1", "r2", "r3"]);
                let rule = format!(
                    r#"{{"verbs":["{}"],"apiGroups":[""],"resources":["{}"],"resourceNames":{}}}"#,
                    pick(&mut random, &["get", "list", "*"]),
                    pick(&mut random, &["pods", "pods/log", "*", "*/log"]),
                    pick(&mut random, &["[]", r#"["x"]"#]),
                );
                let role = format!(r#"{{"rules":[{rule}]}}"#);
                let rules = vec![serde_json::from_str::<PolicyRule>(&rule).unwrap()];
                match random.u8(..6) {
                    0 => {
                        policy.put_cluster_role(name, role.as_bytes());
                        naive.cluster_roles.retain(|role| role.0 != name);
                        naive.cluster_roles.push((name.to_owned(), rules));
                    }
                    1 => {
                        policy.put_role(namespace, name, role.as_bytes());
                        naive
                            .roles
                            .retain(|role| (&*role.0, &*role.1) != (namespace, name));
                        naive
                            .roles
                            .push((namespace.to_owned(), name.to_owned(), rules));
                    }
                    2 if random.bool() => {
                        policy.remove_cluster_role(name);
                        naive.cluster_roles.retain(|role| role.0 != name);
                    }
                    2 => {
                        policy.remove_role(namespace, name);
                        naive
                            .roles
                            .retain(|role| (&*role.0, &*role.1) != (namespace, name));
                    }
                    kind => {
                        let namespace = if random.bool() { namespace } else { "" };
                        let known = |binding: &Binding| {
                            (&*binding.namespace, &*binding.name) == (namespace, name)
                        };
                        naive.bindings.retain(|binding| !known(binding));
                        if kind == 3 {
                            policy.remove_binding(namespace, name);
                            continue;
                        }
                        let subject = pick(
                            &mut random,
                            &[
                                r#"{"kind":"User","name":"ann"}"#,
                                r#"{"kind":"Group","name":"team"}"#,
                                r#"{"kind":"ServiceAccount","name":"s"}"#,
                                r#"{"kind":"ServiceAccount","name":"s","namespace":"b"}"#,
                            ],
                        );
                        let role = pick(&mut random, &["ClusterRole", "Role"]);
                        let of = pick(&mut random, &["r1", "r2", "r3"]);
                        let json = format!(
                            r#"{{"roleRef":{{"kind":"{role}","name":"{of}"}},"subjects":[{subject},{{"kind":"User","name":"bob"}}]}}"#
                        );
                        policy.put_binding(namespace, name, json.as_bytes());
                        let stored: StoredBinding = serde_json::from_str(&json).unwrap();
                        naive.bindings.push(Binding {
                            namespace: namespace.into(),
                            name: name.into(),
                            role: stored.role_ref,
                            subjects: stored.subjects,
                        });
                    }
                }
                for (user, groups) in [
                    ("ann", &["team"][..]),
                    ("bob", &[]),
                    ("system:serviceaccount:a:s", &[]),
                    ("system:serviceaccount:b:s", &["team"]),
                ] {
                    let user = User::new(user, groups);
                    let asked = Attributes::resource(
                        &user,
                        pick(&mut random, &["get", "list", "put"]),
                        "",
                        "pods",
                    )
                    .subresource(pick(&mut random, &["", "log"]))
                    .in_namespace(pick(&mut random, &["", "a", "b"]))
                    .named(pick(&mut random, &["", "x"]));
                    let decided = policy.allows(&asked);
                    assert_eq!(decided, policy.allowed_by(&asked).is_ok());
                    assert_eq!(
                        decided,
                        naive.allows(&asked),
                        "seed {seed} step {step}: {asked:?}"
                    );
                }
            }
            assert_eq!(policy.bindings(), naive.bindings.len(), "seed {seed}");
        }
    }

    #[test]
    fn reasons_name_the_binding_and_missing_roles() {
        let mut policy = Policy::default();
        policy.put_cluster_role(
            "r",
            br#"{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}"#,
        );
        policy.put_binding("n", "b", br#"{"roleRef":{"kind":"ClusterRole","name":"r"},"subjects":[{"kind":"ServiceAccount","name":"s"}]}"#);
        let account = User::new("system:serviceaccount:n:s", &[]);
        let asked = Attributes::resource(&account, "get", "", "pods").in_namespace("n");
        let reason = policy.allowed_by(&asked).unwrap();
        assert_eq!(
            reason,
            r#"RoleBinding "b/n" of ClusterRole "r" to ServiceAccount "s/n""#
        );

        policy.remove_cluster_role("r");
        policy.put_binding("", "c", br#"{"roleRef":{"kind":"ClusterRole","name":"q"},"subjects":[{"kind":"Group","name":"g"}]}"#);
        let member = User::new("system:serviceaccount:n:s", &["g"]);
        let asked = Attributes::resource(&member, "get", "", "pods").in_namespace("n");
        let missing = policy.allowed_by(&asked).unwrap_err();
        assert_eq!(
            aggregate(&missing),
            r#"[clusterrole.rbac.authorization.k8s.io "q" not found, clusterrole.rbac.authorization.k8s.io "r" not found]"#
        );
    }
}
