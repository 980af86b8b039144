//! The RBAC rules that a controller needs, derived from what it watches and writes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tidings_kube::{ApiResource, KubeObject, is_cluster_scoped, resource_of};

use crate::manifest::documents;

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// Verbs in the order in which people write them; others come after, sorted.
const VERB_ORDER: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

/// What a program may do on the server: the RBAC rules that its controllers need.
///
/// [`Controller::permissions`](crate::Controller::permissions) derives them; [`Permissions::and`] puts those of several controllers together.
///
/// ```
/// # use k8s_openapi::api::apps::v1::Deployment;
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use tidings_controller::{Cluster, Controller};
/// # fn rbac(cluster: &Cluster) -> String {
/// let controller = Controller::<Deployment>::new(cluster).owns::<ConfigMap>();
/// let permissions = controller.permissions().leader_election("default");
/// assert!(permissions.allows("patch", "apps", "deployments/status", "default"));
/// assert!(!permissions.allows("delete", "apps", "deployments", "default"));
/// permissions.manifest("my-operator", "default")
/// # }
/// ```
///
/// What a program does besides, with a client of its own for example, nobody can derive: [`Controller::writes`](crate::Controller::writes) and
/// [`Permissions::allow`] add it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    /// The verbs for each resource.
    rules: BTreeMap<RuleTarget, BTreeSet<String>>,
    /// The namespaces of the main resources of controllers; one of them is empty if a controller looks at all.
    main_namespaces: BTreeSet<String>,
}

/// What a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RuleTarget {
    /// Empty: all namespaces, and what is in none.
    namespace: String,
    group: String,
    /// With its subresource: `deployments/status`.
    resource: String,
}

/// A resource that a controller uses besides its main one.
#[derive(Debug, Clone)]
pub(crate) struct UsedResource {
    resource: ApiResource,
    /// `None`: the namespace of the controller.
    namespace: Option<String>,
    verbs: &'static [&'static str],
}

impl UsedResource {
    /// A resource whose objects are children of main objects. `namespace` is that of the watch, empty for that of the controller.
    pub(crate) fn owned(resource: &ApiResource, namespace: &str) -> UsedResource {
        UsedResource {
            resource: resource.clone(),
            namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
            // A server-side apply of an object that is not there needs both `patch` and `create`.
            verbs: &["get", "list", "watch", "create", "patch", "delete"],
        }
    }

    /// A resource whose objects belong to main objects by their labels, in any namespace or in none.
    pub(crate) fn labelled(resource: &ApiResource) -> UsedResource {
        UsedResource {
            namespace: Some(String::new()),
            ..UsedResource::owned(resource, "")
        }
    }

    /// A resource that is only read.
    pub(crate) fn watched(resource: &ApiResource, namespace: &str) -> UsedResource {
        UsedResource {
            resource: resource.clone(),
            namespace: Some(namespace.to_owned()),
            verbs: &["get", "list", "watch"],
        }
    }

    /// A resource that is written and not watched.
    pub(crate) fn written<D: KubeObject>() -> UsedResource {
        UsedResource {
            resource: resource_of::<D>(),
            // A Role gives no right to what is in no namespace.
            namespace: is_cluster_scoped::<D>().then(String::new),
            verbs: &["create", "update", "patch", "delete"],
        }
    }
}

impl Permissions {
    /// No permissions.
    pub fn new() -> Permissions {
        Permissions::default()
    }

    /// What a controller needs.
    pub(crate) fn of_controller(
        main: &ApiResource,
        namespace: &str,
        used: &[UsedResource],
    ) -> Permissions {
        let ApiResource { group, plural, .. } = main;
        let status = format!("{plural}/status");
        let finalizers = format!("{plural}/finalizers");
        let mut permissions = Permissions::new()
            // Finalizers are added and removed by patches of the object.
            .allow(namespace, group, plural, ["get", "list", "watch", "patch"])
            .allow(namespace, group, &status, ["patch"])
            // Children block the deletion of their owner. The admission plugin OwnerReferencesPermissionEnforcement asks for this right
            // of whoever makes such a reference.
            .allow(namespace, group, &finalizers, ["update"]);
        for UsedResource {
            resource,
            namespace: own,
            verbs,
        } in used
        {
            let namespace = own.as_deref().unwrap_or(namespace);
            let verbs = verbs.iter().copied();
            permissions = permissions.allow(namespace, &resource.group, &resource.plural, verbs);
        }
        permissions.main_namespaces.insert(namespace.to_owned());
        permissions
    }

