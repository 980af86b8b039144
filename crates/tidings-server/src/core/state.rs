//! The state that all commands share: the store, and the served set.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tidings_access::AuthorizationMode;
use tidings_api::{ObjectKey, ResourceVersion, Status};
use tidings_cache::StoredReader;
use tidings_identity::KeyError;
use tidings_json::Value;
use tidings_plugins::PluginSet;
use tidings_registry::Kind;
use tidings_storage::{Error, HistoryHold, Revision, Stats, Storage, Trouble};
use tidings_structural::definition;
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use super::access::Access;
use super::admission::{Admission, AdmissionContext};
use super::authentication::Authentication;
use super::backup::BackupPages;
use super::clock;
use super::conversion::ConversionCounts;
use super::failure::store_failed;
use super::flow_control::FlowControl;
use super::plugins::Plugins;
use super::quotas::Quotas;
use super::resource::Resource;
use super::served::{CustomResource, ResourceOpener, ServedSet};
use super::service_accounts::{ServiceAccountOptions, ServiceAccounts};
use super::services::{ServiceResolver, Services};
use super::watch_limits::{OpenWatches, WatchLimits};
use super::webhook_authorizer::AuthorizationWebhook;
use super::webhook_clients::FindService;

/// How long a request waits until an established definition is served.
const SERVED_TIMEOUT: Duration = Duration::from_secs(3);
/// The maximum age of a continue token. The conformance tests of Kubernetes expect a token to expire within ten minutes (W88).
const TOKEN_AGE_MAX: Duration = Duration::from_secs(9 * 60);

/// The options of the core.
#[derive(Debug, Clone)]
pub(crate) struct CoreOptions {
    pub(crate) authentication: Authentication,
    pub(crate) authorization: Vec<AuthorizationMode>,
    pub(crate) authorization_webhook: Option<AuthorizationWebhook>,
    pub(crate) service_accounts: ServiceAccountOptions,
    /// How long a list can be continued at its revision.
    pub(crate) history: Duration,
    /// How many bytes of objects the event log of one resource may hold.
    pub(crate) log_bytes_max: usize,
    /// A watch without a timeout ends after a random time between this and twice this (W97).
    pub(crate) watch_timeout_min: Duration,
    pub(crate) watch_limits: WatchLimits,
    /// Says where the Services of webhooks lead.
    pub(crate) services: Option<Arc<dyn ServiceResolver>>,
    /// The admission plugins that are enabled.
    pub(crate) plugins: PluginSet,
}

