//! Measures servers over a real etcd: writes beside those of a bare client of the same etcd, and how long a write at one server
//! takes to the watch at another. Starts all of them by itself; `etcd` must be on the path.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};
use clap::Parser;
use hdrhistogram::Histogram;
use tidings_storage::{EtcdOptions, Revision, Storage, Write};
use tidings_testing::{Client, Etcd, Server, Start};

const PATH: &str = "/api/v1/namespaces/default/configmaps";

#[derive(Debug, Parser)]
struct Arguments {
    /// The server binary to start
    #[arg(long, default_value = "target/release/tidings")]
    server: PathBuf,
    /// How many members etcd has
    #[arg(long, default_value_t = 1)]
    members: usize,
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Give etcd this core alone, and this program and the servers the other: then a bare client and a server have the same etcd
    #[arg(long, value_name = "CORE,CORE", value_delimiter = ',', num_args = 1)]
    pin: Vec<usize>,
    /// How often everything is measured, in turns
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let [_, others] = arguments.pin[..] {
        pin(std::process::id(), others)?;
    }
    let time = Duration::from_secs(arguments.seconds);
    for writers in [1, 16, 64] {
        for round in 1..=arguments.rounds {
            println!("round {round}, {writers} writers:");
            let bare = bare(&arguments, writers, time).await?;
            let served = served(&arguments, writers, time).await?;
            for (what, bare, served) in [("create", bare.0, served.0), ("update", bare.1, served.1)]
            {
                let share = 100.0 * served / bare;
                println!("  {what}: bare client {bare:.0}/s, server {served:.0}/s: {share:.0} %");
            }
        }
    }
    latency(&arguments).await
}

fn start_etcd(arguments: &Arguments) -> anyhow::Result<Etcd> {
    let etcd = Etcd::cluster(arguments.members, None)?;
    if let [core, _] = arguments.pin[..] {
        for member in 0..etcd.len() {
            pin(etcd.pid(member).context("etcd has ended")?, core)?;
        }
    }
    Ok(etcd)
}

/// Lets a process, with what it starts from now on, run on one core only.
fn pin(process: u32, core: usize) -> anyhow::Result<()> {
    let pinned = std::process::Command::new("taskset")
        .args(["-a", "-c", "-p", &core.to_string(), &process.to_string()])
        .stdout(std::process::Stdio::null())
        .status()
        .context("taskset cannot be started")?;
    ensure!(pinned.success(), "taskset: {pinned}");
    Ok(())
}

/// Rates of creates and updates of a program that does nothing but the transactions.
async fn bare(arguments: &Arguments, writers: usize, time: Duration) -> anyhow::Result<(f64, f64)> {
    let etcd = start_etcd(arguments)?;
    let store = Arc::new(tidings_storage::Etcd::open(EtcdOptions::new(etcd.endpoints())).await?);
    let value = object("bare");
    let mut rates = Vec::new();
    for updates in [false, true] {
        let started = Instant::now();
        let tasks = (0..writers).map(|writer| {
            let (store, value) = (Arc::clone(&store), value.clone());
            tokio::spawn(async move {
                let (mut done, mut at) = (0_u32, Revision(0));
                while started.elapsed() < time {
                    let key = format!("configmaps/default/{updates}-{writer}-{done}");
                    let write = if !updates {
                        Write::create(key, value.clone())
                    } else if done == 0 {
                        Write::create(format!("configmaps/default/u-{writer}"), value.clone())
                    } else {
                        Write::update(format!("configmaps/default/u-{writer}"), at, value.clone())
                    };
                    at = store.write(write).await?;
                    done += 1;
                }
                Ok::<_, tidings_storage::Error>(done)
            })
        });
        let mut done = 0;
        for task in tasks.collect::<Vec<_>>() {
            done += task.await??;
        }
        rates.push(f64::from(done) / started.elapsed().as_secs_f64());
    }
    Ok((rates[0], rates[1]))
}

async fn start(
    arguments: &Arguments,
    etcd: &Etcd,
    home: &tempfile::TempDir,
) -> anyhow::Result<Server> {
    let endpoints = etcd.argument();
    Server::start(&Start {
        binary: &arguments.server,
        data_dir: home.path(),
        arguments: &["--storage", "etcd", "--etcd-endpoints", &endpoints],
    })
    .await
}

