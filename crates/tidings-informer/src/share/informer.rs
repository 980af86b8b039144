//! The shared informer: a reflector, a queue, a controller, a store and a log, put together.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tidings_api::Object;
use tokio::sync::watch;

use super::builder::InformerBuilder;
use super::engine::{Alive, Inner, Life};
use super::event::Event;
use super::handler::{self, Callback, Registration, ResourceEventHandler};
use super::subscription::{HandlerOptions, Subscription};
use crate::lister::GenericLister;
use crate::metrics::Observed;
use crate::object::{Cached, Decode, DecodeError};
use crate::reflector::{ReflectorState, ReflectorStats, Version};
use crate::source::ListerWatcher;
use crate::store::{Index, IndexConflict, IndexError, IndexValue, Store, WriteOverlay};
use crate::sync::lock;

/// Follows a resource: one reflector, one store, many handlers.
///
/// Clones share the informer. When the last clone, lister and subscription is dropped, it stops.
pub struct SharedInformer<K: Send + Sync + 'static> {
    inner: Arc<Inner<K>>,
    alive: Arc<Alive<K>>,
}

/// client-go's name of the informer; every informer here has indexes.
pub type SharedIndexInformer<K> = SharedInformer<K>;

impl<K: Send + Sync + 'static> Clone for SharedInformer<K> {
    fn clone(&self) -> Self {
        SharedInformer {
            inner: Arc::clone(&self.inner),
            alive: Arc::clone(&self.alive),
        }
    }
}

/// The informer has stopped, or was asked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the informer {informer} has stopped; start another")]
pub struct Stopped {
    /// Its name.
    pub informer: Arc<str>,
}

/// An informer that has no state, and what is wrong with it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the informer {informer} has not synced: {state}")]
pub struct NotSynced {
    /// Its name.
    pub informer: Arc<str>,
    /// What it is doing.
    pub state: ReflectorState,
}

/// A version that an informer has not reached, and what the informer is doing.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the informer {informer} is at version {reached:?} and not at {wanted:?}: {state}", reached = reached.text(), wanted = wanted.text())]
pub struct NotReached {
    /// Its name.
    pub informer: Arc<str>,
    /// The version that was waited for.
    pub wanted: Version,
    /// The version of the store.
    pub reached: Version,
    /// What it is doing.
    pub state: ReflectorState,
}

/// The version did not come before the informer stopped.
pub type Closed = Stopped;

/// Figures of an informer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct InformerStats {
    /// Objects in the store.
    pub objects: usize,
    /// About how many bytes they keep.
    pub object_bytes: usize,
    /// Deltas that wait for the store.
    pub queued: usize,
    /// About how many bytes they keep.
    pub queued_bytes: usize,
    /// Deltas that were taken over by later ones of the same key.
    pub coalesced: u64,
    /// Events that wait for the slowest handler.
    pub logged: usize,
    /// About how many bytes they keep.
    pub logged_bytes: usize,
    /// Handlers and subscriptions.
    pub handlers: usize,
    /// Objects that are left out because they cannot be decoded.
    pub quarantined: usize,
    /// Time spent in comparing and decoding objects.
    pub decoding: Duration,
    /// The version of the store.
    pub version: Version,
}

