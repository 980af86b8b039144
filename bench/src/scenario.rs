//! The scenarios that are measured.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use tidings_testing::{Client, Connection, Server};

use crate::custom::custom;
use crate::definitions::definitions;
use crate::figures::{self, milliseconds};
use crate::multiplexed::multiplexed;
use crate::selected::{listed, selected};
use crate::soak::soak;

pub(crate) const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const STREAM: &str =
    "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
/// What only the bookmark has that ends the initial events.
const INITIAL_EVENTS_END: [&[u8]; 2] = [b"\"BOOKMARK\"", b"initial-events-end"];
const OBJECT_BYTES: usize = 1500;
/// The size of an object, as it is sent, that has 1 536 bytes with what the server adds to its metadata.
const RETURNED_BYTES: usize = 1173;
/// The number of watches that measure the latency of events.
const SAMPLED: usize = 20;

type ScenarioRun =
    for<'s> fn(&'s Server, &'s Extent) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + 's>>;

/// How much is measured.
pub(crate) struct Extent {
    /// How many seconds each timed part runs.
    pub(crate) seconds: u64,
    /// How many watches, objects or clients there are; empty for those that a scenario has by default.
    pub(crate) sizes: Vec<usize>,
}

impl Extent {
    /// The sizes to measure, the smallest first.
    pub(crate) fn sizes(&self, default: &[usize]) -> Vec<usize> {
        let mut sizes = match self.sizes.is_empty() {
            true => default.to_vec(),
            false => self.sizes.clone(),
        };
        sizes.sort_unstable();
        sizes
    }
}

/// One measurement.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    run: ScenarioRun,
}

impl Scenario {
    pub(crate) async fn run(&self, server: &Server, extent: &Extent) -> anyhow::Result<()> {
        (self.run)(server, extent)
            .await
            .with_context(|| format!("scenario {}", self.name))
    }
}

/// All scenarios, in the order of the output.
pub(crate) fn all() -> Vec<Scenario> {
    let scenario = |name, run| Scenario { name, run };
    vec![
        scenario("start", |server, _| Box::pin(start(server))),
        scenario("create", |server, extent| Box::pin(create(server, extent))),
        scenario("apply", |server, extent| Box::pin(apply(server, extent))),
        scenario("get", |server, extent| Box::pin(get(server, extent))),
        scenario("list", |server, extent| Box::pin(list(server, extent))),
        scenario("custom", |server, _| Box::pin(custom(server))),
        scenario("definitions", |server, extent| {
            Box::pin(definitions(server, extent))
        }),
        scenario("stream", |server, extent| Box::pin(stream(server, extent))),
        scenario("idle", |server, extent| Box::pin(idle(server, extent))),
        scenario("fanout", |server, extent| Box::pin(fanout(server, extent))),
        scenario("paced", |server, extent| Box::pin(paced(server, extent))),
        scenario("stalled", |server, extent| {
            Box::pin(stalled(server, extent.seconds))
        }),
        scenario("multiplexed", |server, extent| {
            Box::pin(multiplexed(server, extent.seconds))
        }),
        scenario("selected", |server, extent| {
            Box::pin(selected(server, extent))
        }),
        scenario("listed", |server, extent| Box::pin(listed(server, extent))),
        scenario("held", |server, extent| Box::pin(held(server, extent))),
        scenario("soak", |server, extent| Box::pin(soak(server, extent))),
    ]
}

pub(crate) fn now_micros() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_micros() as u64)
}

/// An object of the usual size that contains its time of sending. With what the server adds to its metadata it has about 1 820 bytes.
pub(crate) fn object(name: &str) -> Vec<u8> {
    object_of(name, OBJECT_BYTES)
}

/// An object of some bytes, as it is sent.
fn object_of(name: &str, bytes: usize) -> Vec<u8> {
    let head = format!(
        "{{\"metadata\":{{\"name\":\"{name}\"}},\"data\":{{\"sent\":\"{}\",\"fill\":\"",
        now_micros()
    );
    let mut body = head.into_bytes();
    let fill = bytes.saturating_sub(body.len() + 3);
    body.extend((0..fill).map(|at| b'a' + (at % 23) as u8));
    body.extend_from_slice(b"\"}}");
    body
}

