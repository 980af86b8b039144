//! A store whose values are encrypted: the engine below sees only encrypted values, everybody above only clear ones.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;
use futures_util::StreamExt;
use tidings_storage::{
    BoxFuture, Change, EncryptionStats, Error, HistoryHold, Range, RangeResult, Revision, Stats,
    Storage, Trouble, WatchBatch, WatchStream, Write,
};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::config::{EncryptionConfig, ProviderConfig, ResourceRule};
use crate::kms::KmsProvider;
use crate::mark::ValueMark;
use crate::provider::{OpenedValue, Providers};

/// AES-GCM binds values to their keys with this prefix, as kube-apiserver does whose etcd has its default prefix.
const BOUND_PREFIX: &[u8] = b"/registry/";

/// The keys of a resource begin with this prefix.
#[derive(Debug, Clone)]
pub struct StoredResource {
    /// The prefix, as `secrets/`.
    pub prefix: String,
    /// The group; empty for the core group.
    pub group: String,
    /// The plural.
    pub resource: String,
}

/// Why a configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EncryptionError(String);

/// How the values of each resource are encrypted.
struct EncryptionRules {
    rules: Vec<(ResourceRule, Arc<Providers>)>,
    /// The providers of the built-in resources, by prefix without the last slash.
    by_prefix: HashMap<String, Arc<Providers>>,
    identity: Arc<Providers>,
    kms: Vec<Arc<KmsProvider>>,
    /// Follow the plugins. Dropping stops them.
    _tasks: JoinSet<()>,
}

impl EncryptionRules {
    async fn load(
        config: EncryptionConfig,
        resources: &[StoredResource],
    ) -> Result<EncryptionRules, EncryptionError> {
        let configured = config.rules.iter().flat_map(|rule| &rule.providers);
        let mut kms: Vec<Arc<KmsProvider>> = Vec::new();
        for config in configured {
            if let ProviderConfig::Kms(config) = config {
                let provider = KmsProvider::new(config).map_err(EncryptionError)?;
                provider.probe().await.map_err(EncryptionError)?;
                kms.push(Arc::new(provider));
            }
        }
        let mut tasks = JoinSet::new();
        for provider in &kms {
            let provider = provider.clone();
            tasks.spawn(async move { provider.follow().await });
        }
        let named = |name: &str| kms.iter().find(|kms| kms.name() == name).cloned();
        let load = |rule: ResourceRule| {
            let providers = Arc::new(Providers::new(&rule.providers, named));
            (rule, providers)
        };
        let mut loaded = EncryptionRules {
            rules: config.rules.into_iter().map(load).collect(),
            by_prefix: HashMap::new(),
            identity: Arc::new(Providers::identity()),
            kms: Vec::new(),
            _tasks: tasks,
        };
        let by_prefix = resources.iter().map(|stored| {
            let prefix = stored.prefix.trim_end_matches('/').to_owned();
            (prefix, loaded.of_resource(&stored.group, &stored.resource))
        });
        loaded.by_prefix = by_prefix.collect();
        loaded.kms = kms;
        Ok(loaded)
    }

    /// The providers of a resource: those of the first rule that means it.
    fn of_resource(&self, group: &str, resource: &str) -> Arc<Providers> {
        let means = |rule: &ResourceRule| {
            let mut patterns = rule.resources.iter();
            patterns.any(|pattern| pattern.means(group, resource))
        };
        let found = self.rules.iter().find(|(rule, _)| means(rule));
        found
            .map_or(&self.identity, |(_, providers)| providers)
            .clone()
    }

    /// The providers of a key.
    fn of(&self, key: &[u8]) -> Arc<Providers> {
        if self.rules.is_empty() {
            return self.identity.clone();
        }
        let key = String::from_utf8_lossy(key);
        let mut slashes = key.match_indices('/').map(|(at, _)| at);
        let first = &key[..slashes.next().unwrap_or(key.len())];
        let two = &key[..slashes.next().unwrap_or(key.len())];
        for prefix in [two, first] {
            if let Some(providers) = self.by_prefix.get(prefix) {
                return providers.clone();
            }
        }
        // Custom resources are stored under their group and plural.
        match two.split_once('/') {
            Some((group, resource)) if group.contains('.') => self.of_resource(group, resource),
            _ => self.identity.clone(),
        }
    }
}

fn bound_to(key: &[u8]) -> Vec<u8> {
    [BOUND_PREFIX, key].concat()
}

