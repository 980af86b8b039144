//! An informer with an index: which Pods run on which node.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tidings::{KubeInformerFactory, RestClient, Scope};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = RestClient::from_config(kube::Config::infer().await?)?;
    let factory = KubeInformerFactory::new(client);
    let pods = factory.informer::<Pod>(&Scope::all());
    let by_node = pods.add_index("node", |pod| {
        pod.spec.as_ref().and_then(|spec| spec.node_name.clone())
    })?;
    factory.start();
    factory.wait_synced(Duration::from_secs(30)).await?;

    // A snapshot: later changes do not affect it.
    let state = pods.store().snapshot();
    println!("{} Pods at version {}", state.len(), state.version());
    for node in state.index_values(&by_node)? {
        let count = state.by_index(&by_node, &node)?.count();
        println!("{node}: {count}");
    }
    Ok(())
}