impl<K: Send + Sync + 'static> SharedInformer<K> {
    pub(super) fn new(inner: Arc<Inner<K>>, alive: Arc<Alive<K>>) -> SharedInformer<K> {
        SharedInformer { inner, alive }
    }

    /// Sets up an informer over a source.
    pub fn builder(source: Arc<dyn ListerWatcher>, decode: Decode<K>) -> InformerBuilder<K> {
        InformerBuilder::new(source, decode)
    }

    /// Starts. Does nothing if it has started before.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(&self) {
        let mut life = lock(&self.inner.life);
        let Life::New(_) = &*life else { return };
        let Life::New(parts) = std::mem::replace(&mut *life, Life::Running(Vec::new())) else {
            return;
        };
        *life = Life::Running(self.inner.spawn(*parts));
    }

    /// Stops, and waits until every task has ended; a handler's call that runs is not interrupted. The store keeps what it has.
    ///
    /// Called by one of its handlers it does not wait, as that would be for ever.
    pub async fn stop(&self) {
        let own = tokio::task::try_id();
        let in_handler = {
            let handlers = lock(&self.inner.handlers);
            let mut ids = handlers.iter().map(|(registration, _)| registration.task);
            ids.any(|id| Some(id) == own)
        };
        self.inner.abort();
        if in_handler {
            return;
        }
        // Whoever comes first waits for the tasks, and the others for him.
        let _turn = self.inner.turn.lock().await;
        loop {
            let task = lock(&self.inner.ending).pop();
            let Some(task) = task else { return };
            // Whether it ended or was cut off, it is over.
            let _ = task.await;
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// True if it has been started.
    pub fn is_started(&self) -> bool {
        !matches!(&*lock(&self.inner.life), Life::New(_))
    }

    /// True after [`SharedInformer::stop`], or when the server refused and it was told to stop then.
    pub fn is_stopped(&self) -> bool {
        self.inner.progress.borrow().stopped
    }

    /// True when the store has the initial state.
    pub fn has_synced(&self) -> bool {
        self.inner.progress.borrow().synced
    }

    /// Waits for the initial state. Any number of tasks may wait.
    ///
    /// # Errors
    /// If it stops before.
    pub async fn wait_synced(&self) -> Result<(), NotSynced> {
        let mut progress = self.inner.progress.subscribe();
        let waited = progress.wait_for(|progress| progress.synced || progress.stopped);
        match waited.await {
            Ok(progress) if progress.synced => Ok(()),
            _ => Err(self.not_synced()),
        }
    }

    /// Waits for the initial state, not longer than this.
    ///
    /// # Errors
    /// If it does not come; the error says what the informer is doing and what is wrong.
    pub async fn wait_synced_within(&self, longest: Duration) -> Result<(), NotSynced> {
        match tokio::time::timeout(longest, self.wait_synced()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.not_synced()),
        }
    }

    fn not_synced(&self) -> NotSynced {
        NotSynced {
            informer: Arc::clone(&self.inner.name),
            state: self.state(),
        }
    }

    /// What it is doing.
    pub fn state(&self) -> ReflectorState {
        self.inner.observers.state.borrow().clone()
    }

    /// Follows what it is doing.
    pub fn watch_state(&self) -> watch::Receiver<ReflectorState> {
        self.inner.observers.state.subscribe()
    }

    /// The version that the store has reached.
    pub fn last_sync_resource_version(&self) -> Version {
        self.inner.progress.borrow().version.clone()
    }

    /// Waits until the store includes a version: what a write returned, for example. A version that is no number is included
    /// when the store is at exactly that one.
    ///
    /// # Errors
    /// If the informer stops before.
    pub async fn wait_for(&self, version: impl Into<Version>) -> Result<(), Closed> {
        let version = version.into();
        let mut progress = self.inner.progress.subscribe();
        let reached = progress.wait_for(|progress| {
            progress.stopped || progress.synced && progress.version.includes(&version)
        });
        match reached.await {
            Ok(progress) if progress.version.includes(&version) => Ok(()),
            _ => Err(self.stopped()),
        }
    }

    /// Waits until the store includes a version, not longer than this.
    ///
    /// An informer with a selector, or of another resource than the one that was written, reaches the version with the next
    /// event or bookmark that it gets; bookmarks come about once a minute.
    ///
    /// # Errors
    /// If the version does not come, or the informer stops before.
    pub async fn wait_for_within(
        &self,
        version: impl Into<Version>,
        longest: Duration,
    ) -> Result<(), NotReached> {
        let wanted = version.into();
        let waited = tokio::time::timeout(longest, self.wait_for(wanted.clone()));
        match waited.await {
            Ok(Ok(())) => Ok(()),
            _ => Err(NotReached {
                informer: Arc::clone(&self.inner.name),
                wanted,
                reached: self.last_sync_resource_version(),
                state: self.state(),
            }),
        }
    }

    fn stopped(&self) -> Stopped {
        Stopped {
            informer: Arc::clone(&self.inner.name),
        }
    }

    /// The store. It stays readable when the informer has stopped, and does not keep it from stopping.
    pub fn store(&self) -> Store<K> {
        self.inner.indexer.store()
    }

    /// Reads the store, and keeps the informer running.
    pub fn lister(&self) -> GenericLister<K> {
        GenericLister::new(self.clone())
    }

    /// The program's own writes, laid over the store until the watch has caught up with them.
    pub fn overlay(&self) -> &WriteOverlay<K> {
        &self.inner.overlay
    }

    /// Lays what the server answered to a write over the store, decoded and transformed as everything else.
    ///
    /// # Errors
    /// If it cannot be decoded.
    pub fn wrote(&self, object: &Object) -> Result<Arc<Cached<K>>, DecodeError> {
        let written = Cached::new(object, &self.inner.decode)?;
        self.inner.overlay.wrote(&written);
        Ok(written)
    }

    /// The informer without keeping it running: for handlers that need their own informer, which would keep itself alive.
    pub fn downgrade(&self) -> WeakInformer<K> {
        WeakInformer {
            inner: Arc::downgrade(&self.inner),
            alive: Arc::downgrade(&self.alive),
        }
    }

    /// Adds an index; see [`crate::Indexer::add_index`]. At any time.
    ///
    /// # Errors
    /// If there is an index of that name.
    pub fn add_index<V: IndexValue, I: IntoIterator<Item = V>>(
        &self,
        name: &str,
        values: impl Fn(&Cached<K>) -> I + Send + Sync + 'static,
    ) -> Result<Index<K, V>, IndexConflict> {
        self.try_add_index(name, move |object| Ok(values(object).into_iter().collect()))
    }

    /// Adds an index whose function may fail for an object.
    ///
    /// # Errors
    /// If there is an index of that name.
    pub fn try_add_index<V: IndexValue>(
        &self,
        name: &str,
        values: impl Fn(&Cached<K>) -> Result<Vec<V>, IndexError> + Send + Sync + 'static,
    ) -> Result<Index<K, V>, IndexConflict> {
        self.inner.indexer.add_index(name, values)
    }

    /// The events from now on, after the state as it is now.
    ///
    /// # Errors
    /// If the informer has stopped.
    pub fn subscribe(&self, options: &HandlerOptions) -> Result<Subscription<K>, Stopped> {
        if self.is_stopped() {
            return Err(self.stopped());
        }
        let subscription = Subscription::new(self.inner.log.clone(), options);
        Ok(subscription.keeping(self.alive.clone()))
    }

    /// Adds a handler, at any time. It is given the state as it is now, and everything after it.
    ///
    /// A handler that holds the informer, a lister or a subscription keeps it running: give it the [`Store`] or a
    /// [`WeakInformer`].
    ///
    /// # Errors
    /// If the informer has stopped.
    pub fn add_event_handler(
        &self,
        handler: impl ResourceEventHandler<K>,
        options: &HandlerOptions,
    ) -> Result<Registration<K>, Stopped> {
        let name = handler_name(options, std::any::type_name_of_val(&handler));
        self.add(name, options, Callback::Sync(Box::new(handler)))
    }

    /// Adds an async function of events as a handler: the next event waits until it is done.
    ///
    /// # Errors
    /// If the informer has stopped.
    pub fn for_each<F, T>(
        &self,
        mut function: F,
        options: &HandlerOptions,
    ) -> Result<Registration<K>, Stopped>
    where
        F: FnMut(Event<K>) -> T + Send + 'static,
        T: Future<Output = ()> + Send + 'static,
    {
        let name = handler_name(options, std::any::type_name::<F>());
        let callback = Callback::Async(Box::new(move |event| Box::pin(function(event))));
        self.add(name, options, callback)
    }

    fn add(
        &self,
        name: Arc<str>,
        options: &HandlerOptions,
        callback: Callback<K>,
    ) -> Result<Registration<K>, Stopped> {
        let mut handlers = lock(&self.inner.handlers);
        if self.is_stopped() {
            return Err(self.stopped());
        }
        let subscription = Subscription::new(self.inner.log.clone(), options);
        let log = self.inner.log.clone();
        let (registration, task) = handler::spawn(log, name, subscription, callback);
        handlers.retain(|(_, task)| !task.is_finished());
        handlers.push((registration.clone(), task));
        Ok(registration)
    }

    /// The handlers that were added and have not ended, and how far they are behind.
    pub fn registrations(&self) -> Vec<Registration<K>> {
        let handlers = lock(&self.inner.handlers);
        let alive = handlers.iter().filter(|(_, task)| !task.is_finished());
        alive
            .map(|(registration, _)| registration.clone())
            .collect()
    }

    /// Objects that are left out of the store because they cannot be decoded, and why.
    pub fn quarantined(&self) -> Vec<(String, DecodeError)> {
        let quarantine = lock(&self.inner.quarantine);
        let mut left_out: Vec<_> = quarantine
            .iter()
            .map(|(key, quarantined)| (key.to_string(), quarantined.error.clone()))
            .collect();
        left_out.sort_by(|left, right| left.0.cmp(&right.0));
        left_out
    }

    /// Figures.
    pub fn stats(&self) -> InformerStats {
        self.inner.stats()
    }

    /// Figures of listing and watching.
    pub fn reflector_stats(&self) -> &ReflectorStats {
        &self.inner.observers.stats
    }

    pub(crate) fn observed(&self) -> std::sync::Weak<dyn Observed> {
        let inner: std::sync::Weak<Inner<K>> = Arc::downgrade(&self.inner);
        inner
    }
}