/// A Deployment of 7 KB whose number of replicas depends on `turn`.
fn deployment(name: &str, turn: u64) -> Vec<u8> {
    let container = |number: usize| {
        let env: Vec<String> = (0..24)
            .map(|at| format!(r#"{{"name":"VARIABLE_{at}","value":"value of the variable {at}"}}"#))
            .collect();
        let (env, port) = (env.join(","), 8000 + number);
        format!(
            r#"{{"name":"c{number}","image":"registry.example/app/c{number}:1.2.3","args":["--verbose","--port={port}"],"env":[{env}],"ports":[{{"containerPort":{port},"name":"p{number}"}}],"resources":{{"limits":{{"cpu":"1","memory":"1Gi"}},"requests":{{"cpu":"100m","memory":"128Mi"}}}},"livenessProbe":{{"httpGet":{{"path":"/healthz","port":{port}}}}},"volumeMounts":[{{"name":"config","mountPath":"/etc/config"}}]}}"#
        )
    };
    let containers: Vec<String> = (0..4).map(container).collect();
    let (containers, replicas) = (containers.join(","), turn % 2 + 1);
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"{name}","labels":{{"app":"{name}"}}}},"spec":{{"replicas":{replicas},"selector":{{"matchLabels":{{"app":"{name}"}}}},"template":{{"metadata":{{"labels":{{"app":"{name}"}}}},"spec":{{"containers":[{containers}],"volumes":[{{"name":"config","configMap":{{"name":"{name}"}}}}]}}}}}}}}"#
    )
    .into_bytes()
}

/// Applies Deployments repeatedly, with one field changed and unchanged.
async fn apply(server: &Server, extent: &Extent) -> anyhow::Result<()> {
    let seconds = extent.seconds;
    let size = deployment("d0", 0).len();
    let counts = extent.sizes(&[16, 64]);
    let rounds = counts.into_iter().flat_map(|count| {
        [("one field changed", true), ("nothing changed", false)]
            .map(|(what, changes)| (count, what, changes))
    });
    for (count, what, changes) in rounds {
        let (cpu, store) = (server.cpu(), server.thread_cpu(STORE_THREAD));
        let until = Instant::now() + Duration::from_secs(seconds);
        let mut writers = JoinSet::new();
        for writer in 0..count {
            let client = server.client.clone();
            writers.spawn(async move {
                let mut connection = client.connect().await?;
                let name = format!("d{writer}");
                let path = format!(
                    "/apis/apps/v1/namespaces/default/deployments/{name}?fieldManager=bench"
                );
                let mut done = 0;
                while Instant::now() < until {
                    let body = deployment(&name, if changes { done } else { 0 });
                    let (code, _) = connection.measure("PATCH", &path, &body).await?;
                    ensure!(code == 200 || code == 201, "apply: {code}");
                    done += 1;
                }
                anyhow::Ok(done)
            });
        }
        let mut done = 0;
        while let Some(writer) = writers.join_next().await {
            done += writer??;
        }
        let (cpu, store) = (server.cpu() - cpu, server.thread_cpu(STORE_THREAD) - store);
        println!(
            "apply of a Deployment of {size} bytes, {what}, {count} writers: {}/s, {:.1} us CPU each ({:.1} of them the store's)",
            done / seconds,
            micros(cpu, done),
            micros(store, done),
        );
        let scenario = format!("apply, {what}");
        figures::note(
            &scenario,
            count,
            &[
                ("rate", "1/s", (done / seconds) as f64),
                ("CPU each", "µs", micros(cpu, done)),
            ],
        );
    }
    Ok(())
}

pub(crate) fn micros(cpu: Duration, count: u64) -> f64 {
    cpu.as_secs_f64() * 1e6 / count.max(1) as f64
}

pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

