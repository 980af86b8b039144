//! A program that reads its own writes: without waiting, and by waiting for the store.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use tidings::client::wrote;
use tidings::informer::ServerVersion;
use tidings::{KubeInformerFactory, RestClient, Scope};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = RestClient::from_config(kube::Config::infer().await?)?;
    let factory = KubeInformerFactory::new(client.clone());
    let maps = factory.informer::<ConfigMap>(&Scope::namespace("default"));
    factory.start();
    factory.wait_synced(Duration::from_secs(30)).await?;

    let api: Api<ConfigMap> = Api::namespaced(client.kube().clone(), "default");
    let mut map = ConfigMap::default();
    map.metadata.generate_name = Some("written-".to_owned());
    let written = api.create(&PostParams::default(), &map).await?;
    let name = written.metadata.name.clone().unwrap_or_default();
    let version = written
        .metadata
        .resource_version
        .clone()
        .unwrap_or_default();
    let key = format!("default/{name}");

    // Without waiting: the overlay has the write at once, and forgets it when the watch has delivered it.
    wrote(&maps, &written)?;
    assert!(maps.overlay().get_by_key(&key).is_some());

    // By waiting: the store then has everything up to the version that the write returned.
    maps.wait_for(ServerVersion::new(&version)).await?;
    assert!(maps.store().get_by_key(&key).is_some());
    println!("{key} is in the store");

    api.delete(&name, &Default::default()).await?;
    Ok(())
}
