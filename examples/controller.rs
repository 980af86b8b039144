//! A controller that keeps a ConfigMap `about` with the namespace's name in every Namespace. A deleted one is created again.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, PostParams};
use tidings::{
    Action, HandlerOptions, KubeInformerFactory, RestClient, RunOptions, Scope, WorkQueue,
    run_controller,
};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = RestClient::from_config(kube::Config::infer().await?)?;
    let factory = KubeInformerFactory::new(client.clone());
    let namespaces = factory.informer::<Namespace>(&Scope::all());
    let about = factory.informer::<ConfigMap>(&Scope::all().fields("metadata.name=about"));

    // The keys in the queue are names of Namespaces, for events of Namespaces and of ConfigMaps.
    let queue: WorkQueue<String> = WorkQueue::new();
    let options = HandlerOptions::default();
    namespaces.enqueue(&queue, |namespace| [namespace.name().to_owned()], &options)?;
    about.enqueue(&queue, |map| [map.namespace().to_owned()], &options)?;
    factory.start();
    factory.wait_synced(Duration::from_secs(30)).await?;

    let reconcile = move |name: String| {
        let (namespaces, about) = (namespaces.store(), about.store());
        let maps: Api<ConfigMap> = Api::namespaced(client.kube().clone(), &name);
        async move {
            if namespaces.get("", &name).is_none() || about.get(&name, "about").is_some() {
                return Ok(Action::AwaitChange);
            }
            let mut map = ConfigMap::default();
            map.metadata.name = Some("about".to_owned());
            map.data = Some([("namespace".to_owned(), name.clone())].into());
            maps.create(&PostParams::default(), &map).await?;
            println!("{name}: made");
            Ok::<_, kube::Error>(Action::AwaitChange)
        }
    };
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    let summary = run_controller(queue, RunOptions::default(), reconcile, stop).await;
    println!("{summary:?}");
    Ok(())
}
