//! Shares informers over one client.

use std::time::Duration;

use kube::core::{ApiResource, Resource};
use serde::de::DeserializeOwned;
use tidings_api::Object;
use tidings_informer::metrics::InformerMetrics;
use tidings_informer::{
    InformerBuilder, Lazy, NotAllSynced, ReflectorOptions, SharedInformer, SharedInformerFactory,
};

use crate::client::RestClient;
use crate::informer::{ObjectMetadata, dynamic, informer, lazy, metadata, of_type, projected};
use crate::resource::{Form, Scope, key};

/// Shares informers over one client: who asks for the same objects in the same form gets the same informer.
///
/// Clones share the factory. It does not keep informers alive; see [`SharedInformerFactory`].
#[derive(Debug, Clone)]
pub struct KubeInformerFactory {
    client: RestClient,
    informers: SharedInformerFactory,
    reflector: ReflectorOptions,
}

impl KubeInformerFactory {
    /// A factory without informers.
    pub fn new(client: RestClient) -> KubeInformerFactory {
        KubeInformerFactory {
            client,
            informers: SharedInformerFactory::new(),
            reflector: ReflectorOptions::default(),
        }
    }

    /// Shows every informer that is made from now on to Prometheus.
    #[must_use]
    pub fn with_metrics(mut self, metrics: InformerMetrics) -> KubeInformerFactory {
        self.informers = self.informers.with_metrics(metrics);
        self
    }

    /// How informers that are made from now on list and watch.
    #[must_use]
    pub fn reflector(mut self, options: ReflectorOptions) -> KubeInformerFactory {
        self.reflector = options;
        self
    }

    /// The informer of a type; see [`informer`](crate::informer).
    pub fn informer<K>(&self, scope: &Scope) -> SharedInformer<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        let (resource, form) = of_type::<K>();
        self.shared(&resource, scope, form, || informer(&self.client, scope))
    }

    /// The informer of a type, set up in a way of its own: with a transform, with an index over labels. The form is the name
    /// of that way; who asks for the same form gets the same informer, and only the first sets it up.
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
            let builder = informer(&self.client, scope);
            set_up(builder.reflector(self.reflector.clone()))
        })
    }

    /// The informer of a type whose objects are kept as bytes; see [`lazy`](crate::lazy).
    pub fn lazy<K>(&self, scope: &Scope) -> SharedInformer<Lazy<K>>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
    {
        let (resource, form) = of_type::<K>();
        self.shared(&resource, scope, form, || lazy(&self.client, scope))
    }

    /// The informer of a resource's bytes; see [`dynamic`](crate::dynamic).
    pub fn dynamic(&self, resource: &ApiResource, scope: &Scope) -> SharedInformer<Object> {
        self.shared(resource, scope, Form::Whole, || {
            dynamic(&self.client, resource, scope)
        })
    }

    /// The informer of a resource's metadata; see [`metadata`](crate::metadata).
    pub fn metadata(
        &self,
        resource: &ApiResource,
        scope: &Scope,
    ) -> SharedInformer<ObjectMetadata> {
        self.shared(resource, scope, Form::Metadata, || {
            metadata(&self.client, resource, scope)
        })
    }

    /// The informer of the few fields that matter; see [`projected`](crate::projected).
    pub fn projected<P>(&self, resource: &ApiResource, scope: &Scope) -> SharedInformer<P>
    where
        P: DeserializeOwned + Send + Sync + 'static,
    {
        self.shared(resource, scope, Form::Whole, || {
            projected(&self.client, resource, scope)
        })
    }

    fn shared<K: Send + Sync + 'static>(
        &self,
        resource: &ApiResource,
        scope: &Scope,
        form: Form,
        set_up: impl FnOnce() -> InformerBuilder<K>,
    ) -> SharedInformer<K> {
        let set_up = || set_up().reflector(self.reflector.clone());
        self.informers.informer(&key(resource, scope, form), set_up)
    }

    /// Starts every informer that has not started.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(&self) {
        self.informers.start();
    }

    /// Waits until every informer has its initial state, not longer than this.
    ///
    /// # Errors
    /// With the informers that have not, and what is wrong with them.
    pub async fn wait_synced(&self, longest: Duration) -> Result<(), NotAllSynced> {
        self.informers.wait_synced(longest).await
    }

    /// Stops every informer, and waits until all tasks have ended.
    pub async fn shut_down(&self) {
        self.informers.shut_down().await;
    }

    /// The client that the informers use.
    pub fn client(&self) -> &RestClient {
        &self.client
    }

    /// The informers, for those that are set up in another way.
    pub fn informers(&self) -> &SharedInformerFactory {
        &self.informers
    }
}
