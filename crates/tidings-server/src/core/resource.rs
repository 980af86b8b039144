//! A stored resource: a kind, the cache of its objects, and [`Resource::commit`], through which all writes go.
//!
//! Where a webhook converts objects between versions, requests read them in their version ([`Resource::in_version`]), and commit what they write in it.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tidings_api::{
    EventType, Object, ObjectKey, ResourceVersion, ServedObject, Status, UnstampedObject,
};
use tidings_cache::{Cache, CacheError, ConvertedCache, StoreCache};
use tidings_json::Value;
use tidings_merge::Manager;
use tidings_registry::{Kind, Name, OtherVersion, other_owned_versions, settle_owners};
use tidings_storage::Revision;
use tokio::sync::Notify;

use super::conversion::{Conversion, ConversionContext, not_converted};
use super::counts::WatchCounts;
use super::failure::{cache_failed, store_failed};

/// Identifies a resource within this process. If a definition is deleted and created again, its resource gets another id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ResourceId(pub(crate) u64);

/// The stored objects of one kind. Other kinds (versions, views) may show the same objects.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    pub(crate) id: ResourceId,
    /// The kind that the objects are stored as.
    pub(crate) kind: Arc<Kind>,
    store: Arc<StoreCache>,
    pub(crate) watches: Arc<WatchCounts>,
    state: Arc<ResourceState>,
    context: ConversionContext,
    /// How objects are converted between versions, if a webhook does it.
    conversion: Option<Arc<Conversion>>,
}

/// The part of a resource that can change while requests and watches hold it.
#[derive(Debug, Default)]
struct ResourceState {
    /// The resource is no longer served: reads and writes are refused.
    retired: AtomicBool,
    /// The definition is being deleted: creates are refused.
    refuses_creates: AtomicBool,
    /// The kinds of a custom resource, by version.
    kinds: RwLock<HashMap<Name, Arc<Kind>>>,
    /// How often `kinds` was replaced.
    changes: AtomicU64,
    /// Notified when this server marks an object as being deleted.
    marked: Notify,
}

impl Resource {
    pub(crate) fn new(
        id: ResourceId,
        kind: Arc<Kind>,
        store: StoreCache,
        context: ConversionContext,
    ) -> Resource {
        Resource {
            id,
            kind,
            store: Arc::new(store),
            watches: Arc::default(),
            state: Arc::default(),
            context,
            conversion: None,
        }
    }

    /// This resource after its definition has changed: `kind` is now the stored kind, and `kinds` are the kinds of all versions.
    pub(crate) fn with_kinds(&self, kind: Arc<Kind>, kinds: Vec<Arc<Kind>>) -> Resource {
        let terminating = kind.terminating;
        let refuses = &self.state.refuses_creates;
        refuses.store(terminating, Ordering::Release);
        let by_version = kinds.into_iter().map(|kind| (kind.version.clone(), kind));
        let known = self.state.kinds.write();
        *known.unwrap_or_else(PoisonError::into_inner) = by_version.collect();
        self.state.changes.fetch_add(1, Ordering::AcqRel);
        let conversion = match &self.conversion {
            Some(known) if known.is_of(&kind) => Some(known.clone()),
            known => {
                if let Some(known) = known {
                    known.close();
                }
                Conversion::of(&kind, &self.context).map(Arc::new)
            }
        };
        Resource {
            kind,
            conversion,
            ..self.clone()
        }
    }

    /// Ends every watch, because the resource is no longer served.
    pub(crate) fn close(&self) {
        if let Some(conversion) = &self.conversion {
            conversion.close();
        }
        self.cache().close();
    }

    /// Forgets the history before a revision.
    pub(super) fn forget_before(&self, oldest: ResourceVersion) {
        self.cache().forget_before(oldest);
        for (_, converted) in self.converted_caches() {
            converted.cache().forget_before(oldest);
        }
    }

    /// The caches of versions that a webhook converts.
    pub(crate) fn converted_caches(&self) -> Vec<(Name, Arc<ConvertedCache>)> {
        let conversion = self.conversion.as_ref();
        conversion.map_or_else(Vec::new, |conversion| conversion.caches())
    }

