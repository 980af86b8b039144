//! Tests the graph against a model of a cluster: random histories, whose events reach the graph late and in any order between two resources.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::graph::*;
use super::plan::*;
use tidings_api::ObjectKey;

use crate::core::{PropagationPolicy, ResourceId};
use tidings_api::validate::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER};

const OTHER: &str = "example.com/other";
const SLOTS: usize = 4;

/// An object of the model.
#[derive(Debug, Clone)]
struct ModelObject {
    uid: u128,
    facts: OwnershipFacts,
}

/// The objects that exist, and the events that the graph has not received yet.
#[derive(Debug, Default)]
struct ModelWorld {
    objects: BTreeMap<usize, ModelObject>,
    next_uid: u128,
    /// The events that the graph has not received yet, for each of two resources.
    pending: [VecDeque<PendingEvent>; 2],
    graph: OwnershipGraph,
}

#[derive(Debug)]
enum PendingEvent {
    Seen(SeenObject),
    Gone(Uid),
}

fn uid_text(uid: u128) -> String {
    uuid::Uuid::from_u128(uid).to_string()
}

fn kind_of(slot: usize) -> ResourceId {
    ResourceId((slot % 2) as u64)
}

fn seen(slot: usize, object: &ModelObject) -> SeenObject {
    SeenObject {
        uid: Uid::Uuid(object.uid),
        location: ObjectLocation {
            resource: kind_of(slot),
            key: ObjectKey::new("", &slot.to_string()),
        },
        owners: object.facts.owners(),
        phase: object.facts.phase(),
    }
}

impl ModelWorld {
    fn enqueue(&mut self, slot: usize, event: PendingEvent) {
        self.pending[slot % 2].push_back(event);
    }

    fn create(&mut self, slot: usize, owners: &[(usize, bool)], held: bool) {
        if self.objects.contains_key(&slot) {
            return;
        }
        self.next_uid += 1;
        let owner_references = self.references(owners);
        let finalizers = held.then(|| OTHER.to_owned()).into_iter().collect();
        let object = ModelObject {
            uid: self.next_uid,
            facts: OwnershipFacts {
                owner_references,
                finalizers,
                deletion_timestamp: None,
            },
        };
        self.enqueue(slot, PendingEvent::Seen(seen(slot, &object)));
        self.objects.insert(slot, object);
    }

    /// References to the objects in slots; an empty slot stands for an owner that never existed.
    fn references(&self, owners: &[(usize, bool)]) -> Vec<OwnerReference> {
        let mut references: Vec<OwnerReference> = Vec::new();
        for (slot, blocks) in owners {
            let uid = self.objects.get(slot).map_or(1 << 100, |object| object.uid);
            let uid = uid_text(uid);
            if !references.iter().any(|known| known.uid == uid) {
                references.push(OwnerReference {
                    name: slot.to_string(),
                    uid,
                    block_owner_deletion: Some(*blocks),
                    ..OwnerReference::default()
                });
            }
        }
        references
    }

    /// Changes an object; it is removed if it is being deleted and has no finalizers.
    fn edit(&mut self, slot: usize, uid: Option<&Uid>, edit: impl FnOnce(&mut OwnershipFacts)) {
        let Some(object) = self.objects.get_mut(&slot) else {
            return;
        };
        if uid.is_some_and(|uid| *uid != Uid::Uuid(object.uid)) {
            return;
        }
        edit(&mut object.facts);
        let leaves =
            object.facts.deletion_timestamp.is_some() && object.facts.finalizers.is_empty();
        let event = if leaves {
            PendingEvent::Gone(Uid::Uuid(object.uid))
        } else {
            PendingEvent::Seen(seen(slot, object))
        };
        if leaves {
            self.objects.remove(&slot);
        }
        self.enqueue(slot, event);
    }

    fn delete(&mut self, slot: usize, policy: PropagationPolicy) {
        self.edit(slot, None, |facts| {
            facts
                .finalizers
                .retain(|known| known != ORPHAN_FINALIZER && known != FOREGROUND_FINALIZER);
            match policy {
                PropagationPolicy::Background => {}
                PropagationPolicy::Foreground => facts.finalizers.push(FOREGROUND_FINALIZER.into()),
                PropagationPolicy::Orphan => facts.finalizers.push(ORPHAN_FINALIZER.into()),
            }
            facts.deletion_timestamp = Some("now".into());
        });
    }