pub(crate) fn latencies(histogram: &Histogram<u64>) -> String {
    let ms = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    format!(
        "p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
        ms(0.5),
        ms(0.99),
        histogram.max() as f64 / 1000.0
    )
}

/// Creates the ConfigMaps with these numbers over 16 connections.
async fn fill(client: &Client, prefix: &'static str, numbers: Range<usize>) -> anyhow::Result<()> {
    let (first, count) = (numbers.start, numbers.len());
    let body = move |number| {
        let name = format!("{prefix}{}", first + number);
        (CONFIGMAPS.to_owned(), object(&name))
    };
    fill_with(client, count, body).await
}

/// Creates objects over 16 connections; `body` returns the path and the body of each object.
pub(crate) async fn fill_with(
    client: &Client,
    count: usize,
    body: impl Fn(usize) -> (String, Vec<u8>) + Copy + Send + 'static,
) -> anyhow::Result<()> {
    let mut writers = JoinSet::new();
    for writer in 0..16 {
        let client = client.clone();
        writers.spawn(async move {
            let mut connection = client.connect().await?;
            for number in (writer..count).step_by(16) {
                let (path, body) = body(number);
                let (code, _) = connection.measure("POST", &path, &body).await?;
                ensure!(code == 201, "create: {code}");
            }
            Ok(())
        });
    }
    while let Some(done) = writers.join_next().await {
        done??;
    }
    Ok(())
}