/// The state that reads and watches share.
struct EncryptionState {
    rules: RwLock<Arc<EncryptionRules>>,
    /// What could not be decrypted, by the prefix that was read.
    unreadable: Mutex<BTreeMap<Bytes, String>>,
    became_unreadable: Notify,
    counts: EncryptionCounts,
}

#[derive(Default)]
struct EncryptionCounts {
    sealed: AtomicU64,
    opened: AtomicU64,
    failed: AtomicU64,
}

impl EncryptionState {
    fn rules(&self) -> Arc<EncryptionRules> {
        let rules = self.rules.read();
        rules.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Decrypts a value. `None` if it is stored as it is.
    async fn open(
        &self,
        rules: &EncryptionRules,
        key: &[u8],
        stored: &[u8],
    ) -> Result<Option<Bytes>, Error> {
        if rules.rules.is_empty() && ValueMark::of(stored).is_none() {
            return Ok(None);
        }
        let providers = rules.of(key);
        let bound_to = bound_to(key);
        let failed = |why: String| {
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
            let key = String::from_utf8_lossy(key);
            Error::Failed(format!("{key} cannot be decrypted: {why}"))
        };
        let clear = match providers.open(stored, &bound_to).map_err(failed)? {
            OpenedValue::AsStored => return Ok(None),
            OpenedValue::Clear(clear) => clear,
            OpenedValue::NeedsKey(kms, object) => {
                let key = kms.fetch_key(&object).await.map_err(failed)?;
                let clear = key.open(&object.data, &bound_to);
                clear.ok_or_else(|| {
                    failed("it was changed or moved since it was encrypted".to_owned())
                })?
            }
        };
        self.counts.opened.fetch_add(1, Ordering::Relaxed);
        Ok(Some(clear.into()))
    }

    async fn open_range(
        &self,
        prefix: &Bytes,
        mut read: RangeResult,
    ) -> Result<RangeResult, Error> {
        let rules = self.rules();
        for entry in &mut read.entries {
            let opened = self.open(&rules, &entry.key, &entry.value).await;
            if let Some(clear) = self.noted(prefix, opened)? {
                entry.value = clear;
            }
        }
        self.is_readable(prefix);
        Ok(read)
    }

    async fn open_batch(&self, prefix: &Bytes, mut batch: WatchBatch) -> Result<WatchBatch, Error> {
        let rules = self.rules();
        for event in &mut batch.events {
            let Change::Put(value) = &mut event.change else {
                continue;
            };
            let opened = self.open(&rules, &event.key, value).await;
            if let Some(clear) = self.noted(prefix, opened)? {
                *value = clear;
            }
        }
        Ok(batch)
    }

    fn noted<T>(&self, prefix: &Bytes, opened: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &opened {
            let unreadable = self.unreadable.lock();
            let mut unreadable = unreadable.unwrap_or_else(PoisonError::into_inner);
            let before = unreadable.insert(prefix.clone(), error.to_string());
            if before.as_ref() != Some(&error.to_string()) {
                tracing::error!(%error, "objects cannot be read");
            }
            self.became_unreadable.notify_one();
        }
        opened
    }

    fn is_readable(&self, prefix: &Bytes) {
        let unreadable = self.unreadable.lock();
        let mut unreadable = unreadable.unwrap_or_else(PoisonError::into_inner);
        if !unreadable.is_empty() {
            unreadable.remove(prefix);
        }
    }
}

/// A store whose values are encrypted.
pub struct EncryptedStore {
    inner: Arc<dyn Storage>,
    resources: Vec<StoredResource>,
    state: Arc<EncryptionState>,
}

impl std::fmt::Debug for EncryptedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EncryptedStore")
    }
}

impl EncryptedStore {
    /// Encrypts the values of a store by a configuration. With [`EncryptionConfig::none`] nothing is encrypted, and encrypted values are refused
    /// instead of being taken for damaged ones. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If a KMS plugin does not answer.
    pub async fn open(
        inner: Arc<dyn Storage>,
        config: EncryptionConfig,
        resources: Vec<StoredResource>,
    ) -> Result<EncryptedStore, EncryptionError> {
        let rules = EncryptionRules::load(config, &resources).await?;
        Ok(EncryptedStore {
            inner,
            resources,
            state: Arc::new(EncryptionState {
                rules: RwLock::new(Arc::new(rules)),
                unreadable: Mutex::default(),
                became_unreadable: Notify::new(),
                counts: EncryptionCounts::default(),
            }),
        })
    }

