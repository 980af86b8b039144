//! An operator: a custom resource `Website` owns a ConfigMap, a Deployment and a Service. It installs its definition, leads by a
//! Lease, and serves health, metrics and figures on port 8080 (or on the port that is its argument).

mod reconcile;
mod types;

use std::time::Duration;

use kube::CustomResourceExt;
use tidings::RestClient;
use tidings::controller::{Cluster, Manager, install_definitions};
use types::Website;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let port: u16 = std::env::args()
        .nth(1)
        .map_or(Ok(8080), |port| port.parse())?;
    let client = RestClient::from_config(kube::Config::infer().await?)?;
    install_definitions(
        &client,
        "website",
        [Website::crd()],
        Duration::from_secs(30),
    )
    .await?;
    let manager = Manager::new()
        .listen(([127, 0, 0, 1], port))
        .leader_election(&client, "default", "website");
    let cluster = Cluster::new(&client).with_metrics(manager.informer_metrics());
    let metrics = manager.controller_metrics();
    let start = move || {
        let controller = reconcile::websites(&cluster).with_metrics(&metrics);
        controller.start(reconcile::reconcile, ())
    };
    manager.controller(start).run().await?;
    Ok(())
}