/// Runs several connections in a closed loop. Returns the number of requests, the time, the latencies, and the server's CPU time.
async fn closed_loop(
    server: &Server,
    connections: usize,
    seconds: u64,
    request: impl Fn(usize, u64) -> (&'static str, String, Vec<u8>, u16) + Send + Sync + Copy + 'static,
) -> anyhow::Result<(u64, Duration, Histogram<u64>, Duration)> {
    let (cpu, started) = (server.cpu(), Instant::now());
    let ends = started + Duration::from_secs(seconds);
    let mut loops = JoinSet::new();
    for number in 0..connections {
        let client = server.client.clone();
        loops.spawn(async move {
            let mut connection = client.connect().await?;
            let mut histogram = Histogram::<u64>::new(3)?;
            let mut sent = 0;
            while Instant::now() < ends {
                let (method, path, body, expected) = request(number, sent);
                let begun = Instant::now();
                let (code, _) = connection.measure(method, &path, &body).await?;
                ensure!(code == expected, "{method} {path}: {code}");
                histogram.record(begun.elapsed().as_micros() as u64)?;
                sent += 1;
            }
            Ok(histogram)
        });
    }
    let mut all = Histogram::<u64>::new(3)?;
    while let Some(histogram) = loops.join_next().await {
        all.add(histogram??)?;
    }
    Ok((all.len(), started.elapsed(), all, server.cpu() - cpu))
}

async fn start(server: &Server) -> anyhow::Result<()> {
    server
        .client
        .connect()
        .await?
        .measure("GET", "/readyz", b"")
        .await?;
    figures::note(
        "start",
        0,
        &[
            ("time", "ms", server.started_in.as_secs_f64() * 1e3),
            ("memory", "MiB", mebibytes(server.memory())),
        ],
    );
    println!(
        "start: ready in {:.1} ms, {:.1} MiB resident",
        server.started_in.as_secs_f64() * 1e3,
        mebibytes(server.memory())
    );
    Ok(())
}

/// The thread of the server that commits writes; with kube-apiserver this work is done by etcd, another process.
const STORE_THREAD: &str = "tidings-commit";

async fn create(server: &Server, extent: &Extent) -> anyhow::Result<()> {
    for writers in extent.sizes(&[1, 16, 64]) {
        let store = server.thread_cpu(STORE_THREAD);
        let (count, took, histogram, cpu) =
            closed_loop(server, writers, extent.seconds, |writer, sent| {
                let name = format!("c{}-{writer}-{sent}", now_micros());
                ("POST", CONFIGMAPS.to_owned(), object(&name), 201)
            })
            .await?;
        println!(
            "create, {writers} writers: {:.0}/s, {:.1} us CPU each ({:.1} of them the store's), {}",
            count as f64 / took.as_secs_f64(),
            micros(cpu, count),
            micros(server.thread_cpu(STORE_THREAD) - store, count),
            latencies(&histogram)
        );
        note_requests("create", writers, (count, took, &histogram, cpu));
    }
    Ok(())
}

/// Notes the figures of a closed loop.
fn note_requests(
    scenario: &str,
    size: usize,
    (count, took, histogram, cpu): (u64, Duration, &Histogram<u64>, Duration),
) {
    figures::note(
        scenario,
        size,
        &[
            ("rate", "1/s", count as f64 / took.as_secs_f64()),
            ("CPU each", "µs", micros(cpu, count)),
            ("p50", "ms", milliseconds(histogram, 0.5)),
            ("p99", "ms", milliseconds(histogram, 0.99)),
        ],
    );
}

async fn get(server: &Server, extent: &Extent) -> anyhow::Result<()> {
    fill(&server.client, "get", 0..100).await?;
    for readers in extent.sizes(&[16]) {
        let (count, took, histogram, cpu) =
            closed_loop(server, readers, extent.seconds, |reader, sent| {
                let path = format!("{CONFIGMAPS}/get{}", (reader as u64 * 7 + sent) % 100);
                ("GET", path, Vec::new(), 200)
            })
            .await?;
        println!(
            "get, {readers} readers: {:.0}/s, {:.1} us CPU each, {}",
            count as f64 / took.as_secs_f64(),
            micros(cpu, count),
            latencies(&histogram)
        );
        note_requests("get", readers, (count, took, &histogram, cpu));
    }
    Ok(())
}

async fn list(server: &Server, extent: &Extent) -> anyhow::Result<()> {
    let mut filled = 0;
    for count in extent.sizes(&[10_000]) {
        fill(&server.client, "list", filled..count).await?;
        filled = count;
        list_of(server, "objects", count, CONFIGMAPS).await?;
    }
    Ok(())
}

/// Lists objects that exist.
pub(crate) async fn list_of(
    server: &Server,
    what: &str,
    count: usize,
    path: &str,
) -> anyhow::Result<()> {
    let mut connection = server.client.connect().await?;
    let path = format!("{path}?resourceVersion=0");
    connection.measure("GET", &path, b"").await?;
    let (cpu, started, rounds) = (server.cpu(), Instant::now(), 20);
    let mut size = 0;
    for _ in 0..rounds {
        size = connection.measure("GET", &path, b"").await?.1;
    }
    let took = started.elapsed().as_secs_f64() * 1e3 / f64::from(rounds);
    let cpu = (server.cpu() - cpu).as_secs_f64() * 1e3 / f64::from(rounds);
    println!(
        "list of {count} {what} ({:.1} MiB) from the cache: {took:.1} ms, {cpu:.1} ms CPU",
        mebibytes(size as u64),
    );
    figures::note(
        &format!("list of {what}"),
        count,
        &[("time", "ms", took), ("CPU each", "ms", cpu)],
    );
    Ok(())
}

async fn stream(server: &Server, extent: &Extent) -> anyhow::Result<()> {
    let mut filled = 0;
    for count in extent.sizes(&[10_000]) {
        fill(&server.client, "stream", filled..count).await?;
        filled = count;
        stream_of(server, count).await?;
    }
    Ok(())
}

async fn stream_of(server: &Server, count: usize) -> anyhow::Result<()> {
    let path = format!("{CONFIGMAPS}?{STREAM}");
    server
        .client
        .watch(&path)
        .await?
        .skip_until_either(INITIAL_EVENTS_END)
        .await?;
    let (cpu, started, rounds) = (server.cpu(), Instant::now(), 20);
    for _ in 0..rounds {
        server
            .client
            .watch(&path)
            .await?
            .skip_until_either(INITIAL_EVENTS_END)
            .await?;
    }
    let took = started.elapsed().as_secs_f64() * 1e3 / f64::from(rounds);
    let cpu = (server.cpu() - cpu).as_secs_f64() * 1e3 / f64::from(rounds);
    println!(
        "streamed initial state of {count} objects, connection included: {took:.1} ms, {cpu:.1} ms CPU"
    );
    figures::note(
        "streamed initial state",
        count,
        &[("time", "ms", took), ("CPU each", "ms", cpu)],
    );
    Ok(())
}

async fn idle(server: &Server, extent: &Extent) -> anyhow::Result<()> {
    fill(&server.client, "idle", 0..10).await?;
    // The first watches have one-time costs, which are not counted.
    let _first = open(&server.client, 100).await?;
    for count in extent.sizes(&[2000]) {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let before = server.memory();
        let _watches = open(&server.client, count).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let kibibytes = server.memory().saturating_sub(before) as f64 / 1024.0 / count as f64;
        println!("idle TLS watch: {kibibytes:.1} KiB each, of {count}");
        figures::note("idle watches", count, &[("memory each", "KiB", kibibytes)]);
    }
    Ok(())
}

pub(crate) async fn open(client: &Client, count: usize) -> anyhow::Result<Vec<Connection>> {
    let mut watches = Vec::with_capacity(count);
    for _ in 0..count {
        watches.push(client.watch(&watch_path(CONFIGMAPS, "")).await?);
    }
    Ok(watches)
}

/// The path of a watch from now on, with more options.
pub(crate) fn watch_path(resource: &str, options: &str) -> String {
    format!("{resource}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan{options}")
}

/// Watches that count their events until they are stopped.
pub(crate) struct CountingWatches {
    deliveries: Arc<AtomicU64>,
    measuring: Arc<AtomicBool>,
    tasks: JoinSet<anyhow::Result<Histogram<u64>>>,
    stop: tokio::sync::watch::Sender<bool>,
}

impl CountingWatches {
    async fn gather(client: &Client, count: usize) -> anyhow::Result<CountingWatches> {
        CountingWatches::of(open(client, count).await?, SAMPLED)
    }

    /// Counts the events of open watches. The first `sampled` of them measure latency.
    pub(crate) fn of<W: WatchBytes>(
        watches: Vec<W>,
        sampled: usize,
    ) -> anyhow::Result<CountingWatches> {
        let (deliveries, measuring) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (stop, _) = tokio::sync::watch::channel(false);
        let mut tasks = JoinSet::new();
        for (number, watch) in watches.into_iter().enumerate() {
            let (deliveries, measuring, stopped) =
                (deliveries.clone(), measuring.clone(), stop.subscribe());
            tasks.spawn(follow(
                watch,
                number < sampled,
                deliveries,
                measuring,
                stopped,
            ));
        }
        Ok(CountingWatches {
            deliveries,
            measuring,
            tasks,
            stop,
        })
    }

    /// Measures latency from now on.
    pub(crate) fn begin(&self) {
        self.measuring.store(true, Ordering::Relaxed);
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.deliveries.load(Ordering::Relaxed)
    }

    pub(crate) async fn leave(mut self) -> anyhow::Result<Histogram<u64>> {
        self.stop.send_replace(true);
        let mut all = Histogram::<u64>::new(3)?;
        while let Some(histogram) = self.tasks.join_next().await {
            all.add(histogram??)?;
        }
        Ok(all)
    }
}

/// The bytes of an open watch.
pub(crate) trait WatchBytes: Send + 'static {
    /// The next bytes; empty at the end.
    fn next(&mut self) -> impl Future<Output = anyhow::Result<impl AsRef<[u8]> + Send>> + Send;
}

