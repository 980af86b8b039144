//! The builder of controllers.

mod start;

use std::any::{Any, TypeId, type_name};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tidings_api::{Object, ObjectKey};
use tidings_informer::workqueue::{RateLimiter, WithJitter, default_limiter};
use tidings_informer::{BoxFuture, Cached, IndexValue, Predicate, SharedInformer, Uid};
use tidings_kube::{ApiResource, KubeObject, Scope, resource_of};

use crate::cluster::Cluster;
use crate::metrics::ControllerMetrics;
use crate::outcome::ErrorPolicy;
use crate::owners::{self, OwnerKind, OwnerLink};
use crate::permissions::{Permissions, UsedResource};
use crate::runner::RunnerOptions;
use crate::shards::{ShardGroup, ShardSeat};
use crate::signals::{either, signalled};
use crate::trigger::Trigger;
use crate::watch_source::{WatchSource, Watches, watch_source};
use crate::watched::{KeysOf, OwnedObject, Watched};

/// The index by owners in the informers of owned objects. Controllers share it.
fn owner_index(which: OwnerKind) -> &'static str {
    match which {
        OwnerKind::Any => "tidings.owners",
        OwnerKind::Controller => "tidings.controllers",
    }
}

/// How much longer than its backoff a key may wait: a fifth.
const JITTER: f64 = 0.2;

/// What the watches of a controller need to know of its main resource.
pub(crate) struct MainResource {
    pub(crate) cluster: Cluster,
    /// The name of the controller.
    pub(crate) controller: Arc<str>,
    resource: ApiResource,
    /// The only namespaces that the controller looks at; one empty text for all.
    namespaces: Vec<String>,
    exists: Arc<dyn Fn(&ObjectKey) -> bool + Send + Sync>,
}

impl MainResource {
    /// The scopes of a watch: those that name no namespace are narrowed to the namespaces of the controller.
    fn narrowed(&self, scopes: Vec<Scope>) -> Vec<Scope> {
        let mut narrowed = Vec::new();
        for scope in scopes {
            if !scope.namespace.is_empty() {
                narrowed.push(scope);
                continue;
            }
            for namespace in &self.namespaces {
                let mut scope = scope.clone();
                scope.namespace.clone_from(namespace);
                narrowed.push(scope);
            }
        }
        narrowed
    }
}

/// The namespaces of scopes, each once; one empty text if any scope is of all namespaces.
fn namespaces(scopes: &[Scope]) -> Vec<String> {
    let mut names: Vec<String> = scopes.iter().map(|scope| scope.namespace.clone()).collect();
    names.sort();
    names.dedup();
    if names.first().is_some_and(String::is_empty) {
        names.truncate(1);
    }
    names
}

/// Refuses to watch nothing: a list of namespaces that was read from somewhere and is empty is a mistake.
fn check_scopes(scopes: &[Scope], kind: &str) {
    assert!(
        !scopes.is_empty(),
        "no scope for {kind}: give at least one, or Scope::all()"
    );
}

type AddIndex<K> = Box<dyn Fn(&SharedInformer<K>) + Send>;
type LinksFunc<K> = fn(&Cached<K>) -> Vec<OwnerLink>;
type IdentityFunc<K> = fn(&Cached<K>, Uid) -> OwnedObject;
type InformerFunc<K> = Box<dyn Fn(&Cluster, &Scope) -> SharedInformer<K> + Send + Sync>;
type WatchSetup = Box<dyn FnOnce(&MainResource) -> Vec<WatchSource> + Send>;

/// What follows from an error; nothing if it is of another type.
type DecideFunc = dyn Fn(&dyn Any) -> Option<ErrorPolicy> + Send + Sync;

/// What follows from errors of one type.
struct TypedPolicy {
    error: TypeId,
    error_name: &'static str,
    decide: Arc<DecideFunc>,
}

