//! The graph against a world that knows everything: random histories, told late and out of order between kinds.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::graph::*;
use super::plan::*;
use tidings_api::ObjectKey;

use crate::core::{FOREGROUND, ORPHAN, PropagationPolicy, ResourceId};

const OTHER: &str = "example.com/other";
const SLOTS: usize = 4;

/// An object, as simply as can be.
#[derive(Debug, Clone)]
struct ModelObject {
    uid: u128,
    facts: Facts,
}

/// What is true, and what the graph has not been told of yet.
#[derive(Debug, Default)]
struct ModelWorld {
    things: BTreeMap<usize, ModelObject>,
    next_uid: u128,
    /// For each of two kinds.
    untold: [VecDeque<UntoldEvent>; 2],
    graph: Graph,
}

#[derive(Debug)]
enum UntoldEvent {
    Seen(SeenObject),
    Gone(Uid),
}

fn uid_text(uid: u128) -> String {
    uuid::Uuid::from_u128(uid).to_string()
}

fn kind_of(slot: usize) -> ResourceId {
    ResourceId((slot % 2) as u64)
}

fn seen(slot: usize, thing: &ModelObject) -> SeenObject {
    SeenObject {
        uid: Uid::Uuid(thing.uid),
        place: ObjectPlace {
            resource: kind_of(slot),
            key: ObjectKey::new("", &slot.to_string()),
        },
        owners: thing.facts.owners(),
        phase: thing.facts.phase(),
    }
}

impl ModelWorld {
    fn tell(&mut self, slot: usize, told: UntoldEvent) {
        self.untold[slot % 2].push_back(told);
    }

    fn create(&mut self, slot: usize, owners: &[(usize, bool)], held: bool) {
        if self.things.contains_key(&slot) {
            return;
        }
        self.next_uid += 1;
        let owner_references = self.references(owners);
        let finalizers = held.then(|| OTHER.to_owned()).into_iter().collect();
        let thing = ModelObject {
            uid: self.next_uid,
            facts: Facts {
                owner_references,
                finalizers,
                deletion_timestamp: None,
            },
        };
        self.tell(slot, UntoldEvent::Seen(seen(slot, &thing)));
        self.things.insert(slot, thing);
    }

