//! The operator of `bench/operator/run`, written with kube-rs: a Website owns a ConfigMap, a Deployment and a Service.

mod leader;
mod reconcile;
#[path = "../../../../examples/website/types.rs"]
mod types;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use clap::Parser;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use leader::Leader;
use reconcile::Operator;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, Parser)]
struct Arguments {
    /// File that names the server
    #[arg(long)]
    kubeconfig: PathBuf,
    /// How many reconciles run at once
    #[arg(long, default_value_t = 16)]
    concurrency: u16,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let kubeconfig = Kubeconfig::read_from(&arguments.kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let operator = Arc::new(Operator::new(client.clone()));
    let mut asked = signal(SignalKind::user_defined1())?;
    let counted = Arc::clone(&operator);
    tokio::spawn(async move {
        while asked.recv().await.is_some() {
            println!("{}", counted.reconciles.load(Relaxed));
        }
    });

    let mut terminated = signal(SignalKind::terminate())?;
    let leader = Leader::new(client, "default", "website");
    let work = async {
        loop {
            leader.acquire().await;
            // A leader that cannot renew its Lease stops its work and takes part in the next election.
            tokio::select! {
                () = leader.lost() => {}
                () = reconcile::run(Arc::clone(&operator), arguments.concurrency) => {}
            }
        }
    };
    tokio::select! {
        () = work => {}
        _ = terminated.recv() => {}
    }
    leader.release().await;
    Ok(())
}
