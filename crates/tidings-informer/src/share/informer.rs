//! The shared informer: a reflector, a queue, a controller, a store and a log of events.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tidings_api::Object;
use tokio::sync::watch;

use super::engine::{InformerCore, Lifecycle, StopOnLastHandle};
use super::handler::{self, HandlerCallback, Registration};
use super::subscription::{HandlerOptions, Subscription};
use crate::event::Event;
use crate::event_handler::ResourceEventHandler;
use crate::metrics::InformerMetrics;
use crate::object::{Cached, DecodeError};
use crate::reflector::{ReflectorState, ReflectorStats};
use crate::stats::{InformerStats, ObservedInformer};
use crate::store::{Index, IndexConflict, IndexError, IndexValue, Store, WriteOverlay};
use crate::sync::lock;
use crate::version::ServerVersion;

/// Keeps a local copy of a resource: one reflector, one store, many handlers.
///
/// Clones share the informer. It stops when its last clone, lister and subscription is dropped.
pub struct SharedInformer<K: Send + Sync + 'static> {
    core: Arc<InformerCore<K>>,
    alive: Arc<StopOnLastHandle<K>>,
}

/// client-go's name for an informer with indexes; here every informer has them.
pub type SharedIndexInformer<K> = SharedInformer<K>;

impl<K: Send + Sync + 'static> Clone for SharedInformer<K> {
    fn clone(&self) -> Self {
        SharedInformer {
            core: Arc::clone(&self.core),
            alive: Arc::clone(&self.alive),
        }
    }
}

/// The informer has stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the informer {informer} has stopped; start another")]
pub struct Stopped {
    /// Its name.
    pub informer: Arc<str>,
}

/// An informer that has not synced, and what it is doing.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the informer {informer} has not synced: {state}")]
pub struct NotSynced {
    /// Its name.
    pub informer: Arc<str>,
    /// What it is doing.
    pub state: ReflectorState,
}

/// An informer did not reach a version in time.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the informer {informer} is at version {reached:?} and not at {wanted:?}: {state}", reached = reached.text(), wanted = wanted.text())]
pub struct NotReached {
    /// Its name.
    pub informer: Arc<str>,
    /// The version that was waited for.
    pub wanted: ServerVersion,
    /// The version of the store.
    pub reached: ServerVersion,
    /// What it is doing.
    pub state: ReflectorState,
}

/// The error of [`SharedInformer::wait_for`]: the informer stopped before it reached the version.
pub type Closed = Stopped;

