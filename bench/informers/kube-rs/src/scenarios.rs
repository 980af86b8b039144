//! The three scenarios: first sync, relist of unchanged objects, steady stream of changes.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use futures::{Stream, StreamExt, future, pin_mut, stream::BoxStream};
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt,
        reflector::{ObjectRef, Store, reflector, store::Writer},
        watcher::{self, Event, watcher},
    },
};
use serde_json::json;
use tokio::{sync::oneshot, time::sleep};

use crate::{
    Mode, Report, Run, Scenario,
    modes::{self, Object},
    taps::Traffic,
    usage,
};

const SYNC_LIMIT: Duration = Duration::from_secs(600);

/// A mode, ready to be built.
pub struct Plan<K: Object, A> {
    pub dyntype: K::DynamicType,
    pub api: A,
    pub subscribe: Option<fn(&Writer<K>) -> BoxStream<'static, Arc<K>>>,
    pub watcher: watcher::Config,
}

/// What the consumers saw.
#[derive(Default)]
struct Counts {
    /// Changes that came out of the reflector, that is: after the store took them.
    changes: AtomicU64,
    /// Objects that handlers were given, over all handlers.
    deliveries: AtomicU64,
    initialized: AtomicU64,
    /// From when on the stalled handler sleeps.
    stalling: AtomicBool,
    failed: Mutex<Option<oneshot::Sender<watcher::Error>>>,
}

/// How a reflector's output is consumed.
#[derive(Clone, Copy)]
struct Consumer {
    /// Items of the stream itself are a handler's calls (not so when subscribers are the handlers).
    is_handler: bool,
    stalled: bool,
}

/// The running reflectors; the first is the one whose store is read.
struct Peer<K: Object> {
    store: Store<K>,
    others: Vec<Store<K>>,
    traffic: Arc<Traffic>,
    counts: Arc<Counts>,
    failed: oneshot::Receiver<watcher::Error>,
    sharing: String,
}

pub async fn measure<K, A>(run: &Run, plan: Plan<K, A>, report: &mut Report) -> Result<()>
where
    K: Object,
    A: Fn(Client) -> Api<K>,
{
    let start = Instant::now();
    let mut peer = start_reflectors(run, &plan).await?;
    let synced = wait_for_sync(&mut peer).await;
    let (seconds, cpu, peak) = (
        start.elapsed().as_secs_f64(),
        usage::cpu_seconds(),
        usage::peak_mib(),
    );
    describe(&peer.traffic, report);
    synced?;
    report.insert("objects".into(), json!(peer.store.len()));

    match run.scenario {
        Scenario::Sync => {
            report.insert("seconds".into(), json!(seconds));
            report.insert("cpu_seconds".into(), json!(cpu));
            report.insert("peak_mib".into(), json!(peak));
            report.insert("steady_mib".into(), json!(usage::steady_mib().await));
            Ok(())
        }
        Scenario::Relist => relist(run, &plan.dyntype, &peer, report).await,
        Scenario::Events => listen(run, &peer, report).await,
    }
}

async fn start_reflectors<K, A>(run: &Run, plan: &Plan<K, A>) -> Result<Peer<K>>
where
    K: Object,
    A: Fn(Client) -> Api<K>,
{
    let traffic = Arc::new(Traffic::default());
    let client = modes::client(run, traffic.clone()).await?;
    let (failed_sender, failed) = oneshot::channel();
    let counts = Arc::new(Counts {
        failed: Mutex::new(Some(failed_sender)),
        stalling: AtomicBool::new(!run.stall_late),
        ..Counts::default()
    });
    let start_one = |writer, shared, consumer| {
        let stream = watcher((plan.api)(client.clone()), plan.watcher.clone()).default_backoff();
        if run.mode == Mode::ListStripped {
            spawn(
                stream.modify(|object| object.meta_mut().managed_fields = None),
                writer,
                shared,
                consumer,
                counts.clone(),
            );
        } else {
            spawn(stream, writer, shared, consumer, counts.clone());
        }
    };

    // One consumer takes the stream itself, which is cheaper than a subscription and what a kube user would do.
    let handlers = run.handlers();
    let mut others = Vec::new();
    let (store, sharing) = match plan.subscribe {
        Some(subscribe) if handlers > 1 || run.stalled => {
            let writer = Writer::new_shared(run.buffer, plan.dyntype.clone());
            for index in 0..handlers {
                let objects = subscribe(&writer);
                tokio::spawn(handle(objects, run.stalled && index == 0, counts.clone()));
            }
            let store = writer.as_reader();
            start_one(
                writer,
                true,
                Consumer {
                    is_handler: false,
                    stalled: false,
                },
            );
            (
                store,
                format!(
                    "{handlers} subscribers of one shared reflector, buffer {}",
                    run.buffer
                ),
            )
        }
        _ => {
            for index in 1..handlers {
                let writer = Writer::new(plan.dyntype.clone());
                let stalled = run.stalled && index == 1;
                if !stalled {
                    others.push(writer.as_reader());
                }
                start_one(
                    writer,
                    false,
                    Consumer {
                        is_handler: true,
                        stalled,
                    },
                );
            }
            let writer = Writer::new(plan.dyntype.clone());
            let store = writer.as_reader();
            start_one(
                writer,
                false,
                Consumer {
                    is_handler: true,
                    stalled: run.stalled && handlers <= 1,
                },
            );
            let sharing = if handlers > 1 {
                format!("{handlers} independent reflectors")
            } else {
                "one consumer of the stream".into()
            };
            (store, sharing)
        }
    };
    Ok(Peer {
        store,
        others,
        traffic,
        counts,
        failed,
        sharing,
    })
}