    fn deliver(&mut self, kind: usize, count: usize) {
        for _ in 0..count {
            match self.pending[kind].pop_front() {
                Some(PendingEvent::Seen(seen)) => self.graph.seen(seen),
                Some(PendingEvent::Gone(uid)) => self.graph.gone(&uid),
                None => return,
            }
        }
    }

    /// Drops the pending events; the graph gets all objects instead.
    fn resync(&mut self, kind: usize) {
        self.pending[kind].clear();
        let objects = self.objects.iter();
        let of_kind = objects.filter(|(slot, _)| *slot % 2 == kind);
        let all = of_kind.map(|(slot, object)| seen(*slot, object)).collect();
        self.graph.replace(ResourceId(kind as u64), all);
    }

    fn state_of(&self, reference: &OwnerReference) -> OwnerState {
        let slot: usize = reference.name.parse().unwrap();
        match self.objects.get(&slot) {
            Some(owner) if uid_text(owner.uid) == reference.uid => match owner.facts.phase() {
                DeletionPhase::Foreground => OwnerState::Waiting,
                _ => OwnerState::Solid,
            },
            _ => OwnerState::Absent,
        }
    }

    fn states(&self, facts: &OwnershipFacts) -> Vec<OwnerState> {
        let references = facts.owner_references.iter();
        references
            .map(|reference| self.state_of(reference))
            .collect()
    }

    fn dependents(&self, uid: u128) -> impl Iterator<Item = (usize, &ModelObject, bool)> {
        let uid = uid_text(uid);
        self.objects.iter().filter_map(move |(slot, object)| {
            let mut references = object.facts.owner_references.iter();
            let reference = references.find(|reference| reference.uid == uid)?;
            let blocks = reference.block_owner_deletion == Some(true);
            Some((*slot, object, blocks))
        })
    }

    /// Performs the next tasks, as the collector would. False if there are none.
    fn work(&mut self, fails: bool) -> bool {
        let mut tasks = Vec::new();
        let free = self.graph.take_free();
        if !free.is_empty() {
            self.deliver(0, usize::MAX);
            self.deliver(1, usize::MAX);
            tasks.extend(free.into_iter().filter_map(|uid| self.graph.release(uid)));
        }
        tasks.extend(self.graph.next());
        let any = !tasks.is_empty();
        for task in tasks {
            if fails {
                self.graph.retry(task.uid());
            } else {
                self.perform(task);
            }
        }
        any || !self.graph.is_idle()
    }

    fn perform(&mut self, task: GraphTask) {
        let slot_of = |location: &ObjectLocation| location.key.name().parse::<usize>().unwrap();
        let disown = |facts: &mut OwnershipFacts, lost: &[Uid]| {
            facts
                .owner_references
                .retain(|reference| !lost.contains(&Uid::new(&reference.uid)));
        };
        match task {
            GraphTask::Examine {
                uid,
                location,
                owns,
            } => {
                let slot = slot_of(&location);
                let Some(object) = self.objects.get(&slot) else {
                    return;
                };
                if Uid::Uuid(object.uid) != uid || object.facts.phase() != DeletionPhase::Living {
                    return;
                }
                let states = self.states(&object.facts);
                match plan(&object.facts, &states, owns) {
                    ObjectAction::Keep => {}
                    ObjectAction::Disown(lost) => {
                        let lost: Vec<Uid> = lost.iter().map(|uid| Uid::new(uid)).collect();
                        self.edit(slot, Some(&uid), |facts| disown(facts, &lost));
                    }
                    ObjectAction::Delete(policy) => {
                        assert!(!states.is_empty() && !states.contains(&OwnerState::Solid));
                        self.delete(slot, policy);
                    }
                }
            }
            GraphTask::Disown {
                uid,
                location,
                owners,
            } => {
                self.edit(slot_of(&location), Some(&uid), |facts| {
                    disown(facts, &owners)
                });
            }
            GraphTask::Release { uid, location } => self.release(slot_of(&location), &uid),
        }
    }

