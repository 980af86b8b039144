//! Storms: many clients that do the same at once, and what a client beside them notices.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use tidings_testing::{Client, Connection, Server, StartOptions};
use tokio::task::JoinSet;

use crate::figures::{self, milliseconds};
use crate::scenario::{CONFIGMAPS, fill_with, latencies, mebibytes, object, watch_path};

/// How many objects the watched resource has.
const OBJECTS: usize = 5_000;
/// How long the client beside a storm waits between two requests.
const PACE: Duration = Duration::from_millis(2);

/// A client beside a storm: reads one object again and again, and notes how long that takes and how much memory the server has.
struct Bystander {
    stop: Arc<AtomicBool>,
    peak_bytes: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<anyhow::Result<Histogram<u64>>>,
}

impl Bystander {
    fn start(server: &Server) -> Bystander {
        let (stop, peak_bytes) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (client, stopped, peak) = (server.client.clone(), stop.clone(), peak_bytes.clone());
        let pid = server.pids()[0];
        let task = tokio::spawn(async move {
            let mut histogram = Histogram::<u64>::new(3)?;
            let mut connection = client.connect().await?;
            while !stopped.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let path = format!("{CONFIGMAPS}/o1");
                let (code, _) = connection.measure("GET", &path, b"").await?;
                ensure!(code == 200, "GET {path}: {code}");
                histogram.record(begun.elapsed().as_micros() as u64)?;
                peak.fetch_max(
                    tidings_testing::resident(pid).unwrap_or_default(),
                    Ordering::Relaxed,
                );
                tokio::time::sleep(PACE).await;
            }
            Ok(histogram)
        });
        Bystander {
            stop,
            peak_bytes,
            task,
        }
    }

    /// What it noticed.
    async fn stop(self) -> anyhow::Result<Noticed> {
        self.stop.store(true, Ordering::Relaxed);
        Ok(Noticed {
            latency: self.task.await??,
            peak_mebibytes: mebibytes(self.peak_bytes.load(Ordering::Relaxed)),
        })
    }
}

/// What a client beside a storm noticed.
struct Noticed {
    latency: Histogram<u64>,
    peak_mebibytes: f64,
}

impl Noticed {
    /// Notes it with the time and the processor time of the storm.
    fn note(&self, storm: &str, size: usize, took: Duration, cpu: Duration) {
        let slowest = self.latency.max() as f64 / 1000.0;
        figures::note(
            storm,
            size,
            &[
                ("time", "s", took.as_secs_f64()),
                ("CPU", "s", cpu.as_secs_f64()),
                (
                    "p99 of GETs beside it",
                    "ms",
                    milliseconds(&self.latency, 0.99),
                ),
                ("slowest GET beside it", "ms", slowest),
                ("peak memory", "MiB", self.peak_mebibytes),
            ],
        );
    }
}

impl std::fmt::Display for Noticed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (noticed, peak) = (latencies(&self.latency), self.peak_mebibytes);
        write!(f, "GETs beside it {noticed}; memory at most {peak:.1} MiB")
    }
}

/// Does something `count` times at once.
async fn at_once<T: Send + 'static, F>(
    count: usize,
    each: impl Fn(usize) -> F,
) -> anyhow::Result<Vec<T>>
where
    F: Future<Output = anyhow::Result<T>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for number in 0..count {
        tasks.spawn(each(number));
    }
    let mut done = Vec::with_capacity(count);
    while let Some(task) = tasks.join_next().await {
        done.push(task??);
    }
    Ok(done)
}

/// The resource version of the list.
async fn version(client: &Client) -> anyhow::Result<String> {
    let path = format!("{CONFIGMAPS}?limit=1");
    let list = client.connect().await?.request("GET", &path, b"").await?;
    let list: serde_json::Value = serde_json::from_slice(&list.body)?;
    let version = list["metadata"]["resourceVersion"].as_str();
    Ok(version.context("no resourceVersion")?.to_owned())
}

async fn fill(server: &Server, count: usize) -> anyhow::Result<()> {
    fill_with(&server.client, count, |number| {
        let name = format!("o{number}");
        (CONFIGMAPS.to_owned(), object(&name))
    })
    .await
}

