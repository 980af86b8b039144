//! The context of a reconcile: the program's own state, the client, and the caches of what the controller watches.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use tidings_api::{Object, ObjectKey};
use tidings_informer::{Cached, Index, IndexValue, MergedStore, UnknownIndex};
use tidings_kube::{ApiResource, RestClient};

use crate::cluster::{Cluster, ClusterKey};
use crate::runner::Attempt;
use crate::shared::{Cause, ControllerShared};
use crate::watched::Watched;

/// What a reconcile gets besides the object. Derefs to the program's own state.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use tidings_controller::{Action, Cached, Context, NewEvent};
/// use tidings_kube::SourceError;
///
/// /// The program's own state.
/// struct Settings {
///     suffix: String,
/// }
///
/// async fn reconcile(map: Arc<Cached<ConfigMap>>, ctx: Context<Settings>) -> Result<Action, SourceError> {
///     let mut secret = Secret::default();
///     secret.metadata.name = Some(format!("{}{}", map.name(), ctx.suffix));
///     if ctx.owned::<Secret>(&map).is_empty() {
///         ctx.event(&map, NewEvent::normal("Creating", "its Secret is not there yet").action("Create"));
///     }
///     ctx.apply(&map, &secret).await?;
///     Ok(Action::AwaitChange)
/// }
/// ```
pub struct Context<S> {
    pub(crate) shared: Arc<ControllerShared>,
    pub(crate) state: Arc<S>,
    pub(crate) attempt: Attempt,
}

impl<S> Context<S> {
    /// The program's own state.
    pub fn state(&self) -> &Arc<S> {
        &self.state
    }

    /// The client of the cluster. What is written through it, also by `kube::Api` over its [`kube`](RestClient::kube) client, is waited for
    /// before the next reconcile of the same object.
    pub fn client(&self) -> &RestClient {
        self.shared.cluster.client()
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.shared.cluster
    }

    /// The key of the object with the name of its cluster.
    pub fn cluster_key(&self) -> ClusterKey {
        ClusterKey {
            cluster: self.cluster().name().to_owned(),
            object: self.attempt.key.clone(),
        }
    }

    /// The name of the controller: its field manager, and its name in logs, metrics and events.
    pub fn controller(&self) -> &str {
        &self.shared.name
    }

    /// The key of the object.
    pub fn key(&self) -> &ObjectKey {
        &self.attempt.key
    }

    /// 1 for the first attempt, then one more for each failure in a row.
    pub fn attempt(&self) -> u32 {
        self.attempt.number
    }

    /// Why the object is reconciled: the first of the events since the last reconcile.
    pub fn cause(&self) -> &Cause {
        &self.attempt.cause
    }