    /// The cache of the objects in the version of a kind, if a webhook converts them.
    pub(super) fn converted_cache(&self, kind: &Arc<Kind>) -> Option<Arc<ConvertedCache>> {
        let conversion = self.conversion.as_ref()?;
        Some(conversion.cache(kind, self.cache()))
    }

    /// A stored object as a request in the version of a kind reads it.
    pub(super) async fn in_version(&self, kind: &Kind, object: Object) -> Result<Object, Status> {
        let Some(conversion) = &self.conversion else {
            return Ok(object);
        };
        let converted = Box::pin(conversion.convert(vec![object], kind)).await?;
        let mut converted = converted.into_iter();
        converted.next().ok_or_else(Status::no_such_resource)
    }

    /// As [`Resource::in_version`], for a write: an object that lists and watches of the version have already is not converted again.
    pub(super) async fn edited_in_version(
        &self,
        kind: &Kind,
        object: Object,
    ) -> Result<Object, Status> {
        let conversion = self.conversion.as_ref();
        let cache = conversion.and_then(|conversion| conversion.open_cache(kind));
        let known = cache.and_then(|cache| cache.cache().get(&object.key()));
        match known.filter(|known| known.revision() == object.revision()) {
            Some(known) => Ok(known),
            None => self.in_version(kind, object).await,
        }
    }

    /// What an object will be in the version of a kind when it is stored and read again: for dry runs.
    pub(super) async fn as_read_again(
        &self,
        kind: &Kind,
        object: UnstampedObject,
    ) -> Result<UnstampedObject, Status> {
        let Some(stored) = self.as_stored(kind, &object).await? else {
            return Ok(object);
        };
        let stored = stored.stamped(ResourceVersion::default(), EventType::Added);
        let read = self.in_version(kind, stored).await?;
        let mut read: Value = serde_json::from_slice(read.as_bytes()).map_err(Status::internal)?;
        read["metadata"]["resourceVersion"] = "".into();
        UnstampedObject::parse(read.to_string().into_bytes()).map_err(Status::internal)
    }

    /// An object in the version of a kind.
    pub(super) async fn value_in_version(
        &self,
        kind: &Kind,
        value: Value,
    ) -> Result<Value, Status> {
        let Some(conversion) = &self.conversion else {
            return Ok(value);
        };
        let asked = Box::pin(conversion.ask(vec![value], kind)).await;
        let mut converted = asked.map_err(|why| not_converted(&why))?.into_iter();
        converted.next().ok_or_else(Status::no_such_resource)
    }

    /// What is written in the version of a kind, after those who own fields in other versions have lost what `manager` has changed of them;
    /// 409 if it does not take fields of others.
    pub(super) async fn settle_owners(
        &self,
        kind: &Arc<Kind>,
        existing: &Object,
        written: UnstampedObject,
        (manager, takes): (&Manager, bool),
    ) -> Result<UnstampedObject, Status> {
        if self.conversion.is_none() {
            return Ok(written);
        }
        let after = written.stamped(existing.revision(), EventType::Modified);
        let mut others = Vec::new();
        for version in other_owned_versions(kind, &after)? {
            let Some(other) = self.kind_named(&version) else {
                continue; // the definition does not have it any more
            };
            others.push(OtherVersion {
                before: self.in_version(&other, existing.clone()).await?,
                after: self.in_version(&other, after.clone()).await?,
                kind: other,
            });
        }
        match others.is_empty() {
            true => Ok(written),
            false => settle_owners(kind, &after, (manager, takes), &others),
        }
    }

    /// The kind of a version, which is named with its group.
    fn kind_named(&self, version: &str) -> Option<Arc<Kind>> {
        let kinds = self.state.kinds.read();
        let kinds = kinds.unwrap_or_else(PoisonError::into_inner);
        let mut kinds = kinds.values();
        let named = kinds.find(|kind| kind.group_version().to_string() == version);
        named.cloned()
    }