    /// Encrypts and decrypts by another configuration from now on.
    ///
    /// # Errors
    /// If a KMS plugin does not answer. The configuration before stays in force.
    pub async fn reload(&self, config: EncryptionConfig) -> Result<(), EncryptionError> {
        let rules = Arc::new(EncryptionRules::load(config, &self.resources).await?);
        let current = self.state.rules.write();
        *current.unwrap_or_else(PoisonError::into_inner) = rules;
        Ok(())
    }

    /// Waits until something cannot be decrypted, and says what and why.
    pub async fn unreadable(&self) -> String {
        loop {
            let first = {
                let unreadable = self.state.unreadable.lock();
                let unreadable = unreadable.unwrap_or_else(PoisonError::into_inner);
                unreadable.values().next().cloned()
            };
            match first {
                Some(why) => return why,
                None => self.state.became_unreadable.notified().await,
            }
        }
    }

    fn seal(&self, mut write: Write) -> Result<Write, Error> {
        let Some(clear) = &write.value else {
            return Ok(write);
        };
        let providers = self.state.rules().of(&write.key);
        if providers.writes_as_is() {
            return Ok(write);
        }
        let counts = &self.state.counts;
        match providers.seal(clear, &bound_to(&write.key)) {
            Ok(Some(sealed)) => {
                counts.sealed.fetch_add(1, Ordering::Relaxed);
                write.value = Some(sealed.into());
                Ok(write)
            }
            Ok(None) => Ok(write),
            Err(why) => {
                counts.failed.fetch_add(1, Ordering::Relaxed);
                Err(Error::Failed(format!(
                    "the object cannot be encrypted: {why}"
                )))
            }
        }
    }
}

impl Storage for EncryptedStore {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        self.inner.revision()
    }

    fn oldest(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        self.inner.oldest()
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Revision, Error>> {
        match self.seal(write) {
            Ok(write) => self.inner.write(write),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult, Error>> {
        Box::pin(async move {
            let prefix = range.prefix.clone();
            let read = self.inner.range(range).await?;
            self.state.open_range(&prefix, read).await
        })
    }

    fn stored_range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult, Error>> {
        self.inner.stored_range(range)
    }

    fn watch(&self, prefix: Bytes, after: Revision) -> BoxFuture<'_, Result<WatchStream, Error>> {
        Box::pin(async move {
            let watch = self.inner.watch(prefix.clone(), after).await?;
            let state = self.state.clone();
            let opened = watch.then(move |batch| {
                let (state, prefix) = (state.clone(), prefix.clone());
                async move { state.open_batch(&prefix, batch?).await }
            });
            Ok(Box::pin(opened) as WatchStream)
        })
    }

    fn request_progress(&self, prefix: &[u8]) {
        self.inner.request_progress(prefix);
    }

    fn is_outdated(&self, key: Bytes) -> BoxFuture<'_, Result<bool, Error>> {
        let providers = self.state.rules().of(&key);
        Box::pin(async move {
            let one = Range {
                prefix: key.clone(),
                limit: 1,
                ..Range::default()
            };
            let read = self.inner.stored_range(one).await?;
            let found = read.entries.iter().find(|entry| entry.key == key);
            Ok(found.is_some_and(|found| providers.is_outdated(&found.value)))
        })
    }

    fn hold_history(&self) -> HistoryHold {
        self.inner.hold_history()
    }

    fn trouble(&self) -> Option<Trouble> {
        if let Some(trouble) = self.inner.trouble() {
            return Some(trouble);
        }
        let unreadable = self.state.unreadable.lock();
        let unreadable = unreadable.unwrap_or_else(PoisonError::into_inner);
        let unreadable = unreadable.values().next().cloned();
        let rules = self.state.rules();
        let what = unreadable.or_else(|| rules.kms.iter().find_map(|kms| kms.trouble()));
        what.map(|what| Trouble {
            what,
            needs_restart: false,
        })
    }

    fn stats(&self) -> Stats {
        let mut stats = self.inner.stats();
        let counts = &self.state.counts;
        stats.encryption = Some(EncryptionStats {
            sealed: counts.sealed.load(Ordering::Relaxed),
            opened: counts.opened.load(Ordering::Relaxed),
            failed: counts.failed.load(Ordering::Relaxed),
        });
        stats
    }
}
