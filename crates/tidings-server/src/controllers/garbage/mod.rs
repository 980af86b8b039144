//! The garbage collector: what is owned goes with its owners.
//!
//! `graph` knows who owns whom and says whom to look at; `plan` says what becomes of one object; both are pure. Here is the worker
//! that feeds the one from the caches' logs and does what the other says. It never trusts the graph alone: owners are looked up
//! in the caches, and before one is taken for absent the cache is brought up to date.
//!
//! Several servers may stand on one store. Each of them collects; a deletion names the uid and the version that was looked at,
//! and all other writes are made from the current object, so whoever is second does nothing.

mod graph;
#[cfg(test)]
mod model;
mod plan;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tidings_api::{Object, ObjectKey, Status};
use tidings_registry::Draft;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::client;
use crate::core::{Core, DeleteOptions, FOREGROUND, ORPHAN, Resource, ResourceId, Served};
use graph::{Graph, GraphTask, ObjectPlace, Phase, SeenObject, Uid};
use plan::{Facts, ObjectAction, OwnerReference, OwnerState, plan};

/// Changes within this time are looked at together, so that a busy server wakes the collector a hundred times a second and not
/// with every write.
const GATHER: Duration = Duration::from_millis(10);
/// When what failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How many tasks are taken before the log is looked at again, and how many of them are done at a time: writes that wait
/// together are committed together.
const BATCH: usize = 256;
const AT_ONCE: usize = 16;
/// How many owners are remembered to be absent, so that not every dependent of a deleted owner asks the store.
const ABSENT_MAX: usize = 1024;

/// The counters of the collector.
#[derive(Debug, Default)]
pub(crate) struct GarbageCounts {
    /// Objects that have owners or wait for dependents.
    pub(crate) known: AtomicUsize,
    /// Objects that were deleted because their owners were.
    pub(crate) deleted: AtomicU64,
}

/// Collects until the server is gone. `changed` is notified when a cache changes.
pub(super) async fn run(core: Weak<Core>, changed: Arc<Notify>, counts: Arc<GarbageCounts>) {
    let mut collector = Collector {
        counts,
        ..Collector::default()
    };
    loop {
        let next = match core.upgrade() {
            Some(core) => collector.round(&core).await,
            None => return,
        };
        match next {
            NextRound::AtOnce => {
                tokio::task::yield_now().await;
                continue;
            }
            NextRound::OnChange => changed.notified().await,
            NextRound::OnChangeUntil(at) => {
                let _ = tokio::time::timeout_at(at, changed.notified()).await;
            }
        }
        tokio::time::sleep(GATHER).await;
        collector.retry();
    }
}

/// When to look again.
enum NextRound {
    AtOnce,
    /// When a cache changes.
    OnChange,
    /// When a cache changes, but not later than this: a task failed.
    OnChangeUntil(Instant),
}

/// A resource whose objects are followed.
struct FollowedResource {
    resource: Arc<Resource>,
    /// The number of the next event in its cache's log; `None` before the first look.
    position: Option<u64>,
}

#[derive(Default)]
struct Collector {
    graph: Graph,
    followed: Vec<FollowedResource>,
    absent: Arc<AbsentOwners>,
    counts: Arc<GarbageCounts>,
    /// Objects whose task is tried again later.
    ///
    /// Bound: the nodes of the graph.
    failed: HashSet<Uid>,
    retry_at: Option<Instant>,
}

impl Collector {
    async fn round(&mut self, core: &Arc<Core>) -> NextRound {
        self.follow_resources(&collected_resources(&core.served()));
        self.observe();
        let mut tasks = Vec::new();
        let free = self.graph.take_free();
        if !free.is_empty() {
            // A dependent that is in the store and not yet in its cache would be overlooked.
            match catch_up(core, &self.followed).await {
                Ok(()) => {
                    self.observe();
                    let graph = &self.graph;
                    tasks.extend(free.into_iter().filter_map(|uid| graph.release(uid)));
                }
                Err(status) => {
                    tracing::warn!(%status, "the caches are behind the store: objects that wait for dependents go on waiting");
                    free.into_iter().for_each(|uid| self.try_later(uid));
                }
            }
        }
        tasks.extend(std::iter::from_fn(|| self.graph.next()).take(BATCH));
        self.perform(core, tasks).await;
        self.counts.known.store(self.graph.len(), Ordering::Relaxed);
        if !self.graph.is_idle() {
            return NextRound::AtOnce;
        }
        self.retry_at
            .map_or(NextRound::OnChange, NextRound::OnChangeUntil)
    }

    fn try_later(&mut self, uid: Uid) {
        self.failed.insert(uid);
        self.retry_at.get_or_insert(Instant::now() + RETRY);
    }

    /// Tries again what failed, if it is time.
    fn retry(&mut self) {
        if self.retry_at.is_some_and(|at| at <= Instant::now()) {
            self.retry_at = None;
            for uid in std::mem::take(&mut self.failed) {
                self.graph.again(&uid);
            }
        }
    }

