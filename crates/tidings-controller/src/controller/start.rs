//! Runs a controller: puts its parts together, once the builder is complete.

use std::any::{TypeId, type_name};
use std::error::Error;
use std::sync::Arc;

use tidings_informer::workqueue::QueueOptions;
use tidings_informer::{
    Action, BoxFuture, Cached, MergedStore, RunSummary, SharedInformer, WorkQueue, story,
};
use tokio::sync::watch;

use super::{Controller, MainResource, check_scopes, namespaces};
use crate::context::Context;
use crate::handle::ControllerHandle;
use crate::outcome::ReconcileFailure;
use crate::prepared::PreparedController;
use crate::runner::{Attempt, ReconcileFunc};
use crate::shared::ControllerShared;
use crate::signals::either;
use crate::watch_source::{WatchSource, watch_source};
use crate::watched::Watched;

impl<K: Send + Sync + 'static> Controller<K> {
    /// Runs the controller until it is stopped. The first reconcile starts when all caches have their initial state.
    ///
    /// `reconcile` gets the object from the cache and a context that derefs to `state`. It is not called for objects that are gone: use a
    /// finalizer to clean up after them. Dropping the future ends all reconciles at once.
    ///
    /// # Panics
    /// If the error policy is for another type of error than `reconcile` returns, or if there is no scope.
    pub async fn run<S, E, R, F>(self, reconcile: R, state: S) -> RunSummary
    where
        S: Send + Sync + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + Send + 'static,
        R: Fn(Arc<Cached<K>>, Context<S>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Action, E>> + Send + 'static,
    {
        let (prepared, stop) = self.prepare(reconcile, state);
        prepared.run(stop).await
    }

    /// Runs the controller as a task of its own, which a handle stops.
    ///
    /// # Panics
    /// Outside a tokio runtime, and where [`Controller::run`] does.
    pub fn start<S, E, R, F>(self, reconcile: R, state: S) -> ControllerHandle
    where
        S: Send + Sync + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + Send + 'static,
        R: Fn(Arc<Cached<K>>, Context<S>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Action, E>> + Send + 'static,
    {
        let (prepared, asked) = self.prepare(reconcile, state);
        let (shared, claim) = (Arc::clone(&prepared.shared), prepared.claim.clone());
        let (stopper, mut stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            let told = async move { drop(stopped.wait_for(|stopped| *stopped).await) };
            prepared.run(either(asked, told)).await
        });
        ControllerHandle::new(shared, claim, stopper, task)
    }

    fn prepare<S, E, R, F>(
        self,
        reconcile: R,
        state: S,
    ) -> (PreparedController, BoxFuture<'static, ()>)
    where
        S: Send + Sync + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + Send + 'static,
        R: Fn(Arc<Cached<K>>, Context<S>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Action, E>> + Send + 'static,
    {
        check_scopes(&self.scopes, &self.resource.kind);
        if let Some(policy) = &self.error_policy {
            assert!(
                policy.error == TypeId::of::<E>(),
                "the error policy of the controller {} is for {}, but its reconcile function returns {}",
                self.name,
                policy.error_name,
                type_name::<E>(),
            );
        }
        let claim = self.cluster.claim_name(&self.name);
        let informers: Vec<SharedInformer<K>> = self
            .scopes
            .iter()
            .map(|scope| (self.informer)(&self.cluster, scope))
            .collect();
        for (add, informer) in self
            .indexes
            .iter()
            .flat_map(|add| informers.iter().map(move |informer| (add, informer)))
        {
            add(informer);
        }
        let store = MergedStore::new(informers.iter().map(SharedInformer::store));
        let objects = store.clone();
        let main = MainResource {
            cluster: self.cluster.clone(),
            controller: Arc::clone(&self.name),
            resource: self.resource,
            namespaces: namespaces(&self.scopes),
            exists: Arc::new(move |key| objects.get_by_key(key.as_str()).is_some()),
        };
        let source = |(scope, informer)| {
            let watched = Watched {
                resource: main.resource.clone(),
                scope,
                informer,
                keys: Arc::new(|object: &Cached<K>| vec![object.key().clone()]),
                by_owner: None,
                elsewhere: None,
                is_labelled: false,
                identity: self.identity,
            };
            watch_source(watched, self.predicate.clone(), self.resync)
        };
        let scoped = self.scopes.into_iter().zip(informers);
        let mut sources: Vec<WatchSource> = scoped.map(source).collect();
        let main_sources = sources.len();
        for set_up in self.watches {
            sources.extend(set_up(&main));
        }
        let (resources, attach): (Vec<_>, Vec<_>) = sources
            .into_iter()
            .map(|source| (source.resource, source.attach))
            .unzip();
        let queue = WorkQueue::with_options(QueueOptions {
            limiter: self.limiter,
            ..QueueOptions::default()
        });
        if let Some(metrics) = self.cluster.metrics() {
            metrics.observe_queue(Arc::clone(&self.name), &queue);
        }
        let shared = Arc::new(ControllerShared::new(
            self.name,
            self.cluster,
            queue,
            resources,
            main_sources,
            self.shards,
        ));
        for trigger in &self.triggers {
            trigger.attach(&shared);
        }
        if let Some(metrics) = &self.metrics {
            metrics.observe(&shared);
        }
        let (state, policy) = (
            Arc::new(state),
            self.error_policy.map(|policy| policy.decide),
        );
        let reconcile_shared = Arc::downgrade(&shared);
        let reconcile: Arc<ReconcileFunc> = Arc::new(move |attempt: Attempt| {
            let object = store.get_by_key(attempt.key.as_str());
            let object = object.filter(|object| attempt.uid.is_none_or(|uid| object.uid() == uid));
            let (Some(object), Some(shared)) = (object, reconcile_shared.upgrade()) else {
                // The object is gone, and with it the reason to look at it again.
                return Box::pin(std::future::ready(Ok(Action::AwaitChange)));
            };
            let context = Context {
                shared,
                state: Arc::clone(&state),
                attempt,
            };
            let (work, policy) = (reconcile(object, context), policy.clone());
            Box::pin(async move {
                work.await.map_err(|error| {
                    let policy = policy.and_then(|policy| policy(&error)).unwrap_or_default();
                    let text = story(&*error.into());
                    ReconcileFailure {
                        text,
                        policy,
                        is_timeout: false,
                    }
                })
            })
        });
        let prepared = PreparedController {
            shared,
            claim,
            attach,
            options: self.options,
            reconcile,
        };
        (prepared, self.stop)
    }
}
