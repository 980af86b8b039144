//! Children that cannot have an owner, because they are in another namespace than the object they belong to, or in none: labels and an
//! annotation say whose they are.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tidings_api::ObjectKey;
use tidings_informer::{Cached, Predicate, Uid};
use tidings_kube::{KubeObject, Scope, resource_of};

use crate::applied::name_of;
use crate::controller::Controller;
use crate::permissions::UsedResource;
use crate::watch_source::watch_source;
use crate::watched::{OwnedObject, Watched};

/// The label with the name of the controller that made an object.
const CONTROLLER_LABEL: &str = "tidings.dev/controller";
/// The label with the uid of the object that an object belongs to.
const UID_LABEL: &str = "tidings.dev/owner-uid";
/// The annotation with the namespace and name of the object that an object belongs to.
const KEY_ANNOTATION: &str = "tidings.dev/owner";
/// The index by the uids in the labels.
const LABEL_INDEX: &str = "tidings.labelled";

/// Says in the metadata of a child whose it is.
pub(crate) fn label<K: KubeObject>(metadata: &mut ObjectMeta, controller: &str, owner: &Cached<K>) {
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(CONTROLLER_LABEL.to_owned(), name_of(controller));
    let uid = owner.meta().uid.clone().unwrap_or_default();
    labels.insert(UID_LABEL.to_owned(), uid);
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(KEY_ANNOTATION.to_owned(), owner.key().as_str().to_owned());
}

/// The key of the object that an object belongs to.
fn key_of<D: KubeObject>(object: &Cached<D>) -> Option<ObjectKey> {
    let annotations = object.meta().annotations.as_ref()?;
    let named = annotations.get(KEY_ANNOTATION)?;
    let (namespace, name) = named.split_once('/').unwrap_or(("", named));
    Some(ObjectKey::new(namespace, name))
}

/// The uid of the object that an object belongs to.
fn uid_of<D>(object: &Cached<D>) -> Option<Uid> {
    object.labels().get(UID_LABEL).map(Uid::new)
}

impl<K: Send + Sync + 'static> Controller<K> {
    /// Owns objects of `D` that cannot have the main object as their owner: those in other namespaces, and cluster-scoped ones of a namespaced
    /// object. [`Context::apply`](crate::Context::apply) labels such children instead, and this reconciles the object that they belong to when
    /// they change.
    ///
    /// The garbage collector does not know them: clean up after the main object with a [finalizer](crate::Context::finalizer) that applies an
    /// [empty set of children](crate::Context::children), which deletes them all. Only objects that this controller labelled are cached.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
    /// # use tidings_controller::{Action, Cached, Cluster, Context, Controller, Finalizing};
    /// # use tidings_kube::SourceError;
    /// async fn reconcile(map: Arc<Cached<ConfigMap>>, ctx: Context<()>) -> Result<Action, SourceError> {
    ///     ctx.finalizer(&map, "example.com/namespaces", async |finalizing| {
    ///         let mut children = ctx.children(&map);
    ///         if finalizing == Finalizing::Apply {
    ///             let mut namespace = Namespace::default();
    ///             namespace.metadata.name = Some(format!("space-of-{}", map.name()));
    ///             children.add(&namespace)?;
    ///         }
    ///         children.apply().await?;
    ///         Ok(Action::AwaitChange)
    ///     })
    ///     .await
    /// }
    ///
    /// # fn run(cluster: &Cluster) {
    /// let controller = Controller::<ConfigMap>::new(cluster).owns_labelled::<Namespace>().start(reconcile, ());
    /// # }
    /// ```
    #[must_use]
    pub fn owns_labelled<D: KubeObject>(self) -> Self {
        let used = UsedResource::labelled(&resource_of::<D>());
        self.watching(used, |main| {
            let selector = format!("{CONTROLLER_LABEL}={}", name_of(&main.controller));
            let scope = Scope::all().labels(selector);
            let informer = main.cluster.informers().informer::<D>(&scope);
            let index = informer.ensure_index(LABEL_INDEX, |object| uid_of(object));
            let watched = Watched {
                resource: resource_of::<D>(),
                scope,
                informer,
                keys: Arc::new(|object: &Cached<D>| key_of(object).into_iter().collect()),
                by_owner: index.ok(),
                elsewhere: None,
                is_labelled: true,
                identity: OwnedObject::of::<D>,
            };
            vec![watch_source(watched, Predicate::all(), None)]
        })
    }
}