impl WatchBytes for Connection {
    async fn next(&mut self) -> anyhow::Result<impl AsRef<[u8]> + Send> {
        Connection::next(self).await
    }
}

async fn follow(
    mut watch: impl WatchBytes,
    sampled: bool,
    deliveries: Arc<AtomicU64>,
    measuring: Arc<AtomicBool>,
    mut stopped: tokio::sync::watch::Receiver<bool>,
) -> anyhow::Result<Histogram<u64>> {
    let mut histogram = Histogram::<u64>::new(3)?;
    let stop = async { drop(stopped.wait_for(|stop| *stop).await) };
    let mut stop = std::pin::pin!(stop);
    let sent = memchr::memmem::Finder::new(b"\"sent\":\"");
    loop {
        let bytes = tokio::select! {
            bytes = watch.next() => bytes?,
            () = &mut stop => return Ok(histogram),
        };
        let bytes = bytes.as_ref();
        ensure!(!bytes.is_empty(), "a watch ended");
        // Every event has exactly one such text; chunk headers have none.
        let events = memchr::memmem::find_iter(bytes, b"{\"type\":\"").count() as u64;
        deliveries.fetch_add(events, Ordering::Relaxed);
        if sampled && measuring.load(Ordering::Relaxed) {
            let now = now_micros();
            for at in sent.find_iter(bytes) {
                let digits: Vec<u8> = bytes[at + 8..]
                    .iter()
                    .copied()
                    .take_while(u8::is_ascii_digit)
                    .take(16)
                    .collect();
                // The bytes may end in the middle of the time.
                let digits = Some(digits).filter(|digits| digits.len() == 16);
                if let Some(time) = digits
                    .and_then(|digits| String::from_utf8(digits).ok())
                    .and_then(|text| text.parse::<u64>().ok())
                {
                    histogram.record(now.saturating_sub(time))?;
                }
            }
        }
    }
}

