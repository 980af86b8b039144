//! A resource that a controller watches: its informer, and which keys its objects belong to.

use std::any::Any;
use std::sync::Arc;

use tidings_api::{LabelSelector, Object, ObjectKey};
use tidings_informer::{BoxFuture, Cached, Index, NotSynced, SharedInformer, Uid};
use tidings_kube::{ApiResource, ObservedWrite, Scope};

use crate::own_writes::Awaited;

/// Maps an object to the keys that are reconciled for it.
pub(crate) type KeysOf<D> = Arc<dyn Fn(&Cached<D>) -> Vec<ObjectKey> + Send + Sync>;

/// A watched resource with objects of one type.
pub(crate) struct Watched<D: Send + Sync + 'static> {
    pub(crate) resource: ApiResource,
    pub(crate) scope: Scope,
    pub(crate) informer: SharedInformer<D>,
    pub(crate) keys: KeysOf<D>,
    /// By the uids of owners, if the controller owns such objects.
    pub(crate) by_owner: Option<Index<D, Uid>>,
}

/// A watched resource with objects of any type.
pub(crate) trait WatchedResource: Send + Sync {
    /// The name of its informer.
    fn name(&self) -> &str;
    fn start(&self);
    fn wait_synced(&self) -> BoxFuture<'_, Result<(), NotSynced>>;
    /// What the informer is doing, for people.
    fn state(&self) -> String;
    /// True if the initial state was received.
    fn has_synced(&self) -> bool;
    /// What a write means for the caches: the keys to reconcile, the written object, and what to wait for.
    fn written(&self, write: &ObservedWrite) -> Option<(Vec<ObjectKey>, ObjectKey, Awaited)>;
    /// True if the cache has a write.
    fn has(&self, object: &ObjectKey, awaited: Awaited) -> bool;
    /// Waits until the cache has a write, or its informer stops.
    fn caught_up<'a>(&'a self, object: &'a ObjectKey, awaited: Awaited) -> BoxFuture<'a, ()>;
    fn as_any(&self) -> &dyn Any;
}

impl<D: Send + Sync + 'static> Watched<D> {
    /// True if the cache will receive an object of this namespace and with these labels. With a field selector nobody knows.
    fn selects(&self, namespace: &str, object: Option<&Object>) -> bool {
        let Scope {
            namespace: only,
            label_selector,
            field_selector,
            ..
        } = &self.scope;
        let labels = || match (label_selector.as_str(), object) {
            ("", _) => true,
            (selector, Some(object)) => LabelSelector::parse(selector)
                .is_ok_and(|selector| selector.matches(object.labels())),
            (_, None) => true,
        };
        (only.is_empty() || only == namespace) && field_selector.is_empty() && labels()
    }
}

impl<D: Send + Sync + 'static> WatchedResource for Watched<D> {
    fn name(&self) -> &str {
        self.informer.name()
    }

    fn start(&self) {
        self.informer.start();
    }

    fn wait_synced(&self) -> BoxFuture<'_, Result<(), NotSynced>> {
        Box::pin(self.informer.wait_synced())
    }

    fn state(&self) -> String {
        self.informer.state().to_string()
    }

    fn has_synced(&self) -> bool {
        self.informer.has_synced()
    }

    fn written(&self, write: &ObservedWrite) -> Option<(Vec<ObjectKey>, ObjectKey, Awaited)> {
        let is_ours = self.resource.group == write.group && self.resource.plural == write.resource;
        if !is_ours || !self.selects(&write.namespace, write.object.as_ref()) {
            return None;
        }
        let stays = write
            .object
            .as_ref()
            .filter(|object| !write.is_deletion || object.is_terminating());
        let Some(object) = stays else {
            let key = ObjectKey::new(&write.namespace, &write.name);
            let gone = self.informer.store().get_by_key(key.as_str())?;
            self.informer.overlay().deleted(&gone);
            return Some(((self.keys)(&gone), key, Awaited::Gone(gone.uid())));
        };
        let key = object.key();
        // An object that does not fit its type will not be in the cache either.
        let written = self.informer.wrote(object).ok()?;
        Some((
            (self.keys)(&written),
            key,
            Awaited::Version(written.version()),
        ))
    }

    fn has(&self, object: &ObjectKey, awaited: Awaited) -> bool {
        let snapshot = self.informer.store().snapshot();
        let cached = snapshot.get_by_key(object.as_str());
        match awaited {
            Awaited::Gone(uid) => cached.is_none_or(|cached| cached.uid() != uid),
            Awaited::Version(version) => {
                cached.is_some_and(|cached| cached.version() >= version)
                    || snapshot.version().number() >= Some(version)
            }
        }
    }

    fn caught_up<'a>(&'a self, object: &'a ObjectKey, awaited: Awaited) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let has = |_: &_| self.has(object, awaited);
            // If the informer stops, the controller ends too.
            let _ = self.informer.wait_until(has).await;
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
