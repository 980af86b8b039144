//! What all commands share: the store, and the set of what is served.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tidings_api::{ObjectKey, ResourceVersion, Status};
use tidings_cache::StoredReader;
use tidings_json::Value;
use tidings_registry::Kind;
use tidings_storage::{Error, HistoryHold, Revision, Stats, Storage, Trouble};
use tidings_structural::definition;
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use super::access::Authentication;
use super::failure::store_failed;
use super::resource::Resource;
use super::served::{CustomResource, ResourceOpener, ServedSet};

/// How long a request waits for a definition that is established to be served.
const SERVED_TIMEOUT: Duration = Duration::from_secs(3);
/// A continue token lives at most this long: the conformance tests wait ten minutes for one to expire (W88).
const TOKEN_AGE_MAX: Duration = Duration::from_secs(9 * 60);

/// How the core is to be.
#[derive(Debug, Clone)]
pub(crate) struct CoreOptions {
    pub(crate) authentication: Authentication,
    /// How long the state of a list can be continued.
    pub(crate) history: Duration,
    /// Bytes of objects that the event log of one resource may hold.
    pub(crate) log_bytes_max: usize,
    /// A watch without a timeout ends after this, up to twice of it (W97).
    pub(crate) watch_timeout_min: Duration,
}

/// What all commands share.
pub(crate) struct Core {
    store: Arc<dyn Storage>,
    served: RwLock<Arc<ServedSet>>,
    /// Notified when another set is served.
    served_changed: Notify,
    opener: ResourceOpener,
    options: CoreOptions,
    stopping: watch::Sender<bool>,
    /// The resources of namespaces and of definitions, which other writes and controllers need.
    pub(crate) namespaces: Arc<Resource>,
    pub(crate) definitions: Arc<Resource>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Core {
    /// Begins to fill the caches of what is always served. Must be called within a tokio runtime.
    pub(crate) fn open(store: Arc<dyn Storage>, options: CoreOptions) -> Core {
        let opener = ResourceOpener::new(store.clone(), options.log_bytes_max);
        let served = ServedSet::open(&opener);
        let resource = |group: &str, plural: &str| {
            let found = served.find(group, "v1", plural);
            let found = found.and_then(|(_, resource)| resource);
            found.unwrap_or_else(|| served.resources()[0].clone())
        };
        Core {
            namespaces: resource("", "namespaces"),
            definitions: resource("apiextensions.k8s.io", "customresourcedefinitions"),
            store,
            served: RwLock::new(Arc::new(served)),
            served_changed: Notify::new(),
            opener,
            options,
            stopping: watch::Sender::new(false),
        }
    }

    /// The set of what is served now.
    pub(crate) fn served(&self) -> Arc<ServedSet> {
        let served = self.served.read();
        served.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves these custom resources from now on, and no others.
    pub(crate) fn serve_custom(&self, customs: &[CustomResource]) {
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        let next = Arc::new(served.with(customs));
        served.retire_all_but(&next);
        *served = next;
        drop(served);
        self.served_changed.notify_waiters();
    }

    /// Opens a resource that is not served yet.
    pub(crate) fn open_resource(
        &self,
        kind: &Arc<Kind>,
        reader: StoredReader,
        from: Revision,
    ) -> Resource {
        tracing::trace!(target: "tidings::walk", "opens a resource for a definition");
        self.opener.open(kind, Some(reader), from)
    }

    /// Waits until a path that names nothing names a custom resource, if a definition of it is established. A client that has seen that,
    /// on this server or another one, is to find the resource.
    pub(crate) async fn wait_until_served(&self, path: &str) -> bool {
        let mut segments = path.trim_matches('/').split('/');
        let (Some("apis"), Some(group), Some(version)) =
            (segments.next(), segments.next(), segments.next())
        else {
            return false;
        };
        // The plural stands in the first segments, behind the namespace if there is one.
        let plurals: Vec<&str> = segments.take(3).collect();
        if plurals.is_empty() || self.definitions.refresh().await.is_err() {
            return false;
        }
        let established = |plural: &&str| {
            let key = ObjectKey::new("", &format!("{plural}.{group}"));
            let found = self.definitions.get(&key);
            let found = found.filter(|found| !found.is_terminating());
            found.is_some_and(|found| serves(found.as_bytes(), version))
        };
        let Some(plural) = plurals.into_iter().find(established) else {
            return false;
        };
        let served = async {
            loop {
                let changed = self.served_changed.notified();
                let mut changed = std::pin::pin!(changed);
                changed.as_mut().enable(); // changes from here on are heard
                let served = self.served();
                if served.catalog.find(group, version, plural).is_some() {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(SERVED_TIMEOUT, served).await.is_ok()
    }

    /// Notified of every change of every cache.
    pub(crate) fn changed(&self) -> Arc<Notify> {
        self.opener.changed.clone()
    }

    pub(crate) fn authentication(&self) -> &Authentication {
        &self.options.authentication
    }

    /// Turns true when the server stops.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Tells every watch to send a bookmark and end, and refuses new ones.
    pub(crate) fn stop_watches(&self) {
        self.stopping.send_replace(true);
        for resource in self.served().resources() {
            resource.cache().wake_all();
        }
    }

    /// True if a continue token that was issued at a time has expired (W88).
    pub(crate) fn token_expired(&self, issued_ms: u64, now_ms: u64) -> bool {
        let age = Duration::from_millis(now_ms.saturating_sub(issued_ms));
        age > self.options.history.min(TOKEN_AGE_MAX)
    }

    /// The timeout of a watch that names none: between once and twice the minimum, so that watches do not end together (W97).
    pub(crate) fn default_watch_timeout(&self) -> Duration {
        let (fraction, _) = Uuid::new_v4().as_u64_pair();
        self.options
            .watch_timeout_min
            .mul_f64(1.0 + (fraction >> 11) as f64 / (1_u64 << 53) as f64)
    }

    /// The revision of the store.
    pub(crate) async fn revision(&self) -> Result<ResourceVersion, Status> {
        let revision = self.store.revision().await.map_err(store_failed)?;
        Ok(ResourceVersion::new(revision.0))
    }

    /// Keeps the history from being compacted.
    pub(crate) fn hold_history(&self) -> HistoryHold {
        self.store.hold_history()
    }

    /// The store, for those who copy it.
    pub(crate) fn store(&self) -> &Arc<dyn Storage> {
        &self.store
    }

    /// What is wrong with the store.
    pub(crate) fn store_trouble(&self) -> Option<Trouble> {
        self.store.trouble()
    }

    /// Figures of the store.
    pub(crate) fn store_stats(&self) -> Stats {
        self.store.stats()
    }

    /// Waits until every cache has what the store has now.
    pub(crate) async fn catch_up(&self) -> Result<(), Error> {
        let revision = self.store.revision().await?;
        for resource in self.served().resources() {
            resource.store().fill(revision).await;
        }
        Ok(())
    }

    /// Tells quiet caches how far the store is if that is not `last`, and forgets with the store. Returns the revision of the store.
    pub(crate) async fn tick(&self, last: Revision) -> Revision {
        let served = self.served();
        let revision = self.store.revision().await.unwrap_or(last);
        if revision != last {
            for resource in served.resources() {
                resource.store().request_progress();
            }
        }
        if let Ok(oldest) = self.store.oldest().await {
            let oldest = ResourceVersion::new(oldest.0);
            for resource in served.resources() {
                resource.cache().forget_before(oldest);
            }
        }
        revision
    }
}

/// True if a definition is established and serves a version.
fn serves(definition: &[u8], version: &str) -> bool {
    let definition: Value = serde_json::from_slice(definition).unwrap_or_default();
    let versions = definition["spec"]["versions"].as_array();
    let mut versions = versions.into_iter().flatten();
    definition::has_condition(&definition, "Established")
        && versions.any(|known| known["name"] == version && known["served"] == true)
}
