//! Measures servers over a real etcd: writes beside those of a bare client of the same etcd, and how long a write at one server
//! takes to the watch at another. Starts all of them by itself; `etcd` must be on the path.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};
use clap::Parser;
use hdrhistogram::Histogram;
use tidings_storage::{EtcdOptions, Revision, Storage, Write};
use tidings_testing::{Client, Etcd, Server, StartOptions, cpu};

const PATH: &str = "/api/v1/namespaces/default/configmaps";

#[derive(Debug, Parser)]
struct Arguments {
    /// The server binary to start
    #[arg(long, default_value = "target/dist/tidings")]
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
    /// How many clients write at a time
    #[arg(long, value_delimiter = ',', num_args = 1, default_values_t = [1, 16, 64])]
    writers: Vec<usize>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let [_, others] = arguments.pin[..] {
        pin(std::process::id(), others)?;
    }
    let time = Duration::from_secs(arguments.seconds);
    for &writers in &arguments.writers {
        // Figures of one run differ: each is taken in turns, and the middle one counts.
        let mut rates: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
        for _ in 0..arguments.rounds {
            let all = [
                (
                    "1 bare client",
                    bare(&arguments, writers, time, false).await?,
                ),
                (
                    "2 bare client that follows",
                    bare(&arguments, writers, time, true).await?,
                ),
                ("3 server", served(&arguments, writers, time).await?),
            ];
            for (who, (created, updated)) in all {
                for (what, measured) in [("create", created), ("update", updated)] {
                    println!("{what}, {writers} writers, {}: {measured}", &who[2..]);
                    rates.entry((what, who)).or_default().push(measured.rate);
                }
            }
        }
        println!(
            "{writers} writers, the middle of {} rounds:",
            arguments.rounds
        );
        let mut of_bare = 0.0;
        for ((what, who), mut rates) in rates {
            rates.sort_by(f64::total_cmp);
            let rate = rates[rates.len() / 2];
            if who.starts_with('1') {
                of_bare = rate;
            }
            let share = 100.0 * rate / of_bare;
            println!("  {what}, {}: {rate:.0}/s, {share:.0} %", &who[2..]);
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

/// How fast writes were, and the time of processors that one took in microseconds.
struct Measured {
    rate: f64,
    etcd: f64,
    server: f64,
    client: f64,
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Measured {
            rate,
            etcd,
            server,
            client,
        } = self;
        write!(
            f,
            "{rate:.0}/s (etcd {etcd:.0} µs, server {server:.0} µs, client {client:.0} µs)"
        )
    }
}

/// What processes have used so far: etcd, a server, this program.
struct Used([Duration; 3]);

impl Used {
    fn now(etcd: &Etcd, server: Option<&Server>) -> Used {
        let members = (0..etcd.len()).filter_map(|member| etcd.pid(member));
        Used([
            members.map(cpu).sum(),
            server.map_or(Duration::ZERO, Server::cpu),
            cpu(std::process::id()),
        ])
    }

    fn measure(&self, now: &Used, done: u32, took: Duration) -> Measured {
        let each =
            |index: usize| (now.0[index] - self.0[index]).as_secs_f64() * 1e6 / f64::from(done);
        Measured {
            rate: f64::from(done) / took.as_secs_f64(),
            etcd: each(0),
            server: each(1),
            client: each(2),
        }
    }
}

/// Rates of creates and updates of a program that does nothing but the transactions.
async fn bare(
    arguments: &Arguments,
    writers: usize,
    time: Duration,
    follow: bool,
) -> anyhow::Result<(Measured, Measured)> {
    let etcd = start_etcd(arguments)?;
    let store = Arc::new(tidings_storage::Etcd::open(EtcdOptions::new(etcd.endpoints())).await?);
    if follow {
        let at = store.revision().await?;
        let mut watch = store.watch("".into(), at).await?;
        tokio::spawn(async move {
            while poll_fn(|context| watch.as_mut().poll_next(context))
                .await
                .is_some()
            {}
        });
    }
    let mut rates = Vec::new();
    for updates in [false, true] {
        let before = Used::now(&etcd, None);
        let started = Instant::now();
        let tasks = (0..writers).map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let (mut done, mut at) = (0_u32, Revision(0));
                while started.elapsed() < time {
                    let key = format!("configmaps/default/{updates}-{writer}-{done}");
                    let write = if !updates {
                        Write::create(key, stored("bare"))
                    } else if done == 0 {
                        Write::create(format!("configmaps/default/u-{writer}"), stored("bare"))
                    } else {
                        Write::update(format!("configmaps/default/u-{writer}"), at, stored("bare"))
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
        let took = started.elapsed();
        rates.push(before.measure(&Used::now(&etcd, None), done, took));
    }
    let updates = rates.pop().context("updates were measured")?;
    Ok((rates.pop().context("creates were measured")?, updates))
}

async fn start(
    arguments: &Arguments,
    etcd: &Etcd,
    home: &tempfile::TempDir,
) -> anyhow::Result<Server> {
    let endpoints = etcd.argument();
    Server::start(&StartOptions {
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
) -> anyhow::Result<(Measured, Measured)> {
    let (etcd, home) = (start_etcd(arguments)?, tempfile::tempdir()?);
    let server = start(arguments, &etcd, &home).await?;
    let mut rates = Vec::new();
    for updates in [false, true] {
        let before = Used::now(&etcd, Some(&server));
        let started = Instant::now();
        let tasks = (0..writers).map(|writer| {
            let client = server.client.clone();
            tokio::spawn(write(client, writer, updates, started + time))
        });
        let mut done = 0;
        for task in tasks.collect::<Vec<_>>() {
            done += task.await??;
        }
        let took = started.elapsed();
        rates.push(before.measure(&Used::now(&etcd, Some(&server)), done, took));
    }
    let updates = rates.pop().context("updates were measured")?;
    Ok((rates.pop().context("creates were measured")?, updates))
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

/// What a server stores of such an object: as many bytes.
fn stored(name: &str) -> Vec<u8> {
    let head = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"#;
    let rest = r#""namespace":"default","uid":"7b0c5f3e-8c7b-4f0e-9d2a-3d1c7b3c2f10","creationTimestamp":"2026-11-15T20:00:00Z","managedFields":[{"manager":"etcd-bench","operation":"Update","apiVersion":"v1","time":"2026-11-15T20:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:fill":{},"f:sent":{}}}}]}"#;
    let (fill, sent) = ("x".repeat(1350), now_micros());
    format!(r#"{head}"{name}",{rest},"data":{{"fill":"{fill}","sent":"{sent}"}}}}"#).into_bytes()
}

/// A ConfigMap of 1 500 bytes that says when it was sent.
fn object(name: &str) -> Vec<u8> {
    let fill = "x".repeat(1350);
    let sent = now_micros();
    format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"sent":"{sent}","fill":"{fill}"}}}}"#)
        .into_bytes()
}
