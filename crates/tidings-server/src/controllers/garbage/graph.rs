//! Which object owns which, and which to look at next. Pure: it is told events and returns tasks.
//!
//! It keeps the objects that have owners and those that wait for their dependents: where they are, the uids of their owners, and how far
//! their deletion is. Of an object that only owns others it keeps the uid; of all others nothing.
//!
//! Back of the envelope: an object with one owner takes some 250 bytes, so 50 000 pods take 12 MiB.

use std::collections::{HashMap, HashSet, VecDeque};

use tidings_api::ObjectKey;

use crate::core::ResourceId;

/// Room for this many nodes is never given back.
const KEPT_MIN: usize = 1024;

/// The uid of an object. Most are UUIDs, which are shorter as numbers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Uid {
    Uuid(u128),
    Other(Box<str>),
}

impl Uid {
    pub(crate) fn new(text: &str) -> Uid {
        match uuid::Uuid::try_parse(text) {
            // Another spelling of the same UUID is another uid.
            Ok(uuid) if uuid.hyphenated().encode_lower(&mut [0; 36]) == text => {
                Uid::Uuid(uuid.as_u128())
            }
            _ => Uid::Other(text.into()),
        }
    }
}

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ObjectPlace {
    pub(crate) resource: ResourceId,
    pub(crate) key: ObjectKey,
}

/// How far the deletion of an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Living,
    /// It is being deleted, whatever its dependents do.
    Leaving,
    /// It is being deleted and goes when no dependent blocks it.
    Foreground,
    /// It is being deleted and goes when its dependents no longer name it.
    Orphaning,
}

impl Phase {
    /// True if the object waits for its dependents.
    fn waits(self) -> bool {
        matches!(self, Phase::Foreground | Phase::Orphaning)
    }
}

/// A reference to an owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    pub(crate) uid: Uid,
    /// The owner waits for the dependent if it is deleted in the foreground.
    pub(crate) blocks: bool,
}

/// An object as the graph has to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenObject {
    pub(crate) uid: Uid,
    pub(crate) place: ObjectPlace,
    pub(crate) owners: Vec<Owner>,
    pub(crate) phase: Phase,
}

/// Something to do with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GraphTask {
    /// Look whether the object still has an owner.
    Examine {
        uid: Uid,
        place: ObjectPlace,
        /// Others name it as their owner.
        owns: bool,
    },
    /// Take these owners from the object: they leave it as an orphan.
    Disown {
        uid: Uid,
        place: ObjectPlace,
        owners: Vec<Uid>,
    },
    /// Take the finalizer from the object: no dependent blocks it any longer.
    Release { uid: Uid, place: ObjectPlace },
}

impl GraphTask {
    /// The object of the task.
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
    place: ObjectPlace,
    owners: Box<[Owner]>,
    phase: Phase,
}

impl GraphNode {
    fn blocks(&self, uid: &Uid) -> bool {
        let mut owners = self.owners.iter();
        owners.any(|owner| owner.uid == *uid && owner.blocks)
    }
}

/// Uids in the order in which they came, each once.
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
            // The memory of a burst is given back.
            None => *self = UidQueue::default(),
        }
        uid
    }
}

/// The graph of owners and dependents.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: HashMap<Uid, GraphNode>,
    /// The nodes that name a uid as their owner, whether it exists or not.
    dependents: HashMap<Uid, HashSet<Uid>>,
    /// Objects that may have lost their owners.
    examined: UidQueue,
    /// Objects whose last blocking dependent may be gone.
    released: UidQueue,
}

