//! What a controller watches: objects, the events of theirs that count, and the handlers that queue keys.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tidings_informer::{BoxFuture, Event, HandlerOptions, Predicate, Registration, Stopped};
use tidings_kube::Scope;

use crate::shared::ControllerShared;
use crate::watched::{Watched, WatchedResource};

/// Which objects of a resource a controller watches, and which of their events count.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
/// use tidings_api::ObjectKey;
/// use tidings_controller::{Cached, Cluster, Controller, OwnerKind, Predicate, Watches};
/// use tidings_kube::Scope;
///
/// # fn controller(cluster: &Cluster) -> Controller<ConfigMap> {
/// let certificates = Watches::<Secret>::all().scope(Scope::namespace("certificates").labels("use=tls"));
/// Controller::<ConfigMap>::new(cluster)
///     // Pods that any ConfigMap owns, when their labels change.
///     .owns_with::<Pod>(OwnerKind::Any, Watches::all().predicate(Predicate::labels_changed()))
///     // Every certificate belongs to the ConfigMap of its name.
///     .watches_with(certificates, |secret: &Cached<Secret>| [ObjectKey::new("default", secret.name())])
/// # }
/// ```
///
/// # Panics
/// Without a scope there is nothing to watch: the controller panics when it starts.
pub struct Watches<D> {
    pub(crate) scopes: Vec<Scope>,
    pub(crate) predicate: Predicate<D>,
}

impl<D: 'static> Default for Watches<D> {
    fn default() -> Watches<D> {
        Watches {
            scopes: vec![Scope::all()],
            predicate: Predicate::all(),
        }
    }
}

impl<D: 'static> Watches<D> {
    /// All objects and all events.
    #[must_use]
    pub fn all() -> Watches<D> {
        Watches::default()
    }

    /// Only the objects of a scope.
    #[must_use]
    pub fn scope(self, scope: Scope) -> Watches<D> {
        self.scopes([scope])
    }

    /// Only the objects of several scopes, read as one cache: several namespaces, or several selectors.
    #[must_use]
    pub fn scopes(mut self, scopes: impl IntoIterator<Item = Scope>) -> Watches<D> {
        self.scopes = scopes.into_iter().collect();
        self
    }

    /// Only the events that a predicate counts.
    #[must_use]
    pub fn predicate(mut self, predicate: Predicate<D>) -> Watches<D> {
        self.predicate = predicate;
        self
    }
}

impl<D> std::fmt::Debug for Watches<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watches")
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

/// A watched resource, and how its events get into the queue.
pub(crate) struct WatchSource {
    pub(crate) resource: Arc<dyn WatchedResource>,
    pub(crate) attach: AttachFunc,
}

/// Adds a handler of a controller to an informer.
pub(crate) type AttachFunc =
    Box<dyn FnOnce(Weak<ControllerShared>) -> Result<Box<dyn AttachedHandler>, Stopped> + Send>;

/// The handler of a controller on an informer.
pub(crate) trait AttachedHandler: Send + Sync {
    /// Waits until the handler has got the initial state, or the informer stops.
    fn synced(&self) -> BoxFuture<'_, ()>;
    fn detach(&self);
}

impl<D: Send + Sync + 'static> AttachedHandler for Registration<D> {
    fn synced(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            Registration::synced(self).await;
        })
    }

    fn detach(&self) {
        self.remove();
    }
}

pub(crate) fn watch_source<D: Send + Sync + 'static>(
    watched: Watched<D>,
    predicate: Predicate<D>,
    resync: Option<Duration>,
) -> WatchSource {
    let watched = Arc::new(watched);
    let resource: Arc<dyn WatchedResource> = watched.clone();
    let attach = move |shared: Weak<ControllerShared>| {
        let name: Arc<str> = watched.informer.name().into();
        let keys = Arc::clone(&watched.keys);
        let mut options = HandlerOptions::default();
        if let Some(shared) = shared.upgrade() {
            options = options.name(format!("controller {}", shared.name));
        }
        options.resync = resync;
        let handler = move |event: Event<D>| {
            if let Some(shared) = shared.upgrade()
                && predicate.counts(&event)
            {
                shared.enqueue(&event, &keys, &name);
            }
            std::future::ready(())
        };
        let registration: Registration<D> = watched.informer.for_each(handler, &options)?;
        let attached: Box<dyn AttachedHandler> = Box::new(registration);
        Ok(attached)
    };
    WatchSource {
        resource,
        attach: Box::new(attach),
    }
}