/// All storms, each on a new server.
pub(crate) async fn storms(binary: &Path) -> anyhow::Result<()> {
    for watches in [1_000, 10_000] {
        let (server, _directory) = start(binary, &[]).await?;
        fill(&server, OBJECTS).await?;
        burst(&server, watches).await?;
        server.kill().await?;
    }
    for informers in [100, 1_000] {
        let (server, _directory) = start(binary, &[]).await?;
        fill(&server, OBJECTS).await?;
        come_back(&server, informers).await?;
        server.kill().await?;
    }
    restart(binary, 5_000).await?;
    for objects in [5_000, 50_000] {
        let (server, _directory) = start(binary, &[]).await?;
        delete_namespace(&server, objects).await?;
        server.kill().await?;
    }
    compaction(binary).await
}

async fn start(binary: &Path, arguments: &[&str]) -> anyhow::Result<(Server, tempfile::TempDir)> {
    let directory = tempfile::tempdir()?;
    let data_dir = directory.path().join("data");
    let options = StartOptions {
        binary,
        data_dir: &data_dir,
        arguments,
    };
    Ok((Server::start(&options).await?, directory))
}

/// Watches that are opened at once.
async fn burst(server: &Server, count: usize) -> anyhow::Result<()> {
    let bystander = Bystander::start(server);
    let (cpu, begun) = (server.cpu(), Instant::now());
    let client = server.client.clone();
    let watches = at_once(count, move |_| {
        let client = client.clone();
        async move { client.watch(&watch_path(CONFIGMAPS, "")).await }
    });
    let watches = watches.await?;
    let (took, cpu) = (begun.elapsed(), server.cpu() - cpu);
    let noticed = bystander.stop().await?;
    noticed.note("storm: watches opened at once", count, took, cpu);
    println!(
        "{count} watches opened at once: {:.2} s, {:.2} s CPU, {noticed}",
        took.as_secs_f64(),
        cpu.as_secs_f64()
    );
    drop(watches);
    Ok(())
}

/// Informers that come back at once: to resume, and to list again.
async fn come_back(server: &Server, count: usize) -> anyhow::Result<()> {
    let version = version(&server.client).await?;
    for changed in 0..100 {
        let name = format!("o{changed}");
        let path = format!("{CONFIGMAPS}/{name}");
        let mut connection = server.client.connect().await?;
        let (code, _) = connection.measure("PUT", &path, &object(&name)).await?;
        ensure!(code == 200, "PUT {path}: {code}");
    }
    let resume = format!("{CONFIGMAPS}?watch=1&resourceVersion={version}");
    let list = format!("{CONFIGMAPS}?resourceVersion=0");
    for (what, path) in [
        ("resume after 100 changes", resume),
        ("list 5000 objects", list),
    ] {
        let bystander = Bystander::start(server);
        let (cpu, begun) = (server.cpu(), Instant::now());
        let client = server.client.clone();
        let is_watch = path.contains("watch=1");
        at_once(count, move |_| {
            let (client, path) = (client.clone(), path.clone());
            async move {
                if is_watch {
                    let mut watch = client.watch(&path).await?;
                    for _ in 0..100 {
                        watch.line().await?.context("the watch ended")?;
                    }
                } else {
                    let (code, _) = client.connect().await?.measure("GET", &path, b"").await?;
                    ensure!(code == 200, "GET {path}: {code}");
                }
                Ok(())
            }
        })
        .await?;
        let (took, cpu) = (begun.elapsed(), server.cpu() - cpu);
        let noticed = bystander.stop().await?;
        let storm = format!("storm: clients {what} at once");
        noticed.note(&storm, count, took, cpu);
        println!(
            "{count} clients {what} at once: {:.2} s, {:.2} s CPU, {noticed}",
            took.as_secs_f64(),
            cpu.as_secs_f64()
        );
    }
    Ok(())
}