    fn release(&mut self, slot: usize, uid: &Uid) {
        if let Some(object) = self.objects.get(&slot)
            && Uid::Uuid(object.uid) == *uid
        {
            let mut dependents = self.dependents(object.uid);
            let early = match object.facts.phase() {
                DeletionPhase::Foreground => dependents.any(|(at, dependent, blocks)| {
                    let in_cycle = dependent.facts.phase() == DeletionPhase::Foreground
                        && self.waits_for(at, slot, &mut Vec::new());
                    blocks && !in_cycle
                }),
                DeletionPhase::Orphaning => dependents.next().is_some(),
                _ => false,
            };
            assert!(!early, "{slot} is released though others depend on it");
        }
        self.edit(slot, Some(uid), |facts| {
            if facts.deletion_timestamp.is_some() {
                let finalizer = match facts.phase() {
                    DeletionPhase::Orphaning => ORPHAN_FINALIZER,
                    _ => FOREGROUND_FINALIZER,
                };
                facts.finalizers.retain(|known| known != finalizer);
            }
        });
    }

    /// True if an object waits for another one, directly or through others.
    fn waits_for(&self, from: usize, to: usize, path: &mut Vec<usize>) -> bool {
        path.push(from);
        let dependents = self.dependents(self.objects[&from].uid);
        let blocking: Vec<usize> = dependents
            .filter(|(_, _, blocks)| *blocks)
            .map(|(slot, _, _)| slot)
            .collect();
        let mut blocking = blocking.into_iter();
        blocking.any(|slot| slot == to || (!path.contains(&slot) && self.waits_for(slot, to, path)))
    }

    fn settle(&mut self) {
        for _ in 0..1000 {
            self.deliver(0, usize::MAX);
            self.deliver(1, usize::MAX);
            if !self.work(false) && self.pending.iter().all(VecDeque::is_empty) {
                return;
            }
        }
        panic!("the collector does not finish");
    }

    /// Checks that nothing is left to collect, and that the graph has exactly the nodes that it needs.
    fn check(&self) {
        for (slot, object) in &self.objects {
            let states = self.states(&object.facts);
            match object.facts.phase() {
                DeletionPhase::Living => assert!(
                    states.iter().all(|state| *state == OwnerState::Solid),
                    "{slot} has owners {states:?}"
                ),
                DeletionPhase::Leaving => {}
                DeletionPhase::Orphaning => panic!("{slot} waits for orphans"),
                DeletionPhase::Foreground => assert!(
                    self.is_held(*slot, &mut Vec::new()),
                    "{slot} waits for nothing"
                ),
            }
        }
        let mut rebuilt = ModelWorld::default();
        for (slot, object) in &self.objects {
            rebuilt.graph.seen(seen(*slot, object));
        }
        assert!(
            self.graph.has_same_nodes_as(&rebuilt.graph),
            "the graph has other nodes than a graph built from the existing objects"
        );
    }

    /// True if another controller's finalizer holds a dependent for which the object waits.
    fn is_held(&self, slot: usize, path: &mut Vec<usize>) -> bool {
        if path.contains(&slot) {
            return false;
        }
        path.push(slot);
        let object = &self.objects[&slot];
        let held = |facts: &OwnershipFacts| facts.finalizers.iter().any(|known| known == OTHER);
        let blocking: Vec<usize> = self
            .dependents(object.uid)
            .filter(|(_, _, blocks)| *blocks)
            .map(|(slot, _, _)| slot)
            .collect();
        blocking.into_iter().any(|slot| {
            let facts = &self.objects[&slot].facts;
            facts.deletion_timestamp.is_some() && held(facts) || self.is_held(slot, path)
        })
    }
}

#[derive(Debug, Clone)]
enum ModelStep {
    Create(usize, Vec<(usize, bool)>, bool),
    Delete(usize, PropagationPolicy),
    Own(usize, Vec<(usize, bool)>),
    /// Another controller's finalizer is removed.
    RemoveFinalizer(usize),
    Deliver(usize, usize),
    Resync(usize),
    Work(bool),
}

