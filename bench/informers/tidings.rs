//! Tidings' informers as a process of its own, to be measured beside others: see `bench/informers/run`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use futures_core::Stream;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::core::ApiResource;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tidings_api::{Status, WatchEvent};
use tidings_informer::*;
use tidings_kube::{ObjectMetadata, RestClient, RestListWatch};
use tokio::sync::Notify;

#[derive(Debug, Parser)]
struct Arguments {
    #[arg(long)]
    kubeconfig: PathBuf,
    #[arg(long, value_enum)]
    resource: Resource,
    #[arg(long, value_enum)]
    mode: Mode,
    #[arg(long, value_enum)]
    scenario: Scenario,
    /// Take the initial state from the watch instead of a list
    #[arg(long)]
    streamed: bool,
    #[arg(long, default_value_t = 1)]
    handlers: usize,
    #[arg(long)]
    stalled: bool,
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum, PartialEq, Eq)]
enum Resource {
    Configmaps,
    Pods,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    /// The bytes of the wire, without managedFields
    Bytes,
    /// k8s-openapi's type
    Typed,
    /// The bytes of the wire, decoded into k8s-openapi's type when they come and whenever they are asked for
    Lazy,
    /// A struct of a few fields
    Projected,
    /// Metadata only
    Metadata,
    /// Keys, versions and labels only
    Keys,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Scenario {
    Sync,
    Relist,
    Events,
}

/// A Pod's or ConfigMap's few fields.
#[derive(Deserialize)]
#[allow(dead_code)] // what is kept counts, not what is read
struct Slim {
    #[serde(default)]
    spec: SlimSpec,
    #[serde(default)]
    status: SlimStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
#[allow(dead_code)]
struct SlimSpec {
    node_name: Option<Box<str>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
#[allow(dead_code)]
struct SlimStatus {
    phase: Option<Box<str>>,
    #[serde(rename = "podIP")]
    pod_ip: Option<Box<str>>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let start = Instant::now();
    let arguments = Arguments::parse();
    match (arguments.mode, arguments.resource) {
        (Mode::Bytes, _) => measure(&arguments, start, Decode::bytes()).await,
        (Mode::Projected, _) => measure(&arguments, start, Decode::<Slim>::json()).await,
        (Mode::Metadata, _) => measure(&arguments, start, ObjectMetadata::decode()).await,
        (Mode::Keys, _) => measure(&arguments, start, Decode::keys()).await,
        (_, Resource::Configmaps) => typed::<ConfigMap>(&arguments, start).await,
        (_, Resource::Pods) => typed::<Pod>(&arguments, start).await,
    }
}

async fn typed<K: DeserializeOwned + Send + Sync + 'static>(
    arguments: &Arguments,
    start: Instant,
) -> anyhow::Result<()> {
    match arguments.mode {
        Mode::Lazy => measure(arguments, start, Decode::<Lazy<K>>::lazy()).await,
        _ => measure(arguments, start, Decode::<K>::json()).await,
    }
}

async fn measure<K: Send + Sync + 'static>(
    arguments: &Arguments,
    start: Instant,
    decode: Decode<K>,
) -> anyhow::Result<()> {
    let connection = tidings_kube::connect(Some(&arguments.kubeconfig), None).await?;
    let expire = Arc::new(Notify::new());
    let source = source(&connection.client, arguments, Arc::clone(&expire));
    let mut options = ReflectorOptions::default();
    options.backoff = BackoffOptions::default()
        .between(Duration::from_millis(1), Duration::from_millis(1))
        .jitter(0.0);
    if arguments.streamed {
        options.initial_state = InitialState::Streamed;
    }
    let informer = SharedInformer::builder(Arc::new(source), decode)
        .reflector(options)
        .build();
    let calls = Arc::new(AtomicU64::new(0));
    for index in 0..arguments.handlers {
        let stalled = arguments.stalled && index == 0;
        let calls = Arc::clone(&calls);
        let handle = move |_| {
            calls.fetch_add(1, Ordering::Relaxed);
            async move {
                if stalled {
                    std::future::pending::<()>().await;
                }
            }
        };
        informer.for_each(handle, &HandlerOptions::default())?;
    }
    informer.start();
    informer.wait_synced().await?;
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds());
    settle(&calls).await;
    match arguments.scenario {
        Scenario::Sync => print(
            arguments,
            &informer,
            &format!(r#""seconds":{seconds:.3},"cpu_seconds":{cpu:.3}"#),
        ),
        Scenario::Relist => {
            let (before, cpu, told) =
                (Instant::now(), cpu_seconds(), calls.load(Ordering::Relaxed));
            let lists = || informer.reflector_stats().lists(RelistReason::Expired);
            expire.notify_one();
            while lists() == 0 || !matches!(informer.state(), ReflectorState::Synced) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let seconds = before.elapsed().as_secs_f64();
            let cpu = cpu_seconds() - cpu;
            settle(&calls).await;
            let told = calls.load(Ordering::Relaxed) - told;
            print(
                arguments,
                &informer,
                &format!(r#""seconds":{seconds:.3},"cpu_seconds":{cpu:.3},"handler_calls":{told}"#),
            );
        }
        Scenario::Events => {
            eprintln!("ready"); // who writes may begin
            let (cpu, told) = (cpu_seconds(), calls.load(Ordering::Relaxed));
            let received = informer.reflector_stats().objects_received();
            tokio::time::sleep(Duration::from_secs(arguments.seconds)).await;
            let cpu = cpu_seconds() - cpu;
            let events = informer.reflector_stats().objects_received() - received;
            let told = calls.load(Ordering::Relaxed) - told;
            print(
                arguments,
                &informer,
                &format!(r#""events":{events},"deliveries":{told},"cpu_seconds":{cpu:.3}"#),
            );
        }
    }
    Ok(())
}

/// Waits until handlers have had what there is.
async fn settle(calls: &AtomicU64) {
    let mut before = u64::MAX;
    while before != calls.load(Ordering::Relaxed) {
        before = calls.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
}

/// A lister-watcher whose watch can be told to expire.
fn source(client: &RestClient, arguments: &Arguments, expire: Arc<Notify>) -> ListWatch {
    let resource = match arguments.resource {
        Resource::Configmaps => ApiResource::erase::<ConfigMap>(&()),
        Resource::Pods => ApiResource::erase::<Pod>(&()),
    };
    let mut source = RestListWatch::new(client, &resource, "");
    if matches!(arguments.mode, Mode::Metadata | Mode::Keys) {
        source = source.metadata_only();
    }
    let lister = source.clone();
    let list: ListFunc = Arc::new(move |options| {
        let source = lister.clone();
        Box::pin(async move { source.list(options).await })
    });
    let watch: WatchFunc = Arc::new(move |options| {
        let (source, expire) = (source.clone(), Arc::clone(&expire));
        Box::pin(async move {
            let events = source.watch(options).await?;
            let expired = Box::pin(async move { expire.notified().await });
            Ok(Box::pin(Expiring { events, expired }) as EventStream)
        })
    });
    ListWatch::new(list, watch)
}

struct Expiring {
    events: EventStream,
    expired: BoxFuture<'static, ()>,
}

impl Stream for Expiring {
    type Item = Result<Vec<WatchEvent>, SourceError>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        if self.expired.as_mut().poll(context).is_ready() {
            self.expired = Box::pin(std::future::pending());
            let expired = Box::new(Status::expired("as asked for"));
            return std::task::Poll::Ready(Some(Ok(vec![WatchEvent::Error(expired)])));
        }
        self.events.as_mut().poll_next(context)
    }
}

fn print<K: Send + Sync + 'static>(
    arguments: &Arguments,
    informer: &SharedInformer<K>,
    figures: &str,
) {
    let initial = if arguments.streamed { "stream" } else { "list" };
    let mode = format!("{initial}-{:?}", arguments.mode).to_lowercase();
    let resource = format!("{:?}", arguments.resource).to_lowercase();
    let scenario = format!("{:?}", arguments.scenario).to_lowercase();
    let (peak, steady) = (memory("VmHWM:"), memory("VmRSS:"));
    println!(
        r#"{{"peer":"tidings","scenario":"{scenario}","mode":"{mode}","resource":"{resource}","handlers":{},"stalled":{},"objects":{},{figures},"peak_mib":{peak:.1},"steady_mib":{steady:.1}}}"#,
        arguments.handlers,
        arguments.stalled,
        informer.store().len(),
    );
}

/// Processor time of this process, in seconds: user and system, in hundredths.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let field = |index: usize| -> f64 {
        let text = after_name.split(' ').nth(index).unwrap_or_default();
        text.parse().unwrap_or_default()
    };
    (field(11) + field(12)) / 100.0
}

fn memory(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or_default() / 1024.0
}
