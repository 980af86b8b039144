//! What the parts of one controller share: its queue, the resources it watches, own writes, causes, figures.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidings_api::ObjectKey;
use tidings_informer::workqueue::{AddOptions, Priority};
use tidings_informer::{Event, Uid, WorkQueue};
use tidings_kube::ObservedWrite;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout_at};

use crate::cluster::{Cluster, WriteObserver};
use crate::doubts::{Doubt, Doubts};
use crate::events::EventRecorder;
use crate::own_writes::{Awaited, OwnWrites, WrittenObject};
use crate::running::RunningReconciles;
use crate::shards::{OwnershipView, ShardSeat};
use crate::stats::{ControllerCounters, ControllerStats};
use crate::watched::{KeysOf, WatchedResource};

/// Why a key is reconciled.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cause {
    /// What happened.
    pub what: CauseKind,
    /// The resource that it happened to: the name of its informer.
    pub resource: Arc<str>,
    /// The object that it happened to.
    pub object: ObjectKey,
    /// The field manager that wrote the object last, as far as its `managedFields` tell. Nobody for deletions, which they do not tell of, and
    /// for what is no event.
    pub by: Option<Arc<str>>,
}

/// What made a controller reconcile a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CauseKind {
    /// An object was there when the controller started.
    Initial,
    /// An object was added.
    Added,
    /// An object changed.
    Updated,
    /// An object was deleted.
    Deleted,
    /// A resync delivered the object again.
    Resync,
    /// The last reconcile asked for it, or failed.
    Again,
    /// The program asked for it, by a [`Trigger`](crate::Trigger).
    Triggered,
    /// The object came to this replica from another one; see [`ShardGroup`](crate::ShardGroup).
    HandedOver,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.what {
            CauseKind::Initial => "initial",
            CauseKind::Added => "added",
            CauseKind::Updated => "updated",
            CauseKind::Deleted => "deleted",
            CauseKind::Resync => "resync",
            CauseKind::Again => return f.write_str("again"),
            CauseKind::Triggered => return f.write_str("triggered"),
            CauseKind::HandedOver => return f.write_str("handed over"),
        };
        write!(f, "{what} {} {}", self.resource, self.object)?;
        match &self.by {
            Some(manager) => write!(f, " by {manager}"),
            None => Ok(()),
        }
    }
}

/// How many failing keys are shown.
const FAILING_SHOWN_MAX: usize = 50;

/// The wait before the server is asked again for what is in doubt.
const DOUBT_RETRY: Duration = Duration::from_millis(100);

/// How many keys are looked at without a pause for other tasks when the members of a group change.
const KEYS_AT_ONCE: usize = 512;