fn spawn<K: Object>(
    stream: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    writer: Writer<K>,
    shared: bool,
    consumer: Consumer,
    counts: Arc<Counts>,
) {
    // The process ends with the run; nothing needs to stop these tasks earlier.
    if shared {
        tokio::spawn(consume(reflector(writer, stream), consumer, counts));
    } else {
        tokio::spawn(consume(stream.reflect(writer), consumer, counts));
    }
}

/// Polls a reflector: its store moves only while somebody does.
async fn consume<K: Object>(
    stream: impl Stream<Item = watcher::Result<Event<K>>>,
    consumer: Consumer,
    counts: Arc<Counts>,
) {
    pin_mut!(stream);
    while let Some(item) = stream.next().await {
        let (changed, object) = match item {
            Ok(Event::Apply(_) | Event::Delete(_)) => (true, true),
            Ok(Event::InitApply(_)) => (false, true),
            Ok(Event::InitDone) => {
                counts.initialized.fetch_add(1, Relaxed);
                (false, false)
            }
            Ok(Event::Init) => (false, false),
            Err(error) => {
                if let Some(failed) = counts.failed.lock().unwrap().take() {
                    let _ = failed.send(error);
                }
                (false, false)
            }
        };
        if consumer.stalled && object && counts.stalling.load(Relaxed) {
            future::pending::<()>().await;
        }
        if changed {
            counts.changes.fetch_add(1, Relaxed);
        }
        if consumer.is_handler && object {
            counts.deliveries.fetch_add(1, Relaxed);
        }
    }
}

async fn handle<K>(mut objects: BoxStream<'static, Arc<K>>, stalled: bool, counts: Arc<Counts>) {
    while objects.next().await.is_some() {
        if stalled && counts.stalling.load(Relaxed) {
            future::pending::<()>().await;
        }
        counts.deliveries.fetch_add(1, Relaxed);
    }
}

async fn wait_for_sync<K: Object>(peer: &mut Peer<K>) -> Result<()> {
    let stores: Vec<_> = peer.others.iter().chain([&peer.store]).cloned().collect();
    let ready = future::try_join_all(stores.iter().map(Store::wait_until_ready));
    tokio::select! {
        ready = ready => { ready.context("the reflector ended")?; Ok(()) }
        Ok(error) = &mut peer.failed => Err(anyhow!(error)),
        () = sleep(SYNC_LIMIT) => bail!("not synced in time"),
    }
}

