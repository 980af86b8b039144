//! Measures watches with selectors: an update of one Pod, of which one of many watches is told.

use std::time::{Duration, Instant};

use anyhow::ensure;
use hdrhistogram::Histogram;
use tidings_testing::{Client, Connection, Server};
use tokio::task::JoinSet;

use crate::figures::{self, milliseconds};
use crate::scenario::{
    CountingWatches, Extent, fill_with, latencies, micros, now_micros, watch_path,
};

const PODS: &str = "/api/v1/namespaces/default/pods";
const EVERYWHERE: &str = "/api/v1/pods";
/// How many watches there are, a factor of ten and more apart.
const WATCHES: [usize; 3] = [100, 2_000, 10_000];
/// How many Pods there are, each on a node of its own. The watches of other nodes are told nothing.
const PODS_MAX: usize = 100;
/// The pause between updates.
const PACE: Duration = Duration::from_millis(10);

/// The selector of a watch.
struct WatchSelector {
    what: &'static str,
    /// The query of the watch with a number.
    query: fn(usize) -> String,
}

const SELECTORS: [WatchSelector; 3] = [
    WatchSelector {
        what: "spec.nodeName=",
        query: |node| format!("&fieldSelector=spec.nodeName%3Dn{node}"),
    },
    WatchSelector {
        what: "a label",
        query: |node| format!("&labelSelector=node%3Dn{node}"),
    },
    WatchSelector {
        what: "equal selectors that name no value",
        query: |_| "&labelSelector=node+in+(n0,n1)".to_owned(),
    },
];

/// A small Pod on a node of its own, with its time of sending.
fn pod(number: usize) -> Vec<u8> {
    pod_on(number, number)
}

fn pod_on(number: usize, node: usize) -> Vec<u8> {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p{number}","labels":{{"node":"n{node}","app":"web"}},"annotations":{{"sent":"{}"}}}},"spec":{{"nodeName":"n{node}","containers":[{{"name":"c","image":"registry.example/app:1.2.3","ports":[{{"containerPort":8080}}]}}]}}}}"#,
        now_micros()
    )
    .into_bytes()
}

/// Opens watches over several connections at once.
async fn open(client: &Client, paths: Vec<String>) -> anyhow::Result<Vec<Connection>> {
    let mut openers = JoinSet::new();
    for part in paths.chunks(paths.len().div_ceil(16)) {
        let (client, part) = (client.clone(), part.to_vec());
        openers.spawn(async move {
            let mut watches = Vec::new();
            for path in part {
                watches.push(client.watch(&path).await?);
            }
            anyhow::Ok(watches)
        });
    }
    let mut watches = Vec::new();
    while let Some(opened) = openers.join_next().await {
        watches.extend(opened??);
    }
    Ok(watches)
}

/// Updates one Pod after the other until a time. Returns the number of updates.
async fn update(client: &Client, until: Instant) -> anyhow::Result<u64> {
    let mut connection = client.connect().await?;
    let (mut updates, mut next) = (0, Instant::now());
    while Instant::now() < until {
        let number = updates as usize % PODS_MAX;
        let path = format!("{PODS}/p{number}");
        let (code, _) = connection.measure("PUT", &path, &pod(number)).await?;
        ensure!(code == 200, "PUT {path}: {code}");
        updates += 1;
        next += PACE;
        tokio::time::sleep_until(next.into()).await;
    }
    Ok(updates)
}

