//! A cache over one prefix of a store: opened, filled, read and written through.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidings_api::{EventType, Object, ObjectKey, ResourceVersion, UnstampedObject};
use tidings_informer::{BackoffOptions, Reflector, ReflectorOptions};
use tidings_storage::{Error, Revision, Storage, Write};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::cache::{Cache, StoredReader};
use crate::fill::CacheFiller;
use crate::source::{SetAside, StoreListerWatcher};

/// The first wait of a cache before it reads the store again after a failure.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// The longest wait of a cache before it reads the store again.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// How long to wait for a progress notification of the store before it is requested again.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Options for [`StoreCache::open`].
#[derive(Clone)]
#[non_exhaustive]
pub struct CacheOptions {
    /// Names the cache in logs.
    pub name: String,
    /// How many bytes of objects the event log may hold.
    pub log_bytes_max: usize,
    /// How many indexes the cache may have. Each takes about 60 bytes for an object; one of a field also keeps with each object where the fields of its kind are, about 150 bytes. The one that lists used least recently goes when there
    /// are more, and one that no list has used for ten minutes.
    pub indexes_max: usize,
    /// How long a read waits for the cache to reach a revision (W77).
    pub reach_timeout: Duration,
    /// The history before this revision is not read. For a resource that is new at this revision.
    pub from: Revision,
    /// Translates stored objects to what readers see; `None` if they need no translation.
    pub reader: Option<StoredReader>,
    /// Notified of every change of the cache.
    pub changed: Arc<Notify>,
}

impl Default for CacheOptions {
    fn default() -> CacheOptions {
        CacheOptions {
            name: String::new(),
            log_bytes_max: 256 << 20,
            indexes_max: 8,
            reach_timeout: Duration::from_secs(3),
            from: Revision(0),
            reader: None,
            changed: Arc::default(),
        }
    }
}

impl std::fmt::Debug for CacheOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheOptions")
            .field("name", &self.name)
            .field("log_bytes_max", &self.log_bytes_max)
            .field("from", &self.from)
            .finish_non_exhaustive()
    }
}

/// Why a cache cannot answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The cache has not read the store yet, or is reading it again because the store has lost revisions.
    #[error("the cache is being filled")]
    Filling,
    /// The cache has not reached a revision in time.
    #[error("the cache is at revision {reached}, behind revision {wanted}")]
    Behind {
        /// The revision that was waited for.
        wanted: ResourceVersion,
        /// The revision that the cache has.
        reached: ResourceVersion,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Error),
}

/// A cache of the objects under one prefix of a store, and the task that fills it. Dropping it stops the task.
pub struct StoreCache {
    store: Arc<dyn Storage>,
    prefix: Bytes,
    cache: Arc<Cache>,
    set_aside: Arc<SetAside>,
    filler: JoinHandle<()>,
    reach_timeout: Duration,
}

impl std::fmt::Debug for StoreCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreCache")
            .field("prefix", &self.prefix)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

impl Drop for StoreCache {
    fn drop(&mut self) {
        self.filler.abort();
    }
}

impl StoreCache {
    /// Begins to fill a cache with the objects whose keys begin with a prefix, and with their history. Must be called within a tokio runtime.
    pub fn open(
        store: Arc<dyn Storage>,
        prefix: impl Into<Bytes>,
        options: CacheOptions,
    ) -> StoreCache {
        tracing::trace!(target: "tidings::walk", "begins to fill a cache");
        let prefix = prefix.into();
        let (bytes, reader) = (options.log_bytes_max, options.reader);
        let cache = Cache::new(bytes, options.indexes_max, options.changed, reader);
        let set_aside = Arc::new(SetAside::new(prefix.clone()));
        let source = Arc::new(StoreListerWatcher {
            store: store.clone(),
            prefix: prefix.clone(),
            cache: cache.clone(),
            from: options.from,
            set_aside: set_aside.clone(),
            followed: Arc::default(),
        });
        let mut reflecting = ReflectorOptions::default();
        // The store is in this process, or it detects a dead connection itself: a watch without events is a healthy watch.
        reflecting.silence_max = Duration::from_secs(3600);
        // Requests wait for this cache, and retries load no server but this one.
        reflecting.backoff = BackoffOptions::default().between(BACKOFF_FIRST, BACKOFF_MAX);
        let filler = CacheFiller::new(cache.clone());
        let reflector = Reflector::new(options.name, source, filler, reflecting);
        let filler = tokio::spawn(async move {
            // A reflector stops only if its source refuses the request for good, which a store never does.
            reflector.run().await;
        });
        StoreCache {
            store,
            prefix,
            cache,
            set_aside,
            filler,
            reach_timeout: options.reach_timeout,
        }
    }

    /// The cache itself.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// The prefix of the keys of its objects.
    pub fn prefix(&self) -> &Bytes {
        &self.prefix
    }

    /// True if the task that fills the cache has panicked. It never ends by itself; the process must be restarted.
    pub fn is_dead(&self) -> bool {
        self.filler.is_finished()
    }

