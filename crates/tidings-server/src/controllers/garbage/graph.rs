//! The graph of owners and dependents. Pure: events go in, tasks for the collector come out.
//!
//! A node stands for an object that has owners or waits for its dependents. It holds the object's location, the uids of its owners, and the
//! phase of its deletion. Of an object that only owns others the graph keeps just the uid; of all other objects it keeps nothing.
//!
//! Back of the envelope: a node with one owner takes some 250 bytes, so 50 000 pods take 12 MiB.

use std::collections::{HashMap, HashSet, VecDeque};

use tidings_api::ObjectKey;

use crate::core::ResourceId;

/// The graph never shrinks its memory below room for this many nodes.
const KEPT_MIN: usize = 1024;

/// The uid of an object. Most are UUIDs, which take less memory as numbers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Uid {
    Uuid(u128),
    Other(Box<str>),
}

impl Uid {
    pub(crate) fn new(text: &str) -> Uid {
        match uuid::Uuid::try_parse(text) {
            // Uids are compared as text: another spelling of the same UUID is another uid.
            Ok(uuid) if uuid.hyphenated().encode_lower(&mut [0; 36]) == text => {
                Uid::Uuid(uuid.as_u128())
            }
            _ => Uid::Other(text.into()),
        }
    }
}

/// The resource and key of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ObjectLocation {
    pub(crate) resource: ResourceId,
    pub(crate) key: ObjectKey,
}

/// How far the deletion of an object has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DeletionPhase {
    Living,
    /// It is being deleted and does not wait for its dependents.
    Leaving,
    /// It is being deleted in the foreground: it goes when no dependent blocks it.
    Foreground,
    /// It is being deleted and orphans its dependents: it goes when no dependent refers to it.
    Orphaning,
}

impl DeletionPhase {
    /// True if the object waits for its dependents.
    fn waits(self) -> bool {
        matches!(self, DeletionPhase::Foreground | DeletionPhase::Orphaning)
    }
}

/// A reference from a dependent to its owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct OwnerLink {
    pub(crate) uid: Uid,
    /// `blockOwnerDeletion`: if the owner is deleted in the foreground, it waits for the dependent.
    pub(crate) blocks: bool,
}

/// What the graph needs to know of an object that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenObject {
    pub(crate) uid: Uid,
    pub(crate) location: ObjectLocation,
    pub(crate) owners: Vec<OwnerLink>,
    pub(crate) phase: DeletionPhase,
}

/// A task of the collector about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GraphTask {
    /// Check whether the object still has an owner.
    Examine {
        uid: Uid,
        location: ObjectLocation,
        /// Other objects refer to it as their owner.
        owns: bool,
    },
    /// Remove the references to these owners, which are deleted with the policy Orphan.
    Disown {
        uid: Uid,
        location: ObjectLocation,
        owners: Vec<Uid>,
    },
    /// Remove the deletion finalizer of the object, because no dependent blocks it any longer.
    Release { uid: Uid, location: ObjectLocation },
}

