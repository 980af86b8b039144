//! What all requests share: the store, the caches, and how a request waits for them to agree.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use tidings_api::{EventType, Object, ObjectKey, Reason, ResourceVersion, Status};
use tidings_storage::{Error, Revision, Storage, Write};
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::ApiOptions;
use super::audit::AuditIds;
use crate::auth::Authentication;
use crate::cache::Cache;
use crate::custom;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::registry::draft::Written;
use crate::registry::{self, Kind};
use crate::served::{CustomResource, Opener, Resource, Served};

/// How long a read waits for the cache to reach a revision (W77).
const REACH_TIMEOUT: Duration = Duration::from_secs(3);
/// How long progress of the store is waited for before it is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// A continue token lives at most this long: the conformance tests wait ten minutes for one to expire (W88).
const TOKEN_AGE_MAX: Duration = Duration::from_secs(9 * 60);

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Storage>,
    pub(super) served: RwLock<Arc<Served>>,
    /// Told when another set is served.
    pub(super) served_changed: tokio::sync::Notify,
    /// Opens what comes to be served.
    pub(crate) opener: Opener,
    pub(super) nowhere: Arc<Resource>,
    pub(crate) metrics: Metrics,
    pub(super) limits: Limits,
    pub(super) options: ApiOptions,
    pub(super) stopping: watch::Sender<bool>,
    /// Stand for the flow schema and priority level that upstream names in every response (W3).
    pub(super) flow_headers: [(HeaderName, HeaderValue); 2],
    pub(super) audit_ids: AuditIds,
    /// Wakes the deleter of namespaces.
    pub(crate) namespace_deleted: Arc<tokio::sync::Notify>,
    /// Fill the caches, empty namespaces and collect garbage; they end with the server.
    pub(super) tasks: std::sync::Mutex<JoinSet<()>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// What is served now.
    pub(crate) fn served(&self) -> Arc<Served> {
        self.served
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Serves these custom resources from now on, and no others.
    pub(crate) fn serve_custom(&self, customs: &[CustomResource]) {
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        *served = Arc::new(served.with(customs));
        drop(served);
        self.served_changed.notify_waiters();
    }

    /// True if a path that names nothing names a custom resource by now. Whoever has seen that a definition is established, on
    /// this server or another one, is to find its resource.
    pub(super) async fn comes_to_be_served(&self, path: &str) -> bool {
        let mut segments = path.trim_matches('/').split('/');
        let (Some("apis"), Some(group), Some(version)) =
            (segments.next(), segments.next(), segments.next())
        else {
            return false;
        };
        let definitions = registry::definitions();
        // The plural stands in the first segments, behind the namespace if there is one.
        let plurals: Vec<&str> = segments.take(3).collect();
        if plurals.is_empty() || self.refresh(definitions).await.is_err() {
            return false;
        }
        let cache = self.cache(definitions);
        let established = |plural: &&str| {
            let key = ObjectKey::new("", &format!("{plural}.{group}"));
            let found = cache.get(&key).filter(|found| !found.is_terminating());
            found.is_some_and(|found| custom::serves(&found, version))
        };
        let Some(plural) = plurals.into_iter().find(established) else {
            return false;
        };
        let served = async {
            loop {
                let changed = self.served_changed.notified();
                let mut changed = std::pin::pin!(changed);
                changed.as_mut().enable(); // what happens from here on is heard
                if self.served().kinds.find(group, version, plural).is_some() {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(REACH_TIMEOUT, served).await.is_ok()
    }

    /// Where the objects of a kind are.
    pub(crate) fn resource(&self, kind: &'static Kind) -> Arc<Resource> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        served.resource(kind).unwrap_or(&self.nowhere).clone()
    }

    pub(crate) fn cache(&self, kind: &'static Kind) -> Arc<Cache> {
        self.resource(kind).cache.clone()
    }

    /// Where an object is in the store. `Err` if its kind is not served any more: nothing may be written then.
    pub(crate) fn store_key(&self, kind: &'static Kind, key: &ObjectKey) -> Result<Bytes, Status> {
        Ok(self.writable(kind)?.store_key(key))
    }

    fn writable(&self, kind: &'static Kind) -> Result<Arc<Resource>, Status> {
        let served = self.served();
        let resource = served.resource(kind).ok_or_else(Status::no_such_resource)?;
        Ok(resource.clone())
    }

    /// Writes an object that is at a revision, or one that is not there yet. `None` if that is not so.
    pub(crate) async fn put(
        &self,
        kind: &'static Kind,
        key: &ObjectKey,
        at: Option<Revision>,
        written: &Written,
    ) -> Result<Option<Object>, Status> {
        let resource = self.writable(kind)?;
        let (store_key, value) = (resource.store_key(key), written.value.clone());
        let (write, event) = match at {
            Some(at) => (Write::update(store_key, at, value), EventType::Modified),
            None => (Write::create(store_key, value), EventType::Added),
        };
        let cache = &resource.cache;
        let _under_way = cache.writes(key, written);
        match self.store.write(write).await {
            Ok(revision) => {
                let object = written.stamped(ResourceVersion::new(revision.0), event);
                cache.wrote(&written.value, &object);
                Ok(Some(object))
            }
            Err(Error::Conflict { .. }) => Ok(None),
            Err(error) => Err(self.store_failed(error)),
        }
    }

    pub(crate) fn authentication(&self) -> &Authentication {
        &self.options.authentication
    }

    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Milliseconds since 1970, for continue tokens and backups.
    pub(crate) fn now_ms(&self) -> u64 {
        jiff::Timestamp::now()
            .as_millisecond()
            .try_into()
            .unwrap_or(0)
    }

    /// True if a token of that time can no longer be continued (W88).
    pub(crate) fn token_expired(&self, issued_ms: u64) -> bool {
        let age = Duration::from_millis(self.now_ms().saturating_sub(issued_ms));
        age > self.options.history.min(TOKEN_AGE_MAX)
    }

    /// W97: between once and twice the minimum, so that watches do not end together.
    pub(crate) fn default_watch_timeout(&self) -> Duration {
        let (fraction, _) = Uuid::new_v4().as_u64_pair();
        self.options
            .watch_timeout_min
            .mul_f64(1.0 + (fraction >> 11) as f64 / (1_u64 << 53) as f64)
    }

    /// What the store said, as the client hears it.
    pub(crate) fn store_failed(&self, error: Error) -> Status {
        match error {
            Error::Overloaded => {
                Status::too_many_requests("too many writes are waiting, please try again later", 1)
            }
            Error::Closed => Status::failure(
                503,
                Reason::ServiceUnavailable,
                "the store is closed: the server is shutting down, or must be started again",
            ),
            error @ Error::Unavailable(_) => {
                let message = error.to_string();
                again(Status::failure(503, Reason::ServiceUnavailable, message))
            }
            error @ Error::Uncertain(_) => again(Status::timeout(&error.to_string())),
            Error::TooLarge { bytes, bytes_max } => {
                let most = bytes_max.map_or(String::new(), |most| {
                    format!(", which takes {most} at most")
                });
                let message = format!(
                    "Request entity too large: the object would take {bytes} bytes in the store{most}: make it smaller or split it"
                );
                Status::failure(413, Reason::RequestEntityTooLarge, message)
            }
            error => Status::internal(error),
        }
    }

    /// Waits until every cache has what the store has now.
    pub(super) async fn catch_up(&self) -> Result<(), Error> {
        let revision = self.store.revision().await?;
        for resource in self.served().resources() {
            self.fill(resource, revision).await;
        }
        Ok(())
    }

    /// Waits until a cache has what the store had at a revision.
    pub(crate) async fn fill(&self, resource: &Resource, revision: Revision) {
        let revision = ResourceVersion::new(revision.0);
        let Resource { cache, prefix, .. } = resource;
        cache.reach(ResourceVersion::default()).await; // the first list
        if cache.reached().is_some_and(|reached| reached >= revision) {
            return;
        }
        // Asked again until it is heard, as in `reach`: a watch of the store that is just being opened does not hear it.
        loop {
            self.store.request_progress(prefix);
            let reached = cache.reach(revision);
            if tokio::time::timeout(ASK_AGAIN, reached).await.is_ok() {
                return;
            }
        }
    }

    /// Waits until the cache has every write that was acknowledged before now (W72).
    pub(crate) async fn refresh(&self, kind: &'static Kind) -> Result<(), Status> {
        let reached = self.cache(kind).reached();
        let revision = self.store.revision().await;
        let revision = revision.map_err(|error| self.store_failed(error))?;
        let revision = ResourceVersion::new(revision.0);
        if reached.is_some_and(|reached| reached > revision) {
            // The store has lost what the cache has: it is being read again.
            return Err(Status::too_many_requests("storage is (re)initializing", 1));
        }
        self.reach(kind, revision).await
    }

    /// Waits until the cache has reached a revision, but not for long (W77).
    pub(crate) async fn reach(
        &self,
        kind: &'static Kind,
        revision: ResourceVersion,
    ) -> Result<(), Status> {
        let resource = self.resource(kind);
        if Arc::ptr_eq(&resource, &self.nowhere) {
            return Err(Status::no_such_resource());
        }
        let Resource { cache, prefix, .. } = &*resource;
        let Some(reached) = cache.reached() else {
            return Err(Status::too_many_requests("storage is (re)initializing", 1));
        };
        if reached >= revision {
            return Ok(());
        }
        let deadline = tokio::time::Instant::now() + REACH_TIMEOUT;
        while tokio::time::Instant::now() < deadline {
            // Asked again now and then: the watch of the store may be opened anew just now, and not hear it.
            self.store.request_progress(prefix);
            let reached = tokio::time::timeout(ASK_AGAIN, cache.reach(revision)).await;
            if reached.is_ok() {
                return Ok(());
            }
        }
        let current = cache.reached().unwrap_or_default();
        Err(Status::too_large_resource_version(
            revision.get(),
            current.get(),
        ))
    }

    /// An object as the cache has it, or as this server has written it since; if the cache has none, as it is now.
    pub(crate) async fn current(
        &self,
        kind: &'static Kind,
        key: &ObjectKey,
    ) -> Result<Option<Object>, Status> {
        if let Some(object) = self.cache(kind).newest(key) {
            return Ok(Some(object));
        }
        self.refresh(kind).await?;
        Ok(self.cache(kind).get(key))
    }
}

/// Whoever asks again in a second may find the store back.
fn again(mut status: Status) -> Status {
    let details = status.details.get_or_insert_default();
    details.retry_after_seconds = 1;
    status
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Ok(mut tasks) = self.tasks.lock() {
            tasks.abort_all();
        }
    }
}
