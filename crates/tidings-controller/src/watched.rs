//! A resource that a controller watches: its informer, and which keys its objects belong to.

use std::any::Any;
use std::sync::Arc;

use serde::Deserialize;
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
    /// Waits until the informer has stopped.
    fn stopped(&self) -> BoxFuture<'_, ()>;
    fn as_any(&self) -> &dyn Any;
}

impl<D: Send + Sync + 'static> Watched<D> {
    /// True if the cache will receive an object of this namespace and with these labels. With a field selector nobody knows.
    fn selects(&self, namespace: &str, object: &Object) -> bool {
        let Scope {
            namespace: only,
            label_selector,
            field_selector,
            ..
        } = &self.scope;
        let labels = || {
            let selector = LabelSelector::parse(label_selector);
            selector.is_ok_and(|selector| selector.matches(object.labels()))
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
        if self.resource.group != write.group || self.resource.plural != write.resource {
            return None;
        }
        let store = self.informer.store();
        let Some(object) = write.object.as_ref().filter(|object| stays(object, write)) else {
            if !write.is_deletion && write.object.is_none() {
                return None; // an answer that says nothing of the object
            }
            let key = ObjectKey::new(&write.namespace, &write.name);
            let gone = store.get_by_key(key.as_str())?;
            self.informer.overlay().deleted(&gone);
            return Some(((self.keys)(&gone), key, Awaited::Gone(gone.uid())));
        };
        let key = object.key();
        let cached = store.get_by_key(key.as_str());
        let version = object.revision().get();
        // The write changed nothing, or the watch was faster: there is nothing to wait for.
        if cached
            .as_ref()
            .is_some_and(|cached| cached.version() >= version)
        {
            return None;
        }
        // An object that the write took out of the selection is still to leave the cache.
        if cached.is_none() && !self.selects(key.namespace(), object) {
            return None;
        }
        // Of an object that does not fit its type the cache will have nothing new.
        let written = self.informer.wrote(object).ok().or(cached)?;
        let awaited = Awaited::Version(version);
        Some(((self.keys)(&written), key, awaited))
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
            // If the informer stops, so does the controller.
            let _ = self.informer.wait_until(has).await;
        })
    }

    fn stopped(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let _ = self.informer.wait_until(|_| false).await;
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// True if the object is still there after a write that was answered with it.
fn stays(object: &Object, write: &ObservedWrite) -> bool {
    if !object.is_terminating() {
        return !write.is_deletion;
    }
    // The write that removes the last finalizer of an object deletes it, and is answered with its last state.
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Metadata {
        finalizers: Vec<String>,
        deletion_grace_period_seconds: i64,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Whole {
        metadata: Metadata,
    }
    let Whole { metadata } = serde_json::from_slice(object.as_bytes()).unwrap_or_default();
    !metadata.finalizers.is_empty() || metadata.deletion_grace_period_seconds > 0
}