    /// Adds verbs for a resource: `allow("", "apps", "deployments/scale", ["patch"])`. The namespace is empty for all namespaces, and for resources that
    /// are in none.
    #[must_use]
    pub fn allow(
        mut self,
        namespace: &str,
        group: &str,
        resource: &str,
        verbs: impl IntoIterator<Item = impl Into<String>>,
    ) -> Permissions {
        let target = target(namespace, group, resource);
        let known = self.rules.entry(target).or_default();
        known.extend(verbs.into_iter().map(Into::into));
        self
    }

    /// These permissions and others.
    #[must_use]
    pub fn and(mut self, other: Permissions) -> Permissions {
        for (target, verbs) in other.rules {
            self.rules.entry(target).or_default().extend(verbs);
        }
        self.main_namespaces.extend(other.main_namespaces);
        self
    }

    /// Adds what a leader election needs: Leases in the namespace that [`Manager::leader_election`](crate::Manager::leader_election) is told.
    #[must_use]
    pub fn leader_election(self, namespace: &str) -> Permissions {
        self.leases(namespace, &["get", "create", "update"])
    }

    /// Adds what replicas need to share the keys of a controller: Leases in a namespace.
    #[must_use]
    pub fn sharding(self, namespace: &str) -> Permissions {
        let verbs = ["get", "list", "watch", "create", "patch", "delete"];
        self.leases(namespace, &verbs)
    }

    fn leases(self, namespace: &str, verbs: &[&str]) -> Permissions {
        let verbs = verbs.iter().copied();
        self.allow(namespace, "coordination.k8s.io", "leases", verbs)
    }

    /// Adds what recording Events about main objects needs, in the namespaces of the controllers whose permissions are here already.
    #[must_use]
    pub fn events(mut self) -> Permissions {
        for namespace in self.main_namespaces.clone() {
            self = self.allow(&namespace, "events.k8s.io", "events", ["create", "patch"]);
        }
        self
    }

    /// Adds what [`install_definitions`](crate::install_definitions) needs.
    #[must_use]
    pub fn definitions(self) -> Permissions {
        let resource = "customresourcedefinitions";
        self.allow(
            "",
            "apiextensions.k8s.io",
            resource,
            ["get", "create", "patch"],
        )
    }

    /// True if a request is allowed. `resource` has its subresource: `deployments/status`. The namespace is empty for requests about all
    /// namespaces, and about resources that are in none.
    pub fn allows(&self, verb: &str, group: &str, resource: &str, namespace: &str) -> bool {
        let has = |namespace: &str| {
            let verbs = self.rules.get(&target(namespace, group, resource));
            verbs.is_some_and(|verbs| verbs.contains(verb))
        };
        has("") || has(namespace)
    }

    /// The manifests that give these permissions to a ServiceAccount, as YAML: the account, a ClusterRole for what is needed in all namespaces, a Role in each
    /// namespace that is named, and their bindings. All have the same name. The same permissions give the same text.
    pub fn manifest(&self, name: &str, namespace: &str) -> String {
        let mut objects = vec![json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": namespace},
        })];
        let places: BTreeSet<&str> = self.rules.keys().map(|target| &*target.namespace).collect();
        for place in places {
            let (metadata, role, binding) = match place {
                "" => (json!({"name": name}), "ClusterRole", "ClusterRoleBinding"),
                place => {
                    let metadata = json!({"name": name, "namespace": place});
                    (metadata, "Role", "RoleBinding")
                }
            };
            let api_version = format!("{RBAC_GROUP}/v1");
            objects.push(json!({
                "apiVersion": api_version,
                "kind": role,
                "metadata": metadata,
                "rules": self.rules_in(place),
            }));
            objects.push(json!({
                "apiVersion": api_version,
                "kind": binding,
                "metadata": metadata,
                "roleRef": {"apiGroup": RBAC_GROUP, "kind": role, "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
            }));
        }
        documents(&objects)
    }

    /// The rules of a namespace. Resources of one group with equal verbs share a rule.
    fn rules_in(&self, namespace: &str) -> Vec<Value> {
        let mut merged: Vec<(&str, Vec<&str>, &BTreeSet<String>)> = Vec::new();
        for (target, verbs) in &self.rules {
            if target.namespace != namespace {
                continue;
            }
            let alike = merged
                .iter_mut()
                .find(|(group, _, known)| *group == target.group && *known == verbs);
            match alike {
                Some((_, resources, _)) => resources.push(&target.resource),
                None => merged.push((&target.group, vec![&target.resource], verbs)),
            }
        }
        let rule = |(group, resources, verbs): (&str, Vec<&str>, &BTreeSet<String>)| json!({"apiGroups": [group], "resources": resources, "verbs": in_order(verbs)});
        merged.into_iter().map(rule).collect()
    }
}

