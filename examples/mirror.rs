//! The least controller: every ConfigMap has a Secret of the same name.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use tidings::RestClient;
use tidings::controller::{Action, Cached, Cluster, Context, Controller};

/// Every ConfigMap has a Secret of the same name.
async fn reconcile(map: Arc<Cached<ConfigMap>>, ctx: Context<()>) -> anyhow::Result<Action> {
    let mut secret = Secret::default();
    secret.metadata.name = Some(map.name().to_owned());
    ctx.apply(&map, &secret).await?;
    Ok(Action::AwaitChange)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt::init();
    let client = RestClient::from_config(kube::Config::infer().await?)?;
    let cluster = Cluster::new(&client);
    let controller = Controller::<ConfigMap>::new(&cluster).owns::<Secret>();
    controller.shutdown_on_signal().run(reconcile, ()).await;
    Ok(())
}