impl<K: Send + Sync + 'static> SharedInformer<K> {
    pub(super) fn new(
        core: Arc<InformerCore<K>>,
        alive: Arc<StopOnLastHandle<K>>,
    ) -> SharedInformer<K> {
        SharedInformer { core, alive }
    }

    /// Starts the informer. Does nothing if it was started before.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(&self) {
        let mut lifecycle = lock(&self.core.lifecycle);
        let Lifecycle::New(_) = &*lifecycle else {
            return;
        };
        let Lifecycle::New(parts) =
            std::mem::replace(&mut *lifecycle, Lifecycle::Running(Vec::new()))
        else {
            return;
        };
        *lifecycle = Lifecycle::Running(self.core.spawn(*parts));
    }

    /// Stops the informer and waits until every task has ended; a running handler call is not interrupted. The store keeps its
    /// objects.
    ///
    /// Does not wait if one of its handlers calls it, which would be a deadlock.
    pub async fn stop(&self) {
        let own = tokio::task::try_id();
        let in_handler = {
            let handlers = lock(&self.core.handlers);
            let mut ids = handlers.iter().map(|(registration, _)| registration.task);
            ids.any(|id| Some(id) == own)
        };
        self.core.abort();
        if in_handler {
            return;
        }
        // One call waits for the tasks, and concurrent calls wait for that call.
        let _turn = self.core.stop_turn.lock().await;
        loop {
            let task = lock(&self.core.ending).pop();
            let Some(task) = task else { return };
            // An aborted task has ended too.
            let _ = task.await;
        }
    }

    /// The name of the informer.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// True if the informer was started.
    pub fn is_started(&self) -> bool {
        !matches!(&*lock(&self.core.lifecycle), Lifecycle::New(_))
    }

    /// True after [`SharedInformer::stop`], after a panic of the source, or after a refusal with
    /// [`OnRefusal::Stop`](crate::OnRefusal).
    pub fn is_stopped(&self) -> bool {
        self.core.progress.borrow().stopped
    }

    /// True when the store has the initial state.
    pub fn has_synced(&self) -> bool {
        self.core.progress.borrow().synced
    }

    /// Waits for the initial state. Any number of tasks may wait.
    ///
    /// # Errors
    /// If the informer stops before.
    pub async fn wait_synced(&self) -> Result<(), NotSynced> {
        let mut progress = self.core.progress.subscribe();
        let waited = progress.wait_for(|progress| progress.synced || progress.stopped);
        match waited.await {
            Ok(progress) if progress.synced => Ok(()),
            _ => Err(self.not_synced()),
        }
    }

    /// Waits for the initial state, for at most `longest`.
    ///
    /// # Errors
    /// If the informer has not synced by then. The error says what it is doing and its last problem.
    pub async fn wait_synced_within(&self, longest: Duration) -> Result<(), NotSynced> {
        match tokio::time::timeout(longest, self.wait_synced()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.not_synced()),
        }
    }

    fn not_synced(&self) -> NotSynced {
        NotSynced {
            informer: Arc::clone(&self.core.name),
            state: self.state(),
        }
    }

    /// What the informer is doing.
    pub fn state(&self) -> ReflectorState {
        self.core.observers.state.borrow().clone()
    }

    /// A receiver for changes of [`SharedInformer::state`].
    pub fn watch_state(&self) -> watch::Receiver<ReflectorState> {
        self.core.observers.state.subscribe()
    }

    /// The version that the store has reached.
    pub fn last_sync_resource_version(&self) -> ServerVersion {
        self.core.progress.borrow().version.clone()
    }

    /// Waits until the store includes a version, that of a write for example. A version that is not a number is included only
    /// when the store is at exactly that version.
    ///
    /// # Errors
    /// If the informer stops before.
    pub async fn wait_for(&self, version: impl Into<ServerVersion>) -> Result<(), Closed> {
        let version = version.into();
        let mut progress = self.core.progress.subscribe();
        let reached = progress.wait_for(|progress| {
            progress.stopped || progress.synced && progress.version.includes(&version)
        });
        match reached.await {
            Ok(progress) if progress.synced && progress.version.includes(&version) => Ok(()),
            _ => Err(self.stopped()),
        }
    }

    /// Waits until a condition holds for the store, which is checked after each of its changes.
    ///
    /// # Errors
    /// If the informer stops before.
    pub async fn wait_until(
        &self,
        mut condition: impl FnMut(&Store<K>) -> bool,
    ) -> Result<(), Closed> {
        let store = self.store();
        let mut progress = self.core.progress.subscribe();
        loop {
            let stopped = progress.borrow_and_update().stopped;
            if condition(&store) {
                return Ok(());
            }
            if stopped || progress.changed().await.is_err() {
                return Err(self.stopped());
            }
        }
    }

    /// Waits until the store includes a version, for at most `longest`.
    ///
    /// An informer that does not receive the write itself (because of a selector, or of another resource) reaches the version
    /// with its next event or bookmark; bookmarks come about once a minute.
    ///
    /// # Errors
    /// If the store does not reach the version by then, or the informer stops before.
    pub async fn wait_for_within(
        &self,
        version: impl Into<ServerVersion>,
        longest: Duration,
    ) -> Result<(), NotReached> {
        let wanted = version.into();
        let waited = tokio::time::timeout(longest, self.wait_for(wanted.clone()));
        match waited.await {
            Ok(Ok(())) => Ok(()),
            _ => Err(NotReached {
                informer: Arc::clone(&self.core.name),
                wanted,
                reached: self.last_sync_resource_version(),
                state: self.state(),
            }),
        }
    }

    fn stopped(&self) -> Stopped {
        Stopped {
            informer: Arc::clone(&self.core.name),
        }
    }

    /// The store. It stays readable after the informer has stopped, and does not keep the informer running.
    pub fn store(&self) -> Store<K> {
        self.core.indexer.store()
    }

    /// The program's own writes, visible over the store until the watch has caught up with them.
    pub fn overlay(&self) -> &WriteOverlay<K> {
        &self.core.overlay
    }

    /// Puts the server's answer to a write into the overlay, decoded and transformed like all objects.
    ///
    /// # Errors
    /// If the object cannot be decoded.
    pub fn wrote(&self, object: &Object) -> Result<Arc<Cached<K>>, DecodeError> {
        let written = self.core.decoder.decode(object.clone(), object.key())?;
        self.core.overlay.wrote(&written);
        Ok(written)
    }

    /// Does the same with an object that is, byte by byte, what the watch will send: the answer to a write, without `managedFields` if the
    /// source leaves them out. When the watch sends it, it is not decoded again.
    ///
    /// # Errors
    /// If the object cannot be decoded.
    pub fn wrote_as_sent(&self, object: &Object) -> Result<Arc<Cached<K>>, DecodeError> {
        let written = self.core.decoder.decode(object.clone(), object.key())?;
        self.core.overlay.wrote_as_sent(&written);
        Ok(written)
    }

    /// A weak handle, which does not keep the informer running: for handlers that need their own informer.
    pub fn downgrade(&self) -> WeakInformer<K> {
        WeakInformer {
            core: Arc::downgrade(&self.core),
            alive: Arc::downgrade(&self.alive),
        }
    }

    /// Adds an index, before or after the start; see [`crate::Indexer::add_index`].
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
        self.core.indexer.add_index(name, values)
    }

    /// The index of a name, which the first call adds; see [`crate::Indexer::ensure_index`].
    ///
    /// # Errors
    /// If there is an index of that name with values of another type.
    pub fn ensure_index<V: IndexValue, I: IntoIterator<Item = V>>(
        &self,
        name: &str,
        values: impl Fn(&Cached<K>) -> I + Send + Sync + 'static,
    ) -> Result<Index<K, V>, IndexConflict> {
        let values = move |object: &Cached<K>| Ok(values(object).into_iter().collect());
        self.core.indexer.ensure_index(name, values)
    }

    /// Subscribes to events: first the current state, then every change.
    ///
    /// # Errors
    /// If the informer has stopped.
    pub fn subscribe(&self, options: &HandlerOptions) -> Result<Subscription<K>, Stopped> {
        if self.is_stopped() {
            return Err(self.stopped());
        }
        let subscription = Subscription::new(self.core.log.clone(), options);
        Ok(subscription.keeping(self.alive.clone()))
    }

    /// Adds a handler, before or after the start. It receives the current state first, then every change.
    ///
    /// A handler that holds the informer, a lister or a subscription keeps the informer running: give it the [`Store`] or a
    /// [`WeakInformer`] instead.
    ///
    /// # Errors
    /// If the informer has stopped.
    pub fn add_event_handler(
        &self,
        handler: impl ResourceEventHandler<K>,
        options: &HandlerOptions,
    ) -> Result<Registration<K>, Stopped> {
        let name = handler_name(options, std::any::type_name_of_val(&handler));
        self.add(name, options, HandlerCallback::Sync(Box::new(handler)))
    }

    /// Adds an async function as a handler. The next event waits until the function returns.
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
        let callback = HandlerCallback::Async(Box::new(move |event| Box::pin(function(event))));
        self.add(name, options, callback)
    }

    fn add(
        &self,
        name: Arc<str>,
        options: &HandlerOptions,
        callback: HandlerCallback<K>,
    ) -> Result<Registration<K>, Stopped> {
        let mut handlers = lock(&self.core.handlers);
        if self.is_stopped() {
            return Err(self.stopped());
        }
        let subscription = Subscription::new(self.core.log.clone(), options);
        let log = self.core.log.clone();
        let (registration, task) = handler::spawn(log, name, subscription, callback);
        handlers.retain(|(_, task)| !task.is_finished());
        handlers.push((registration.clone(), task));
        Ok(registration)
    }

    /// The handlers that were added and have not ended.
    pub fn registrations(&self) -> Vec<Registration<K>> {
        let handlers = lock(&self.core.handlers);
        let alive = handlers.iter().filter(|(_, task)| !task.is_finished());
        alive
            .map(|(registration, _)| registration.clone())
            .collect()
    }

    /// Keys of the objects that are left out of the store because they cannot be decoded, and the errors.
    pub fn quarantined(&self) -> Vec<(String, DecodeError)> {
        let quarantine = lock(&self.core.quarantine);
        let mut left_out: Vec<_> = quarantine
            .iter()
            .map(|(key, quarantined)| (key.to_string(), quarantined.error.clone()))
            .collect();
        left_out.sort_by(|left, right| left.0.cmp(&right.0));
        left_out
    }

    /// Counts and sizes.
    pub fn stats(&self) -> InformerStats {
        self.core.stats()
    }

    /// Counts of lists and watches.
    pub fn reflector_stats(&self) -> &ReflectorStats {
        &self.core.observers.stats
    }

    pub(crate) fn observed(&self) -> std::sync::Weak<dyn ObservedInformer> {
        let core: std::sync::Weak<InformerCore<K>> = Arc::downgrade(&self.core);
        core
    }
}

