//! A resource that a controller watches: its informer, and which keys its objects belong to.

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

use serde::Deserialize;
use tidings_api::{LabelSelector, ListOptions, Object, ObjectKey};
use tidings_informer::{
    BoxFuture, Cached, Index, NotSynced, Paged, Pager, SharedInformer, SourceError, Store, Uid,
};
use tidings_kube::{
    ApiResource, KubeObject, ObjectPath, ObservedWrite, RestClient, RestListWatch, Scope,
};

use crate::cluster::Cluster;
use crate::doubts::Doubt;
use crate::own_writes::Awaited;
use crate::owners::{self, OwnerLink};

/// Maps an object to the keys that are reconciled for it.
pub(crate) type KeysOf<D> = Arc<dyn Fn(&Cached<D>) -> Vec<ObjectKey> + Send + Sync>;

/// An object that another one owns, as pruning needs it.
#[derive(Debug, Clone)]
pub(crate) struct OwnedObject {
    pub(crate) key: ObjectKey,
    pub(crate) uid: String,
    pub(crate) is_terminating: bool,
    pub(crate) is_controlled_by_another: bool,
}

impl OwnedObject {
    /// Of a typed object.
    pub(crate) fn of<D: KubeObject>(object: &Cached<D>, owner: Uid) -> OwnedObject {
        let (meta, links) = (object.meta(), OwnerLink::of::<D>(object));
        OwnedObject {
            key: object.key().clone(),
            uid: meta.uid.clone().unwrap_or_default(),
            is_terminating: meta.deletion_timestamp.is_some(),
            is_controlled_by_another: owners::is_controlled_by_another(&links, owner),
        }
    }

    /// Of an object in bytes.
    pub(crate) fn of_object(object: &Cached<Object>, owner: Uid) -> OwnedObject {
        let links = OwnerLink::of_object(object);
        OwnedObject {
            key: object.key().clone(),
            uid: object.value().uid().into_owned(),
            is_terminating: object.is_terminating(),
            is_controlled_by_another: owners::is_controlled_by_another(&links, owner),
        }
    }
}

/// A watched resource with objects of one type.
pub(crate) struct Watched<D: Send + Sync + 'static> {
    pub(crate) resource: ApiResource,
    pub(crate) scope: Scope,
    pub(crate) informer: SharedInformer<D>,
    pub(crate) keys: KeysOf<D>,
    /// By the uids of owners, if the controller owns such objects.
    pub(crate) by_owner: Option<Index<D, Uid>>,
    /// The cluster of the objects, if it is not that of the controller: its writes are not observed.
    pub(crate) elsewhere: Option<Cluster>,
    /// The objects belong to main objects by their labels, not by owner references.
    pub(crate) is_labelled: bool,
    /// What pruning needs of an object, for one of its owners.
    pub(crate) identity: fn(&Cached<D>, Uid) -> OwnedObject,
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
    /// True if a write is of this resource, in this cluster.
    fn is_of(&self, write: &ObservedWrite) -> bool;
    /// Asks the server for what is in doubt, and waits until the cache has it. False if the server does not answer.
    fn resolve<'a>(&'a self, client: &'a RestClient, doubt: &'a Doubt) -> BoxFuture<'a, bool>;
    /// The objects that an object owns, if the controller owns such objects.
    fn owned_by(&self, owner: Uid) -> Vec<OwnedObject>;
    /// The resource.
    fn resource(&self) -> &ApiResource;
    /// What a write means for the caches: the keys to reconcile, the written object, and what to wait for.
    fn written(&self, write: &ObservedWrite) -> Option<(Vec<ObjectKey>, ObjectKey, Awaited)>;
    /// True if the cache has a write.
    fn has(&self, object: &ObjectKey, awaited: Awaited) -> bool;
    /// Waits until the cache has a write, or its informer stops.
    fn caught_up<'a>(&'a self, object: &'a ObjectKey, awaited: Awaited) -> BoxFuture<'a, ()>;
    /// The uid of an object in the cache.
    fn uid_of(&self, object: &ObjectKey) -> Option<Uid>;
    /// The keys of the objects in the cache whose uids are wanted.
    fn keys_with(&self, is_wanted: &dyn Fn(Uid) -> bool) -> Vec<ObjectKey>;
    /// Waits until the informer has stopped.
    fn stopped(&self) -> BoxFuture<'_, ()>;
    fn as_any(&self) -> &dyn Any;
}

/// An object that the server has or had: its key, and its version if it is there.
type ServerObject = (ObjectKey, Option<u64>);