impl Graph {
    /// An object is there, new or changed.
    pub(crate) fn seen(&mut self, seen: SeenObject) {
        let SeenObject {
            uid,
            place,
            owners,
            phase,
        } = seen;
        let waits = phase.waits();
        if owners.is_empty() && !waits && !self.nodes.contains_key(&uid) {
            return;
        }
        let before = self.nodes.remove(&uid);
        let known: &[Owner] = before.as_ref().map_or(&[], |node| &node.owners);
        let known_phase = before.as_ref().map_or(Phase::Living, |node| node.phase);
        let mut unblocked = Vec::new();
        if *known != *owners {
            // Objects may have thousands of owners.
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
                place,
                owners,
                phase,
            };
            self.nodes.insert(uid, node);
        }
        // Only now: an object may own itself.
        for owner in unblocked {
            self.look_at_waiting(&owner);
        }
    }

    /// An object is gone.
    pub(crate) fn gone(&mut self, uid: &Uid) {
        if let Some(node) = self.nodes.remove(uid) {
            for owner in &node.owners {
                self.forget_dependent(&owner.uid, uid);
                self.look_at_waiting(&owner.uid);
            }
        }
        self.examine_dependents(uid);
        // The memory of many objects is given back when they are gone.
        if self.nodes.capacity() > 4 * self.nodes.len() + KEPT_MIN {
            self.nodes.shrink_to_fit();
            self.dependents.shrink_to_fit();
        }
    }

    /// All objects of a resource, given at once because the events between are not known.
    pub(crate) fn replace(&mut self, resource: ResourceId, all: Vec<SeenObject>) {
        let there: HashSet<&Uid> = all.iter().map(|seen| &seen.uid).collect();
        let of_resource = self
            .nodes
            .iter()
            .filter(|(_, node)| node.place.resource == resource);
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
        // Owners of which the graph keeps nothing may be gone too.
        self.examine_all();
    }

    /// Forgets the objects of a resource that is no longer served.
    pub(crate) fn forget_resource(&mut self, resource: ResourceId) {
        self.replace(resource, Vec::new());
    }

    /// Looks at every object again: owners of kinds that were unknown may be known now.
    pub(crate) fn examine_all(&mut self) {
        for (uid, node) in &self.nodes {
            self.examined.push(uid);
            if node.phase.waits() {
                self.released.push(uid);
            }
        }
    }

    /// A task failed: it comes again, if it is still to be done.
    pub(crate) fn again(&mut self, uid: &Uid) {
        if self.nodes.contains_key(uid) {
            self.examined.push(uid);
            self.look_at_waiting(uid);
        }
    }

    /// The objects that no dependent seems to block any longer. The caller tells the graph of everything that has happened until then, and
    /// asks about each of them again with [`Graph::release`].
    pub(crate) fn take_free(&mut self) -> Vec<Uid> {
        let mut free: Vec<Uid> = std::iter::from_fn(|| self.released.pop()).collect();
        let (mut circles, mut rest) = (0, Vec::new());
        free.retain(|uid| {
            let is_free = self.is_free(uid);
            if is_free && self.blocking(uid).next().is_some() {
                circles += 1;
                if circles > 1 {
                    // When one of a circle has gone, the others may have to wait for it.
                    rest.push(uid.clone());
                    return false;
                }
            }
            is_free
        });
        rest.iter().for_each(|uid| self.released.push(uid));
        free
    }

    /// The task for an object that no dependent seemed to block. If one blocks it after all, it comes again later.
    pub(crate) fn release(&self, uid: Uid) -> Option<GraphTask> {
        let node = self.nodes.get(&uid).filter(|_| self.is_free(&uid))?;
        let place = node.place.clone();
        Some(GraphTask::Release { uid, place })
    }

    fn is_free(&self, uid: &Uid) -> bool {
        match self.nodes.get(uid).map(|node| node.phase) {
            Some(Phase::Foreground) => !self.is_blocked(uid),
            Some(Phase::Orphaning) => !self.dependents.contains_key(uid),
            Some(Phase::Living | Phase::Leaving) | None => false,
        }
    }

    /// The next task for an object that has owners.
    pub(crate) fn next(&mut self) -> Option<GraphTask> {
        while let Some(uid) = self.examined.pop() {
            let Some(node) = self.nodes.get(&uid) else {
                continue;
            };
            let place = node.place.clone();
            let orphans = |uid: &Uid| {
                let node = self.nodes.get(uid);
                node.is_some_and(|node| node.phase == Phase::Orphaning)
            };
            let owners = node.owners.iter().map(|owner| owner.uid.clone());
            let owners: Vec<Uid> = owners.filter(orphans).collect();
            if !owners.is_empty() {
                return Some(GraphTask::Disown { uid, place, owners });
            }
            if node.phase == Phase::Living {
                let owns = self.dependents.contains_key(&uid);
                return Some(GraphTask::Examine { uid, place, owns });
            }
        }
        None
    }

    /// How many objects are kept.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if there is nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.released.order.is_empty() && self.examined.order.is_empty()
    }

    #[cfg(test)]
    pub(super) fn knows_the_same_as(&self, other: &Graph) -> bool {
        self.nodes == other.nodes && self.dependents == other.dependents
    }

    /// True if an object that is deleted in the foreground has to wait. Objects that would wait for each other and for nobody
    /// else do not: the first of them goes. (Upstream guesses that there is a circle and makes one of them block no longer. It
    /// does so too for some that are in none, and not for objects that were all deleted in the foreground.)
    fn is_blocked(&self, uid: &Uid) -> bool {
        let mut reached: HashSet<&Uid> = HashSet::new();
        let mut left = vec![uid];
        while let Some(at) = left.pop() {
            for (dependent, node) in self.blocking(at) {
                if node.phase != Phase::Foreground {
                    return true;
                }
                if reached.insert(dependent) {
                    left.push(dependent);
                }
            }
        }
        let mut others = reached.into_iter().filter(|other| *other != uid);
        others.any(|other| !self.blocks_in_the_end(other, uid))
    }

    /// True if an object blocks another one, or one that does.
    fn blocks_in_the_end(&self, from: &Uid, to: &Uid) -> bool {
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

    /// A dependent changed for which an owner may have waited.
    fn look_at_waiting(&mut self, owner: &Uid) {
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