    /// References to what stands in slots; an empty slot stands for an owner that never was.
    fn references(&self, owners: &[(usize, bool)]) -> Vec<OwnerReference> {
        let mut references: Vec<OwnerReference> = Vec::new();
        for (slot, blocks) in owners {
            let uid = self.things.get(slot).map_or(1 << 100, |thing| thing.uid);
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

    /// Changes an object; it goes if nothing holds it any longer.
    fn edit(&mut self, slot: usize, uid: Option<&Uid>, edit: impl FnOnce(&mut Facts)) {
        let Some(thing) = self.things.get_mut(&slot) else {
            return;
        };
        if uid.is_some_and(|uid| *uid != Uid::Uuid(thing.uid)) {
            return;
        }
        edit(&mut thing.facts);
        let leaves = thing.facts.deletion_timestamp.is_some() && thing.facts.finalizers.is_empty();
        let told = if leaves {
            UntoldEvent::Gone(Uid::Uuid(thing.uid))
        } else {
            UntoldEvent::Seen(seen(slot, thing))
        };
        if leaves {
            self.things.remove(&slot);
        }
        self.tell(slot, told);
    }

    fn delete(&mut self, slot: usize, policy: PropagationPolicy) {
        self.edit(slot, None, |facts| {
            facts
                .finalizers
                .retain(|known| known != ORPHAN && known != FOREGROUND);
            match policy {
                PropagationPolicy::Background => {}
                PropagationPolicy::Foreground => facts.finalizers.push(FOREGROUND.into()),
                PropagationPolicy::Orphan => facts.finalizers.push(ORPHAN.into()),
            }
            facts.deletion_timestamp = Some("now".into());
        });
    }

    fn deliver(&mut self, kind: usize, count: usize) {
        for _ in 0..count {
            match self.untold[kind].pop_front() {
                Some(UntoldEvent::Seen(seen)) => self.graph.seen(seen),
                Some(UntoldEvent::Gone(uid)) => self.graph.gone(&uid),
                None => return,
            }
        }
    }

    /// What was not told is lost; the graph gets the state instead.
    fn resync(&mut self, kind: usize) {
        self.untold[kind].clear();
        let things = self.things.iter();
        let of_kind = things.filter(|(slot, _)| *slot % 2 == kind);
        let all = of_kind.map(|(slot, thing)| seen(*slot, thing)).collect();
        self.graph.replace(ResourceId(kind as u64), all);
    }

    fn state_of(&self, reference: &OwnerReference) -> OwnerState {
        let slot: usize = reference.name.parse().unwrap();
        match self.things.get(&slot) {
            Some(owner) if uid_text(owner.uid) == reference.uid => match owner.facts.phase() {
                Phase::Foreground => OwnerState::Waiting,
                _ => OwnerState::Solid,
            },
            _ => OwnerState::Absent,
        }
    }

    fn states(&self, facts: &Facts) -> Vec<OwnerState> {
        let references = facts.owner_references.iter();
        references
            .map(|reference| self.state_of(reference))
            .collect()
    }

    fn dependents(&self, uid: u128) -> impl Iterator<Item = (usize, &ModelObject, bool)> {
        let uid = uid_text(uid);
        self.things.iter().filter_map(move |(slot, thing)| {
            let mut references = thing.facts.owner_references.iter();
            let reference = references.find(|reference| reference.uid == uid)?;
            let blocks = reference.block_owner_deletion == Some(true);
            Some((*slot, thing, blocks))
        })
    }

    /// Does what is next, as the worker would. False if there is nothing.
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
                self.graph.again(task.uid());
            } else {
                self.perform(task);
            }
        }
        any || !self.graph.is_idle()
    }

    fn perform(&mut self, task: GraphTask) {
        let slot_of = |place: &ObjectPlace| place.key.name().parse::<usize>().unwrap();
        let disown = |facts: &mut Facts, lost: &[Uid]| {
            facts
                .owner_references
                .retain(|reference| !lost.contains(&Uid::new(&reference.uid)));
        };
        match task {
            GraphTask::Examine { uid, place, owns } => {
                let slot = slot_of(&place);
                let Some(thing) = self.things.get(&slot) else {
                    return;
                };
                if Uid::Uuid(thing.uid) != uid || thing.facts.phase() != Phase::Living {
                    return;
                }
                let states = self.states(&thing.facts);
                match plan(&thing.facts, &states, owns) {
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
            GraphTask::Disown { uid, place, owners } => {
                self.edit(slot_of(&place), Some(&uid), |facts| disown(facts, &owners));
            }
            GraphTask::Release { uid, place } => self.release(slot_of(&place), &uid),
        }
    }

    fn release(&mut self, slot: usize, uid: &Uid) {
        if let Some(thing) = self.things.get(&slot)
            && Uid::Uuid(thing.uid) == *uid
        {
            let mut dependents = self.dependents(thing.uid);
            let early = match thing.facts.phase() {
                Phase::Foreground => dependents.any(|(at, dependent, blocks)| {
                    let circle = dependent.facts.phase() == Phase::Foreground
                        && self.waits_for(at, slot, &mut Vec::new());
                    blocks && !circle
                }),
                Phase::Orphaning => dependents.next().is_some(),
                _ => false,
            };
            assert!(!early, "{slot} is released though others depend on it");
        }
        self.edit(slot, Some(uid), |facts| {
            if facts.deletion_timestamp.is_some() {
                let finalizer = match facts.phase() {
                    Phase::Orphaning => ORPHAN,
                    _ => FOREGROUND,
                };
                facts.finalizers.retain(|known| known != finalizer);
            }
        });
    }

    /// True if an object waits for another one, or for one that does.
    fn waits_for(&self, from: usize, to: usize, path: &mut Vec<usize>) -> bool {
        path.push(from);
        let dependents = self.dependents(self.things[&from].uid);
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
            if !self.work(false) && self.untold.iter().all(VecDeque::is_empty) {
                return;
            }
        }
        panic!("it does not come to an end");
    }

    /// When nothing is to be done, a look at everything finds nothing to do.
    fn check(&self) {
        for (slot, thing) in &self.things {
            let states = self.states(&thing.facts);
            match thing.facts.phase() {
                Phase::Living => assert!(
                    states.iter().all(|state| *state == OwnerState::Solid),
                    "{slot} has owners {states:?}"
                ),
                Phase::Leaving => {}
                Phase::Orphaning => panic!("{slot} waits for orphans"),
                Phase::Foreground => assert!(
                    self.is_held(*slot, &mut Vec::new()),
                    "{slot} waits for nothing"
                ),
            }
        }
        let mut anew = ModelWorld::default();
        for (slot, thing) in &self.things {
            anew.graph.seen(seen(*slot, thing));
        }
        assert!(
            self.graph.knows_the_same_as(&anew.graph),
            "what is kept is what is needed"
        );
    }

    /// True if a finalizer of somebody else holds what the object waits for.
    fn is_held(&self, slot: usize, path: &mut Vec<usize>) -> bool {
        if path.contains(&slot) {
            return false;
        }
        path.push(slot);
        let thing = &self.things[&slot];
        let held = |facts: &Facts| facts.finalizers.iter().any(|known| known == OTHER);
        let blocking: Vec<usize> = self
            .dependents(thing.uid)
            .filter(|(_, _, blocks)| *blocks)
            .map(|(slot, _, _)| slot)
            .collect();
        blocking.into_iter().any(|slot| {
            let facts = &self.things[&slot].facts;
            facts.deletion_timestamp.is_some() && held(facts) || self.is_held(slot, path)
        })
    }
}