impl<D: Send + Sync + 'static> Watched<D> {
    /// Reads what the server has of what is in doubt.
    async fn read_versions(
        &self,
        client: &RestClient,
        doubt: &Doubt,
    ) -> Result<Vec<ServerObject>, SourceError> {
        if let Doubt::Object(key) = doubt {
            let path = ObjectPath::new(&self.resource, key.namespace(), key.name());
            let object = client.get_object(&path).await?;
            // An object that is not selected leaves the cache, or was never in it.
            let selected = object.filter(|object| self.selects(key.namespace(), object));
            return Ok(vec![(
                key.clone(),
                selected.map(|object| object.revision().get()),
            )]);
        }
        let source = RestListWatch::new(client, &self.resource, &self.scope.namespace);
        let lister = source.metadata_only().selected(&self.scope);
        let mut there = Vec::new();
        let pager = Pager::new(&lister);
        let listed = pager.list(ListOptions::default(), |part| match part {
            Paged::Items(items) => there.extend(
                items
                    .iter()
                    .map(|object| (object.key(), Some(object.revision().get()))),
            ),
            Paged::Restart => there.clear(),
        });
        listed.await?;
        Ok(there)
    }

    /// True if the cache will receive an object of this namespace and with these labels. With a field selector nobody knows.
    fn selects(&self, namespace: &str, object: &Object) -> bool {
        let Scope {
            namespace: only,
            label_selector,
            field_selector,
            shard,
            ..
        } = &self.scope;
        let is_in_shard = || shard.as_ref().is_none_or(|shard| shard.matches(object));
        let labels = || {
            let selector = LabelSelector::parse(label_selector);
            selector.is_ok_and(|selector| selector.matches(object.labels()))
        };
        (only.is_empty() || only == namespace)
            && field_selector.is_empty()
            && labels()
            && is_in_shard()
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

    fn is_of(&self, write: &ObservedWrite) -> bool {
        let Scope {
            namespace,
            field_selector,
            ..
        } = &self.scope;
        let is_meant = self.resource.group == write.group && self.resource.plural == write.resource;
        let is_in_scope = namespace.is_empty() || *namespace == write.namespace;
        // Of objects that a field selector selects nobody knows whether the cache will receive them.
        is_meant && is_in_scope && field_selector.is_empty() && self.elsewhere.is_none()
    }

    fn resolve<'a>(&'a self, client: &'a RestClient, doubt: &'a Doubt) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            if self.elsewhere.is_some() {
                return true; // another server has these objects, and this program's client does not write them
            }
            // Before the question: what comes into the cache meanwhile may not be in the answer.
            let before = self.informer.store().snapshot();
            let Ok(mut there) = self.read_versions(client, doubt).await else {
                return false;
            };
            if *doubt == Doubt::Any {
                let listed: HashSet<ObjectKey> = there.iter().map(|(key, _)| key.clone()).collect();
                let deleted = before
                    .iter()
                    .filter(|cached| !listed.contains(cached.key()));
                there.extend(deleted.map(|cached| (cached.key().clone(), None)));
            }
            let has_all = |store: &Store<D>| {
                let snapshot = store.snapshot();
                there.iter().all(|(key, version)| {
                    let cached = snapshot.get_by_key(key.as_str());
                    match version {
                        Some(version) => {
                            cached.is_some_and(|cached| cached.version() >= *version)
                                || snapshot.version().number() >= Some(*version)
                        }
                        // It was deleted; an object that was made since has another uid.
                        None => {
                            let known = before.get_by_key(key.as_str());
                            cached.map(|cached| cached.uid()) != known.map(|known| known.uid())
                                || known.is_none()
                        }
                    }
                })
            };
            let _ = self.informer.wait_until(has_all).await;
            true
        })
    }

    fn owned_by(&self, owner: Uid) -> Vec<OwnedObject> {
        let Some(index) = &self.by_owner else {
            return Vec::new();
        };
        let owned = self.informer.store().by_index(index, &owner);
        let owned = owned.unwrap_or_default();
        let identity = |object: &Arc<Cached<D>>| (self.identity)(object, owner);
        owned.iter().map(identity).collect()
    }

    fn resource(&self) -> &ApiResource {
        &self.resource
    }

    fn written(&self, write: &ObservedWrite) -> Option<(Vec<ObjectKey>, ObjectKey, Awaited)> {
        if !self.is_of(write) {
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
        let written = self.informer.wrote_as_sent(object).ok().or(cached)?;
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

    fn uid_of(&self, object: &ObjectKey) -> Option<Uid> {
        let cached = self.informer.store().get_by_key(object.as_str());
        cached.map(|cached| cached.uid())
    }

    fn keys_with(&self, is_wanted: &dyn Fn(Uid) -> bool) -> Vec<ObjectKey> {
        let snapshot = self.informer.store().snapshot();
        let wanted = snapshot.iter().filter(|object| is_wanted(object.uid()));
        wanted.map(|object| object.key().clone()).collect()
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
