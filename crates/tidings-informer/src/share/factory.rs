//! The factory: one shared informer for each resource, scope and form.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidings_api::ShardSelector;

use super::builder::InformerBuilder;
use super::informer::{NotSynced, SharedInformer, WeakInformer};
use crate::metrics::InformerMetrics;
use crate::reflector::ReflectorState;
use crate::source::BoxFuture;
use crate::sync::{Mutex, lock};

/// Identifies an informer in a factory. Callers with equal keys and types share one informer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct InformerKey {
    /// The resource: `v1/pods`, `apps/v1/deployments`.
    pub resource: String,
    /// The namespace; empty for all.
    pub namespace: String,
    /// The label selector; empty for all objects.
    pub label_selector: String,
    /// The field selector; empty for all objects.
    pub field_selector: String,
    /// The shard; `None` for all objects.
    pub shard: Option<ShardSelector>,
    /// Tells informers of one type apart that keep it differently, by a transform for example.
    pub form: String,
}

impl InformerKey {
    /// The key for all objects of a resource.
    pub fn new(resource: impl Into<String>) -> InformerKey {
        InformerKey {
            resource: resource.into(),
            ..InformerKey::default()
        }
    }

    /// Restricts the key to one namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> InformerKey {
        self.namespace = namespace.into();
        self
    }

    /// Sets the label selector.
    #[must_use]
    pub fn label_selector(mut self, selector: impl Into<String>) -> InformerKey {
        self.label_selector = selector.into();
        self
    }

    /// Sets the field selector.
    #[must_use]
    pub fn field_selector(mut self, selector: impl Into<String>) -> InformerKey {
        self.field_selector = selector.into();
        self
    }

    /// Sets the shard.
    #[must_use]
    pub fn shard(mut self, shard: Option<ShardSelector>) -> InformerKey {
        self.shard = shard;
        self
    }

    /// Sets the form.
    #[must_use]
    pub fn form(mut self, form: impl Into<String>) -> InformerKey {
        self.form = form.into();
        self
    }
}

impl fmt::Display for InformerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        let shard = self.shard.as_ref().map(ToString::to_string);
        let shard = shard.unwrap_or_default();
        let parts = [
            (" in ", &self.namespace),
            (" with ", &self.label_selector),
            (" where ", &self.field_selector),
            (" of ", &shard),
            (" as ", &self.form),
        ];
        for (word, value) in parts {
            if !value.is_empty() {
                write!(f, "{word}{value}")?;
            }
        }
        Ok(())
    }
}

/// A weakly held informer of any type.
trait AnyInformer: Send + Sync {
    fn start(&self);
    fn stop(&self) -> BoxFuture<'static, ()>;
    fn is_gone(&self) -> bool;
    fn is_started(&self) -> bool;
    fn wait_synced(&self) -> BoxFuture<'static, Result<(), NotSynced>>;
    fn state(&self) -> Option<(Arc<str>, ReflectorState)>;
    fn as_any(&self) -> &dyn Any;
}

/// An informer in the factory's table.
struct FactoryEntry<K: Send + Sync + 'static>(WeakInformer<K>);

impl<K: Send + Sync + 'static> FactoryEntry<K> {
    fn get(&self) -> Option<SharedInformer<K>> {
        self.0.upgrade().filter(|informer| !informer.is_stopped())
    }
}

impl<K: Send + Sync + 'static> AnyInformer for FactoryEntry<K> {
    fn start(&self) {
        if let Some(informer) = self.get() {
            informer.start();
        }
    }

    fn stop(&self) -> BoxFuture<'static, ()> {
        let informer = self.get();
        Box::pin(async move {
            if let Some(informer) = informer {
                informer.stop().await;
            }
        })
    }

    fn is_gone(&self) -> bool {
        self.get().is_none()
    }

    fn is_started(&self) -> bool {
        self.0
            .upgrade()
            .is_some_and(|informer| informer.is_started())
    }

    fn wait_synced(&self) -> BoxFuture<'static, Result<(), NotSynced>> {
        let informer = self.0.upgrade();
        Box::pin(async move {
            match informer {
                Some(informer) => informer.wait_synced().await,
                None => Ok(()), // dropped by all its users
            }
        })
    }

    fn state(&self) -> Option<(Arc<str>, ReflectorState)> {
        let informer = self.0.upgrade()?;
        Some((informer.name().into(), informer.state()))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// An informer that has not synced.
#[derive(Debug, Clone)]
pub struct Laggard {
    /// Its name.
    pub informer: Arc<str>,
    /// What it is doing, and its last problem.
    pub state: ReflectorState,
}

/// Not every informer has synced.
#[derive(Debug, Clone)]
pub struct NotAllSynced {
    /// The informers that have not synced, sorted by name.
    pub laggards: Vec<Laggard>,
}

impl fmt::Display for NotAllSynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not synced")?;
        for (index, Laggard { informer, state }) in self.laggards.iter().enumerate() {
            let comma = if index == 0 { ": " } else { "; " };
            write!(f, "{comma}{informer} ({state})")?;
        }
        Ok(())
    }
}