/// An informer that may have stopped because nobody holds it.
pub struct WeakInformer<K: Send + Sync + 'static> {
    inner: std::sync::Weak<Inner<K>>,
    alive: std::sync::Weak<Alive<K>>,
}

impl<K: Send + Sync + 'static> WeakInformer<K> {
    /// The informer, if somebody still holds it.
    pub fn upgrade(&self) -> Option<SharedInformer<K>> {
        Some(SharedInformer {
            inner: self.inner.upgrade()?,
            alive: self.alive.upgrade()?,
        })
    }
}

impl<K: Send + Sync + 'static> Clone for WeakInformer<K> {
    fn clone(&self) -> WeakInformer<K> {
        WeakInformer {
            inner: self.inner.clone(),
            alive: self.alive.clone(),
        }
    }
}

impl<K: Send + Sync + 'static> std::fmt::Debug for WeakInformer<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WeakInformer")
    }
}

/// A handler's name: the one it was given, or that of its type; of a closure, that of the function it is in.
fn handler_name(options: &HandlerOptions, type_name: &str) -> Arc<str> {
    let function = type_name.split("::{{closure}}").next();
    match &options.name {
        Some(name) => Arc::clone(name),
        None => function.unwrap_or(type_name).into(),
    }
}

impl<K: Send + Sync + 'static> std::fmt::Debug for SharedInformer<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedInformer")
            .field("name", &self.inner.name)
            .field("store", &self.inner.indexer)
            .finish_non_exhaustive()
    }
}
