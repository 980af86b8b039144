//! Measures a Kubernetes API server from a second process.
//!
//! Without arguments it starts `target/dist/tidings` in a new directory and prints every figure. With `--url`, `--token` and
//! `--pid` it measures a running server, which can be another implementation, with the same client.

mod custom;
mod definitions;
mod figures;
mod hostile;
mod multiplexed;
mod restart;
mod scenario;
mod selected;
mod soak;
mod storms;

use std::path::PathBuf;

use clap::Parser;

use scenario::Extent;
use tidings_testing::{Server, StartOptions};

#[derive(Debug, Parser)]
#[command(name = "tidings-bench")]
struct Arguments {
    /// The server binary to start
    #[arg(long, default_value = "target/dist/tidings")]
    server: PathBuf,

    /// Measure the server at this https URL instead of starting one
    #[arg(long, requires = "token")]
    url: Option<String>,

    /// Its bearer token
    #[arg(long)]
    token: Option<String>,

    /// Its process ids: their CPU time and memory are counted
    #[arg(long)]
    pid: Vec<u32>,

    /// Only these scenarios: start, create, apply, get, list, custom, definitions, stream, idle, fanout, paced, stalled, multiplexed, selected, listed, held, soak, restart, storms, hostile
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,

    /// How many seconds each timed scenario runs
    #[arg(long, default_value_t = 5)]
    seconds: u64,

    /// How many watches, objects or clients there are, instead of what each scenario has by default
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<usize>,

    /// A file that gets each figure as a line of JSON
    #[arg(long)]
    figures: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let wanted =
        |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == name);
    let external = match (&arguments.url, &arguments.token) {
        (Some(url), Some(token)) => Some(Server::running(url, token, &arguments.pid)?),
        _ => None,
    };
    if let Some(path) = &arguments.figures {
        figures::keep_in(path)?;
    }
    let extent = Extent {
        seconds: arguments.seconds,
        sizes: arguments.sizes.clone(),
    };
    for scenario in scenario::all() {
        // A soak is long: it is only measured if it is asked for.
        if !wanted(scenario.name) || (scenario.name == "soak" && arguments.only.is_empty()) {
            continue;
        }
        // A fresh server for each scenario, so that none inherits the memory and history of another.
        match &external {
            Some(server) => scenario.run(server, &extent).await?,
            None => {
                let directory = tempfile::tempdir()?;
                let data_dir = directory.path().join("data");
                let start = StartOptions {
                    binary: &arguments.server,
                    data_dir: &data_dir,
                    arguments: &[],
                };
                let server = Server::start(&start).await?;
                scenario.run(&server, &extent).await?;
                server.kill().await?;
            }
        }
    }
    if external.is_none() && wanted("restart") {
        restart::restart(&arguments.server).await?;
    }
    if external.is_none() && wanted("storms") {
        storms::storms(&arguments.server).await?;
    }
    if external.is_none() && wanted("hostile") {
        hostile::hostile(&arguments.server).await?;
    }
    Ok(())
}
