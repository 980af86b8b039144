//! A stored resource: a kind, the cache of its objects, and the one place where writes become real.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tidings_api::{EventType, Object, ObjectKey, ResourceVersion, Status, UnstampedObject};
use tidings_cache::{Cache, CacheError, StoreCache};
use tidings_registry::Kind;
use tokio::sync::Notify;

use super::counts::WatchCounts;
use super::failure::{cache_failed, store_failed};

/// Tells resources apart as long as the process lives. A definition that is deleted and made again has another resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ResourceId(pub(crate) u64);

/// The objects of one kind in the store, whichever kinds show them.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    pub(crate) id: ResourceId,
    /// The kind that the objects are stored as.
    pub(crate) kind: Arc<Kind>,
    store: Arc<StoreCache>,
    pub(crate) watches: Arc<WatchCounts>,
    state: Arc<ResourceState>,
}

/// What changes about a resource while requests and watches hold it.
#[derive(Debug, Default)]
struct ResourceState {
    /// No kind shows the objects any longer: nothing may be written.
    retired: AtomicBool,
    /// The definition is being deleted: nothing may be created.
    refuses_creates: AtomicBool,
    /// The kinds of a custom resource, one for each version; `changes` counts how often they were replaced.
    kinds: RwLock<Vec<Arc<Kind>>>,
    changes: AtomicU64,
    /// Notified when this server marks an object as being deleted.
    marked: Notify,
}

impl Resource {
    pub(crate) fn new(id: ResourceId, kind: Arc<Kind>, store: StoreCache) -> Resource {
        Resource {
            id,
            kind,
            store: Arc::new(store),
            watches: Arc::default(),
            state: Arc::default(),
        }
    }

    /// The objects of a definition that has changed, stored as another kind from now on and shown by these kinds.
    pub(crate) fn with_kinds(&self, kind: Arc<Kind>, kinds: Vec<Arc<Kind>>) -> Resource {
        let terminating = kind.terminating;
        let refuses = &self.state.refuses_creates;
        refuses.store(terminating, Ordering::Release);
        let known = self.state.kinds.write();
        *known.unwrap_or_else(PoisonError::into_inner) = kinds;
        self.state.changes.fetch_add(1, Ordering::AcqRel);
        Resource {
            kind,
            ..self.clone()
        }
    }

    /// The kind that shows the version of another one now: a watch outlives a change of its definition.
    pub(crate) fn current_kind(&self, kind: &Arc<Kind>) -> Arc<Kind> {
        let kinds = self.state.kinds.read();
        let kinds = kinds.unwrap_or_else(PoisonError::into_inner);
        let same = |other: &&Arc<Kind>| other.version == kind.version && other.kind == kind.kind;
        kinds.iter().find(same).unwrap_or(kind).clone()
    }

    /// How often the kinds that show the objects were replaced.
    pub(crate) fn kind_changes(&self) -> u64 {
        self.state.changes.load(Ordering::Acquire)
    }

    /// Refuses writes from now on: no kind shows the objects any longer.
    pub(crate) fn retire(&self) {
        self.state.retired.store(true, Ordering::Release);
    }

    fn check_served(&self) -> Result<(), Status> {
        match self.state.retired.load(Ordering::Acquire) {
            true => Err(Status::no_such_resource()),
            false => Ok(()),
        }
    }

    /// True if objects cannot be created because the definition is being deleted.
    pub(crate) fn refuses_creates(&self) -> bool {
        self.state.refuses_creates.load(Ordering::Acquire)
    }

    /// The cache of the objects.
    pub(crate) fn cache(&self) -> &Arc<Cache> {
        self.store.cache()
    }

    /// The cache, with the means to fill it.
    pub(crate) fn store(&self) -> &StoreCache {
        &self.store
    }

    /// Waits until this server marks an object as being deleted.
    pub(crate) async fn marked(&self) {
        self.state.marked.notified().await;
    }

    /// One object as the cache has it.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Object> {
        self.cache().get(key)
    }

    /// Waits until the cache has every write that was acknowledged before this call (W72).
    pub(crate) async fn refresh(&self) -> Result<(), Status> {
        tracing::trace!(target: "tidings::walk", "waits until the cache has every acknowledged write");
        self.served(self.store.refresh().await)
    }

    /// Waits until the cache has reached a revision, but not for long (W77).
    pub(crate) async fn reach(&self, revision: ResourceVersion) -> Result<(), Status> {
        self.served(self.store.reach(revision).await)
    }

    /// An object as the cache has it or as this server has written it since; if neither has it, a consistent read decides.
    pub(crate) async fn current(&self, key: &ObjectKey) -> Result<Option<Object>, Status> {
        self.served(self.store.current(key).await)
    }

    fn served<T>(&self, answer: Result<T, CacheError>) -> Result<T, Status> {
        self.check_served()?;
        answer.map_err(cache_failed)
    }

    /// Refuses a write of a kind that is not served any more: its version may be gone while a body was read.
    fn check_kind(&self, kind: &Kind) -> Result<(), Status> {
        self.check_served()?;
        if !kind.is_custom() {
            return Ok(());
        }
        let kinds = self.state.kinds.read();
        let kinds = kinds.unwrap_or_else(PoisonError::into_inner);
        let same = |other: &Arc<Kind>| other.version == kind.version && other.kind == kind.kind;
        match kinds.iter().any(same) {
            true => Ok(()),
            false => Err(Status::no_such_resource()),
        }
    }

    /// Makes a write of an object of a kind real: the only place where an object is stored. `None` if another write was faster.
    pub(crate) async fn commit(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        write: ObjectWrite<'_>,
    ) -> Result<Option<Object>, Status> {
        tracing::trace!(target: "tidings::walk", "makes the write real");
        self.check_kind(kind)?;
        match write {
            ObjectWrite::Create(object) => {
                let written = self.store.put(key, None, object).await;
                written.map_err(store_failed)
            }
            ObjectWrite::Update(at, object) => {
                let written = self.store.put(key, Some(at), object).await;
                let written = written.map_err(store_failed)?;
                if written.as_ref().is_some_and(Object::is_terminating) {
                    self.state.marked.notify_one();
                }
                Ok(written)
            }
            ObjectWrite::Delete(last) => {
                let deleted = self.store.delete(key, last.revision()).await;
                let deleted = deleted.map_err(store_failed)?;
                Ok(deleted.map(|revision| last.restamped(revision, EventType::Deleted)))
            }
        }
    }
}

/// A write to one object.
pub(crate) enum ObjectWrite<'a> {
    /// The object must not exist.
    Create(&'a UnstampedObject),
    /// The object must be at the revision.
    Update(ResourceVersion, &'a UnstampedObject),
    /// The object must be at the revision of this last state.
    Delete(&'a Object),
}
