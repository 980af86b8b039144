//! The garbage collector: deletes objects whose owners are gone.
//!
//! `graph` knows owners and dependents and returns tasks; `plan` decides what to do with one object; both are pure. This file feeds the graph
//! from the event logs of the caches and performs the tasks. It never trusts the graph alone: owners are looked up in the caches, and before
//! an owner counts as absent its cache is brought up to date.
//!
//! Several servers may share one store, and each of them collects. A deletion has the examined uid and resourceVersion as preconditions, and
//! all other writes start from the current object, so the second server to write changes nothing.

mod graph;
#[cfg(test)]
mod model;
mod plan;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tidings_api::validate::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER};
use tidings_api::{Object, ObjectKey, Status};
use tidings_registry::Draft;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::client;
use crate::core::{Core, DeleteOptions, Resource, ResourceId, ServedSet};
use graph::{DeletionPhase, GraphTask, ObjectLocation, OwnershipGraph, SeenObject, Uid};
use plan::{ObjectAction, OwnerReference, OwnerState, OwnershipFacts, plan};

/// Changes within this time are handled together, so that a busy server wakes the collector a hundred times a second and not with every
/// write.
const GATHER: Duration = Duration::from_millis(10);
/// After what time failed tasks are tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How many tasks are taken before the event logs are read again.
const BATCH: usize = 256;
/// How many tasks run concurrently: their writes are committed together.
const AT_ONCE: usize = 16;
/// How many absent owners are remembered, so that not every dependent of a deleted owner needs a consistent read.
const ABSENT_MAX: usize = 1024;

/// The counters of the collector.
#[derive(Debug, Default)]
pub(crate) struct GarbageCounts {
    /// Objects that have owners or wait for dependents.
    pub(crate) known: AtomicUsize,
    /// Objects that were deleted because their owners were gone.
    pub(crate) deleted: AtomicU64,
}