/// The state that all commands share.
pub(crate) struct Core {
    store: Arc<dyn Storage>,
    served: RwLock<Arc<ServedSet>>,
    /// Notified when the served set is replaced.
    served_changed: Notify,
    opener: ResourceOpener,
    options: CoreOptions,
    stopping: watch::Sender<bool>,
    /// The resource of namespaces, which every create in a namespace checks.
    pub(crate) namespaces: Arc<Resource>,
    /// The resource of CustomResourceDefinitions.
    pub(crate) definitions: Arc<Resource>,
    access: Arc<Access>,
    admission: Arc<Admission>,
    /// Webhooks are found by it as long as the core lives.
    #[allow(dead_code, reason = "it is reached through the clients of webhooks")]
    services: Arc<dyn FindService>,
    plugins: Arc<Plugins>,
    quotas: Option<Arc<Quotas>>,
    service_accounts: ServiceAccounts,
    flow_control: Option<Arc<FlowControl>>,
    watches: OpenWatches,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Core {
    /// Begins to fill the caches of the built-in resources. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If no key can be made.
    pub(crate) fn open(store: Arc<dyn Storage>, options: CoreOptions) -> Result<Core, KeyError> {
        let opener = ResourceOpener::new(store.clone(), options.log_bytes_max);
        let served = ServedSet::open(&opener);
        let resource = |group: &str, plural: &str| {
            let found = served.find(group, "v1", plural);
            let found = found.and_then(|(_, resource)| resource);
            found.expect("namespaces and definitions are built in")
        };
        let modes = match (options.authorization.as_slice(), &options.authentication) {
            ([], Authentication::Trusted) => vec![AuthorizationMode::AlwaysAllow],
            ([], Authentication::Credentials(_)) => vec![AuthorizationMode::Rbac],
            (given, _) => given.to_vec(),
        };
        let access = Access::new(modes, options.authorization_webhook.clone(), &served);
        let accounts = options.service_accounts.clone();
        // Where requests are trusted, all are the administrator's, and not limited.
        let flow_control = match &options.authentication {
            Authentication::Trusted => None,
            Authentication::Credentials(_) => FlowControl::new(&served).map(Arc::new),
        };
        let clients = opener.conversions.clients.clone();
        let services: Arc<dyn FindService> =
            Arc::new(Services::new(&served, options.services.clone()));
        clients.find_services(Arc::downgrade(&services));
        let namespaces = resource("", "namespaces");
        let admission = Admission::new(&served, namespaces.clone(), clients, &options.plugins);
        let plugins = Plugins::new(options.plugins.clone(), &served);
        Ok(Core {
            access: Arc::new(access),
            quotas: Quotas::new(&served, plugins.set.has("ResourceQuota")),
            plugins: Arc::new(plugins),
            admission: Arc::new(admission),
            services,
            flow_control,
            watches: OpenWatches::new(options.watch_limits),
            service_accounts: ServiceAccounts::new(accounts, &served)?,
            namespaces,
            definitions: resource("apiextensions.k8s.io", "customresourcedefinitions"),
            store,
            served: RwLock::new(Arc::new(served)),
            served_changed: Notify::new(),
            opener,
            options,
            stopping: watch::Sender::new(false),
        })
    }

    /// The current served set.
    pub(crate) fn served(&self) -> Arc<ServedSet> {
        let served = self.served.read();
        served.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the custom resources that are served.
    pub(crate) fn serve_custom(&self, customs: &[CustomResource]) {
        // Made before the lock is taken, for which every request would wait. Only the controller of definitions calls this.
        let served = self.served();
        let next = Arc::new(served.with(customs));
        served.retire_all_but(&next);
        *self.served.write().unwrap_or_else(PoisonError::into_inner) = next;
        self.served_changed.notify_waiters();
        // The garbage collector follows the resources that are served.
        self.opener.changed.notify_one();
    }

    /// Opens a custom resource, which is not served yet.
    pub(crate) fn open_resource(
        &self,
        kind: &Arc<Kind>,
        reader: StoredReader,
        from: Revision,
    ) -> Resource {
        tracing::trace!(target: "tidings::walk", "opens a resource for a definition");
        self.opener.open(kind, Some(reader), from)
    }

    /// Waits until a custom resource is served, if its definition is established. `plurals` are the names that it may have. A client that has
    /// seen the condition Established, on this server or on another one, must not get 404. Returns true if the resource is served now.
    pub(crate) async fn wait_until_served(
        &self,
        group: &str,
        version: &str,
        plurals: &[&str],
    ) -> bool {
        if self.definitions.refresh().await.is_err() {
            return false;
        }
        let established = |plural: &&&str| {
            let key = ObjectKey::new("", &format!("{plural}.{group}"));
            let found = self.definitions.get(&key);
            let found = found.filter(|found| !found.is_terminating());
            found.is_some_and(|found| serves(found.as_bytes(), version))
        };
        let Some(plural) = plurals.iter().find(established) else {
            return false;
        };
        let served = async {
            loop {
                let changed = self.served_changed.notified();
                let mut changed = std::pin::pin!(changed);
                changed.as_mut().enable(); // changes from here on are not missed
                let served = self.served();
                if served.catalog.find(group, version, plural).is_some() {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(SERVED_TIMEOUT, served).await.is_ok()
    }

    /// Is notified of every change of every cache.
    pub(crate) fn changed(&self) -> Arc<Notify> {
        self.opener.changed.clone()
    }

    /// Who may do what.
    pub(crate) fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// What decides whether objects may be.
    pub(crate) fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Counters of conversions, for metrics.
    pub(crate) fn conversion_counts(&self) -> &ConversionCounts {
        &self.opener.conversions.counts
    }

    /// What a write needs to be asked about. `None` if nobody would be asked.
    pub(super) fn admission_of(&self) -> Option<Box<AdmissionContext>> {
        let context = || AdmissionContext {
            admission: self.admission.clone(),
            access: self.access.clone(),
            served: self.served(),
            said: Arc::default(),
        };
        (!self.admission.is_idle()).then(|| Box::new(context()))
    }

    /// The admission plugins.
    pub(crate) fn plugins(&self) -> &Arc<Plugins> {
        &self.plugins
    }

    /// The quotas, if there are any.
    pub(crate) fn quotas(&self) -> Option<&Arc<Quotas>> {
        self.quotas.as_ref()
    }

    /// The tokens of service accounts.
    pub(crate) fn service_accounts(&self) -> &ServiceAccounts {
        &self.service_accounts
    }

    /// The watches that are open.
    pub(crate) fn watches(&self) -> &OpenWatches {
        &self.watches
    }

    /// Limits the requests of users, if there are any.
    pub(crate) fn flow_control(&self) -> Option<&Arc<FlowControl>> {
        self.flow_control.as_ref()
    }

    pub(crate) fn authentication(&self) -> &Authentication {
        &self.options.authentication
    }

    /// Becomes true when the server stops.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Makes every watch, open or new, send a bookmark and end.
    pub(crate) fn stop_watches(&self) {
        self.stopping.send_replace(true);
        for resource in self.served().resources() {
            resource.cache().wake_all();
        }
    }

    /// True if a continue token has expired (W88).
    pub(crate) fn token_expired(&self, issued_ms: u64, now_ms: u64) -> bool {
        let age = Duration::from_millis(now_ms.saturating_sub(issued_ms));
        age > self.options.history.min(TOKEN_AGE_MAX)
    }

    /// The timeout of a watch that names none: random between the minimum and twice the minimum, so that watches do not all end together (W97).
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

    /// Prevents compaction of the history until the returned hold is dropped.
    pub(crate) fn hold_history(&self) -> HistoryHold {
        self.store.hold_history()
    }

    /// A backup of the store as it is now.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn backup(&self) -> Result<BackupPages, Status> {
        let pages = BackupPages::start(self.store.clone(), clock::now_ms()).await;
        pages.map_err(store_failed)
    }

    /// What is wrong with the store, if anything.
    pub(crate) fn store_trouble(&self) -> Option<Trouble> {
        self.store.trouble()
    }

    /// Figures of the store.
    pub(crate) fn store_stats(&self) -> Stats {
        self.store.stats()
    }

    /// Waits until every cache has every change that is in the store now.
    pub(crate) async fn catch_up(&self) -> Result<(), Error> {
        let revision = self.store.revision().await?;
        for resource in self.served().resources() {
            resource.fill(revision).await;
        }
        Ok(())
    }

    /// Brings idle caches to the store's revision if it is no longer `last`, and trims the history of caches to that of the store. Returns the
    /// store's revision.
    pub(crate) async fn tick(&self, last: Revision) -> Revision {
        let served = self.served();
        let revision = self.store.revision().await.unwrap_or(last);
        if revision != last {
            for resource in served.resources() {
                resource.request_progress();
            }
        }
        if let Ok(oldest) = self.store.oldest().await {
            let oldest = ResourceVersion::new(oldest.0);
            for resource in served.resources() {
                resource.forget_before(oldest);
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