/// Reconciles the objects of a type whenever they, or other objects that belong to them, change.
///
/// Controllers of one [`Cluster`] share informers: one reflector for each resource, whichever controllers watch it. A reconcile of an
/// object does not start before the caches have what this process wrote to the object and to what it owns. While the server does not
/// answer, no reconcile starts, and keys that failed meanwhile are given back without a penalty.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use k8s_openapi::api::apps::v1::Deployment;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use tidings_controller::{Action, Cached, Cluster, Context, Controller};
/// use tidings_kube::RestClient;
///
/// async fn reconcile(map: Arc<Cached<ConfigMap>>, ctx: Context<()>) -> Result<Action, tidings_kube::SourceError> {
///     let deployments = ctx.owned::<Deployment>(&map);
///     println!("{} owns {} deployments", map.key(), deployments.len());
///     Ok(Action::AwaitChange)
/// }
///
/// # async fn run(client: RestClient) {
/// let cluster = Cluster::new(&client);
/// let controller = Controller::<ConfigMap>::new(&cluster).owns::<Deployment>().concurrency(8);
/// controller.shutdown_on_signal().run(reconcile, ()).await;
/// # }
/// ```
pub struct Controller<K: Send + Sync + 'static> {
    cluster: Cluster,
    name: Arc<str>,
    resource: ApiResource,
    informer: InformerFunc<K>,
    identity: IdentityFunc<K>,
    scopes: Vec<Scope>,
    predicate: Predicate<K>,
    watches: Vec<WatchSetup>,
    /// What is used besides the main resource, for the permissions.
    used: Vec<UsedResource>,
    indexes: Vec<AddIndex<K>>,
    limiter: Box<dyn RateLimiter<ObjectKey>>,
    resync: Option<Duration>,
    error_policy: Option<TypedPolicy>,
    metrics: Option<ControllerMetrics>,
    shards: Option<ShardSeat>,
    triggers: Vec<Trigger>,
    options: RunnerOptions,
    stop: BoxFuture<'static, ()>,
}

impl<K: KubeObject> Controller<K> {
    /// A controller of all objects of a type. Its name is the kind in lower case.
    pub fn new(cluster: &Cluster) -> Controller<K> {
        let informer = |cluster: &Cluster, scope: &Scope| cluster.informers().informer(scope);
        let informer: InformerFunc<K> = Box::new(informer);
        Controller::of(cluster, resource_of::<K>(), informer, OwnedObject::of::<K>)
    }
}

impl Controller<Object> {
    /// A controller of all objects of a resource that is known only at run time. Its name is the kind in lower case.
    pub fn dynamic(cluster: &Cluster, resource: &ApiResource) -> Controller<Object> {
        let dynamic = resource.clone();
        let informer =
            move |cluster: &Cluster, scope: &Scope| cluster.informers().dynamic(&dynamic, scope);
        let informer: InformerFunc<Object> = Box::new(informer);
        Controller::of(cluster, resource.clone(), informer, OwnedObject::of_object)
    }
}

