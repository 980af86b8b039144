//! An operator: a custom resource `Website` owns a ConfigMap, a Deployment and a Service. It installs its definition, leads by a
//! Lease, and serves health, metrics and figures on port 8080 (or on the port that is its argument).

mod reconcile;
mod types;

use std::time::Duration;

use kube::CustomResourceExt;
use tidings::RestClient;
use tidings::controller::{Cluster, Manager, install_definitions};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let logs = tracing_subscriber::fmt();
    logs.with_writer(std::io::stderr).init();
    let port = std::env::args().nth(1).unwrap_or_else(|| "8080".into());
    let client = RestClient::from_config(kube::Config::infer().await?)?;
    let definitions = [types::Website::crd()];
    install_definitions(&client, "website", definitions, Duration::from_secs(30)).await?;
    let manager = Manager::new().leader_election(&client, "default", "website");
    let manager = manager.listen(([127, 0, 0, 1], port.parse()?));
    let cluster = Cluster::new(&client).with_metrics(manager.informer_metrics());
    let metrics = manager.controller_metrics();
    let start = move || {
        let controller = reconcile::websites(&cluster).with_metrics(&metrics);
        controller.start(reconcile::reconcile, ())
    };
    manager.controller(start).run().await?;
    Ok(())
}
