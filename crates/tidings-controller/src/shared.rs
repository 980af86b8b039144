//! What the parts of one controller share: its queue, the resources it watches, own writes, causes, figures.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidings_api::ObjectKey;
use tidings_informer::workqueue::{AddOptions, Priority};
use tidings_informer::{Event, WorkQueue};
use tidings_kube::ObservedWrite;
use tokio::time::{Instant, timeout_at};

use crate::applied::AppliedHashes;
use crate::cluster::{Cluster, WriteObserver};
use crate::events::EventRecorder;
use crate::own_writes::{Awaited, OwnWrites, WrittenObject};
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
        };
        write!(f, "{what} {} {}", self.resource, self.object)
    }
}

/// Longer waits would overflow an `Instant`: a year.
pub(crate) const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The state that the parts of one controller share.
pub(crate) struct ControllerShared {
    pub(crate) name: Arc<str>,
    pub(crate) cluster: Cluster,
    pub(crate) queue: WorkQueue<ObjectKey>,
    /// The main resource is the first.
    pub(crate) sources: Vec<Arc<dyn WatchedResource>>,
    own_writes: Mutex<OwnWrites>,
    /// The first cause of each queued key. Bound: the keys of the queue.
    causes: Mutex<HashMap<ObjectKey, Cause>>,
    pub(crate) applied: AppliedHashes,
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
    ) -> ControllerShared {
        ControllerShared {
            events: EventRecorder::new(&cluster, &name),
            name,
            cluster,
            queue,
            sources,
            own_writes: Mutex::default(),
            causes: Mutex::default(),
            applied: AppliedHashes::default(),
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
        let old = match event {
            Event::Updated { old, .. } => Some(old),
            _ => None,
        };
        // Each key once: a worker may take a key between two adds, and would reconcile it twice.
        let mut queued: Vec<ObjectKey> = Vec::new();
        for object in old.into_iter().chain(event.object()) {
            for key in keys(object) {
                if queued.contains(&key) {
                    continue;
                }
                lock(&self.causes)
                    .entry(key.clone())
                    .or_insert_with(|| Cause {
                        what,
                        resource: Arc::clone(resource),
                        object: object.key().clone(),
                    });
                let options = AddOptions {
                    priority,
                    ..AddOptions::default()
                };
                self.queue.add_with(key.clone(), options);
                queued.push(key);
            }
        }
    }

    /// Takes why a key is reconciled.
    pub(crate) fn cause(&self, key: &ObjectKey) -> Cause {
        let known = lock(&self.causes).remove(key);
        known.unwrap_or_else(|| Cause {
            what: CauseKind::Again,
            resource: Arc::clone(&self.name),
            object: key.clone(),
        })
    }

    /// Waits until the caches have what this process wrote to an object and to what it owns. False if they did not get it in time;
    /// what they did not get stays noted.
    pub(crate) async fn see_own_writes(&self, key: &ObjectKey, longest: Duration) -> bool {
        let writes = lock(&self.own_writes).of(key);
        if writes.is_empty() {
            return true;
        }
        let deadline = Instant::now() + longest.min(FAR);
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