/// A handle that does not keep the informer running.
pub struct WeakInformer<K: Send + Sync + 'static> {
    core: std::sync::Weak<InformerCore<K>>,
    alive: std::sync::Weak<StopOnLastHandle<K>>,
}

impl<K: Send + Sync + 'static> WeakInformer<K> {
    /// The informer, if another handle still keeps it.
    pub fn upgrade(&self) -> Option<SharedInformer<K>> {
        Some(SharedInformer {
            core: self.core.upgrade()?,
            alive: self.alive.upgrade()?,
        })
    }
}

impl<K: Send + Sync + 'static> Clone for WeakInformer<K> {
    fn clone(&self) -> WeakInformer<K> {
        WeakInformer {
            core: self.core.clone(),
            alive: self.alive.clone(),
        }
    }
}

impl<K: Send + Sync + 'static> std::fmt::Debug for WeakInformer<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WeakInformer")
    }
}

/// A handler's name: the one in the options, or the name of its type; for a closure, the name of the enclosing function.
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
            .field("name", &self.core.name)
            .field("store", &self.core.indexer)
            .finish_non_exhaustive()
    }
}

impl InformerMetrics {
    /// Exports an informer. Returns false if another of that name is exported and has not stopped.
    pub fn observe<K: Send + Sync + 'static>(&self, informer: &SharedInformer<K>) -> bool {
        self.observe_any(informer.observed())
    }
}