/// Rates of creates and updates through a server.
async fn served(
    arguments: &Arguments,
    writers: usize,
    time: Duration,
) -> anyhow::Result<(f64, f64)> {
    let (etcd, home) = (start_etcd(arguments)?, tempfile::tempdir()?);
    let server = start(arguments, &etcd, &home).await?;
    let mut rates = Vec::new();
    for updates in [false, true] {
        let started = Instant::now();
        let tasks = (0..writers).map(|writer| {
            let client = server.client.clone();
            tokio::spawn(write(client, writer, updates, started + time))
        });
        let mut done = 0;
        for task in tasks.collect::<Vec<_>>() {
            done += task.await??;
        }
        rates.push(f64::from(done) / started.elapsed().as_secs_f64());
    }
    Ok((rates[0], rates[1]))
}

async fn write(
    client: Client,
    writer: usize,
    updates: bool,
    until: Instant,
) -> anyhow::Result<u32> {
    let mut connection = client.connect().await?;
    let mut done = 0;
    while Instant::now() < until {
        let (name, method) = match (updates, done) {
            (false, _) => (format!("c-{writer}-{done}"), "POST"),
            (true, 0) => (format!("u-{writer}"), "POST"),
            (true, _) => (format!("u-{writer}"), "PUT"),
        };
        let item = format!("{PATH}/{name}");
        let path = if method == "POST" {
            PATH
        } else {
            item.as_str()
        };
        let (code, _) = connection.measure(method, path, &object(&name)).await?;
        ensure!(code == 200 || code == 201, "{method} {path}: {code}");
        done += 1;
    }
    Ok(done)
}

/// From before a write is sent to one server until a watch at the other has it.
async fn latency(arguments: &Arguments) -> anyhow::Result<()> {
    let (etcd, home) = (start_etcd(arguments)?, tempfile::tempdir()?);
    let one = start(arguments, &etcd, &home).await?;
    let two = start(arguments, &etcd, &home).await?;
    let mut watch = two.client.watch(&format!("{PATH}?watch=1")).await?;
    let answered = Arc::new(AtomicU64::new(0));
    let writer = tokio::spawn({
        let (client, answered) = (one.client.clone(), Arc::clone(&answered));
        let until = Instant::now() + Duration::from_secs(arguments.seconds);
        async move {
            let mut connection = client.connect().await?;
            let mut took = Histogram::<u64>::new(3)?;
            for number in 0_u32.. {
                if Instant::now() >= until {
                    break;
                }
                let name = format!("l-{number}");
                let sent = Instant::now();
                let (code, _) = connection.measure("POST", PATH, &object(&name)).await?;
                ensure!(code == 201, "POST: {code}");
                took.record(sent.elapsed().as_micros() as u64)?;
                answered.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Ok(took)
        }
    });
    let mut seen = Histogram::<u64>::new(3)?;
    loop {
        let next = tokio::time::timeout(Duration::from_secs(2), watch.line()).await;
        let Ok(line) = next else { break };
        let line = line?.context("the watch has ended")?;
        let Some(at) = line.find("\"sent\":\"") else {
            continue;
        };
        let digits = &line[at + 8..];
        let sent: u64 = digits[..digits.find('"').unwrap_or(0)].parse()?;
        seen.record(now_micros().saturating_sub(sent))?;
    }
    let took = writer.await??;
    let show = |histogram: &Histogram<u64>| {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        format!(
            "p50 {:.2} ms, p99 {:.2} ms, {} of them",
            at(0.5),
            at(0.99),
            histogram.len()
        )
    };
    println!("a write is answered: {}", show(&took));
    println!(
        "from one server's write to the other's watch: {}",
        show(&seen)
    );
    Ok(())
}

fn now_micros() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_micros() as u64)
}

/// A ConfigMap of 1 500 bytes that says when it was sent.
fn object(name: &str) -> Vec<u8> {
    let fill = "x".repeat(1350);
    let sent = now_micros();
    format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"sent":"{sent}","fill":"{fill}"}}}}"#)
        .into_bytes()
}