    /// Follows these resources from now on and forgets all others.
    fn follow_resources(&mut self, resources: &[Arc<Resource>]) {
        let before = self.followed.len();
        let now: HashMap<ResourceId, &Arc<Resource>> = resources
            .iter()
            .map(|resource| (resource.id, resource))
            .collect();
        let graph = &mut self.graph;
        self.followed.retain_mut(|followed| {
            let id = followed.resource.id;
            match now.get(&id) {
                // Its kind may be another one.
                Some(resource) => followed.resource = Arc::clone(resource),
                None => graph.forget_resource(id),
            }
            now.contains_key(&id)
        });
        let mut changed = self.followed.len() != before;
        let known: HashSet<ResourceId> = self
            .followed
            .iter()
            .map(|followed| followed.resource.id)
            .collect();
        for resource in resources {
            if !known.contains(&resource.id) {
                self.followed.push(FollowedResource {
                    resource: resource.clone(),
                    position: None,
                });
                changed = true;
            }
        }
        if changed {
            self.graph.examine_all();
        }
    }

    /// Tells the graph what happened since the last look.
    fn observe(&mut self) {
        for followed in &mut self.followed {
            let (id, cache) = (followed.resource.id, followed.resource.cache());
            loop {
                let read = followed.position.map(|position| cache.read_at(position));
                let Some(Ok((segment, end, _))) = read else {
                    let (snapshot, end) = cache.tail();
                    let objects = snapshot.state.iter().map(|(_, object)| object);
                    let seen = objects.filter_map(|object| seen(id, object));
                    self.graph.replace(id, seen.collect());
                    // The store may be another one than before.
                    self.absent.clear();
                    followed.position = Some(end);
                    break;
                };
                let mut position = followed.position.unwrap_or(end);
                for event in segment.from(position) {
                    position += 1;
                    let replaced = event
                        .previous
                        .as_ref()
                        .filter(|previous| event.deleted || previous.uid() != event.object.uid());
                    if let Some(previous) = replaced {
                        self.graph.gone(&Uid::new(&previous.uid()));
                    }
                    if !event.deleted {
                        self.graph.seen(describe(id, &event.object));
                    }
                }
                followed.position = Some(position);
                if position >= end {
                    break;
                }
            }
        }
    }

    async fn perform(&mut self, core: &Arc<Core>, tasks: Vec<GraphTask>) {
        let followed = self.followed.iter();
        let resources: HashMap<ResourceId, Arc<Resource>> = followed
            .map(|followed| (followed.resource.id, followed.resource.clone()))
            .collect();
        let resources = Arc::new(resources);
        let mut running = JoinSet::new();
        let mut tasks = tasks.into_iter();
        loop {
            while running.len() < AT_ONCE
                && let Some(task) = tasks.next()
            {
                let worker = Worker {
                    core: core.clone(),
                    resources: resources.clone(),
                    absent: self.absent.clone(),
                    counts: self.counts.clone(),
                };
                running.spawn(async move {
                    let done = worker.perform(&task).await;
                    (task, done)
                });
            }
            let Some(done) = running.join_next().await else {
                return;
            };
            // A task that panicked is not tried again.
            let Ok((task, Err(status))) = done else {
                continue;
            };
            match status.code {
                404 => {}
                // Somebody changed the object: look at it as it is now.
                409 => self.graph.again(task.uid()),
                _ => {
                    tracing::warn!(%status, "cannot collect an object; will try again");
                    self.try_later(task.uid().clone());
                }
            }
        }
    }
}

/// The resources whose objects are collected.
fn collected_resources(served: &Served) -> Vec<Arc<Resource>> {
    let all = served.resources().iter();
    all.filter(|resource| resource.kind.collected)
        .cloned()
        .collect()
}

/// An object as the graph has to know it; `None` for most, which neither have owners nor are being deleted.
fn seen(resource: ResourceId, object: &Object) -> Option<SeenObject> {
    let seen = describe(resource, object);
    let nothing = seen.owners.is_empty() && seen.phase == Phase::Living;
    (!nothing).then_some(seen)
}

fn describe(resource: ResourceId, object: &Object) -> SeenObject {
    let facts = Facts::of(object);
    SeenObject {
        uid: Uid::new(&object.uid()),
        place: ObjectPlace {
            resource,
            key: object.key(),
        },
        owners: facts.owners(),
        phase: facts.phase(),
    }
}

/// Waits until the caches have everything that is in the store now.
async fn catch_up(core: &Core, followed: &[FollowedResource]) -> Result<(), Status> {
    let revision = core.revision().await?;
    for followed in followed {
        followed.resource.reach(revision).await?;
    }
    Ok(())
}

/// Owners that were looked for and are not there. A uid never comes back.
#[derive(Default)]
struct AbsentOwners(Mutex<HashSet<(String, String)>>);

impl AbsentOwners {
    fn has(&self, owner: &(String, String)) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains(owner)
    }

    fn insert(&self, owner: (String, String)) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= ABSENT_MAX {
            known.clear();
        }
        known.insert(owner);
    }

    fn clear(&self) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.clear();
    }
}

/// Does one task.
struct Worker {
    core: Arc<Core>,
    resources: Arc<HashMap<ResourceId, Arc<Resource>>>,
    absent: Arc<AbsentOwners>,
    counts: Arc<GarbageCounts>,
}