#[derive(Debug, Clone)]
enum ModelStep {
    Create(usize, Vec<(usize, bool)>, bool),
    Delete(usize, PropagationPolicy),
    Own(usize, Vec<(usize, bool)>),
    /// Somebody else's finalizer is removed.
    LetGo(usize),
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
        2 => slot.prop_map(ModelStep::LetGo),
        4 => (0..2_usize, 1..4_usize).prop_map(|(kind, count)| ModelStep::Deliver(kind, count)),
        3 => (0..2_usize).prop_map(ModelStep::Resync),
        4 => prop::bool::weighted(0.2).prop_map(ModelStep::Work),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_everything_is_collected_and_nothing_else(
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
                ModelStep::LetGo(slot) => world.edit(slot, None, |facts| {
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
fn nothing_is_kept_of_objects_without_owners() {
    let mut graph = Graph::default();
    for uid in 0..50_000_u128 {
        let place = ObjectPlace {
            resource: ResourceId(0),
            key: ObjectKey::new("default", &uid.to_string()),
        };
        graph.seen(SeenObject {
            uid: Uid::Uuid(uid),
            place,
            owners: Vec::new(),
            phase: Phase::Living,
        });
    }
    assert!(graph.is_idle() && graph.knows_the_same_as(&Graph::default()));
}

#[test]
fn a_uid_is_compared_as_it_is_written() {
    let uid = "01234567-89AB-cdef-0123-456789abcdef";
    assert_eq!(Uid::new(uid), Uid::Other(uid.into()));
    assert_ne!(Uid::new(uid), Uid::new(&uid.to_lowercase()));
    assert_eq!(Uid::new(&uid_text(7)), Uid::Uuid(7));
}

#[test]
fn what_becomes_of_an_object() {
    use OwnerState::{Absent, Solid, Unknown, Waiting};
    let check = |states: &[OwnerState], finalizer: &str, owns| {
        let owner = |at| OwnerReference {
            uid: format!("{at}"),
            ..OwnerReference::default()
        };
        let facts = Facts {
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
        "it owns nothing itself"
    );
    assert_eq!(
        check(&[Waiting], "", true),
        ObjectAction::Delete(PropagationPolicy::Foreground)
    );
    for (finalizer, policy) in [
        (ORPHAN, PropagationPolicy::Orphan),
        (FOREGROUND, PropagationPolicy::Foreground),
    ] {
        assert_eq!(
            check(&[Absent], finalizer, true),
            ObjectAction::Delete(policy)
        );
    }
}