    /// What is stored of an object that was written in the version of a kind; `None` if that is the object itself.
    async fn as_stored(
        &self,
        kind: &Kind,
        object: &UnstampedObject,
    ) -> Result<Option<UnstampedObject>, Status> {
        if self.conversion.is_none() || kind.version == self.kind.version {
            return Ok(None);
        }
        let mut value: Value = serde_json::from_slice(object.value()).map_err(Status::internal)?;
        if let Some(Value::Object(metadata)) = value.get_mut("metadata") {
            metadata.remove("resourceVersion");
        }
        let converted = self.value_in_version(&self.kind, value).await?;
        self.kind.stored_converted(converted).map(Some)
    }

    /// The current kind for the version of `kind`. A watch that outlives a change of its definition needs it.
    pub(crate) fn current_kind(&self, kind: &Arc<Kind>) -> Arc<Kind> {
        self.kind_of_version(kind).unwrap_or_else(|| kind.clone())
    }

    /// How often the kinds of the resource were replaced.
    pub(crate) fn kind_changes(&self) -> u64 {
        self.state.changes.load(Ordering::Acquire)
    }

    /// Refuses reads and writes from now on, because the resource is no longer served.
    pub(crate) fn retire(&self) {
        self.state.retired.store(true, Ordering::Release);
    }

    fn check_served(&self) -> Result<(), Status> {
        match self.state.retired.load(Ordering::Acquire) {
            true => Err(Status::no_such_resource()),
            false => Ok(()),
        }
    }