/// Updates Pods, of each of which one watch is told: by the node, by a label, and by selectors that name no value.
pub(crate) async fn selected(server: &Server, extent: &Extent) -> anyhow::Result<()> {
    fill_with(&server.client, PODS_MAX, |number| {
        (PODS.to_owned(), pod(number))
    })
    .await?;
    for WatchSelector { what, query } in SELECTORS {
        for count in extent.sizes(&WATCHES) {
            let paths = (0..count).map(|node| watch_path(EVERYWHERE, &query(node)));
            let opened = Instant::now();
            let watches = open(&server.client, paths.collect()).await?;
            let opened = opened.elapsed();
            let audience = CountingWatches::of(watches, count)?;
            update(&server.client, Instant::now() + Duration::from_secs(1)).await?; // warm up
            audience.begin();
            let (cpu, before) = (server.cpu(), audience.delivered());
            let until = Instant::now() + Duration::from_secs(extent.seconds);
            let updates = update(&server.client, until).await?;
            let (deliveries, cpu) = (audience.delivered() - before, server.cpu() - cpu);
            let latency = audience.leave().await?;
            println!(
                "update of one Pod among {count} TLS watches with {what}: {:.1} us CPU each, {:.2} deliveries each, {}; opened in {:.2} s",
                micros(cpu, updates),
                deliveries as f64 / updates as f64,
                latencies(&latency),
                opened.as_secs_f64(),
            );
            figures::note(
                &format!("update of one Pod, watches with {what}"),
                count,
                &[
                    ("CPU each", "µs", micros(cpu, updates)),
                    ("p50", "ms", milliseconds(&latency, 0.5)),
                    ("p99", "ms", milliseconds(&latency, 0.99)),
                ],
            );
        }
    }
    Ok(())
}

/// How many Pods there are when parts of them are listed.
const LISTED_PODS: [usize; 2] = [10_000, 100_000];
/// How many of them are on a node.
const PODS_ON_NODE: usize = 100;

/// Lists the Pods of one node among many: the first list, and those after it, which use the index that it made. Then Pods by a selector that no
/// index serves, and a client beside that reads one Pod.
pub(crate) async fn listed(server: &Server, extent: &Extent) -> anyhow::Result<()> {
    let mut filled = 0;
    for count in extent.sizes(&LISTED_PODS) {
        let (client, from) = (&server.client, filled);
        let more = move |number: usize| {
            let number = from + number;
            (PODS.to_owned(), pod_on(number, number / PODS_ON_NODE))
        };
        fill_with(client, count - filled, more).await?;
        filled = count;
        let mut connection = client.connect().await?;
        let version = "resourceVersion=0";
        let of_node =
            |node: usize| format!("{EVERYWHERE}?{version}&fieldSelector=spec.nodeName%3Dn{node}");
        let begun = Instant::now();
        connection.measure("GET", &of_node(1), b"").await?;
        let first = begun.elapsed();
        let nodes = count / PODS_ON_NODE;
        let (begun, cpu, rounds) = (Instant::now(), server.cpu(), 200);
        for round in 0..rounds {
            let (code, size) = connection
                .measure("GET", &of_node(round % nodes), b"")
                .await?;
            ensure!(
                code == 200 && size > PODS_ON_NODE * 100,
                "list: {code}, {size} bytes"
            );
        }
        let took = begun.elapsed().as_secs_f64() * 1e3 / rounds as f64;
        let cpu = (server.cpu() - cpu).as_secs_f64() * 1e3 / rounds as f64;
        println!(
            "list of {PODS_ON_NODE} Pods of a node among {count}: {took:.2} ms, {cpu:.2} ms CPU; the first took {:.1} ms",
            first.as_secs_f64() * 1e3,
        );
        figures::note(
            "list of the 100 Pods of a node",
            count,
            &[("time", "ms", took), ("CPU each", "ms", cpu)],
        );
        let walks = tokio::spawn({
            let client = client.clone();
            async move {
                let mut connection = client.connect().await?;
                let path =
                    format!("{EVERYWHERE}?{version}&fieldSelector=status.phase%21%3DPending");
                let (begun, rounds) = (Instant::now(), 20);
                for _ in 0..rounds {
                    connection.measure("GET", &path, b"").await?;
                }
                anyhow::Ok(begun.elapsed() / rounds)
            }
        });
        let mut beside = Histogram::<u64>::new(3)?;
        while !walks.is_finished() {
            let begun = Instant::now();
            connection
                .measure("GET", &format!("{PODS}/p1"), b"")
                .await?;
            beside.record(begun.elapsed().as_micros() as u64)?;
        }
        println!(
            "list by a selector that names no value among {count} Pods: {:.1} ms; GETs beside it {}",
            walks.await??.as_secs_f64() * 1e3,
            latencies(&beside)
        );
    }
    Ok(())
}
