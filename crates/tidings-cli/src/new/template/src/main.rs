//! Runs the operator. `template-name rbac` and `template-name crd` print its manifests instead.

use std::env;
use std::net::SocketAddr;

use anyhow::{Context, bail};
use tidings::RestClient;
use tidings::controller::{Cluster, Manager};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use template_name::controller::{controller, reconcile};
use template_name::{NAME, NAMESPACE, crd, rbac};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match env::args().nth(1).as_deref() {
        None => run().await?,
        Some("rbac") => print!("{}", rbac()?),
        Some("crd") => print!("{}", crd()?),
        Some(other) => bail!("{other} is no command: use rbac, crd, or none to run the operator"),
    }
    Ok(())
}

/// Runs the controller while this process leads, until SIGTERM or Ctrl-C.
async fn run() -> anyhow::Result<()> {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    tracing_subscriber::fmt()
        .with_env_filter(filter.from_env_lossy())
        .with_writer(std::io::stderr)
        .init();
    // Probes and metrics. On a developer's machine nobody else has to reach them.
    let address = env::var("HEALTH_ADDRESS").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let address: SocketAddr = address
        .parse()
        .context("HEALTH_ADDRESS is not like 0.0.0.0:8080")?;

    let client = RestClient::from_config(kube::Config::infer().await?)?;
    let manager = Manager::new()
        .listen(address)
        .leader_election(&client, NAMESPACE, NAME);
    let cluster = Cluster::new(&client).with_metrics(manager.informer_metrics());
    let metrics = manager.controller_metrics();
    let start = move || {
        let controller = controller(&cluster).with_metrics(&metrics);
        controller.start(reconcile, ())
    };
    tracing::info!(%address, "waiting to lead; health and metrics are served");
    manager.controller(start).run().await?;
    Ok(())
}
