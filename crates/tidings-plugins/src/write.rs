//! A write as plugins see it, and what they may look up.

use tidings_access::User;
use tidings_admission::Operation;
use tidings_api::{Object, Status};
use tidings_json::Value;
use tidings_registry::{Draft, Kind, Subresource};

/// The objects that plugins look up, by resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Known {
    /// `ingressclasses` of `networking.k8s.io`.
    IngressClasses,
    /// `limitranges`.
    LimitRanges,
    /// `namespaces`.
    Namespaces,
    /// `nodes`.
    Nodes,
    /// `pods`.
    Pods,
    /// `priorityclasses` of `scheduling.k8s.io`.
    PriorityClasses,
    /// `runtimeclasses` of `node.k8s.io`.
    RuntimeClasses,
    /// `serviceaccounts`.
    ServiceAccounts,
    /// `storageclasses` of `storage.k8s.io`.
    StorageClasses,
}

impl Known {
    /// All of them.
    pub const ALL: [Known; 9] = [
        Known::IngressClasses,
        Known::LimitRanges,
        Known::Namespaces,
        Known::Nodes,
        Known::Pods,
        Known::PriorityClasses,
        Known::RuntimeClasses,
        Known::ServiceAccounts,
        Known::StorageClasses,
    ];

    /// The group and the name of the resource. All are served in `v1`.
    pub fn resource(self) -> (&'static str, &'static str) {
        match self {
            Known::IngressClasses => ("networking.k8s.io", "ingressclasses"),
            Known::LimitRanges => ("", "limitranges"),
            Known::Namespaces => ("", "namespaces"),
            Known::Nodes => ("", "nodes"),
            Known::Pods => ("", "pods"),
            Known::PriorityClasses => ("scheduling.k8s.io", "priorityclasses"),
            Known::RuntimeClasses => ("node.k8s.io", "runtimeclasses"),
            Known::ServiceAccounts => ("", "serviceaccounts"),
            Known::StorageClasses => ("storage.k8s.io", "storageclasses"),
        }
    }
}

/// The state of the cluster, as caches have it.
pub trait ClusterView {
    /// One object; the namespace of cluster-scoped objects is empty.
    fn get(&self, known: Known, namespace: &str, name: &str) -> Option<Object>;

    /// The objects of a namespace, or all if it is empty, in the order of their names.
    fn list(&self, known: Known, namespace: &str) -> Vec<Object>;
}

/// The JSON of an object as a tree.
pub(crate) fn tree(object: &Object) -> Value {
    // An object is JSON.
    serde_json::from_slice(object.as_bytes()).unwrap_or_default()
}

/// What clients and the audit log are told.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PluginSaid {
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Annotations of the audit event: name and text.
    pub notes: Vec<(&'static str, String)>,
}

/// A write on its way through the plugins.
pub struct PluginWrite<'a> {
    /// What is done with the object.
    pub operation: Operation,
    /// The kind of the object.
    pub kind: &'a Kind,
    /// The part that is written.
    pub subresource: Option<Subresource>,
    /// The namespace of the object; empty if it is in none.
    pub namespace: &'a str,
    /// Who asks.
    pub user: &'a User,
    /// A few random letters, for names.
    pub random: &'a str,
    /// What there is.
    pub cluster: &'a dyn ClusterView,
}

impl PluginWrite<'_> {
    /// True if the write is of a kind, whatever the version.
    pub(crate) fn is_of(&self, group: &str, plural: &str) -> bool {
        is_kind(self.kind, group, plural)
    }

    /// True if a whole object is created.
    pub(crate) fn creates(&self) -> bool {
        self.operation == Operation::Create && self.subresource.is_none()
    }

    /// True if a whole object is changed.
    pub(crate) fn updates(&self) -> bool {
        self.operation == Operation::Update && self.subresource.is_none()
    }

    /// The refusal of an object.
    pub(crate) fn forbidden(&self, draft: &Draft, why: &str) -> Status {
        let meta = &draft.meta;
        let name = match (&*meta.name, &*meta.generate_name) {
            ("", "") => "Unknown",
            ("", generated) => generated,
            (name, _) => name,
        };
        Status::forbidden(self.kind.group_resource(), name, why)
    }
}

pub(crate) fn is_kind(kind: &Kind, group: &str, plural: &str) -> bool {
    *kind.plural == *plural && *kind.group == *group
}