impl std::error::Error for NotAllSynced {}

/// Shares informers between the parts of a program. Clones share the factory.
///
/// The factory does not keep informers alive: an informer stops when its last handle is dropped, and the next request for its key
/// makes a new one.
#[derive(Clone, Default)]
pub struct SharedInformerFactory {
    informers: Arc<Mutex<Informers>>,
    metrics: Option<InformerMetrics>,
}

type Informers = HashMap<(InformerKey, TypeId), Box<dyn AnyInformer>>;

impl SharedInformerFactory {
    /// A factory without informers.
    pub fn new() -> SharedInformerFactory {
        SharedInformerFactory::default()
    }

    /// Exports the metrics of every informer of this factory to Prometheus.
    #[must_use]
    pub fn with_metrics(mut self, metrics: InformerMetrics) -> SharedInformerFactory {
        self.metrics = Some(metrics);
        self
    }

    /// The informer for a key: the existing one, or a new one that has not started.
    ///
    /// `set_up` is called only for a new one, which is named after the key.
    pub fn informer<K: Send + Sync + 'static>(
        &self,
        key: &InformerKey,
        set_up: impl FnOnce() -> InformerBuilder<K>,
    ) -> SharedInformer<K> {
        let mut informers = lock(&self.informers);
        informers.retain(|_, informer| !informer.is_gone());
        let id = (key.clone(), TypeId::of::<K>());
        let shared = informers
            .get(&id)
            .and_then(|shared| shared.as_any().downcast_ref::<FactoryEntry<K>>())
            .and_then(FactoryEntry::get);
        if let Some(informer) = shared {
            return informer;
        }
        let in_another_form = informers.keys().any(|(known, _)| known == key);
        let name = match in_another_form {
            true => format!("{key} as {}", std::any::type_name::<K>()),
            false => key.to_string(),
        };
        let informer = set_up().name(name).build();
        informers.insert(id, Box::new(FactoryEntry(informer.downgrade())));
        if let Some(metrics) = &self.metrics {
            metrics.observe(&informer);
        }
        informer
    }

    /// Starts every informer that has not started.
    pub fn start(&self) {
        for informer in lock(&self.informers).values() {
            informer.start();
        }
    }

    /// The number of informers that have not stopped.
    pub fn len(&self) -> usize {
        let informers = lock(&self.informers);
        informers
            .values()
            .filter(|informer| !informer.is_gone())
            .count()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stops the informers with this key, of every type. The next request for the key makes a new one.
    pub async fn stop(&self, key: &InformerKey) {
        let mut stopping = Vec::new();
        lock(&self.informers).retain(|(candidate, _), informer| {
            let stop = candidate == key;
            if stop {
                stopping.push(informer.stop());
            }
            !stop
        });
        for stop in stopping {
            stop.await;
        }
    }

    /// Stops every informer, and waits until all their tasks have ended.
    pub async fn shut_down(&self) {
        let informers = std::mem::take(&mut *lock(&self.informers));
        for informer in informers.into_values() {
            informer.stop().await;
        }
    }

    /// Waits until every started informer has synced, for at most `longest`.
    ///
    /// # Errors
    /// With the informers that have not synced, what they are doing, and their last problems.
    pub async fn wait_synced(&self, longest: Duration) -> Result<(), NotAllSynced> {
        let deadline = tokio::time::Instant::now() + longest;
        let waits: Vec<_> = {
            let informers = lock(&self.informers);
            informers
                .values()
                .filter(|informer| informer.is_started())
                .map(|informer| (informer.state(), informer.wait_synced()))
                .collect()
        };
        let mut laggards = Vec::new();
        for (known, wait) in waits {
            let laggard = match tokio::time::timeout_at(deadline, wait).await {
                Ok(Ok(())) => continue,
                Ok(Err(NotSynced { informer, state })) => Laggard { informer, state },
                Err(_) => match known {
                    Some((informer, state)) => Laggard {
                        state: self.state_of(&informer).unwrap_or(state),
                        informer,
                    },
                    None => continue,
                },
            };
            laggards.push(laggard);
        }
        if laggards.is_empty() {
            return Ok(());
        }
        laggards.sort_by(|left, right| left.informer.cmp(&right.informer));
        Err(NotAllSynced { laggards })
    }

    fn state_of(&self, name: &str) -> Option<ReflectorState> {
        let informers = lock(&self.informers);
        let mut states = informers.values().filter_map(|informer| informer.state());
        states
            .find(|(candidate, _)| **candidate == *name)
            .map(|(_, state)| state)
    }
}

impl fmt::Debug for SharedInformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformerFactory")
            .field("informers", &self.len())
            .finish_non_exhaustive()
    }
}
