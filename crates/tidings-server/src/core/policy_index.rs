//! Roles and bindings, as authorisation reads them: an index that follows the caches of the four kinds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tidings_access::Policy;
use tidings_api::{Object, ObjectKey};
use tidings_registry::Kind;

use super::resource::Resource;
use super::served::ServedSet;

/// The group of roles and bindings.
pub(crate) const RBAC: &str = "rbac.authorization.k8s.io";

/// True for roles and bindings.
pub(super) fn is_policy(kind: &Kind) -> bool {
    *kind.group == *RBAC
}

/// The kinds that decide who may do what.
#[derive(Debug, Clone, Copy)]
enum PolicyKind {
    ClusterRole,
    Role,
    ClusterRoleBinding,
    RoleBinding,
}

const KINDS: [(PolicyKind, &str); 4] = [
    (PolicyKind::ClusterRole, "clusterroles"),
    (PolicyKind::Role, "roles"),
    (PolicyKind::ClusterRoleBinding, "clusterrolebindings"),
    (PolicyKind::RoleBinding, "rolebindings"),
];

impl PolicyKind {
    fn put(self, policy: &mut Policy, key: &ObjectKey, object: &Object) {
        let (namespace, name, json) = (key.namespace(), key.name(), object.as_bytes());
        match self {
            PolicyKind::ClusterRole => policy.put_cluster_role(name, json),
            PolicyKind::Role => policy.put_role(namespace, name, json),
            PolicyKind::ClusterRoleBinding | PolicyKind::RoleBinding => {
                policy.put_binding(namespace, name, json);
            }
        }
    }

    fn remove(self, policy: &mut Policy, key: &ObjectKey) {
        let (namespace, name) = (key.namespace(), key.name());
        match self {
            PolicyKind::ClusterRole => policy.remove_cluster_role(name),
            PolicyKind::Role => policy.remove_role(namespace, name),
            PolicyKind::ClusterRoleBinding | PolicyKind::RoleBinding => {
                policy.remove_binding(namespace, name);
            }
        }
    }
}

/// A cache that is followed.
struct PolicySource {
    kind: PolicyKind,
    resource: Arc<Resource>,
    /// The revision that the cache had reached when the index last read it.
    reached: AtomicU64,
}

impl PolicySource {
    fn cache_reached(&self) -> u64 {
        let reached = self.resource.cache().reached();
        reached.map_or(0, |reached| reached.get())
    }
}

/// Follows the caches when somebody asks: a decision sees every change that the caches have.
pub(crate) struct PolicyIndex {
    sources: Vec<PolicySource>,
    current: RwLock<Arc<Policy>>,
    /// The position in the log of each cache; none before the first read.
    positions: Mutex<Option<Vec<u64>>>,
}

impl PolicyIndex {
    pub(crate) fn new(served: &ServedSet) -> PolicyIndex {
        let source = |(kind, plural): (PolicyKind, &str)| {
            let (_, resource) = served.find(RBAC, "v1", plural)?;
            Some(PolicySource {
                kind,
                resource: resource?,
                reached: AtomicU64::new(u64::MAX),
            })
        };
        PolicyIndex {
            sources: KINDS.into_iter().filter_map(source).collect(),
            current: RwLock::default(),
            positions: Mutex::default(),
        }
    }

    /// The roles and bindings that the caches have now.
    pub(crate) fn current(&self) -> Arc<Policy> {
        let is_new = |source: &PolicySource| {
            source.reached.load(Ordering::Acquire) != source.cache_reached()
        };
        if self.sources.iter().any(is_new) {
            self.follow();
        }
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn follow(&self) {
        let positions = self.positions.lock();
        let mut positions = positions.unwrap_or_else(PoisonError::into_inner);
        let current = self.current.read();
        let mut policy = (**current.unwrap_or_else(PoisonError::into_inner)).clone();
        // Before the logs: what comes while they are read is read again at the next decision.
        let reached: Vec<u64> = self
            .sources
            .iter()
            .map(PolicySource::cache_reached)
            .collect();
        let followed = positions
            .as_mut()
            .is_some_and(|positions| self.read_logs(positions, &mut policy));
        if !followed {
            policy = Policy::default();
            *positions = Some(self.read_all(&mut policy));
        }
        let slot = self.current.write();
        *slot.unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
        for (source, reached) in self.sources.iter().zip(reached) {
            source.reached.store(reached, Ordering::Release);
        }
    }

    /// Applies the changes since the positions. False if a log was trimmed past its position.
    fn read_logs(&self, positions: &mut [u64], policy: &mut Policy) -> bool {
        for (source, position) in self.sources.iter().zip(positions) {
            loop {
                let Ok((segment, end, _)) = source.resource.cache().read_at(*position) else {
                    return false;
                };
                if *position >= end {
                    break;
                }
                let mut read = 0;
                for event in segment.from(*position) {
                    let key = event.object.key();
                    match event.deleted {
                        true => source.kind.remove(policy, &key),
                        false => source.kind.put(policy, &key, &event.object),
                    }
                    read += 1;
                }
                *position += read;
            }
        }
        true
    }

    /// Reads everything. Returns the positions from which to go on.
    fn read_all(&self, policy: &mut Policy) -> Vec<u64> {
        let read = |source: &PolicySource| {
            let (snapshot, end) = source.resource.cache().tail();
            for (key, object) in snapshot.state.iter() {
                source.kind.put(policy, key, object);
            }
            end
        };
        self.sources.iter().map(read).collect()
    }
}
