//! Clients that misbehave, and what another user beside them notices.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use tidings_testing::{Client, Server, StartOptions};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

use crate::figures::{self, milliseconds};
use crate::scenario::{CONFIGMAPS, fill_with, latencies, object};

/// How many objects there are.
const OBJECTS: usize = 5_000;
/// How long the other user waits between two requests.
const PACE: Duration = Duration::from_millis(2);
/// How long each client misbehaves.
const SECONDS: u64 = 5;
/// The lowest priority, for the clients that misbehave.
const NICE: i32 = 19;
/// The highest, for the other user, if this process may have it.
const URGENT: i32 = -20;
/// How many connections are opened at a time: a client has only so many threads.
const OPENED_AT_ONCE: usize = 64;

const TOKENS: &str = "ann-token-of-the-bench,ann,1\nmallory-token-of-the-bench,mallory,2\n";

/// Measures each kind of client on a server of its own.
pub(crate) async fn hostile(binary: &Path) -> anyhow::Result<()> {
    for (name, size) in [
        ("silent connections", 10_000),
        ("gets at once", 1_000),
        ("lists at once", 1_000),
        ("lists that nobody reads", 1),
        ("lists that nobody reads", 1_000),
    ] {
        let directory = tempfile::tempdir()?;
        let (data_dir, tokens) = (
            directory.path().join("data"),
            directory.path().join("tokens"),
        );
        std::fs::write(&tokens, TOKENS)?;
        let argument = format!("--token-auth-file={}", tokens.display());
        let start = StartOptions {
            binary,
            data_dir: &data_dir,
            arguments: &[&argument],
        };
        let server = Server::start(&start).await?;
        prepare(&server).await?;
        let ann = Client::new(&server.url, "ann-token-of-the-bench")?;
        let mallory = Client::new(&server.url, "mallory-token-of-the-bench")?;
        let quiet = Other::start(ann.clone());
        tokio::time::sleep(Duration::from_secs(3)).await;
        let quiet = quiet.stop()?;

        let other = Other::start(ann);
        let done = from_afar(async move {
            match name {
                "silent connections" => connections(&mallory, size).await,
                "gets at once" => requests(&mallory, size, &format!("{CONFIGMAPS}/o1")).await,
                "lists at once" => requests(&mallory, size, CONFIGMAPS).await,
                _ => unread(&mallory, size).await,
            }
        })
        .await?;
        let noticed = other.stop()?;
        let times = milliseconds(&noticed, 0.99) / milliseconds(&quiet, 0.99);
        println!(
            "{size} {name} ({done}): GETs of another user {}; quiet {}: p99 {times:.1} times",
            latencies(&noticed),
            latencies(&quiet)
        );
        figures::note(
            &format!("hostile: {name}"),
            size,
            &[
                ("p99 of GETs beside it", "ms", milliseconds(&noticed, 0.99)),
                ("quiet p99 of GETs", "ms", milliseconds(&quiet, 0.99)),
            ],
        );
        server.kill().await?;
    }
    Ok(())
}

/// Creates the objects, and lets the users read and write everything.
async fn prepare(server: &Server) -> anyhow::Result<()> {
    let binding = r#"{"metadata":{"name":"bench"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},
        "subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"ann"},{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"mallory"}]}"#;
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let mut connection = server.client.connect().await?;
    let made = connection.request("POST", path, binding.as_bytes()).await?;
    ensure!(made.code == 201, "{}", made.text());
    fill_with(&server.client, OBJECTS, |number| {
        let name = format!("o{number}");
        (CONFIGMAPS.to_owned(), object(&name))
    })
    .await
}

/// Runs a client as if it were on another machine: it has threads of its own, which get only what the server and the other user leave of the processors.
async fn from_afar<T: Send + 'static>(
    client: impl Future<Output = anyhow::Result<T>> + Send + 'static,
) -> anyhow::Result<T> {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .on_thread_start(|| {
                // The calling thread only, on Linux.
                let _ = rustix::process::setpriority_process(None, NICE);
            })
            .enable_all()
            .build()?;
        let client = runtime.spawn(client);
        runtime.block_on(client)?
    };
    tokio::task::spawn_blocking(run).await?
}

/// Another user, on a thread that gets a processor when it wants one, as if it were on another machine too: the clients that misbehave must not take its
/// time, only the server's.
struct Other {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<anyhow::Result<Histogram<u64>>>,
}

impl Other {
    fn start(client: Client) -> Other {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let _ = rustix::process::setpriority_process(None, URGENT);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async move {
                let mut histogram = Histogram::<u64>::new(3)?;
                let mut connection = client.connect().await?;
                let path = format!("{CONFIGMAPS}/o1");
                while !stopped.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let (code, _) = connection.measure("GET", &path, b"").await?;
                    ensure!(code == 200, "GET {path}: {code}");
                    histogram.record(begun.elapsed().as_micros() as u64)?;
                    tokio::time::sleep(PACE).await;
                }
                Ok(histogram)
            })
        });
        Other { stop, thread }
    }

    fn stop(self) -> anyhow::Result<Histogram<u64>> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.ok().context("the other user has panicked")?
    }
}

/// Opens many connections, some at a time.
async fn opened<C, F>(count: usize, open: impl Fn() -> F) -> anyhow::Result<Vec<C>>
where
    C: Send + 'static,
    F: Future<Output = anyhow::Result<C>> + Send + 'static,
{
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        let mut opening = JoinSet::new();
        for _ in 0..OPENED_AT_ONCE.min(count - all.len()) {
            opening.spawn(open());
        }
        while let Some(opened) = opening.join_next().await {
            all.push(opened??);
        }
    }
    Ok(all)
}

/// Opens connections and says nothing.
async fn connections(client: &Client, count: usize) -> anyhow::Result<String> {
    let open = opened(count, || {
        let client = client.clone();
        async move { client.stream().await }
    });
    let open = open.await?;
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    Ok(format!("{} open", open.len()))
}

/// Sends a request over each of many connections at once, again and again.
async fn requests(client: &Client, count: usize, path: &str) -> anyhow::Result<String> {
    let open = opened(count, || {
        let client = client.clone();
        async move { client.connect().await }
    });
    let open = open.await?;
    let until = Instant::now() + Duration::from_secs(SECONDS);
    let mut senders = JoinSet::new();
    for mut connection in open {
        let path = path.to_owned();
        senders.spawn(async move {
            let (mut served, mut refused) = (0_u64, 0_u64);
            while Instant::now() < until {
                match connection.measure("GET", &path, b"").await?.0 {
                    200 => served += 1,
                    _ => refused += 1,
                }
            }
            anyhow::Ok((served, refused))
        });
    }
    let (mut served, mut refused) = (0, 0);
    while let Some(counts) = senders.join_next().await {
        let counts = counts??;
        served += counts.0;
        refused += counts.1;
    }
    Ok(format!("{served} served, {refused} refused"))
}

/// Asks for lists and reads none of them.
async fn unread(client: &Client, count: usize) -> anyhow::Result<String> {
    let head = format!(
        "GET {CONFIGMAPS} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
        client.address(),
        client.token()
    );
    let mut open = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = client.stream().await?;
        stream.write_all(head.as_bytes()).await?;
        open.push(stream);
    }
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    Ok(format!("{} asked for", open.len()))
}
