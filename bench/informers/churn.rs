//! Rewrites random ConfigMaps at a rate, with as little work as possible: see `bench/informers/run`. The objects are those that
//! the client-go peer's `load` makes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Parser;
use tidings_testing::{Client, Connection};

#[derive(Debug, Clone, Parser)]
struct Arguments {
    #[arg(long)]
    kubeconfig: PathBuf,
    /// How many there are
    #[arg(long, default_value_t = 50_000)]
    configmaps: usize,
    /// In how many namespaces
    #[arg(long, default_value_t = 50)]
    namespaces: usize,
    /// Updates each second; late ones are caught up
    #[arg(long, default_value_t = 5000)]
    rate: u32,
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    #[arg(long, default_value_t = 16)]
    writers: u32,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let kubeconfig = std::fs::read_to_string(&arguments.kubeconfig)?;
    let field = |name: &str| {
        let line = kubeconfig
            .lines()
            .find_map(|line| line.trim().strip_prefix(name));
        line.with_context(|| format!("the kubeconfig has no {name}"))
    };
    let client = Client::new(field("server: ")?, field("token: ")?)?;
    let start = Instant::now();
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..arguments.writers {
        let connection = client.connect().await?;
        writers.spawn(write(connection, number, arguments.clone(), start));
    }
    let mut written = 0_u32;
    while let Some(done) = writers.join_next().await {
        written += done??;
    }
    let seconds = start.elapsed().as_secs_f64();
    let rate = f64::from(written) / seconds;
    println!(r#"{{"updates":{written},"seconds":{seconds:.2},"rate":{rate:.0}}}"#);
    Ok(())
}

async fn write(
    mut connection: Connection,
    number: u32,
    arguments: Arguments,
    start: Instant,
) -> anyhow::Result<u32> {
    let until = start + Duration::from_secs(arguments.seconds.into());
    let pause = Duration::from_secs(1) * arguments.writers / arguments.rate;
    // Not the same in every run: a write that changes nothing is no event.
    let mut chance = fastrand::Rng::new();
    let mut due = start + pause.mul_f64(chance.f64());
    let mut written = 0;
    while due < until && Instant::now() < until {
        tokio::time::sleep_until(due.into()).await;
        due += pause;
        let at = chance.usize(..arguments.configmaps);
        let (namespace, name) = (
            format!("bench-{:02}", at % arguments.namespaces),
            format!("settings-{at:06}"),
        );
        let filler: String = (0..700).map(|_| chance.lowercase()).collect();
        // No resourceVersion: the last writer wins, so two writers never conflict.
        let body = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"{namespace}","labels":{{"app.kubernetes.io/name":"app-{:03}","app.kubernetes.io/managed-by":"peers"}}}},"data":{{"generation":"{number}-{written}","LOG_LEVEL":"info","config.yaml":"{filler}"}}}}"#,
            at % 200
        );
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
        let (code, _) = connection.measure("PUT", &path, body.as_bytes()).await?;
        ensure!(code == 200, "PUT {path}: {code}");
        written += 1;
    }
    Ok(written)
}