fn step() -> impl Strategy<Value = ModelStep> {
    let slot = 0..SLOTS;
    let owners = || prop::collection::vec((0..SLOTS, any::<bool>()), 0..3);
    let policy = prop_oneof![
        Just(PropagationPolicy::Background),
        Just(PropagationPolicy::Foreground),
        Just(PropagationPolicy::Orphan)
    ];
    prop_oneof![
        6 => (slot.clone(), owners(), prop::bool::weighted(0.2))
            .prop_map(|(slot, owners, held)| ModelStep::Create(slot, owners, held)),
        3 => (slot.clone(), policy).prop_map(|(slot, policy)| ModelStep::Delete(slot, policy)),
        3 => (slot.clone(), owners()).prop_map(|(slot, owners)| ModelStep::Own(slot, owners)),
        2 => slot.prop_map(ModelStep::RemoveFinalizer),
        4 => (0..2_usize, 1..4_usize).prop_map(|(kind, count)| ModelStep::Deliver(kind, count)),
        3 => (0..2_usize).prop_map(ModelStep::Resync),
        4 => prop::bool::weighted(0.2).prop_map(ModelStep::Work),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn exactly_the_objects_without_owners_are_collected(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        let mut world = ModelWorld::default();
        for step in steps {
            match step {
                ModelStep::Create(slot, owners, held) => world.create(slot, &owners, held),
                ModelStep::Delete(slot, policy) => world.delete(slot, policy),
                ModelStep::Own(slot, owners) => {
                    let references = world.references(&owners);
                    world.edit(slot, None, |facts| facts.owner_references = references);
                }
                ModelStep::RemoveFinalizer(slot) => world.edit(slot, None, |facts| {
                    facts.finalizers.retain(|known| known != OTHER);
                }),
                ModelStep::Deliver(kind, count) => world.deliver(kind, count),
                ModelStep::Resync(kind) => world.resync(kind),
                ModelStep::Work(fails) => drop(world.work(fails)),
            }
        }
        world.settle();
        world.check();
    }
}

#[test]
fn the_graph_has_no_nodes_for_objects_without_owners() {
    let mut graph = OwnershipGraph::default();
    for uid in 0..50_000_u128 {
        let location = ObjectLocation {
            resource: ResourceId(0),
            key: ObjectKey::new("default", &uid.to_string()),
        };
        graph.seen(SeenObject {
            uid: Uid::Uuid(uid),
            location,
            owners: Vec::new(),
            phase: DeletionPhase::Living,
        });
    }
    assert!(graph.is_idle() && graph.has_same_nodes_as(&OwnershipGraph::default()));
}

#[test]
fn uids_are_compared_as_text() {
    let uid = "01234567-89AB-cdef-0123-456789abcdef";
    assert_eq!(Uid::new(uid), Uid::Other(uid.into()));
    assert_ne!(Uid::new(uid), Uid::new(&uid.to_lowercase()));
    assert_eq!(Uid::new(&uid_text(7)), Uid::Uuid(7));
}

#[test]
fn the_plan_for_an_object_follows_from_the_states_of_its_owners() {
    use OwnerState::{Absent, Solid, Unknown, Waiting};
    let check = |states: &[OwnerState], finalizer: &str, owns| {
        let owner = |at| OwnerReference {
            uid: format!("{at}"),
            ..OwnerReference::default()
        };
        let facts = OwnershipFacts {
            owner_references: (0..states.len()).map(owner).collect(),
            finalizers: vec![finalizer.to_owned()],
            deletion_timestamp: None,
        };
        plan(&facts, states, owns)
    };
    let alone = |states: &[OwnerState]| check(states, "", false);
    let disown =
        |lost: &[&str]| ObjectAction::Disown(lost.iter().map(ToString::to_string).collect());
    assert_eq!(alone(&[]), ObjectAction::Keep);
    assert_eq!(alone(&[Solid]), ObjectAction::Keep);
    assert_eq!(alone(&[Solid, Absent]), disown(&["1"]));
    assert_eq!(alone(&[Waiting, Solid, Absent]), disown(&["0", "2"]));
    assert_eq!(alone(&[Absent, Unknown]), ObjectAction::Keep);
    assert_eq!(
        alone(&[Absent, Absent]),
        ObjectAction::Delete(PropagationPolicy::Background)
    );
    assert_eq!(
        alone(&[Waiting, Absent]),
        ObjectAction::Delete(PropagationPolicy::Background),
        "it has no dependents"
    );
    assert_eq!(
        check(&[Waiting], "", true),
        ObjectAction::Delete(PropagationPolicy::Foreground)
    );
    for (finalizer, policy) in [
        (ORPHAN_FINALIZER, PropagationPolicy::Orphan),
        (FOREGROUND_FINALIZER, PropagationPolicy::Foreground),
    ] {
        assert_eq!(
            check(&[Absent], finalizer, true),
            ObjectAction::Delete(policy)
        );
    }
}