/// The state that the parts of one controller share.
pub(crate) struct ControllerShared {
    pub(crate) name: Arc<str>,
    pub(crate) cluster: Cluster,
    pub(crate) queue: WorkQueue<ObjectKey>,
    /// Those of the main resource come first.
    pub(crate) sources: Vec<Arc<dyn WatchedResource>>,
    /// How many of the sources are of the main resource: one for each scope.
    main_sources: usize,
    /// The replicas that this one shares the keys with.
    pub(crate) shards: Option<ShardSeat>,
    own_writes: Mutex<OwnWrites>,
    doubts: Doubts,
    /// What this replica could act on when the caches last had all that the server had.
    confirmed: Mutex<OwnershipView>,
    /// Held by the reconcile that waits for that.
    confirming: tokio::sync::Mutex<()>,
    /// The failures in a row of each key. Bound: the keys that fail.
    failures: Mutex<HashMap<ObjectKey, u32>>,
    pub(crate) running: RunningReconciles,
    /// The first cause of each queued key. Bound: the keys of the queue.
    causes: Mutex<HashMap<ObjectKey, Cause>>,
    pub(crate) counters: ControllerCounters,
    pub(crate) events: EventRecorder,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ControllerShared {
    pub(crate) fn new(
        name: Arc<str>,
        cluster: Cluster,
        queue: WorkQueue<ObjectKey>,
        sources: Vec<Arc<dyn WatchedResource>>,
        main_sources: usize,
        shards: Option<ShardSeat>,
    ) -> ControllerShared {
        ControllerShared {
            events: EventRecorder::new(&cluster, &name),
            name,
            cluster,
            queue,
            sources,
            main_sources,
            shards,
            own_writes: Mutex::default(),
            doubts: Doubts::default(),
            confirmed: Mutex::default(),
            confirming: tokio::sync::Mutex::default(),
            failures: Mutex::default(),
            running: RunningReconciles::default(),
            causes: Mutex::default(),
            counters: ControllerCounters::default(),
        }
    }

    /// Queues the keys of an event: for an update those of both states, so that an owner that lost the object is reconciled too.
    pub(crate) fn enqueue<D>(&self, event: &Event<D>, keys: &KeysOf<D>, resource: &Arc<str>) {
        let (what, priority) = match event {
            Event::Added { initial: true, .. } => (CauseKind::Initial, Priority::LOW),
            Event::Added { .. } => (CauseKind::Added, Priority::NORMAL),
            Event::Updated { .. } => (CauseKind::Updated, Priority::NORMAL),
            Event::Deleted { .. } => (CauseKind::Deleted, Priority::NORMAL),
            Event::Resync { .. } => (CauseKind::Resync, Priority::LOW),
            _ => return,
        };
        let by = match event {
            Event::Added { .. } | Event::Updated { .. } => {
                event.object().and_then(|object| object.last_manager())
            }
            _ => None,
        };
        let old = match event {
            Event::Updated { old, .. } => Some(old),
            _ => None,
        };
        // Each key once: a worker may take a key between two adds, and would reconcile it twice.
        let mut queued: Vec<ObjectKey> = Vec::new();
        for object in old.into_iter().chain(event.object()) {
            for key in keys(object) {
                if queued.contains(&key) || self.is_elsewhere(&key) {
                    continue;
                }
                let cause = || Cause {
                    what,
                    resource: Arc::clone(resource),
                    object: object.key().clone(),
                    by: by.map(Arc::from),
                };
                self.add(&key, priority, cause);
                queued.push(key);
            }
        }
    }

    /// Queues a key for a reason that is no event.
    pub(crate) fn enqueue_key(&self, key: &ObjectKey, what: CauseKind, priority: Priority) {
        let cause = || Cause {
            what,
            resource: Arc::clone(&self.name),
            object: key.clone(),
            by: None,
        };
        self.add(key, priority, cause);
    }

    fn add(&self, key: &ObjectKey, priority: Priority, cause: impl FnOnce() -> Cause) {
        lock(&self.causes).entry(key.clone()).or_insert_with(cause);
        let options = AddOptions {
            priority,
            ..AddOptions::default()
        };
        self.queue.add_with(key.clone(), options);
    }

    /// The keys of the main resource whose uids are wanted.
    pub(crate) fn keys_with(&self, is_wanted: &dyn Fn(Uid) -> bool) -> Vec<ObjectKey> {
        let main = self.sources.iter().take(self.main_sources);
        main.flat_map(|source| source.keys_with(is_wanted))
            .collect()
    }

    /// The uid of an object of the main resource.
    pub(crate) fn uid_of(&self, key: &ObjectKey) -> Option<Uid> {
        let mut main = self.sources.iter().take(self.main_sources);
        main.find_map(|source| source.uid_of(key))
    }

    /// True if another replica reconciles a key. It is queued here when that changes.
    fn is_elsewhere(&self, key: &ObjectKey) -> bool {
        let shards = self.shards.as_ref();
        shards.is_some_and(|shards| {
            let uid = self.uid_of(key);
            uid.is_some_and(|uid| !shards.permits().may_act(uid))
        })
    }

    /// True if an object is this replica's, whether it may reconcile it already or waits for the replica before it.
    pub(crate) fn owns(&self, uid: Uid) -> bool {
        let shards = self.shards.as_ref();
        shards.is_none_or(|shards| shards.permits().owns(uid))
    }

    /// True if there is an object, and it is this replica's.
    pub(crate) fn is_own(&self, key: &ObjectKey) -> bool {
        self.uid_of(key).is_some_and(|uid| self.owns(uid))
    }

    /// Queues the keys that come to this replica. Never ends.
    pub(crate) async fn follow_shards(&self) {
        let Some(shards) = &self.shards else {
            return std::future::pending().await;
        };
        let permits = shards.permits();
        let mut before = OwnershipView::default();
        loop {
            let now = permits.view();
            // An object that was away for a moment is new as well: what happened meanwhile was passed over here.
            let is_new =
                |uid: Uid| now.ownership.may_act(uid.number()) && !permits.is_kept(uid, &before);
            for keys in self.keys_with(&|_| true).chunks(KEYS_AT_ONCE) {
                let new = keys
                    .iter()
                    .filter(|key| self.uid_of(key).is_some_and(is_new));
                for key in new {
                    self.enqueue_key(key, CauseKind::HandedOver, Priority::LOW);
                }
                yield_now().await;
            }
            before = now;
            permits.changed_since(&before).await;
        }
    }

    /// Waits until the caches have all that the server has, until `deadline` at most, if an object came from another replica since that was
    /// last so: that replica has written things which this one has not seen.
    pub(crate) async fn see_handed_over(&self, uid: Uid, deadline: Instant) {
        let Some(shards) = &self.shards else {
            return;
        };
        let permits = shards.permits();
        let is_kept = || permits.is_kept(uid, &lock(&self.confirmed));
        if is_kept() {
            return;
        }
        let Ok(_turn) = timeout_at(deadline, self.confirming.lock()).await else {
            return;
        };
        if is_kept() {
            return; // another reconcile has waited
        }
        let now = permits.view();
        for position in 0..self.sources.len() {
            self.doubts.add(position, None);
        }
        self.resolve_doubts(deadline).await;
        *lock(&self.confirmed) = now;
    }

    /// Takes why a key is reconciled.
    pub(crate) fn cause(&self, key: &ObjectKey) -> Cause {
        let known = lock(&self.causes).remove(key);
        known.unwrap_or_else(|| Cause {
            what: CauseKind::Again,
            resource: Arc::clone(&self.name),
            object: key.clone(),
            by: None,
        })
    }

    /// Waits until the caches have what this process wrote to an object and to what it owns. False if they did not get it in time;
    /// what they did not get stays noted.
    pub(crate) async fn see_own_writes(&self, key: &ObjectKey, deadline: Instant) -> bool {
        let writes = lock(&self.own_writes).of(key);
        if writes.is_empty() {
            return true;
        }
        let mut seen = true;
        for ((source, object), awaited) in writes {
            if let Some(source) = self.sources.get(source) {
                let caught_up = source.caught_up(&object, awaited);
                seen &= timeout_at(deadline, caught_up).await.is_ok();
            }
        }
        let has = |(source, object): &WrittenObject, awaited| self.has(*source, object, awaited);
        lock(&self.own_writes).forget(key, has);
        seen
    }

    /// Waits until the caches have writes whose outcome nobody knew, until `deadline` at most: asks the server what it has.
    ///
    /// A write that is still on its way to the server when it is asked is missed.
    pub(crate) async fn resolve_doubts(&self, deadline: Instant) {
        if self.doubts.is_empty() {
            return;
        }
        let Ok(_turn) = timeout_at(deadline, self.doubts.resolving.lock()).await else {
            return;
        };
        for (position, pending) in self.doubts.pending() {
            let Some(source) = self.sources.get(position) else {
                continue;
            };
            let doubt = &pending.doubt;
            let client = self.cluster.informers().client();
            let resolved = async {
                loop {
                    let is_resolved = source.resolve(client, doubt).await;
                    // One object whose requests always fail must not hold back the others.
                    if is_resolved || *doubt != Doubt::Any {
                        return is_resolved;
                    }
                    sleep(DOUBT_RETRY).await;
                }
            };
            // Otherwise the next reconcile tries again.
            if timeout_at(deadline, resolved).await == Ok(true) {
                self.doubts.resolved(position, &pending);
            }
        }
    }

    /// Counts a failure of a key, or forgets them.
    pub(crate) fn count_failure(&self, key: &ObjectKey, has_failed: bool) {
        let mut failures = lock(&self.failures);
        if has_failed {
            let count = failures.entry(key.clone()).or_default();
            *count = count.saturating_add(1);
        } else {
            failures.remove(key);
        }
    }

    /// The keys that failed most often in a row, and how often: some of them.
    pub(crate) fn failing(&self) -> Vec<(ObjectKey, u32)> {
        let failures = lock(&self.failures);
        let mut failing: Vec<_> = failures
            .iter()
            .map(|(key, count)| (key.clone(), *count))
            .collect();
        drop(failures);
        failing.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        failing.truncate(FAILING_SHOWN_MAX);
        failing
    }

    /// The number of the next attempt to reconcile a key: one more than its failures in a row.
    pub(crate) fn next_attempt(&self, key: &ObjectKey) -> u32 {
        lock(&self.failures)
            .get(key)
            .map_or(1, |count| count.saturating_add(1))
    }

    /// Forgets the own writes of a key that the caches did not get.
    pub(crate) fn forget_own_writes(&self, key: &ObjectKey) {
        lock(&self.own_writes).forget(key, |_, _| true);
    }

    fn has(&self, source: usize, object: &ObjectKey, awaited: Awaited) -> bool {
        let source = self.sources.get(source);
        source.is_none_or(|source| source.has(object, awaited))
    }

    /// The figures of the controller.
    pub(crate) fn stats(&self) -> ControllerStats {
        ControllerStats {
            events: self.events.stats(),
            ..self.counters.snapshot()
        }
    }

    /// Own writes that the caches may not have.
    pub(crate) fn own_writes(&self) -> usize {
        lock(&self.own_writes).len()
    }
}

impl WriteObserver for ControllerShared {
    fn wrote(&self, write: &ObservedWrite) {
        let has = |(source, object): &WrittenObject, awaited| self.has(*source, object, awaited);
        for (position, source) in self.sources.iter().enumerate() {
            let Some((keys, object, awaited)) = source.written(write) else {
                continue;
            };
            for key in keys {
                let object = (position, object.clone());
                lock(&self.own_writes).wrote(key, object, awaited, has);
            }
        }
    }

    fn in_doubt(&self, write: &ObservedWrite) {
        for (position, source) in self.sources.iter().enumerate() {
            if source.is_of(write) {
                let named = !write.name.is_empty();
                let object = named.then(|| ObjectKey::new(&write.namespace, &write.name));
                self.doubts.add(position, object);
            }
        }
    }
}

impl fmt::Debug for ControllerShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerShared")
            .field("name", &self.name)
            .field("queued", &self.queue.len())
            .field("own_writes", &self.own_writes())
            .finish_non_exhaustive()
    }
}
