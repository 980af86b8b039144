//! Fills a server with Websites, changes some, or follows what has become of them: see `bench/operator/run`.

#[path = "../../examples/website/types.rs"]
mod types;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use clap::{Parser, Subcommand};
use kube::CustomResourceExt;
use serde::Deserialize;
use tidings_informer::{BackoffOptions, Event, HandlerOptions, ReflectorOptions};
use tidings_kube::{Scope, connect, projected, resource_of};
use tidings_testing::{Client, Connection};
use tokio::sync::mpsc;
use types::Website;

const SITES: &str = "/apis/example.com/v1/namespaces/default/websites";
/// How long a server may take to serve the definition.
const DEFINITION_WAIT_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Parser)]
struct Arguments {
    #[arg(long)]
    kubeconfig: PathBuf,
    /// How many Websites there are
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Creates the definition and the Websites
    Fill {
        #[arg(long, default_value_t = 32)]
        connections: usize,
    },
    /// Changes the pages of random Websites, evenly spread over some seconds
    Churn {
        #[arg(long)]
        updates: u32,
        #[arg(long)]
        seconds: u32,
    },
    /// Prints how many Websites have a status of their latest generation, until all do
    Follow,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    match arguments.command {
        Command::Fill { connections } => fill(&arguments, connections).await,
        Command::Churn { updates, seconds } => churn(&arguments, updates, seconds).await,
        Command::Follow => follow(&arguments).await,
    }
}

fn client(arguments: &Arguments) -> anyhow::Result<Client> {
    let kubeconfig = std::fs::read_to_string(&arguments.kubeconfig)?;
    let field = |name: &str| {
        let line = kubeconfig
            .lines()
            .find_map(|line| line.trim().strip_prefix(name));
        line.with_context(|| format!("the kubeconfig has no {name}"))
    };
    Client::new(field("server: ")?, field("token: ")?)
}

fn name(number: usize) -> String {
    format!("site-{number:05}")
}

/// A page of about 300 bytes.
fn page(title: &str) -> String {
    let text = "All that there is to say about this page is said on this page. ".repeat(4);
    format!("<html><title>{title}</title><body>{text}</body></html>")
}

async fn fill(arguments: &Arguments, connections: usize) -> anyhow::Result<()> {
    let client = client(arguments)?;
    define(&mut client.connect().await?).await?;
    let (start, mut writers) = (Instant::now(), tokio::task::JoinSet::new());
    for first in 0..connections {
        let (mut connection, objects) = (client.connect().await?, arguments.objects);
        writers.spawn(async move {
            for number in (first..objects).step_by(connections) {
                let (name, page) = (name(number), page("first"));
                let body = format!(
                    r#"{{"apiVersion":"example.com/v1","kind":"Website","metadata":{{"name":"{name}"}},"spec":{{"page":"{page}","replicas":2}}}}"#
                );
                let (code, _) = connection.measure("POST", SITES, body.as_bytes()).await?;
                ensure!(code == 201, "POST of {name}: {code}");
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = writers.join_next().await {
        done??;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        r#"{{"created":{},"seconds":{seconds:.2}}}"#,
        arguments.objects
    );
    Ok(())
}

/// Creates the definition, and waits until the server serves it and has the namespace.
async fn define(connection: &mut Connection) -> anyhow::Result<()> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let body = serde_json::to_vec(&Website::crd())?;
    let answer = connection.request("POST", path, &body).await?;
    ensure!(
        matches!(answer.code, 201 | 409),
        "the definition: {}",
        answer.text()
    );
    let deadline = Instant::now() + DEFINITION_WAIT_MAX;
    for path in [SITES, "/api/v1/namespaces/default"] {
        while connection.request("GET", path, b"").await?.code != 200 {
            ensure!(Instant::now() < deadline, "GET {path} never succeeds");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

async fn churn(arguments: &Arguments, updates: u32, seconds: u32) -> anyhow::Result<()> {
    let mut connection = client(arguments)?.connect().await?;
    let start = Instant::now();
    for update in 0..updates {
        let due = start + Duration::from_secs(seconds.into()) * update / updates;
        tokio::time::sleep_until(due.into()).await;
        let site = name(fastrand::usize(..arguments.objects));
        let path = format!("{SITES}/{site}");
        let answer = connection.request("GET", &path, b"").await?;
        ensure!(answer.code == 200, "GET {path}: {}", answer.code);
        let mut site: serde_json::Value = serde_json::from_slice(&answer.body)?;
        site["spec"]["page"] = page(&format!("change {update}")).into();
        let body = site.to_string();
        let (code, _) = connection.measure("PUT", &path, body.as_bytes()).await?;
        ensure!(code == 200, "PUT {path}: {code}");
    }
    Ok(())
}

/// The few fields that tell whether the operator is done with a Website.
#[derive(Deserialize)]
struct Progress {
    metadata: ProgressMeta,
    #[serde(default)]
    status: ProgressStatus,
}

#[derive(Deserialize)]
struct ProgressMeta {
    generation: i64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ProgressStatus {
    conditions: Vec<ProgressCondition>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProgressCondition {
    observed_generation: i64,
}

impl Progress {
    fn is_done(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|condition| condition.observed_generation == self.metadata.generation)
    }
}

async fn follow(arguments: &Arguments) -> anyhow::Result<()> {
    let client = connect(Some(&arguments.kubeconfig), None).await?.client;
    // Whoever measures an outage must be back before those who are measured.
    let mut options = ReflectorOptions::default();
    options.backoff = BackoffOptions::default()
        .between(Duration::from_millis(20), Duration::from_millis(50))
        .jitter(0.0);
    let informer = projected::<Progress>(&client, &resource_of::<Website>(), &Scope::all())
        .reflector(options)
        .build();
    let (sender, mut counts) = mpsc::unbounded_channel();
    let done = Arc::new(Mutex::new(HashSet::new()));
    let handle = move |event: Event<Progress>| {
        if let Some(site) = event.object() {
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            let changed = match site.is_done() {
                true => done.insert(site.key().clone()),
                false => done.remove(site.key()),
            };
            if changed {
                // The receiver lives until all are done.
                let _ = sender.send(done.len());
            }
        }
        std::future::ready(())
    };
    let _registration = informer.for_each(handle, &HandlerOptions::default())?;
    informer.start();
    informer.wait_synced().await?;
    println!(r#"{{"following":true}}"#);
    let step = (arguments.objects / 100).max(1);
    let mut told = 0;
    while let Some(done) = counts.recv().await {
        if done >= told + step || done == arguments.objects {
            told = done;
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
            println!(r#"{{"done":{done},"at":{now:.3}}}"#);
        }
        if done == arguments.objects {
            return Ok(());
        }
    }
    bail!("the informer ended")
}