/// A watch that opens again where it was, as soon as the server is back. Returns when it has got an event of the new server.
async fn resumed(client: Client, path: String) -> anyhow::Result<()> {
    loop {
        let opened: anyhow::Result<Connection> = client.watch(&path).await;
        if let Ok(mut watch) = opened {
            watch.line().await?.context("the watch ended")?;
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A server that is killed and started again, with watches that resume.
async fn restart(binary: &Path, count: usize) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let data_dir = directory.path().join("data");
    let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let listen = format!("--listen={address}");
    let options = StartOptions {
        binary,
        data_dir: &data_dir,
        arguments: &[&listen],
    };
    let server = Server::start(&options).await?;
    fill(&server, OBJECTS).await?;
    let version = version(&server.client).await?;
    let mut connection = server.client.connect().await?;
    let (code, _) = connection
        .measure("PUT", &format!("{CONFIGMAPS}/o1"), &object("o1"))
        .await?;
    ensure!(code == 200, "PUT: {code}");
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={version}");
    let client = server.client.clone();
    server.kill().await?;
    let waiting = at_once(count, move |_| resumed(client.clone(), path.clone()));
    let waiting = tokio::spawn(waiting);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begun = Instant::now();
    let server = Server::start(&options).await?;
    let ready = begun.elapsed();
    let bystander = Bystander::start(&server);
    waiting.await??;
    let took = begun.elapsed();
    let noticed = bystander.stop().await?;
    noticed.note(
        "storm: restart with watches that resume",
        count,
        took,
        server.cpu(),
    );
    println!(
        "restart with {count} watches that resume: ready after {:.2} s, all have events after {:.2} s, {:.2} s CPU, {noticed}",
        ready.as_secs_f64(),
        took.as_secs_f64(),
        server.cpu().as_secs_f64()
    );
    server.kill().await
}

/// The deletion of a namespace with all its objects.
async fn delete_namespace(server: &Server, count: usize) -> anyhow::Result<()> {
    fill(server, 2).await?;
    let mut connection = server.client.connect().await?;
    let namespaces = "/api/v1/namespaces";
    let body = br#"{"metadata":{"name":"doomed"}}"#;
    let (code, _) = connection.measure("POST", namespaces, body).await?;
    ensure!(code == 201, "create a namespace: {code}");
    fill_with(&server.client, count, |number| {
        let path = "/api/v1/namespaces/doomed/configmaps";
        (path.to_owned(), object(&format!("o{number}")))
    })
    .await?;
    let path = format!("{namespaces}/doomed");
    let bystander = Bystander::start(server);
    let (cpu, begun) = (server.cpu(), Instant::now());
    connection.measure("DELETE", &path, b"").await?;
    while connection.measure("GET", &path, b"").await?.0 != 404 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (took, cpu) = (begun.elapsed(), server.cpu() - cpu);
    let noticed = bystander.stop().await?;
    noticed.note(
        "storm: deletion of a namespace with objects",
        count,
        took,
        cpu,
    );
    println!(
        "deletion of a namespace with {count} objects: {:.2} s, {:.2} s CPU, {noticed}",
        took.as_secs_f64(),
        cpu.as_secs_f64()
    );
    Ok(())
}

/// Writers at full speed while the history is compacted again and again.
async fn compaction(binary: &Path) -> anyhow::Result<()> {
    for (what, arguments) in [
        ("no compaction", &[][..]),
        ("compaction every few seconds", &["--history=2s"][..]),
    ] {
        let (server, _directory) = start(binary, arguments).await?;
        fill(&server, OBJECTS).await?;
        let bystander = Bystander::start(&server);
        let until = Instant::now() + Duration::from_secs(10);
        let client = server.client.clone();
        let written = at_once(16, move |writer| {
            let client = client.clone();
            async move {
                let mut connection = client.connect().await?;
                let mut histogram = Histogram::<u64>::new(3)?;
                let mut turn = 0;
                while Instant::now() < until {
                    let name = format!("o{}", (writer * 313 + turn) % OBJECTS);
                    let path = format!("{CONFIGMAPS}/{name}");
                    let begun = Instant::now();
                    let (code, _) = connection.measure("PUT", &path, &object(&name)).await?;
                    ensure!(code == 200, "PUT {path}: {code}");
                    histogram.record(begun.elapsed().as_micros() as u64)?;
                    turn += 1;
                }
                Ok(histogram)
            }
        });
        let mut all = Histogram::<u64>::new(3)?;
        for histogram in written.await? {
            all.add(histogram)?;
        }
        let noticed = bystander.stop().await?;
        println!(
            "16 writers of {OBJECTS} objects with {what}: {}/s, {}; {noticed}",
            all.len() / 10,
            latencies(&all)
        );
        server.kill().await?;
    }
    Ok(())
}