impl Worker {
    async fn perform(&self, task: &GraphTask) -> Result<(), Status> {
        match task {
            GraphTask::Examine { uid, place, owns } => self.examine(uid, place, *owns).await,
            GraphTask::Disown { uid, place, owners } => {
                self.disown(uid, place, |known| owners.contains(known))
                    .await
            }
            GraphTask::Release { uid, place } => self.release(uid, place).await,
        }
    }

    fn resource(&self, place: &ObjectPlace) -> Result<&Arc<Resource>, Status> {
        let resource = self.resources.get(&place.resource);
        resource.ok_or_else(Status::no_such_resource)
    }

    async fn examine(&self, uid: &Uid, place: &ObjectPlace, owns: bool) -> Result<(), Status> {
        let resource = self.resource(place)?;
        let Some(object) = resource.get(&place.key) else {
            return Ok(()); // its deletion is in the log
        };
        let facts = Facts::of(&object);
        if Uid::new(&object.uid()) != *uid || facts.phase() != Phase::Living {
            return Ok(());
        }
        let mut states = Vec::with_capacity(facts.owner_references.len());
        let mut fresh = Vec::new();
        for reference in &facts.owner_references {
            let found = self.look_up(resource, &place.key, reference, &mut fresh);
            let state = found.await?;
            states.push(state);
            if state == OwnerState::Unknown {
                break; // the object stays, however its other owners are
            }
        }
        match plan(&facts, &states, owns) {
            ObjectAction::Keep => Ok(()),
            ObjectAction::Disown(lost) => {
                let lost: HashSet<Uid> = lost.iter().map(|uid| Uid::new(uid)).collect();
                self.disown(uid, place, |known| lost.contains(known)).await
            }
            ObjectAction::Delete(policy) => {
                let options = DeleteOptions::exactly(policy, &object);
                let kind = &resource.kind.kind;
                tracing::debug!(%kind, key = %place.key, "deletes an object whose owners are gone");
                client::delete(resource, &place.key, &options).await?;
                self.counts.deleted.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// The state of an owner that an object of a resource names. `fresh` are the resources whose caches are up to date already.
    async fn look_up(
        &self,
        of: &Resource,
        key: &ObjectKey,
        reference: &OwnerReference,
        fresh: &mut Vec<ResourceId>,
    ) -> Result<OwnerState, Status> {
        let version = reference.api_version.as_str();
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let served = self.core.served();
        let named = served.find_kind(group, version, &reference.kind);
        let named = named.filter(|(kind, _)| of.kind.namespaced || !kind.namespaced);
        let Some((kind, Some(owners))) = named else {
            return Ok(OwnerState::Unknown);
        };
        let namespace = if kind.namespaced { key.namespace() } else { "" };
        let owner = ObjectKey::new(namespace, &reference.name);
        let same = |object: &Object| object.uid() == reference.uid;
        let mut found = owners.get(&owner).filter(same);
        if found.is_none() {
            let asked = (
                format!("{} {owner}", kind.group_resource()),
                reference.uid.clone(),
            );
            if self.absent.has(&asked) {
                return Ok(OwnerState::Absent);
            }
            if !fresh.contains(&owners.id) {
                owners.refresh().await?;
                fresh.push(owners.id);
            }
            found = owners.get(&owner).filter(same);
            if found.is_none() {
                self.absent.insert(asked);
            }
        }
        Ok(match found.map(|object| Facts::of(&object).phase()) {
            None => OwnerState::Absent,
            Some(Phase::Foreground) => OwnerState::Waiting,
            Some(_) => OwnerState::Solid,
        })
    }

    /// Takes references to owners from an object.
    async fn disown(
        &self,
        uid: &Uid,
        place: &ObjectPlace,
        lost: impl Fn(&Uid) -> bool + Sync,
    ) -> Result<(), Status> {
        self.edit(uid, place, |draft| {
            draft.meta.owner_references.retain(|reference| {
                let uid = reference.get("uid").and_then(tidings_json::Value::as_str);
                !lost(&Uid::new(uid.unwrap_or_default()))
            });
        })
        .await
    }

    /// Takes the finalizer from an object that no dependent blocks any longer.
    async fn release(&self, uid: &Uid, place: &ObjectPlace) -> Result<(), Status> {
        self.edit(uid, place, |draft| {
            if draft.meta.deletion_timestamp.is_none() {
                return;
            }
            let finalizers = &mut draft.meta.finalizers;
            let finalizer = if finalizers.iter().any(|known| known == ORPHAN) {
                ORPHAN
            } else {
                FOREGROUND
            };
            finalizers.retain(|known| known != finalizer);
        })
        .await
    }

    /// Changes an object if it is still the same one.
    async fn edit(
        &self,
        uid: &Uid,
        place: &ObjectPlace,
        edit: impl Fn(&mut Draft) + Sync,
    ) -> Result<(), Status> {
        let resource = self.resource(place)?;
        let same = |existing: &Object| Uid::new(&existing.uid()) == *uid;
        client::edit(resource, &place.key, same, None, edit).await
    }
}