    /// How many values under the prefix are not objects of their keys. Each of them was logged as an error.
    pub fn set_aside(&self) -> usize {
        self.set_aside.count()
    }

    /// The key of an object in the store.
    fn store_key(&self, key: &ObjectKey) -> Bytes {
        let key = [&self.prefix[..], key.as_str().as_bytes()];
        key.concat().into()
    }

    /// Requests a progress notification: the watch of the store then tells this cache the store's revision.
    pub fn request_progress(&self) {
        self.store.request_progress(&self.prefix);
    }

    /// Waits until the cache has been filled and has reached a revision.
    pub async fn fill(&self, revision: Revision) {
        let revision = ResourceVersion::new(revision.0);
        self.cache.reach(ResourceVersion::default()).await; // waits for the first list
        if self.has_reached(revision) {
            return;
        }
        // A watch of the store that is not open yet misses the request, so it is repeated.
        loop {
            self.request_progress();
            let reached = self.cache.reach(revision);
            if tokio::time::timeout(ASK_AGAIN, reached).await.is_ok() {
                return;
            }
        }
    }

    fn has_reached(&self, revision: ResourceVersion) -> bool {
        let reached = self.cache.reached();
        reached.is_some_and(|reached| reached >= revision)
    }

    /// Waits until the cache has every write that was acknowledged before this call (W72).
    ///
    /// # Errors
    /// If the store fails, or the cache does not get there in time.
    pub async fn refresh(&self) -> Result<(), CacheError> {
        tracing::trace!(target: "tidings::walk", "asks the store how far it is");
        let reached = self.cache.reached();
        let revision = ResourceVersion::new(self.store.revision().await?.0);
        if reached.is_some_and(|reached| reached > revision) {
            return Err(CacheError::Filling); // the store has lost revisions, and the cache reads it again
        }
        self.reach(revision).await
    }

    /// Waits until the cache has reached a revision, within [`CacheOptions::reach_timeout`] (W77).
    ///
    /// # Errors
    /// If the cache is not filled yet, or does not get there in time.
    pub async fn reach(&self, revision: ResourceVersion) -> Result<(), CacheError> {
        if self.cache.reached().is_none() {
            return Err(CacheError::Filling);
        }
        if self.has_reached(revision) {
            return Ok(());
        }
        let deadline = tokio::time::Instant::now() + self.reach_timeout;
        while tokio::time::Instant::now() < deadline {
            // A watch of the store that is being reopened misses the request, so it is repeated.
            self.request_progress();
            let reached = tokio::time::timeout(ASK_AGAIN, self.cache.reach(revision)).await;
            if reached.is_ok() {
                return Ok(());
            }
        }
        Err(CacheError::Behind {
            wanted: revision,
            reached: self.cache.reached().unwrap_or_default(),
        })
    }

    /// An object as the cache has it, or as this process has written it since. If it is in neither, a consistent read decides.
    ///
    /// # Errors
    /// If the consistent read fails.
    pub async fn current(&self, key: &ObjectKey) -> Result<Option<Object>, CacheError> {
        if let Some(object) = self.cache.newest(key) {
            return Ok(Some(object));
        }
        self.refresh().await?;
        Ok(self.cache.get(key))
    }

    /// True if the store would keep an object in another way now: see [`Storage::is_outdated`].
    ///
    /// # Errors
    /// If the store fails.
    pub async fn is_outdated(&self, key: &ObjectKey) -> Result<bool, Error> {
        self.store.is_outdated(self.store_key(key)).await
    }

    /// Replaces an object that is at revision `at`, or creates it if `at` is `None`. Returns `None` if another write was faster.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn put(
        &self,
        key: &ObjectKey,
        at: Option<ResourceVersion>,
        object: &UnstampedObject,
    ) -> Result<Option<Object>, Error> {
        tracing::trace!(target: "tidings::walk", "writes through the cache");
        let (store_key, value) = (self.store_key(key), object.value().clone());
        let (write, event) = match at {
            Some(at) => {
                let at = Revision(at.get());
                (Write::update(store_key, at, value), EventType::Modified)
            }
            None => (Write::create(store_key, value), EventType::Added),
        };
        let _under_way = self.cache.begin_write(key, object);
        match self.store.write(write).await {
            Ok(revision) => {
                let written = object.stamped(ResourceVersion::new(revision.0), event);
                self.cache.end_write(object.value(), &written);
                Ok(Some(written))
            }
            Err(Error::Conflict { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes an object that is at revision `at` and returns the revision of the deletion. `None` if another write was faster.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn delete(
        &self,
        key: &ObjectKey,
        at: ResourceVersion,
    ) -> Result<Option<ResourceVersion>, Error> {
        let delete = Write::delete(self.store_key(key), Revision(at.get()));
        match self.store.write(delete).await {
            Ok(revision) => Ok(Some(ResourceVersion::new(revision.0))),
            Err(Error::Conflict { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
