//! The controller of `mirror` on several replicas that share the keys: start it several times, on ports of their own (its argument). With
//! `rbac` as its argument it prints the permissions that it needs.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use tidings::RestClient;
use tidings::controller::{Action, Cached, Cluster, Context, Controller, Manager, ShardGroup};

/// Every ConfigMap has a Secret of the same name.
async fn reconcile(map: Arc<Cached<ConfigMap>>, ctx: Context<()>) -> anyhow::Result<Action> {
    let mut secret = Secret::default();
    secret.metadata.name = Some(map.name().to_owned());
    ctx.apply(&map, &secret).await?;
    Ok(Action::AwaitChange)
}

fn maps(cluster: &Cluster) -> Controller<ConfigMap> {
    Controller::new(cluster).owns::<Secret>()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt::init();
    let argument = std::env::args().nth(1).unwrap_or_else(|| "8080".to_owned());
    let client = RestClient::from_config(kube::Config::infer().await?)?;
    if argument == "rbac" {
        let permissions = maps(&Cluster::new(&client)).permissions();
        let permissions = permissions.sharding("default");
        print!("{}", permissions.manifest("mirror", "default"));
        return Ok(());
    }
    let manager = Manager::new().listen(([127, 0, 0, 1], argument.parse()?));
    let cluster = Cluster::new(&client).with_metrics(manager.informer_metrics());
    let group = ShardGroup::join(&cluster, "default", "mirror")?;
    let (shards, metrics) = (group.clone(), manager.controller_metrics());
    let start = move || {
        let maps = maps(&cluster).with_metrics(&metrics);
        maps.sharded(&shards).start(reconcile, ())
    };
    manager.shards(&group).controller(start).run().await?;
    Ok(())
}
