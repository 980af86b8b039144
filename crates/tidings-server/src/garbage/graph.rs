//! Who owns whom, and whom to look at next. Pure: it is told what happens and says what is to be done.
//!
//! It keeps the objects that have owners and those that wait for their dependents, and of these no more than where they are, the
//! uids of their owners, and how far they are gone. Of an object that only owns others there is its uid; of all others nothing.
//!
//! Back of the envelope: an object with one owner takes some 250 bytes, so 50 000 pods take 12 MiB.

use std::collections::{HashMap, HashSet, VecDeque};

use tidings_api::ObjectKey;

/// Room for so many nodes is never given back.
const KEPT_MIN: usize = 1024;

/// What an object is known by as long as it lives. Most are UUIDs, which are shorter as numbers.
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

/// A kind, as the one who feeds the graph numbers them. Numbers are not used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct KindId(pub(crate) u32);

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) kind: KindId,
    pub(crate) key: ObjectKey,
}

/// How far an object is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Living,
    /// It is being deleted, and its dependents do not matter to that.
    Leaving,
    /// It is being deleted and goes when no dependent blocks it.
    Foreground,
    /// It is being deleted and goes when its dependents no longer name it.
    Orphaning,
}

impl Phase {
    /// True if it goes when its dependents are as it wants them.
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
pub(crate) struct Seen {
    pub(crate) uid: Uid,
    pub(crate) place: Place,
    pub(crate) owners: Vec<Owner>,
    pub(crate) phase: Phase,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Task {
    /// Look whether the object still has an owner.
    Examine {
        uid: Uid,
        place: Place,
        /// Others name it as their owner.
        owns: bool,
    },
    /// Take these owners from the object: they leave it as an orphan.
    Disown {
        uid: Uid,
        place: Place,
        owners: Vec<Uid>,
    },
    /// The object waits for nobody any longer: take the finalizer from it.
    Release { uid: Uid, place: Place },
}

impl Task {
    /// Whom it is about.
    pub(crate) fn uid(&self) -> &Uid {
        match self {
            Task::Examine { uid, .. } | Task::Disown { uid, .. } | Task::Release { uid, .. } => uid,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Node {
    place: Place,
    owners: Box<[Owner]>,
    phase: Phase,
}

impl Node {
    fn blocks(&self, uid: &Uid) -> bool {
        let mut owners = self.owners.iter();
        owners.any(|owner| owner.uid == *uid && owner.blocks)
    }
}

/// Uids in the order in which they came, each once.
///
/// Bound: the nodes of the graph.
#[derive(Debug, Default)]
struct Queue {
    order: VecDeque<Uid>,
    waiting: HashSet<Uid>,
}

impl Queue {
    fn push(&mut self, uid: &Uid) {
        if self.waiting.insert(uid.clone()) {
            self.order.push_back(uid.clone());
        }
    }

    fn pop(&mut self) -> Option<Uid> {
        let uid = self.order.pop_front();
        match &uid {
            Some(uid) => drop(self.waiting.remove(uid)),
            // What a burst needed is not kept.
            None => *self = Queue::default(),
        }
        uid
    }
}

/// Who owns whom.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: HashMap<Uid, Node>,
    /// The nodes that name a uid as their owner, whether it exists or not.
    dependents: HashMap<Uid, HashSet<Uid>>,
    /// Who may have lost its owners.
    examined: Queue,
    /// Who may go on waiting for nobody.
    released: Queue,
}

impl Graph {
    /// An object is there, new or changed.
    pub(crate) fn seen(&mut self, seen: Seen) {
        let Seen {
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
            let node = Node {
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
        // What many objects needed is not kept when they are gone.
        if self.nodes.capacity() > 4 * self.nodes.len() + KEPT_MIN {
            self.nodes.shrink_to_fit();
            self.dependents.shrink_to_fit();
        }
    }

    /// All objects of a kind, told at once because what happened meanwhile is not known.
    pub(crate) fn replace(&mut self, kind: KindId, all: Vec<Seen>) {
        let there: HashSet<&Uid> = all.iter().map(|seen| &seen.uid).collect();
        let of_kind = self
            .nodes
            .iter()
            .filter(|(_, node)| node.place.kind == kind);
        let gone: Vec<Uid> = of_kind
            .filter(|(uid, _)| !there.contains(uid))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in gone {
            self.gone(&uid);
        }
        for seen in all {
            self.seen(seen);
        }
        // Owners that nothing is kept of may be gone too.
        self.examine_all();
    }

    /// A kind is no longer served; its objects are nobody's business.
    pub(crate) fn forget_kind(&mut self, kind: KindId) {
        self.replace(kind, Vec::new());
    }

    /// Looks at everybody again: owners of kinds that were unknown may be known now.
    pub(crate) fn examine_all(&mut self) {
        for (uid, node) in &self.nodes {
            self.examined.push(uid);
            if node.phase.waits() {
                self.released.push(uid);
            }
        }
    }

    /// A task was not done: it comes again, if it is still to be done.
    pub(crate) fn again(&mut self, uid: &Uid) {
        if self.nodes.contains_key(uid) {
            self.examined.push(uid);
            self.look_at_waiting(uid);
        }
    }

    /// The objects that seem to wait for nobody any longer. Whoever takes them tells the graph of everything that has happened
    /// until then, and asks about each of them again with [`Graph::release`].
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

    /// What is to be done with an object that seemed to wait for nobody. If it waits again, it comes again when it does not.
    pub(crate) fn release(&self, uid: Uid) -> Option<Task> {
        let node = self.nodes.get(&uid).filter(|_| self.is_free(&uid))?;
        let place = node.place.clone();
        Some(Task::Release { uid, place })
    }

    fn is_free(&self, uid: &Uid) -> bool {
        match self.nodes.get(uid).map(|node| node.phase) {
            Some(Phase::Foreground) => !self.is_blocked(uid),
            Some(Phase::Orphaning) => !self.dependents.contains_key(uid),
            Some(Phase::Living | Phase::Leaving) | None => false,
        }
    }

    /// What is to be done next with an object that has owners.
    pub(crate) fn next(&mut self) -> Option<Task> {
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
                return Some(Task::Disown { uid, place, owners });
            }
            if node.phase == Phase::Living {
                let owns = self.dependents.contains_key(&uid);
                return Some(Task::Examine { uid, place, owns });
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
    fn blocking<'a>(&'a self, uid: &'a Uid) -> impl Iterator<Item = (&'a Uid, &'a Node)> {
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

    /// Something changed that an owner may have waited for.
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
