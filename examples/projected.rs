//! An informer that keeps five fields of each Pod: the others are never decoded.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::core::ApiResource;
use serde::Deserialize;
use tidings::{KubeInformerFactory, RestClient, Scope};

#[derive(Deserialize)]
struct SlimPod {
    metadata: SlimMetadata,
    #[serde(default)]
    spec: SlimSpec,
    #[serde(default)]
    status: SlimStatus,
}

#[derive(Deserialize)]
struct SlimMetadata {
    name: String,
    namespace: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct SlimSpec {
    node_name: Option<Box<str>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct SlimStatus {
    phase: Box<str>,
    #[serde(rename = "podIP")]
    pod_ip: Option<Box<str>>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = RestClient::from_config(kube::Config::infer().await?)?;
    let factory = KubeInformerFactory::new(client);
    let pods = factory.projected::<SlimPod>(&ApiResource::erase::<Pod>(&()), &Scope::all());
    factory.start();
    factory.wait_synced(Duration::from_secs(30)).await?;
    for pod in pods.store().snapshot().iter() {
        let SlimMetadata { name, namespace } = &pod.metadata;
        let node = pod.spec.node_name.as_deref().unwrap_or("no node");
        let address = pod.status.pod_ip.as_deref().unwrap_or("no address");
        println!(
            "{namespace}/{name}: {} on {node}, {address}",
            pod.status.phase
        );
    }
    Ok(())
}