    /// The objects of a type that an object owns, from the cache, sorted by key.
    ///
    /// # Panics
    /// If the controller does not own the type: call [`Controller::owns`](crate::Controller::owns) for it.
    pub fn owned<D: Send + Sync + 'static>(
        &self,
        owner: &Cached<impl Sized>,
    ) -> Vec<Arc<Cached<D>>> {
        self.owned_in::<D>(owner, |_| true)
    }

    /// The objects of a resource that is known only at run time that an object owns, from the cache, sorted by key.
    ///
    /// # Panics
    /// If the controller does not own the resource: call [`Controller::owns_dynamic`](crate::Controller::owns_dynamic) for it.
    pub fn owned_dynamic(
        &self,
        resource: &ApiResource,
        owner: &Cached<impl Sized>,
    ) -> Vec<Arc<Cached<Object>>> {
        self.owned_in::<Object>(owner, |watched| watched.resource == *resource)
    }

    fn owned_in<D: Send + Sync + 'static>(
        &self,
        owner: &Cached<impl Sized>,
        is_meant: impl Fn(&Watched<D>) -> bool,
    ) -> Vec<Arc<Cached<D>>> {
        let owning = self.watched_here::<D>().filter(|watched| is_meant(watched));
        let owning: Vec<_> = owning
            .filter(|watched| watched.by_owner.is_some())
            .collect();
        let Some(index) = owning.first().and_then(|watched| watched.by_owner.clone()) else {
            panic!(
                "{} does not own {}: call owns for it",
                self.controller(),
                std::any::type_name::<D>()
            );
        };
        let stores = owning.iter().map(|watched| watched.informer.store());
        let owned = MergedStore::new(stores).by_index(&index, &owner.uid());
        owned.unwrap_or_default()
    }

    /// The cache of a type that the controller watches or owns: all scopes in which it does, as one. Objects of
    /// another cluster are in [`Context::store_in`].
    ///
    /// # Panics
    /// If the controller neither watches nor owns the type.
    pub fn store<D: Send + Sync + 'static>(&self) -> MergedStore<D> {
        let store = self.find_store::<D>();
        assert!(
            !store.stores().is_empty(),
            "{} does not watch {}: call owns or watches for it",
            self.controller(),
            std::any::type_name::<D>()
        );
        store
    }

    /// The cache of a type that the controller watches in another cluster, by [`Controller::watches_in`](crate::Controller::watches_in).
    ///
    /// # Panics
    /// If the controller does not watch the type there.
    pub fn store_in<D: Send + Sync + 'static>(&self, cluster: &Cluster) -> MergedStore<D> {
        let sources = self.shared.sources.iter();
        let watched = sources.filter_map(|source| source.as_any().downcast_ref::<Watched<D>>());
        let is_there = |watched: &&Watched<D>| {
            let place = watched.elsewhere.as_ref();
            place.is_some_and(|place| place.is_same(cluster))
        };
        let stores = watched.filter(is_there);
        let store = MergedStore::new(stores.map(|watched| watched.informer.store()));
        assert!(
            !store.stores().is_empty(),
            "{} does not watch {} in the cluster {}: call watches_in for it",
            self.controller(),
            std::any::type_name::<D>(),
            cluster.name()
        );
        store
    }

    /// The objects of a type that have a value in an index of that name, from the cache, sorted by key. The index of the main resource is
    /// added by [`Controller::index`](crate::Controller::index).
    ///
    /// # Errors
    /// If a cache of the type does not have the index, or has it with values of another type.
    ///
    /// # Panics
    /// If the controller neither watches nor owns the type.
    pub fn by_index<D: Send + Sync + 'static, V: IndexValue>(
        &self,
        index: &str,
        value: &V,
    ) -> Result<Vec<Arc<Cached<D>>>, UnknownIndex> {
        self.store::<D>().by_index(&Index::named(index), value)
    }

    /// The caches of a type as one; without any if the controller does not watch it.
    pub(crate) fn find_store<D: Send + Sync + 'static>(&self) -> MergedStore<D> {
        let watched = self.watched_here::<D>();
        MergedStore::new(watched.map(|watched| watched.informer.store()))
    }

    /// True if children of a type that cannot have an owner are labelled instead.
    pub(crate) fn labels_children<D: Send + Sync + 'static>(&self) -> bool {
        self.watched_here::<D>().any(|watched| watched.is_labelled)
    }

    /// The last state of an object that this process wrote, if the caches do not have it yet, or the newest that they have.
    pub(crate) fn latest<D: Send + Sync + 'static>(
        &self,
        key: &ObjectKey,
    ) -> Option<Arc<Cached<D>>> {
        let latest = self.watched_here::<D>().filter_map(|watched| {
            let overlay = watched.informer.overlay();
            overlay.get_by_key(key.as_str())
        });
        latest.max_by_key(|object| object.version())
    }

    /// The caches of a type in the controller's own cluster.
    fn watched_here<D: Send + Sync + 'static>(&self) -> impl Iterator<Item = &Watched<D>> {
        let sources = self.shared.sources.iter();
        let watched = sources.filter_map(|source| source.as_any().downcast_ref::<Watched<D>>());
        watched.filter(|watched| watched.elsewhere.is_none())
    }
}

impl<S> Deref for Context<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.state
    }
}

impl<S> fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