impl<K: Send + Sync + 'static> Controller<K> {
    fn of(
        cluster: &Cluster,
        resource: ApiResource,
        informer: InformerFunc<K>,
        identity: IdentityFunc<K>,
    ) -> Controller<K> {
        Controller {
            cluster: cluster.clone(),
            name: resource.kind.to_lowercase().into(),
            resource,
            informer,
            identity,
            scopes: vec![Scope::all()],
            predicate: Predicate::all(),
            watches: Vec::new(),
            used: Vec::new(),
            indexes: Vec::new(),
            limiter: Box::new(WithJitter::new(default_limiter(), JITTER, None)),
            resync: None,
            error_policy: None,
            metrics: None,
            shards: None,
            triggers: Vec::new(),
            options: RunnerOptions {
                concurrency: 8,
                grace: Duration::from_secs(30),
                timeout: None,
                stale_wait: Duration::from_secs(10),
            },
            stop: Box::pin(pending()),
        }
    }

    /// Sets the name for logs, metrics, events and as field manager. Controllers that run in one cluster at the same time need different
    /// names; the log has an error if they do not.
    #[must_use]
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Only the objects of a scope.
    #[must_use]
    pub fn scope(self, scope: Scope) -> Self {
        self.scopes([scope])
    }

    /// Only the objects of several scopes, read as one cache: several namespaces, or several selectors. Each scope has a watch of its own,
    /// so the program needs no permission for what is in none of them.
    ///
    /// # Panics
    /// Without a scope there is nothing to reconcile: [`Controller::run`] and [`Controller::start`] panic.
    #[must_use]
    pub fn scopes(mut self, scopes: impl IntoIterator<Item = Scope>) -> Self {
        self.scopes = scopes.into_iter().collect();
        self
    }

    /// Shares the keys with other replicas of the program: this one reconciles only those that it owns in the group.
    #[must_use]
    pub fn sharded(mut self, group: &ShardGroup) -> Self {
        self.shards = Some(group.seat());
        self
    }

    /// Reconciles keys also when the program asks for it.
    #[must_use]
    pub fn triggered_by(mut self, trigger: &Trigger) -> Self {
        self.triggers.push(trigger.clone());
        self
    }

    /// Only the events of the main resource that a predicate counts.
    ///
    /// ```no_run
    /// use k8s_openapi::api::apps::v1::Deployment;
    /// use tidings_controller::{Cached, Cluster, Controller, Predicate};
    /// use tidings_kube::predicates;
    ///
    /// # fn controller(cluster: &Cluster) -> Controller<Deployment> {
    /// let replicas = Predicate::changed(|deployment: &Cached<Deployment>| deployment.spec.as_ref().and_then(|spec| spec.replicas));
    /// let counts = replicas.or(Predicate::labels_changed()).or(predicates::deletion_begun());
    /// Controller::<Deployment>::new(cluster).with_predicate(counts)
    /// # }
    /// ```
    #[must_use]
    pub fn with_predicate(mut self, predicate: Predicate<K>) -> Self {
        self.predicate = predicate;
        self
    }

    /// Reconciles the controlling owner of each object of `D` that changes, in the namespace of the controller's scope. `D` can also be a projection, or `PartialObjectMeta` of a
    /// type, to keep less of each object in memory.
    #[must_use]
    pub fn owns<D: KubeObject>(self) -> Self {
        self.owns_with::<D>(OwnerKind::Controller, Watches::all())
    }

    /// Reconciles owners of the objects of `D` that are watched.
    #[must_use]
    pub fn owns_with<D: KubeObject>(self, which: OwnerKind, watches: Watches<D>) -> Self {
        let links = |object: &Cached<D>| OwnerLink::of::<D>(object);
        let informer = |cluster: &Cluster, scope: &Scope| cluster.informers().informer::<D>(scope);
        let forms = (
            links as LinksFunc<D>,
            OwnedObject::of::<D> as IdentityFunc<D>,
        );
        self.owned(resource_of::<D>(), which, watches, forms, informer)
    }

    /// Reconciles owners of the objects of a resource that is known only at run time.
    #[must_use]
    pub fn owns_dynamic(
        self,
        resource: &ApiResource,
        which: OwnerKind,
        watches: Watches<Object>,
    ) -> Self {
        let links = |object: &Cached<Object>| OwnerLink::of_object(object);
        let dynamic = resource.clone();
        let informer =
            move |cluster: &Cluster, scope: &Scope| cluster.informers().dynamic(&dynamic, scope);
        let forms = (
            links as LinksFunc<Object>,
            OwnedObject::of_object as IdentityFunc<Object>,
        );
        self.owned(resource.clone(), which, watches, forms, informer)
    }

    fn owned<D: Send + Sync + 'static>(
        mut self,
        resource: ApiResource,
        which: OwnerKind,
        watches: Watches<D>,
        (links, identity): (LinksFunc<D>, IdentityFunc<D>),
        informer: impl Fn(&Cluster, &Scope) -> SharedInformer<D> + Send + 'static,
    ) -> Self {
        for scope in &watches.scopes {
            let used = UsedResource::owned(&resource, &scope.namespace);
            self.used.push(used);
        }
        self.watches.push(Box::new(move |main| {
            let (owner, exists) = (main.resource.clone(), Arc::clone(&main.exists));
            let keys: KeysOf<D> = Arc::new(move |object| {
                let links = links(object);
                let names = owners::names(&links, &owner, which);
                names
                    .map(|name| owners::key(object.namespace(), name, &*exists))
                    .collect()
            });
            check_scopes(&watches.scopes, &resource.kind);
            // What is owned is in the namespace of its owner.
            let scopes = main.narrowed(watches.scopes).into_iter();
            let source = |scope: Scope| {
                let informer = informer(&main.cluster, &scope);
                let uids = move |object: &Cached<D>| owners::uids(&links(object), which);
                let index = informer.ensure_index(owner_index(which), uids);
                let watched = Watched {
                    resource: resource.clone(),
                    scope,
                    informer,
                    keys: Arc::clone(&keys),
                    // Another program's index of this name would have values of another type.
                    by_owner: index.ok(),
                    elsewhere: None,
                    is_labelled: false,
                    identity,
                };
                watch_source(watched, watches.predicate.clone(), None)
            };
            scopes.map(source).collect()
        }));
        self
    }

    /// Watches a resource in a way of its own.
    pub(crate) fn watching(
        mut self,
        used: UsedResource,
        set_up: impl FnOnce(&MainResource) -> Vec<WatchSource> + Send + 'static,
    ) -> Self {
        self.used.push(used);
        self.watches.push(Box::new(set_up));
        self
    }

    /// Reconciles the keys that a function names for each object of `D` that changes.
    #[must_use]
    pub fn watches<D: KubeObject, I: IntoIterator<Item = ObjectKey>>(
        self,
        keys: impl Fn(&Cached<D>) -> I + Send + Sync + 'static,
    ) -> Self {
        self.watches_with(Watches::all(), keys)
    }

    /// Reconciles the keys that a function names for the objects of `D` that are watched.
    #[must_use]
    pub fn watches_with<D: KubeObject, I: IntoIterator<Item = ObjectKey>>(
        self,
        watches: Watches<D>,
        keys: impl Fn(&Cached<D>) -> I + Send + Sync + 'static,
    ) -> Self {
        let informer = |cluster: &Cluster, scope: &Scope| cluster.informers().informer::<D>(scope);
        let identity = OwnedObject::of::<D>;
        self.watched(
            (resource_of::<D>(), None, identity),
            watches,
            keys,
            informer,
        )
    }

    /// Reconciles the keys that a function names for the objects of `D` in another cluster.
    #[must_use]
    pub fn watches_in<D: KubeObject, I: IntoIterator<Item = ObjectKey>>(
        self,
        cluster: &Cluster,
        watches: Watches<D>,
        keys: impl Fn(&Cached<D>) -> I + Send + Sync + 'static,
    ) -> Self {
        let informer = |cluster: &Cluster, scope: &Scope| cluster.informers().informer::<D>(scope);
        let cluster = Some(cluster.clone());
        let identity = OwnedObject::of::<D>;
        self.watched(
            (resource_of::<D>(), cluster, identity),
            watches,
            keys,
            informer,
        )
    }

    /// Reconciles the keys that a function names for the objects of a resource that is known only at run time.
    #[must_use]
    pub fn watches_dynamic<I: IntoIterator<Item = ObjectKey>>(
        self,
        resource: &ApiResource,
        watches: Watches<Object>,
        keys: impl Fn(&Cached<Object>) -> I + Send + Sync + 'static,
    ) -> Self {
        let dynamic = resource.clone();
        let informer =
            move |cluster: &Cluster, scope: &Scope| cluster.informers().dynamic(&dynamic, scope);
        let identity = OwnedObject::of_object;
        self.watched((resource.clone(), None, identity), watches, keys, informer)
    }

    fn watched<D: Send + Sync + 'static, I: IntoIterator<Item = ObjectKey>>(
        mut self,
        (resource, cluster, identity): (ApiResource, Option<Cluster>, IdentityFunc<D>),
        watches: Watches<D>,
        keys: impl Fn(&Cached<D>) -> I + Send + Sync + 'static,
        informer: impl Fn(&Cluster, &Scope) -> SharedInformer<D> + Send + 'static,
    ) -> Self {
        // What a program needs in another cluster is another role.
        if cluster.is_none() {
            for scope in &watches.scopes {
                let used = UsedResource::watched(&resource, &scope.namespace);
                self.used.push(used);
            }
        }
        self.watches.push(Box::new(move |main| {
            let keys: KeysOf<D> = Arc::new(move |object| keys(object).into_iter().collect());
            check_scopes(&watches.scopes, &resource.kind);
            let place = cluster.as_ref().unwrap_or(&main.cluster);
            let source = |scope: Scope| {
                let watched = Watched {
                    resource: resource.clone(),
                    informer: informer(place, &scope),
                    scope,
                    keys: Arc::clone(&keys),
                    by_owner: None,
                    elsewhere: cluster.clone(),
                    is_labelled: false,
                    identity,
                };
                watch_source(watched, watches.predicate.clone(), None)
            };
            watches.scopes.into_iter().map(source).collect()
        }));
        self
    }

    /// Reconciles the object that a label of each object of `D` names, in the namespace of the object.
    #[must_use]
    pub fn watches_labelled<D: KubeObject>(self, label: impl Into<String>) -> Self {
        let label = label.into();
        self.watches::<D, _>(move |object| {
            let name = object.labels().get(&label);
            name.map(|name| ObjectKey::new(object.namespace(), name))
        })
    }

    /// Reconciles the object that an annotation of each object of `D` names: `name` in the namespace of the object, or
    /// `namespace/name`.
    #[must_use]
    pub fn watches_annotated<D: KubeObject>(self, annotation: impl Into<String>) -> Self {
        let annotation = annotation.into();
        self.watches::<D, _>(move |object| {
            let annotations = object.meta().annotations.as_ref();
            let named = annotations.and_then(|annotations| annotations.get(&annotation));
            named.map(|named| match named.split_once('/') {
                Some((namespace, name)) => ObjectKey::new(namespace, name),
                None => ObjectKey::new(object.namespace(), named),
            })
        })
    }

    /// Says that objects of `D` are written without being owned: created, updated, patched or deleted. Changes nothing but
    /// [`Controller::permissions`]; they are in the namespace of the controller's scope.
    #[must_use]
    pub fn writes<D: KubeObject>(mut self) -> Self {
        self.used.push(UsedResource::written::<D>());
        self
    }

    /// What the controller may have to do on the server, derived from what it watches, owns and writes. No request is sent for it.
    pub fn permissions(&self) -> Permissions {
        let needed =
            |namespace: String| Permissions::of_controller(&self.resource, &namespace, &self.used);
        let namespaces = namespaces(&self.scopes).into_iter();
        namespaces
            .map(needed)
            .fold(Permissions::new(), Permissions::and)
    }

    /// Adds an index to the cache of the main resource; [`Context::by_index`](crate::Context::by_index) reads it.
    #[must_use]
    pub fn index<V: IndexValue, I: IntoIterator<Item = V>>(
        mut self,
        name: &'static str,
        values: impl Fn(&Cached<K>) -> I + Send + Sync + 'static,
    ) -> Self {
        let values = Arc::new(values);
        self.indexes.push(Box::new(move |informer| {
            let values = Arc::clone(&values);
            let values = move |object: &Cached<K>| values(object);
            if let Err(conflict) = informer.ensure_index(name, values) {
                tracing::error!(%conflict, "an index is not added: choose another name");
            }
        }));
        self
    }

    /// Sets how many reconciles run at once, eight by default. Zero counts as one.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.options.concurrency = concurrency;
        self
    }

    /// Sets how long a reconcile may take. One that takes longer is dropped and counts as a failure. There is no limit by default.
    #[must_use]
    pub fn timeout(mut self, longest: Duration) -> Self {
        self.options.timeout = Some(longest);
        self
    }

    /// Sets how long running reconciles have to end when the controller stops: thirty seconds by default.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.options.grace = grace;
        self
    }

    /// Sets how long a reconcile waits until the caches have this process' own writes: ten seconds by default. Then it starts without them.
    #[must_use]
    pub fn own_write_wait(mut self, longest: Duration) -> Self {
        self.options.stale_wait = longest;
        self
    }

    /// Sets how often every object is reconciled without a change. Never by default.
    #[must_use]
    pub fn resync(mut self, every: Duration) -> Self {
        self.resync = Some(every);
        self
    }

    /// Sets how long keys that failed wait. The default is 5 ms, doubled with each failure up to 1000 s, and up to a fifth more at random.
    #[must_use]
    pub fn backoff(mut self, limiter: impl RateLimiter<ObjectKey> + 'static) -> Self {
        self.limiter = Box::new(limiter);
        self
    }

    /// Sets what follows from an error of the type that the reconcile function returns. Without it every error is retried.
    ///
    /// # Panics
    /// A policy for another type makes [`Controller::run`] and [`Controller::start`] panic: it would never be asked.
    #[must_use]
    pub fn error_policy<E: 'static>(
        mut self,
        policy: impl Fn(&E) -> ErrorPolicy + Send + Sync + 'static,
    ) -> Self {
        self.error_policy = Some(TypedPolicy {
            error: TypeId::of::<E>(),
            error_name: type_name::<E>(),
            decide: Arc::new(move |error| error.downcast_ref().map(&policy)),
        });
        self
    }

    /// Exports the figures of the controller to Prometheus.
    #[must_use]
    pub fn with_metrics(mut self, metrics: &ControllerMetrics) -> Self {
        self.metrics = Some(metrics.clone());
        self
    }

    /// Stops the controller when a future is ready: no further reconcile starts, running ones have the grace to end. Of several, and of
    /// [`Controller::shutdown_on_signal`], the first that is ready counts.
    #[must_use]
    pub fn stop_on(mut self, stop: impl Future<Output = ()> + Send + 'static) -> Self {
        self.stop = Box::pin(either(self.stop, stop));
        self
    }

    /// Stops the controller at SIGINT (Ctrl-C), and on Unix at SIGTERM. A second signal ends the process at once, with code 1.
    #[must_use]
    pub fn shutdown_on_signal(self) -> Self {
        self.stop_on(signalled())
    }
}

impl<K: Send + Sync + 'static> std::fmt::Debug for Controller<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller")
            .field("name", &self.name)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}