fn target(namespace: &str, group: &str, resource: &str) -> RuleTarget {
    RuleTarget {
        namespace: namespace.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
    }
}

fn in_order(verbs: &BTreeSet<String>) -> Vec<&str> {
    let mut verbs: Vec<&str> = verbs.iter().map(String::as_str).collect();
    let place = |verb: &str| VERB_ORDER.iter().position(|known| *known == verb);
    verbs.sort_by_key(|verb| place(verb).unwrap_or(VERB_ORDER.len()));
    verbs
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret, Service};

    use super::*;

    fn deployments(namespace: &str) -> Permissions {
        let used = [
            UsedResource::owned(&resource_of::<ConfigMap>(), ""),
            UsedResource::owned(&resource_of::<Service>(), ""),
            UsedResource::watched(&resource_of::<Secret>(), "certificates"),
            UsedResource::written::<Node>(),
        ];
        Permissions::of_controller(&resource_of::<Deployment>(), namespace, &used)
    }

    #[test]
    fn the_namespace_of_the_controller_counts_for_what_it_owns_and_writes() {
        let everywhere = deployments("");
        let here = deployments("here");
        for (permissions, namespace, expected) in [
            (&everywhere, "other", true),
            (&here, "here", true),
            (&here, "other", false),
        ] {
            let allows =
                |verb, group, resource| permissions.allows(verb, group, resource, namespace);
            assert_eq!(allows("patch", "apps", "deployments"), expected);
            assert_eq!(allows("patch", "apps", "deployments/status"), expected);
            assert_eq!(allows("update", "apps", "deployments/finalizers"), expected);
            assert_eq!(allows("create", "", "configmaps"), expected);
            assert!(
                !allows("create", "apps", "configmaps"),
                "a resource of another group"
            );
            assert!(!allows("delete", "apps", "deployments"));
        }
        assert!(
            !here.allows("list", "apps", "deployments", ""),
            "in all namespaces"
        );
        assert!(here.allows("list", "", "secrets", "certificates"));
        assert!(
            !here.allows("list", "", "secrets", "here"),
            "a watch has its own namespace"
        );
        assert!(
            here.allows("update", "", "nodes", ""),
            "what is in no namespace"
        );
    }

    #[test]
    fn permissions_are_added_to_others() {
        let both = deployments("a").and(deployments("b")).events();
        for namespace in ["a", "b"] {
            assert!(both.allows("create", "events.k8s.io", "events", namespace));
            assert!(both.allows("watch", "", "configmaps", namespace));
        }
        assert!(!both.allows("create", "events.k8s.io", "events", "c"));
        let leases = |permissions: &Permissions, verb| {
            permissions.allows(verb, "coordination.k8s.io", "leases", "home")
        };
        let leader = Permissions::new().leader_election("home");
        assert!(leases(&leader, "update") && !leases(&leader, "watch"));
        let shards = leader.and(Permissions::new().sharding("home"));
        assert!(leases(&shards, "watch") && leases(&shards, "delete"));
        assert!(leases(&shards, "patch"), "renewals are patches");
        let installs = Permissions::new().definitions();
        let definitions = "customresourcedefinitions";
        assert!(installs.allows("create", "apiextensions.k8s.io", definitions, ""));
    }

    #[test]
    fn manifests_have_a_role_for_each_namespace_and_rules_sorted_and_merged() {
        let permissions = deployments("").leader_election("default");
        let text = permissions.manifest("operator", "default");
        assert_eq!(text, include_str!("../tests/controller/permissions.yaml"));
        let one = Permissions::new()
            .allow("here", "", "pods/exec", ["impersonate", "create"])
            .manifest("true", "home");
        assert!(!one.contains("Cluster"), "{one}");
        assert!(
            one.contains("  name: \"true\"\n  namespace: here\n"),
            "{one}"
        );
        assert!(one.contains("verbs: [create, impersonate]"), "{one}");
    }
}
