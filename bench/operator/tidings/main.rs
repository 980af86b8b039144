//! The operator of `bench/operator/run`, written with Tidings: a Website owns a ConfigMap, a Deployment and a Service.

mod children;
mod reconcile;
#[path = "../../../examples/website/types.rs"]
mod types;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use clap::Parser;
use tidings::client::connect;
use tidings::controller::{Cluster, Manager};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::LevelFilter;

#[derive(Debug, Parser)]
struct Arguments {
    /// File that names the server
    #[arg(long)]
    kubeconfig: PathBuf,
    /// How many reconciles run at once
    #[arg(long, default_value_t = 16)]
    concurrency: usize,
}

/// How many reconciles have started. `kill -USR1` prints the number.
type Reconciles = Arc<AtomicU64>;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::WARN)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let reconciles = Reconciles::default();
    let mut asked = signal(SignalKind::user_defined1())?;
    let counted = Arc::clone(&reconciles);
    tokio::spawn(async move {
        while asked.recv().await.is_some() {
            println!("{}", counted.load(Relaxed));
        }
    });
    let client = connect(Some(&arguments.kubeconfig), None).await?.client;
    let manager = Manager::new().leader_election(&client, "default", "website");
    let cluster = Cluster::new(&client);
    let start = move || {
        let controller = reconcile::websites(&cluster).concurrency(arguments.concurrency);
        controller.start(reconcile::reconcile, Arc::clone(&reconciles))
    };
    manager.controller(start).run().await?;
    Ok(())
}