/// Waits until the initial state was handed out. A stalled subscriber of a shared reflector prevents that for ever.
async fn wait_for_handlers<K: Object>(run: &Run, peer: &Peer<K>, report: &mut Report) {
    let patience = if run.stalled && !run.stall_late {
        Duration::from_secs(3)
    } else {
        SYNC_LIMIT
    };
    let begun = Instant::now();
    while peer.counts.initialized.load(Relaxed) == 0 {
        if begun.elapsed() > patience {
            report.insert(
                "note".into(),
                json!(
                    "the reflector still waits for its stalled subscriber to take the initial state"
                ),
            );
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// Ends the watch with 410 and waits until a reader sees the new objects.
async fn relist<K: Object>(
    run: &Run,
    dyntype: &K::DynamicType,
    peer: &Peer<K>,
    report: &mut Report,
) -> Result<()> {
    let key = {
        let any = peer.store.find(|_| true).context("nothing to relist")?;
        ObjectRef::from_obj_with(any.as_ref(), dyntype.clone())
    };
    let identity = || {
        peer.store
            .get(&key)
            .map(|object| Arc::as_ptr(&object) as usize)
    };
    wait_for_handlers(run, peer, report).await;
    usage::steady_mib().await;
    report.insert("peak_reset".into(), json!(usage::reset_peak()));

    let before = identity();
    let delivered = peer.counts.deliveries.load(Relaxed);
    let (lists, streams) = (
        peer.traffic.lists.load(Relaxed),
        peer.traffic.streams.load(Relaxed),
    );
    let cpu = usage::cpu_seconds();
    let injected = Instant::now();
    if !peer.traffic.expire_watch() {
        bail!("no watch is open");
    }
    while identity() == before {
        if injected.elapsed() > SYNC_LIMIT {
            bail!("not relisted in time");
        }
        sleep(Duration::from_millis(1)).await;
    }
    let done = Instant::now();
    let cpu_in_cache = usage::cpu_seconds() - cpu;

    // The calls of a relist are part of its cost: wait for them before the CPU is read.
    let mut calls = None;
    while calls != Some(peer.counts.deliveries.load(Relaxed)) {
        calls = Some(peer.counts.deliveries.load(Relaxed));
        sleep(Duration::from_millis(500)).await;
    }
    let spoke = peer
        .traffic
        .spoke()
        .context("no request followed the injected error")?;
    report.insert("seconds".into(), json!((done - spoke).as_secs_f64()));
    report.insert(
        "backoff_seconds".into(),
        json!((spoke - injected).as_secs_f64()),
    );
    report.insert("cpu_seconds".into(), json!(usage::cpu_seconds() - cpu));
    report.insert("cpu_seconds_in_cache".into(), json!(cpu_in_cache));
    report.insert(
        "handler_calls".into(),
        json!(peer.counts.deliveries.load(Relaxed) - delivered),
    );
    report.insert(
        "relist_lists".into(),
        json!(peer.traffic.lists.load(Relaxed) - lists),
    );
    report.insert(
        "relist_streams".into(),
        json!(peer.traffic.streams.load(Relaxed) - streams),
    );
    report.insert("sharing".into(), json!(peer.sharing));
    report.insert("peak_mib".into(), json!(usage::peak_mib()));
    report.insert("steady_mib".into(), json!(usage::steady_mib().await));
    Ok(())
}

/// Counts what arrives in the window; somebody else writes.
async fn listen<K: Object>(run: &Run, peer: &Peer<K>, report: &mut Report) -> Result<()> {
    wait_for_handlers(run, peer, report).await;
    usage::steady_mib().await;
    report.insert("peak_reset".into(), json!(usage::reset_peak()));
    peer.counts.stalling.store(true, Relaxed);
    // Whoever drives the churn waits for this line.
    eprintln!("ready");

    let counts = &peer.counts;
    let (changes, delivered, cpu) = (
        counts.changes.load(Relaxed),
        counts.deliveries.load(Relaxed),
        usage::cpu_seconds(),
    );
    sleep(run.window()).await;
    // Independent reflectors each apply every change; report what one store took.
    let stores = peer.others.len() as u64 + 1;
    report.insert(
        "events".into(),
        json!((counts.changes.load(Relaxed) - changes) / stores),
    );
    report.insert(
        "deliveries".into(),
        json!(counts.deliveries.load(Relaxed) - delivered),
    );
    report.insert("cpu_seconds".into(), json!(usage::cpu_seconds() - cpu));
    report.insert("handlers".into(), json!(run.handlers()));
    report.insert("stalled".into(), json!(run.stalled));
    report.insert("stall_late".into(), json!(run.stall_late));
    report.insert("seconds".into(), json!(run.seconds));
    report.insert("sharing".into(), json!(peer.sharing));
    report.insert("peak_mib".into(), json!(usage::peak_mib()));
    report.insert("steady_mib".into(), json!(usage::steady_mib().await));
    Ok(())
}

fn describe(traffic: &Traffic, report: &mut Report) {
    report.insert("lists".into(), json!(traffic.lists.load(Relaxed)));
    report.insert("streams".into(), json!(traffic.streams.load(Relaxed)));
    report.insert("watches".into(), json!(traffic.watches.load(Relaxed)));
}