/// Updates an object at full speed, or with a pause between updates, until a time. Returns the number of updates.
async fn write(
    client: Client,
    number: usize,
    pause: Option<Duration>,
    until: Instant,
) -> anyhow::Result<u64> {
    let name = format!("w{number}");
    let mut connection = client.connect().await?;
    let path = format!("{CONFIGMAPS}/{name}");
    let mut written = 0;
    let mut next = Instant::now();
    while Instant::now() < until {
        let (code, _) = connection.measure("PUT", &path, &object(&name)).await?;
        ensure!(code == 200, "PUT {path}: {code}");
        written += 1;
        if let Some(pause) = pause {
            next += pause;
            tokio::time::sleep_until(next.into()).await;
        }
    }
    Ok(written)
}

/// The result of a fan-out measurement.
pub(crate) struct FanoutResult {
    updates: u64,
    deliveries: u64,
    took: Duration,
    cpu: Duration,
    latency: Histogram<u64>,
}

pub(crate) async fn measure(
    server: &Server,
    audience: CountingWatches,
    writers: usize,
    pause: Option<Duration>,
    seconds: u64,
) -> anyhow::Result<FanoutResult> {
    fill(&server.client, "w", 0..writers).await.ok();
    let run = |seconds: u64| {
        let until = Instant::now() + Duration::from_secs(seconds);
        let mut tasks = JoinSet::new();
        for number in 0..writers {
            tasks.spawn(write(server.client.clone(), number, pause, until));
        }
        tasks
    };
    let finish = async |mut tasks: JoinSet<anyhow::Result<u64>>| -> anyhow::Result<u64> {
        let mut written = 0;
        while let Some(count) = tasks.join_next().await {
            written += count??;
        }
        Ok(written)
    };
    finish(run(1)).await?; // warm up
    audience.begin();
    let (cpu, started, before) = (server.cpu(), Instant::now(), audience.delivered());
    let updates = finish(run(seconds)).await?;
    let took = started.elapsed();
    let (deliveries, cpu) = (audience.delivered() - before, server.cpu() - cpu);
    let latency = audience.leave().await?;
    Ok(FanoutResult {
        updates,
        deliveries,
        took,
        cpu,
        latency,
    })
}