    /// Refuses a create while the definition is being deleted. The definition may have changed since the request was routed.
    pub(super) fn check_accepts_creates(&self, kind: &Kind, name: &str) -> Result<(), Status> {
        if kind.terminating || self.state.refuses_creates.load(Ordering::Acquire) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(kind.group_resource(), name, why));
        }
        Ok(())
    }

    /// The cache of the objects.
    pub(crate) fn cache(&self) -> &Arc<Cache> {
        self.store.cache()
    }

    /// Waits until the cache is filled up to a revision.
    pub(crate) async fn fill(&self, revision: Revision) {
        self.store.fill(revision).await;
    }

    /// Asks the store how far its changes have been delivered, so that an idle cache keeps up.
    pub(super) fn request_progress(&self) {
        self.store.request_progress();
    }

    /// True if the task that fills the cache has ended.
    pub(crate) fn is_dead(&self) -> bool {
        self.store.is_dead()
    }

    /// How many stored values are set aside because they are no objects.
    pub(crate) fn set_aside(&self) -> usize {
        self.store.set_aside()
    }

    /// Waits until this server has marked an object as being deleted.
    pub(crate) async fn marked(&self) {
        self.state.marked.notified().await;
    }

    /// One object as the cache has it.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Object> {
        self.cache().get(key)
    }

    /// The objects of a namespace, or all if it is empty, as the cache has them.
    pub(crate) fn list_in(&self, namespace: &str) -> Vec<Object> {
        let state = self.cache().snapshot().state;
        let objects = state.range((first_in(namespace), Bound::Unbounded));
        let objects = objects.take_while(|(key, _)| is_in(key, namespace));
        objects.map(|(_, object)| object.clone()).collect()
    }

    /// True if the cache has objects in a namespace.
    pub(super) fn has_any_in(&self, namespace: &str) -> bool {
        let state = self.cache().snapshot().state;
        let mut objects = state.range((first_in(namespace), Bound::Unbounded));
        let first = objects.next();
        first.is_some_and(|(key, _)| is_in(key, namespace))
    }

    /// Waits until the cache has every write that was acknowledged before this call (W72).
    pub(crate) async fn refresh(&self) -> Result<(), Status> {
        tracing::trace!(target: "tidings::walk", "waits until the cache has every acknowledged write");
        self.to_status(self.store.refresh().await)
    }

    /// Waits until the cache has reached a revision, up to a timeout (W77).
    pub(crate) async fn reach(&self, revision: ResourceVersion) -> Result<(), Status> {
        self.to_status(self.store.reach(revision).await)
    }

    /// An object as the cache has it, or as this server has written it since. If it is in neither, a consistent read decides.
    pub(crate) async fn current(&self, key: &ObjectKey) -> Result<Option<Object>, Status> {
        self.to_status(self.store.current(key).await)
    }

    /// True if an object would be stored in another way now, for example encrypted with another key.
    pub(super) async fn is_outdated(&self, key: &ObjectKey) -> Result<bool, Status> {
        self.store.is_outdated(key).await.map_err(store_failed)
    }

    fn to_status<T>(&self, answer: Result<T, CacheError>) -> Result<T, Status> {
        self.check_served()?;
        answer.map_err(cache_failed)
    }

    /// Refuses a write in a version that the definition no longer has: it may have changed while the body was read.
    fn check_kind(&self, kind: &Kind) -> Result<(), Status> {
        self.check_served()?;
        if self.kind_changes() == 0 {
            return Ok(());
        }
        match self.kind_of_version(kind) {
            Some(_) => Ok(()),
            None => Err(Status::no_such_resource()),
        }
    }

    /// The kind that the definition has now for the version and the name of `kind`.
    fn kind_of_version(&self, kind: &Kind) -> Option<Arc<Kind>> {
        let kinds = self.state.kinds.read();
        let kinds = kinds.unwrap_or_else(PoisonError::into_inner);
        let current = kinds.get(&kind.version);
        current.filter(|current| current.kind == kind.kind).cloned()
    }

    /// Writes an object in the version of a kind to the store, and returns it in that version. All writes of the server go through here. `None` if
    /// another write was faster.
    pub(crate) async fn commit(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        write: ObjectWrite<'_>,
    ) -> Result<Option<Object>, Status> {
        tracing::trace!(target: "tidings::walk", "commits the write");
        self.check_kind(kind)?;
        let written = match write {
            ObjectWrite::Create(object) => {
                self.check_accepts_creates(kind, key.name())?;
                self.put(kind, key, None, object).await?
            }
            ObjectWrite::Update(at, object) => self.put(kind, key, Some(at), object).await?,
            ObjectWrite::Mark(at, object) => {
                let written = self.put(kind, key, Some(at), object).await?;
                self.state.marked.notify_one();
                written
            }
            ObjectWrite::Delete(last) => {
                let deleted = self.store.delete(key, last.revision()).await;
                let deleted = deleted.map_err(store_failed)?;
                return Ok(deleted.map(|revision| last.restamped(revision, EventType::Deleted)));
            }
        };
        match written {
            Some(written) if self.conversion.is_some() => {
                Box::pin(self.in_version(kind, written)).await.map(Some)
            }
            written => Ok(written),
        }
    }

    async fn put(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        at: Option<ResourceVersion>,
        object: &UnstampedObject,
    ) -> Result<Option<Object>, Status> {
        let converted = match self.conversion {
            Some(_) => Box::pin(self.as_stored(kind, object)).await?,
            None => None,
        };
        let stored = converted.as_ref().unwrap_or(object);
        self.store.put(key, at, stored).await.map_err(store_failed)
    }
}

/// Where the objects of a namespace begin.
fn first_in(namespace: &str) -> Bound<ObjectKey> {
    match namespace {
        "" => Bound::Unbounded,
        namespace => Bound::Included(ObjectKey::from_joined(&format!("{namespace}/"))),
    }
}

fn is_in(key: &ObjectKey, namespace: &str) -> bool {
    let rest = key.as_str().strip_prefix(namespace);
    namespace.is_empty() || rest.is_some_and(|rest| rest.starts_with('/'))
}

/// A write to one object.
pub(crate) enum ObjectWrite<'a> {
    /// The object must not exist.
    Create(&'a UnstampedObject),
    /// The object must be at this revision.
    Update(ResourceVersion, &'a UnstampedObject),
    /// Marks the object as being deleted, or changes an earlier mark. It must be at this revision.
    Mark(ResourceVersion, &'a UnstampedObject),
    /// The object must be at the revision of this state.
    Delete(&'a Object),
}
