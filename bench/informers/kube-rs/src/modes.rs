//! What each mode means to kube: which type, which watcher configuration, which way to share.

use std::{fmt::Debug, hash::Hash, sync::Arc};

use anyhow::Result;
use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Pod},
};
use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject, PartialObjectMeta},
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{reflector::store::Writer, watcher},
};
use serde::de::DeserializeOwned;

use crate::{
    Mode, Report, Resource, Run,
    scenarios::{self, Plan},
    taps::{Taps, Traffic},
};

/// A type that can be reflected.
pub trait Object:
    kube::Resource<DynamicType: Eq + Hash + Clone + Debug + Send + Sync + Unpin>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + Unpin
    + 'static
{
}

impl<K> Object for K where
    K: kube::Resource<DynamicType: Eq + Hash + Clone + Debug + Send + Sync + Unpin>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + Unpin
        + 'static
{
}

pub async fn measure(run: &Run, report: &mut Report) -> Result<()> {
    match (run.mode, run.resource) {
        (Mode::Metadata, Resource::Configmaps) => {
            typed::<PartialObjectMeta<ConfigMap>>(run, report).await
        }
        (Mode::Metadata, Resource::Pods) => typed::<PartialObjectMeta<Pod>>(run, report).await,
        (Mode::Dynamic, Resource::Configmaps) => {
            dynamic(run, ApiResource::erase::<ConfigMap>(&()), report).await
        }
        (Mode::Dynamic, Resource::Pods) => {
            dynamic(run, ApiResource::erase::<Pod>(&()), report).await
        }
        (_, Resource::Configmaps) => typed::<ConfigMap>(run, report).await,
        (_, Resource::Pods) => typed::<Pod>(run, report).await,
    }
}

async fn typed<K>(run: &Run, report: &mut Report) -> Result<()>
where
    K: Object + kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let plan = Plan {
        dyntype: (),
        api: Api::<K>::all,
        subscribe: Some(subscribe::<K>),
        watcher: watcher_config(run.mode),
    };
    scenarios::measure(run, plan, report).await
}

async fn dynamic(run: &Run, resource: ApiResource, report: &mut Report) -> Result<()> {
    let kind = resource.clone();
    let plan = Plan {
        dyntype: resource,
        api: move |client| Api::<DynamicObject>::all_with(client, &kind),
        // kube's shared streams want a default dynamic type, which an ApiResource has not.
        subscribe: None,
        watcher: watcher_config(run.mode),
    };
    scenarios::measure(run, plan, report).await
}

fn subscribe<K>(writer: &Writer<K>) -> BoxStream<'static, Arc<K>>
where
    K: Object + kube::Resource<DynamicType: Default>,
{
    writer
        .subscribe()
        .expect("the writer was made shared")
        .boxed()
}

fn watcher_config(mode: Mode) -> watcher::Config {
    match mode {
        Mode::ListAny => watcher::Config {
            // With a page size kube drops resourceVersion=0 again, and the mode would be `list`.
            page_size: None,
            ..watcher::Config::default().any_semantic()
        },
        Mode::Stream => watcher::Config::default().streaming_lists(),
        _ => watcher::Config::default(),
    }
}

/// kube's default stack with the taps on top.
pub async fn client(run: &Run, traffic: Arc<Traffic>) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(&run.kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(ClientBuilder::try_from(config)?
        .with_layer(&Taps(traffic))
        .build())
}
