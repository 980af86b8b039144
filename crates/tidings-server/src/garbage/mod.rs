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
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tidings_api::{Object, ObjectKey, Status};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::api::Inner;
use crate::registry::draft::Draft;
use crate::registry::{Kind, Special};
use crate::served::Served;
use crate::verbs::delete::{DeleteOptions, delete_one};
use crate::verbs::update;
use graph::{Graph, KindId, Place, Seen, Task, Uid};
use plan::{Action, Facts, OwnerState, Policy, Reference, plan};
pub(crate) use plan::{FOREGROUND, ORPHAN};

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

/// Collects until the server is gone. `told` is notified when a cache changes.
pub(crate) async fn run(api: Weak<Inner>, told: Arc<Notify>) {
    let mut collector = Collector::default();
    loop {
        let next = match api.upgrade() {
            Some(api) => collector.round(&api).await,
            None => return,
        };
        match next {
            Next::AtOnce => {
                tokio::task::yield_now().await;
                continue;
            }
            Next::WhenTold => told.notified().await,
            Next::Until(at) => {
                let _ = tokio::time::timeout_at(at, told.notified()).await;
            }
        }
        tokio::time::sleep(GATHER).await;
        collector.retry();
    }
}

/// When to look again.
enum Next {
    AtOnce,
    /// When something changes.
    WhenTold,
    /// The same, but not later than this: something failed.
    Until(Instant),
}

/// A kind whose objects are followed.
struct Followed {
    id: KindId,
    kind: &'static Kind,
    /// The number of the next event in its cache's log; `None` before the first look.
    position: Option<u64>,
}

#[derive(Default)]
struct Collector {
    graph: Graph,
    followed: Vec<Followed>,
    next_id: u32,
    absent: Arc<Absent>,
    /// What is tried again later.
    ///
    /// Bound: the nodes of the graph.
    failed: HashSet<Uid>,
    retry_at: Option<Instant>,
}