impl FanoutResult {
    fn note(&self, scenario: &str, watches: usize) {
        let seconds = self.took.as_secs_f64();
        figures::note(
            scenario,
            watches,
            &[
                ("deliveries", "1/s", self.deliveries as f64 / seconds),
                ("updates", "1/s", self.updates as f64 / seconds),
                ("CPU each", "µs", micros(self.cpu, self.deliveries)),
                ("p50", "ms", milliseconds(&self.latency, 0.5)),
                ("p99", "ms", milliseconds(&self.latency, 0.99)),
            ],
        );
    }
}

pub(crate) fn print(name: &str, fanout: &FanoutResult) {
    println!(
        "{name}: {:.0} deliveries/s of {:.0} updates/s, {:.2} us CPU each, {}",
        fanout.deliveries as f64 / fanout.took.as_secs_f64(),
        fanout.updates as f64 / fanout.took.as_secs_f64(),
        micros(fanout.cpu, fanout.deliveries),
        latencies(&fanout.latency)
    );
}

async fn fanout(server: &Server, extent: &Extent) -> anyhow::Result<()> {
    for watches in extent.sizes(&[1000]) {
        let audience = CountingWatches::gather(&server.client, watches).await?;
        let fanout = measure(server, audience, 4, None, extent.seconds).await?;
        print(
            &format!("fan-out to {watches} TLS watches, 4 writers at full speed"),
            &fanout,
        );
        fanout.note("fan-out at full speed", watches);
    }
    Ok(())
}

async fn paced(server: &Server, extent: &Extent) -> anyhow::Result<()> {
    for watches in extent.sizes(&[1000]) {
        let audience = CountingWatches::gather(&server.client, watches).await?;
        let pause = Some(Duration::from_millis(20));
        let fanout = measure(server, audience, 1, pause, extent.seconds).await?;
        print(
            &format!("fan-out to {watches} TLS watches, 50 updates/s"),
            &fanout,
        );
        fanout.note("fan-out of 50 updates/s", watches);
    }
    Ok(())
}

async fn stalled(server: &Server, seconds: u64) -> anyhow::Result<()> {
    let audience = CountingWatches::gather(&server.client, 100).await?;
    let free = measure(server, audience, 4, None, seconds).await?;
    print("100 TLS watches, none stalled", &free);
    let audience = CountingWatches::gather(&server.client, 100).await?;
    let _stalled = open(&server.client, 12).await?; // these are never read
    let before = server.memory();
    let beside = measure(server, audience, 4, None, seconds).await?;
    print("100 TLS watches beside 12 stalled ones", &beside);
    println!(
        "memory while 12 were stalled: {:+.1} MiB",
        mebibytes(server.memory()) - mebibytes(before)
    );
    Ok(())
}

/// Objects of two sizes: those of the other scenarios, and those that have 1.5 KiB as the server returns them.
async fn held(server: &Server, extent: &Extent) -> anyhow::Result<()> {
    for (prefix, sent, row) in [
        ("held", OBJECT_BYTES, "objects held"),
        (
            "whole",
            RETURNED_BYTES,
            "objects held, 1.5 KiB with their metadata",
        ),
    ] {
        let (before, mut filled) = (server.memory(), 0);
        for count in extent.sizes(&[50_000]) {
            let first = filled;
            let body = move |number| {
                let name = format!("{prefix}{:06}", first + number);
                (CONFIGMAPS.to_owned(), object_of(&name, sent))
            };
            fill_with(&server.client, count - filled, body).await?;
            filled = count;
            tokio::time::sleep(Duration::from_secs(2)).await;
            let memory = server.memory();
            let path = format!("{CONFIGMAPS}/{prefix}000000");
            let mut connection = server.client.connect().await?;
            let (_, returned) = connection.measure("GET", &path, b"").await?;
            let each = memory.saturating_sub(before) as f64 / count as f64;
            println!(
                "{count} objects held, {sent} bytes sent, {returned} returned: {:.1} MiB resident, {each:.0} B each",
                mebibytes(memory)
            );
            figures::note(
                row,
                count,
                &[
                    ("memory", "MiB", mebibytes(memory)),
                    ("memory each", "B", each),
                ],
            );
        }
    }
    Ok(())
}