impl GraphTask {
    /// The uid of the object.
    pub(crate) fn uid(&self) -> &Uid {
        match self {
            GraphTask::Examine { uid, .. }
            | GraphTask::Disown { uid, .. }
            | GraphTask::Release { uid, .. } => uid,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct GraphNode {
    location: ObjectLocation,
    owners: Box<[OwnerLink]>,
    phase: DeletionPhase,
}

impl GraphNode {
    fn blocks(&self, uid: &Uid) -> bool {
        let mut owners = self.owners.iter();
        owners.any(|owner| owner.uid == *uid && owner.blocks)
    }
}

/// A queue of uids, each at most once.
///
/// Bound: the nodes of the graph.
#[derive(Debug, Default)]
struct UidQueue {
    order: VecDeque<Uid>,
    waiting: HashSet<Uid>,
}

impl UidQueue {
    fn push(&mut self, uid: &Uid) {
        if self.waiting.insert(uid.clone()) {
            self.order.push_back(uid.clone());
        }
    }

    fn pop(&mut self) -> Option<Uid> {
        let uid = self.order.pop_front();
        match &uid {
            Some(uid) => drop(self.waiting.remove(uid)),
            // Frees the memory that a burst has taken.
            None => *self = UidQueue::default(),
        }
        uid
    }
}

/// The graph of owners and dependents.
#[derive(Debug, Default)]
pub(crate) struct OwnershipGraph {
    nodes: HashMap<Uid, GraphNode>,
    /// The nodes that refer to a uid as their owner, whether the owner exists or not.
    dependents: HashMap<Uid, HashSet<Uid>>,
    /// Objects that may have lost their owners.
    examined: UidQueue,
    /// Objects whose last blocking dependent may be gone.
    released: UidQueue,
}

impl OwnershipGraph {
    /// Notes that an object exists: it is new or has changed.
    pub(crate) fn seen(&mut self, seen: SeenObject) {
        let SeenObject {
            uid,
            location,
            owners,
            phase,
        } = seen;
        let waits = phase.waits();
        if owners.is_empty() && !waits && !self.nodes.contains_key(&uid) {
            return;
        }
        let before = self.nodes.remove(&uid);
        let known: &[OwnerLink] = before.as_ref().map_or(&[], |node| &node.owners);
        let known_phase = before
            .as_ref()
            .map_or(DeletionPhase::Living, |node| node.phase);
        let mut unblocked = Vec::new();
        if *known != *owners {
            // A map, because objects may have thousands of owners.
            let now: HashMap<&Uid, bool> = owners
                .iter()
                .map(|owner| (&owner.uid, owner.blocks))
                .collect();
            for owner in known {
                let blocks = now.get(&owner.uid);
                if blocks.is_none() {
                    self.forget_dependent(&owner.uid, &uid);
                }
                if blocks.is_none_or(|blocks| owner.blocks && !blocks) {
                    unblocked.push(owner.uid.clone());
                }
            }
            for owner in &owners {
                let dependents = self.dependents.entry(owner.uid.clone()).or_default();
                dependents.insert(uid.clone());
            }
            self.examined.push(&uid);
        }
        if waits && phase != known_phase {
            self.released.push(&uid);
            self.examine_dependents(&uid);
        }
        if !owners.is_empty() || waits {
            let owners = owners.into();
            let node = GraphNode {
                location,
                owners,
                phase,
            };
            self.nodes.insert(uid, node);
        }
        // After the node is inserted, because an object may own itself.
        for owner in unblocked {
            self.recheck_waiting(&owner);
        }
    }

    /// Notes that an object is gone.
    pub(crate) fn gone(&mut self, uid: &Uid) {
        if let Some(node) = self.nodes.remove(uid) {
            for owner in &node.owners {
                self.forget_dependent(&owner.uid, uid);
                self.recheck_waiting(&owner.uid);
            }
        }
        self.examine_dependents(uid);
        // Frees memory after many objects are gone.
        if self.nodes.capacity() > 4 * self.nodes.len() + KEPT_MIN {
            self.nodes.shrink_to_fit();
            self.dependents.shrink_to_fit();
        }
    }

    /// Replaces all objects of a resource: events were missed, or the resource is new to the graph.
    pub(crate) fn replace(&mut self, resource: ResourceId, all: Vec<SeenObject>) {
        let there: HashSet<&Uid> = all.iter().map(|seen| &seen.uid).collect();
        let of_resource = self
            .nodes
            .iter()
            .filter(|(_, node)| node.location.resource == resource);
        let gone: Vec<Uid> = of_resource
            .filter(|(uid, _)| !there.contains(uid))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in gone {
            self.gone(&uid);
        }
        for seen in all {
            self.seen(seen);
        }
        // Owners that have no node of their own may be gone too.
        self.examine_all();
    }

    /// Forgets the objects of a resource that is no longer served.
    pub(crate) fn forget_resource(&mut self, resource: ResourceId) {
        self.replace(resource, Vec::new());
    }

    /// Queues every object to be examined again: owners of a kind that was not served may be found now.
    pub(crate) fn examine_all(&mut self) {
        for (uid, node) in &self.nodes {
            self.examined.push(uid);
            if node.phase.waits() {
                self.released.push(uid);
            }
        }
    }

    /// Queues an object again whose task failed.
    pub(crate) fn retry(&mut self, uid: &Uid) {
        if self.nodes.contains_key(uid) {
            self.examined.push(uid);
            self.recheck_waiting(uid);
        }
    }

    /// Takes the objects that no dependent seems to block any longer. The caller must then bring the graph up to date, and call
    /// [`OwnershipGraph::release`] for each of them.
    pub(crate) fn take_free(&mut self) -> Vec<Uid> {
        let mut free: Vec<Uid> = std::iter::from_fn(|| self.released.pop()).collect();
        let (mut in_cycle, mut rest) = (0, Vec::new());
        free.retain(|uid| {
            let is_free = self.is_free(uid);
            if is_free && self.blocking(uid).next().is_some() {
                in_cycle += 1;
                if in_cycle > 1 {
                    // One object of a cycle at a time: once it is gone, the others may not be free any more.
                    rest.push(uid.clone());
                    return false;
                }
            }
            is_free
        });
        rest.iter().for_each(|uid| self.released.push(uid));
        free
    }

    /// The task to release an object that [`OwnershipGraph::take_free`] returned. `None` if a dependent blocks it after all; it is queued again
    /// when that dependent changes.
    pub(crate) fn release(&self, uid: Uid) -> Option<GraphTask> {
        let node = self.nodes.get(&uid).filter(|_| self.is_free(&uid))?;
        let location = node.location.clone();
        Some(GraphTask::Release { uid, location })
    }

    fn is_free(&self, uid: &Uid) -> bool {
        match self.nodes.get(uid).map(|node| node.phase) {
            Some(DeletionPhase::Foreground) => !self.is_blocked(uid),
            Some(DeletionPhase::Orphaning) => !self.dependents.contains_key(uid),
            Some(DeletionPhase::Living | DeletionPhase::Leaving) | None => false,
        }
    }

    /// The next task about an object that has owners.
    pub(crate) fn next(&mut self) -> Option<GraphTask> {
        while let Some(uid) = self.examined.pop() {
            let Some(node) = self.nodes.get(&uid) else {
                continue;
            };
            let location = node.location.clone();
            let orphans = |uid: &Uid| {
                let node = self.nodes.get(uid);
                node.is_some_and(|node| node.phase == DeletionPhase::Orphaning)
            };
            let owners = node.owners.iter().map(|owner| owner.uid.clone());
            let owners: Vec<Uid> = owners.filter(orphans).collect();
            if !owners.is_empty() {
                return Some(GraphTask::Disown {
                    uid,
                    location,
                    owners,
                });
            }
            if node.phase == DeletionPhase::Living {
                let owns = self.dependents.contains_key(&uid);
                return Some(GraphTask::Examine {
                    uid,
                    location,
                    owns,
                });
            }
        }
        None
    }

    /// How many nodes there are.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if no task is queued.
    pub(crate) fn is_idle(&self) -> bool {
        self.released.order.is_empty() && self.examined.order.is_empty()
    }

    #[cfg(test)]
    pub(super) fn has_same_nodes_as(&self, other: &OwnershipGraph) -> bool {
        self.nodes == other.nodes && self.dependents == other.dependents
    }

    /// True if an object that is deleted in the foreground has to wait for a dependent. Objects in a cycle that wait only for each other
    /// are not blocked, so that the first of them can go. (kube-controller-manager breaks a cycle by making one dependent non-blocking. It also
    /// does so for some objects outside of cycles, and does not for objects that were all deleted in the foreground.)
    fn is_blocked(&self, uid: &Uid) -> bool {
        let mut reached: HashSet<&Uid> = HashSet::new();
        let mut left = vec![uid];
        while let Some(at) = left.pop() {
            for (dependent, node) in self.blocking(at) {
                if node.phase != DeletionPhase::Foreground {
                    return true;
                }
                if reached.insert(dependent) {
                    left.push(dependent);
                }
            }
        }
        let mut others = reached.into_iter().filter(|other| *other != uid);
        others.any(|other| !self.is_blocked_by(other, uid))
    }

    /// True if `from` is blocked by `to`, directly or through other blocking dependents.
    fn is_blocked_by(&self, from: &Uid, to: &Uid) -> bool {
        let mut reached: HashSet<&Uid> = HashSet::new();
        let mut left = vec![from];
        while let Some(at) = left.pop() {
            for (dependent, _) in self.blocking(at) {
                if dependent == to {
                    return true;
                }
                if reached.insert(dependent) {
                    left.push(dependent);
                }
            }
        }
        false
    }

    /// The dependents that block an object.
    fn blocking<'a>(&'a self, uid: &'a Uid) -> impl Iterator<Item = (&'a Uid, &'a GraphNode)> {
        let dependents = self.dependents.get(uid).into_iter().flatten();
        dependents
            .filter_map(|dependent| Some((dependent, self.nodes.get(dependent)?)))
            .filter(|(_, node)| node.blocks(uid))
    }

    fn examine_dependents(&mut self, uid: &Uid) {
        for dependent in self.dependents.get(uid).into_iter().flatten() {
            self.examined.push(dependent);
        }
    }

    /// Queues an owner that may have waited for a dependent that has changed.
    fn recheck_waiting(&mut self, owner: &Uid) {
        let node = self.nodes.get(owner);
        if node.is_some_and(|node| node.phase.waits()) {
            self.released.push(owner);
        }
    }

    fn forget_dependent(&mut self, owner: &Uid, dependent: &Uid) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }
}