/// Runs the collector until the server stops. `changed` is notified when a cache changes.
pub(super) async fn run(core: Weak<Core>, changed: Arc<Notify>, counts: Arc<GarbageCounts>) {
    let mut collector = GarbageCollector {
        counts,
        ..GarbageCollector::default()
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

/// When the next round starts.
enum NextRound {
    AtOnce,
    /// When a cache changes.
    OnChange,
    /// When a cache changes, but not later than this, because a task failed.
    OnChangeUntil(Instant),
}

/// A resource whose event log the collector reads.
struct FollowedResource {
    resource: Arc<Resource>,
    /// The position in its event log; `None` before the first read.
    position: Option<u64>,
}

#[derive(Default)]
struct GarbageCollector {
    graph: OwnershipGraph,
    /// The number of the served set whose resources are followed.
    served: Option<u64>,
    followed: Vec<FollowedResource>,
    absent: Arc<AbsentOwners>,
    counts: Arc<GarbageCounts>,
    /// Objects whose task failed and is tried again later.
    ///
    /// Bound: the nodes of the graph.
    failed: HashSet<Uid>,
    retry_at: Option<Instant>,
}

impl GarbageCollector {
    async fn round(&mut self, core: &Arc<Core>) -> NextRound {
        let served = core.served();
        if self.served != Some(served.number) {
            self.follow_resources(&collected_resources(&served));
            self.served = Some(served.number);
        }
        self.observe();
        let mut tasks = Vec::new();
        let free = self.graph.take_free();
        if !free.is_empty() {
            // A dependent that is in the store but not yet in its cache would be missed.
            match catch_up(core, &self.followed).await {
                Ok(()) => {
                    self.observe();
                    let graph = &self.graph;
                    tasks.extend(free.into_iter().filter_map(|uid| graph.release(uid)));
                }
                Err(status) => {
                    tracing::warn!(%status, "the caches are behind the store: cannot release objects that wait for dependents; will retry");
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

    /// Queues the failed tasks again, if it is time.
    fn retry(&mut self) {
        if self.retry_at.is_some_and(|at| at <= Instant::now()) {
            self.retry_at = None;
            for uid in std::mem::take(&mut self.failed) {
                self.graph.retry(&uid);
            }
        }
    }

    /// Follows these resources from now on and forgets all others.
    fn follow_resources(&mut self, resources: &[Arc<Resource>]) {
        let now: HashMap<ResourceId, &Arc<Resource>> = resources
            .iter()
            .map(|resource| (resource.id, resource))
            .collect();
        let graph = &mut self.graph;
        self.followed.retain_mut(|followed| {
            let id = followed.resource.id;
            match now.get(&id) {
                // The definition of a custom resource may have changed, and its kind with it.
                Some(resource) => followed.resource = Arc::clone(resource),
                None => graph.forget_resource(id),
            }
            now.contains_key(&id)
        });
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
            }
        }
        // An owner of a kind that was not served before may now be found.
        self.graph.examine_all();
    }

    /// Tells the graph the events since the last round.
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
                    // The store may have lost revisions, and the owners may exist again.
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
        if tasks.is_empty() {
            return;
        }
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
                let worker = GarbageWorker {
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
                // Another client changed the object: examine its current state.
                409 => self.graph.retry(task.uid()),
                _ => {
                    tracing::warn!(%status, "cannot garbage-collect an object; will retry");
                    self.try_later(task.uid().clone());
                }
            }
        }
    }
}

/// The resources whose objects are collected.
fn collected_resources(served: &ServedSet) -> Vec<Arc<Resource>> {
    let all = served.resources().iter();
    all.filter(|resource| resource.kind.collected)
        .cloned()
        .collect()
}

/// What the graph needs to know of an object; `None` for most objects, which neither have owners nor are being deleted.
fn seen(resource: ResourceId, object: &Object) -> Option<SeenObject> {
    let seen = describe(resource, object);
    let nothing = seen.owners.is_empty() && seen.phase == DeletionPhase::Living;
    (!nothing).then_some(seen)
}

fn describe(resource: ResourceId, object: &Object) -> SeenObject {
    let facts = OwnershipFacts::of(object);
    SeenObject {
        uid: Uid::new(&object.uid()),
        location: ObjectLocation {
            resource,
            key: object.key(),
        },
        owners: facts.owners(),
        phase: facts.phase(),
    }
}

/// Waits until the caches have every change that is in the store now.
async fn catch_up(core: &Core, followed: &[FollowedResource]) -> Result<(), Status> {
    let revision = core.revision().await?;
    for followed in followed {
        followed.resource.reach(revision).await?;
    }
    Ok(())
}

/// Owners that were looked up and do not exist. This stays true: a uid is never used again.
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

/// Performs one task.
struct GarbageWorker {
    core: Arc<Core>,
    resources: Arc<HashMap<ResourceId, Arc<Resource>>>,
    absent: Arc<AbsentOwners>,
    counts: Arc<GarbageCounts>,
}

impl GarbageWorker {
    async fn perform(&self, task: &GraphTask) -> Result<(), Status> {
        match task {
            GraphTask::Examine {
                uid,
                location,
                owns,
            } => self.examine(uid, location, *owns).await,
            GraphTask::Disown {
                uid,
                location,
                owners,
            } => {
                self.disown(uid, location, |known| owners.contains(known))
                    .await
            }
            GraphTask::Release { uid, location } => self.release(uid, location).await,
        }
    }

    fn resource(&self, location: &ObjectLocation) -> Result<&Arc<Resource>, Status> {
        let resource = self.resources.get(&location.resource);
        resource.ok_or_else(Status::no_such_resource)
    }

    async fn examine(
        &self,
        uid: &Uid,
        location: &ObjectLocation,
        owns: bool,
    ) -> Result<(), Status> {
        let resource = self.resource(location)?;
        let Some(object) = resource.get(&location.key) else {
            return Ok(()); // deleted: the graph learns it from the event log
        };
        let facts = OwnershipFacts::of(&object);
        if Uid::new(&object.uid()) != *uid || facts.phase() != DeletionPhase::Living {
            return Ok(());
        }
        let mut states = Vec::with_capacity(facts.owner_references.len());
        let mut fresh = Vec::new();
        for reference in &facts.owner_references {
            let found = self.look_up(resource, &location.key, reference, &mut fresh);
            let state = found.await?;
            states.push(state);
            if state == OwnerState::Unknown {
                break; // the object is kept, whatever its other owners are
            }
        }
        match plan(&facts, &states, owns) {
            ObjectAction::Keep => Ok(()),
            ObjectAction::Disown(lost) => {
                let lost: HashSet<Uid> = lost.iter().map(|uid| Uid::new(uid)).collect();
                self.disown(uid, location, |known| lost.contains(known))
                    .await
            }
            ObjectAction::Delete(policy) => {
                let options = DeleteOptions::exactly(policy, &object);
                let kind = &resource.kind.kind;
                tracing::debug!(%kind, key = %location.key, "deleting an object whose owners are gone");
                client::delete(&self.core, resource, &location.key, options).await?;
                self.counts.deleted.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// The state of an owner to which the object `key` of the resource `of` refers. `fresh` lists the resources whose caches are up to date.
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
        Ok(
            match found.map(|object| OwnershipFacts::of(&object).phase()) {
                None => OwnerState::Absent,
                Some(DeletionPhase::Foreground) => OwnerState::Waiting,
                Some(_) => OwnerState::Solid,
            },
        )
    }

    /// Removes references to owners from an object.
    async fn disown(
        &self,
        uid: &Uid,
        location: &ObjectLocation,
        lost: impl Fn(&Uid) -> bool + Sync,
    ) -> Result<(), Status> {
        self.edit(uid, location, |draft| {
            draft.meta.owner_references.retain(|reference| {
                let uid = reference.get("uid").and_then(tidings_json::Value::as_str);
                !lost(&Uid::new(uid.unwrap_or_default()))
            });
        })
        .await
    }

    /// Removes the deletion finalizer of an object that no dependent blocks any longer.
    async fn release(&self, uid: &Uid, location: &ObjectLocation) -> Result<(), Status> {
        self.edit(uid, location, |draft| {
            if draft.meta.deletion_timestamp.is_none() {
                return;
            }
            let finalizers = &mut draft.meta.finalizers;
            let finalizer = if finalizers.iter().any(|known| known == ORPHAN_FINALIZER) {
                ORPHAN_FINALIZER
            } else {
                FOREGROUND_FINALIZER
            };
            finalizers.retain(|known| known != finalizer);
        })
        .await
    }

    /// Changes an object, unless it was deleted and created again.
    async fn edit(
        &self,
        uid: &Uid,
        location: &ObjectLocation,
        edit: impl Fn(&mut Draft) + Sync,
    ) -> Result<(), Status> {
        let resource = self.resource(location)?;
        let same = |existing: &Object| Uid::new(&existing.uid()) == *uid;
        client::edit(&self.core, resource, &location.key, same, None, edit).await
    }
}
