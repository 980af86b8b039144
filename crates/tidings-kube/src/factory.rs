//! A factory of shared informers over one client.

use std::time::Duration;

use kube::core::{ApiResource, Resource};
use serde::de::DeserializeOwned;
use tidings_api::Object;
use tidings_informer::metrics::InformerMetrics;
use tidings_informer::{
    InformerBuilder, Lazy, NotAllSynced, ReflectorOptions, SharedInformer, SharedInformerFactory,
};

use crate::client::RestClient;
use crate::informer::{dynamic, informer, lazy, metadata, of_type, projected};
use crate::object_metadata::ObjectMetadata;
use crate::resource::{ObjectForm, Scope, key};

/// Shares informers over one client: requests for equal resources, scopes and forms get one informer.
///
/// Clones share the factory. It does not keep informers alive; see [`SharedInformerFactory`].
#[derive(Debug, Clone)]
pub struct KubeInformerFactory {
    client: RestClient,
    informers: SharedInformerFactory,
    reflector: ReflectorOptions,
    mark: Option<fn(&Object) -> u64>,
}

impl KubeInformerFactory {
    /// A factory without informers.
    pub fn new(client: RestClient) -> KubeInformerFactory {
        KubeInformerFactory {
            client,
            informers: SharedInformerFactory::new(),
            reflector: ReflectorOptions::default(),
            mark: None,
        }
    }

    /// Exports the metrics of informers that are made later to Prometheus.
    #[must_use]
    pub fn with_metrics(mut self, metrics: InformerMetrics) -> KubeInformerFactory {
        self.informers = self.informers.with_metrics(metrics);
        self
    }

    /// Sets how informers that are made later list and watch.
    #[must_use]
    pub fn reflector(mut self, options: ReflectorOptions) -> KubeInformerFactory {
        self.reflector = options;
        self
    }

    /// Takes a number from every object of informers that are made later, as it was received: [`InformerBuilder::mark`].
    #[must_use]
    pub fn mark(mut self, mark: fn(&Object) -> u64) -> KubeInformerFactory {
        self.mark = Some(mark);
        self
    }

    fn configured<K: Send + Sync + 'static>(
        &self,
        builder: InformerBuilder<K>,
    ) -> InformerBuilder<K> {
        let builder = builder.reflector(self.reflector.clone());
        match self.mark {
            Some(mark) => builder.mark(mark),
            None => builder,
        }
    }

    /// The informer of a type; see [`informer`](crate::informer).
    pub fn informer<K>(&self, scope: &Scope) -> SharedInformer<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        let (resource, form) = of_type::<K>();
        self.shared(&resource, scope, form, || informer(&self.client, scope))
    }

    /// The informer of a type with a special setup: a transform or an index over labels, for example. `form` names the setup:
    /// calls with equal forms share one informer, and only the first call runs `set_up`.
    pub fn informer_with<K>(
        &self,
        scope: &Scope,
        form: &str,
        set_up: impl FnOnce(InformerBuilder<K>) -> InformerBuilder<K>,
    ) -> SharedInformer<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        let (resource, how) = of_type::<K>();
        let key = key(&resource, scope, how).form(form);
        self.informers.informer(&key, || {
            set_up(self.configured(informer(&self.client, scope)))
        })
    }

    /// The informer of a type that keeps objects as bytes; see [`lazy`](crate::lazy).
    pub fn lazy<K>(&self, scope: &Scope) -> SharedInformer<Lazy<K>>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
    {
        let (resource, form) = of_type::<K>();
        self.shared(&resource, scope, form, || lazy(&self.client, scope))
    }

    /// The informer of a resource without a type; see [`dynamic`](crate::dynamic).
    pub fn dynamic(&self, resource: &ApiResource, scope: &Scope) -> SharedInformer<Object> {
        self.shared(resource, scope, ObjectForm::Whole, || {
            dynamic(&self.client, resource, scope)
        })
    }

    /// The informer of a resource's metadata; see [`metadata`](crate::metadata).
    pub fn metadata(
        &self,
        resource: &ApiResource,
        scope: &Scope,
    ) -> SharedInformer<ObjectMetadata> {
        self.shared(resource, scope, ObjectForm::Metadata, || {
            metadata(&self.client, resource, scope)
        })
    }

    /// The informer of selected fields; see [`projected`](crate::projected).
    pub fn projected<P>(&self, resource: &ApiResource, scope: &Scope) -> SharedInformer<P>
    where
        P: DeserializeOwned + Send + Sync + 'static,
    {
        self.shared(resource, scope, ObjectForm::Whole, || {
            projected(&self.client, resource, scope)
        })
    }

    fn shared<K: Send + Sync + 'static>(
        &self,
        resource: &ApiResource,
        scope: &Scope,
        form: ObjectForm,
        set_up: impl FnOnce() -> InformerBuilder<K>,
    ) -> SharedInformer<K> {
        let set_up = || self.configured(set_up());
        self.informers.informer(&key(resource, scope, form), set_up)
    }

    /// Starts every informer that has not started.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(&self) {
        self.informers.start();
    }

    /// Waits until every started informer has synced, for at most `longest`.
    ///
    /// # Errors
    /// With the informers that have not synced, and their problems.
    pub async fn wait_synced(&self, longest: Duration) -> Result<(), NotAllSynced> {
        self.informers.wait_synced(longest).await
    }

    /// Stops every informer, and waits until all their tasks have ended.
    pub async fn shut_down(&self) {
        self.informers.shut_down().await;
    }

    /// The client that the informers use.
    pub fn client(&self) -> &RestClient {
        &self.client
    }

    /// The underlying factory, for informers that are built in another way.
    pub fn informers(&self) -> &SharedInformerFactory {
        &self.informers
    }
}