impl Collector {
    async fn round(&mut self, api: &Arc<Inner>) -> Next {
        self.follow_kinds(&followed_kinds(&api.served()));
        self.observe(api);
        let mut tasks = Vec::new();
        let free = self.graph.take_free();
        if !free.is_empty() {
            // A dependent that is in the store and not yet in its cache would be overlooked.
            match catch_up(api, &self.followed).await {
                Ok(()) => {
                    self.observe(api);
                    let graph = &self.graph;
                    tasks.extend(free.into_iter().filter_map(|uid| graph.release(uid)));
                }
                Err(status) => {
                    tracing::warn!(%status, "the caches are behind: who waits for dependents waits on");
                    free.into_iter().for_each(|uid| self.try_later(uid));
                }
            }
        }
        tasks.extend(std::iter::from_fn(|| self.graph.next()).take(BATCH));
        self.perform(api, tasks).await;
        api.metrics.garbage_known(self.graph.len());
        if !self.graph.is_idle() {
            return Next::AtOnce;
        }
        self.retry_at.map_or(Next::WhenTold, Next::Until)
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

    /// Follows these kinds from now on and forgets all others.
    fn follow_kinds(&mut self, kinds: &[&'static Kind]) {
        let same = |followed: &Followed, kind: &Kind| std::ptr::eq(followed.kind, kind);
        let known = self.followed.len();
        let graph = &mut self.graph;
        self.followed.retain(|followed| {
            let stays = kinds.iter().any(|kind| same(followed, kind));
            if !stays {
                graph.forget_kind(followed.id);
            }
            stays
        });
        let mut changed = self.followed.len() != known;
        for kind in kinds {
            if !self.followed.iter().any(|followed| same(followed, kind)) {
                let id = KindId(self.next_id);
                self.next_id += 1;
                self.followed.push(Followed {
                    id,
                    kind,
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
    fn observe(&mut self, api: &Inner) {
        for followed in &mut self.followed {
            let cache = api.cache(followed.kind);
            loop {
                let read = followed.position.map(|position| cache.read_at(position));
                let Some(Ok((segment, end, _))) = read else {
                    let (snapshot, end) = cache.tail();
                    let objects = snapshot.state.iter().map(|(_, object)| object);
                    let seen = objects.filter_map(|object| seen(followed.id, object));
                    self.graph.replace(followed.id, seen.collect());
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
                        self.graph.seen(describe(followed.id, &event.object));
                    }
                }
                followed.position = Some(position);
                if position >= end {
                    break;
                }
            }
        }
    }

    async fn perform(&mut self, api: &Arc<Inner>, tasks: Vec<Task>) {
        let kinds: HashMap<KindId, &'static Kind> = self
            .followed
            .iter()
            .map(|followed| (followed.id, followed.kind))
            .collect();
        let kinds = Arc::new(kinds);
        let mut running = JoinSet::new();
        let mut tasks = tasks.into_iter();
        loop {
            while running.len() < AT_ONCE
                && let Some(task) = tasks.next()
            {
                let hand = Hand {
                    api: api.clone(),
                    kinds: kinds.clone(),
                    absent: self.absent.clone(),
                };
                running.spawn(async move {
                    let done = hand.perform(&task).await;
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
                    tracing::warn!(%status, "an object cannot be collected; it is tried again");
                    self.try_later(task.uid().clone());
                }
            }
        }
    }
}

/// The kinds whose objects are collected. Events are not: they go after a while by themselves.
fn followed_kinds(served: &Served) -> Vec<&'static Kind> {
    let stored = served.resources().iter().map(|resource| resource.kind);
    stored
        .filter(|kind| kind.special != Special::Event)
        .collect()
}

/// What the graph has to know of an object, which for most is nothing.
fn seen(kind: KindId, object: &Object) -> Option<Seen> {
    let seen = describe(kind, object);
    let nothing = seen.owners.is_empty() && seen.phase == graph::Phase::Living;
    (!nothing).then_some(seen)
}

fn describe(kind: KindId, object: &Object) -> Seen {
    let facts = Facts::of(object);
    Seen {
        uid: Uid::new(&object.uid()),
        place: Place {
            kind,
            key: object.key(),
        },
        owners: facts.owners(),
        phase: facts.phase(),
    }
}

/// Waits until the caches have everything that is in the store now.
async fn catch_up(api: &Inner, followed: &[Followed]) -> Result<(), Status> {
    let revision = api.store.revision().await;
    let revision = revision.map_err(|error| api.store_failed(error))?;
    let revision = tidings_api::ResourceVersion::new(revision.0);
    for followed in followed {
        api.reach(followed.kind, revision).await?;
    }
    Ok(())
}

/// Owners that were looked for and are not there. A uid never comes back.
#[derive(Default)]
struct Absent(Mutex<HashSet<(String, String)>>);

impl Absent {
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
struct Hand {
    api: Arc<Inner>,
    kinds: Arc<HashMap<KindId, &'static Kind>>,
    absent: Arc<Absent>,
}

impl Hand {
    async fn perform(&self, task: &Task) -> Result<(), Status> {
        match task {
            Task::Examine { uid, place, owns } => self.examine(uid, place, *owns).await,
            Task::Disown { uid, place, owners } => {
                self.disown(uid, place, |known| owners.contains(known))
                    .await
            }
            Task::Release { uid, place } => self.release(uid, place).await,
        }
    }

    fn kind(&self, place: &Place) -> Result<&'static Kind, Status> {
        let kind = self.kinds.get(&place.kind).copied();
        kind.ok_or_else(Status::no_such_resource)
    }

    async fn examine(&self, uid: &Uid, place: &Place, owns: bool) -> Result<(), Status> {
        let kind = self.kind(place)?;
        let Some(object) = self.api.cache(kind).get(&place.key) else {
            return Ok(()); // its end is in the log
        };
        let facts = Facts::of(&object);
        if Uid::new(&object.uid()) != *uid || facts.phase() != graph::Phase::Living {
            return Ok(());
        }
        let mut states = Vec::with_capacity(facts.owner_references.len());
        let mut fresh = Vec::new();
        for reference in &facts.owner_references {
            let found = self.look_up(kind, &place.key, reference, &mut fresh);
            let state = found.await?;
            states.push(state);
            if state == OwnerState::Unknown {
                break; // it stays, whatever the others are
            }
        }
        match plan(&facts, &states, owns) {
            Action::Keep => Ok(()),
            Action::Disown(lost) => {
                let lost: HashSet<Uid> = lost.iter().map(|uid| Uid::new(uid)).collect();
                self.disown(uid, place, |known| lost.contains(known)).await
            }
            Action::Delete(policy) => {
                let policy = match policy {
                    Policy::Background => "Background",
                    Policy::Foreground => "Foreground",
                    Policy::Orphan => "Orphan",
                };
                let version = object.resource_version();
                let options = DeleteOptions::exactly(policy, &object.uid(), &version);
                tracing::debug!(kind = kind.kind, key = %place.key, "its owners are gone");
                delete_one(&self.api, kind, &place.key, &options).await?;
                self.api.metrics.garbage_deleted();
                if kind.special == Special::Namespace {
                    self.api.namespace_deleted.notify_one();
                }
                Ok(())
            }
        }
    }

    /// How the owner is that an object names. `fresh` are the kinds whose caches are up to date already.
    async fn look_up(
        &self,
        of: &'static Kind,
        key: &ObjectKey,
        reference: &Reference,
        fresh: &mut Vec<&'static Kind>,
    ) -> Result<OwnerState, Status> {
        let version = reference.api_version.as_str();
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let served = self.api.served();
        let mut kinds = served.kinds.iter().filter(|kind| kind.review.is_none());
        let named = kinds.find(|kind| {
            kind.kind == reference.kind && kind.group == group && kind.version == version
        });
        let Some(kind) = named.filter(|kind| of.namespaced || !kind.namespaced) else {
            return Ok(OwnerState::Unknown);
        };
        let namespace = if kind.namespaced { key.namespace() } else { "" };
        let owner = ObjectKey::new(namespace, &reference.name);
        let cache = self.api.cache(kind);
        let same = |object: &Object| object.uid() == reference.uid;
        let mut found = cache.get(&owner).filter(same);
        if found.is_none() {
            let asked = (
                format!("{} {owner}", kind.group_resource()),
                reference.uid.clone(),
            );
            if self.absent.has(&asked) {
                return Ok(OwnerState::Absent);
            }
            if !fresh.iter().any(|known| std::ptr::eq(*known, kind)) {
                self.api.refresh(kind).await?;
                fresh.push(kind);
            }
            found = cache.get(&owner).filter(same);
            if found.is_none() {
                self.absent.insert(asked);
            }
        }
        Ok(match found.map(|object| Facts::of(&object).phase()) {
            None => OwnerState::Absent,
            Some(graph::Phase::Foreground) => OwnerState::Waiting,
            Some(_) => OwnerState::Solid,
        })
    }

    /// Takes references to owners from an object.
    async fn disown(
        &self,
        uid: &Uid,
        place: &Place,
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

    /// Takes the finalizer from an object that waits for nobody.
    async fn release(&self, uid: &Uid, place: &Place) -> Result<(), Status> {
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

    /// Changes an object as a client would, if it is still the same one.
    async fn edit(
        &self,
        uid: &Uid,
        place: &Place,
        edit: impl Fn(&mut Draft) + Sync,
    ) -> Result<(), Status> {
        let kind = self.kind(place)?;
        let same = |existing: &Object| Uid::new(&existing.uid()) == *uid;
        update::edit(&self.api, kind, &place.key, same, None, edit).await
    }
}
