//! Connections of the built server: how many there may be, and what becomes of silent ones.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::{Duration, Instant};

use tidings_testing::{Server, StartOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const BINARY: &str = env!("CARGO_BIN_EXE_tidings");

async fn start(data_dir: &Path, arguments: &[&str]) -> Server {
    let start = StartOptions {
        binary: Path::new(BINARY),
        data_dir,
        arguments,
    };
    Server::start(&start).await.unwrap()
}

/// The value of a metric.
async fn metric(connection: &mut tidings_testing::Connection, name: &str) -> u64 {
    let text = connection
        .request("GET", "/metrics", b"")
        .await
        .unwrap()
        .text();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().trim().parse().unwrap()
}

#[tokio::test]
async fn more_connections_than_may_be_are_closed_at_once_and_the_others_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&directory.path().join("data"), &["--max-connections", "4"]).await;
    let mut first = server.client.connect().await.unwrap();
    assert_eq!(
        first.request("GET", "/healthz", b"").await.unwrap().code,
        200
    );
    let mut others = Vec::new();
    for _ in 0..3 {
        let mut other = server.client.connect().await.unwrap();
        other.request("GET", "/healthz", b"").await.unwrap();
        others.push(other);
    }
    assert!(server.client.connect().await.is_err(), "the fifth");
    assert_eq!(
        first.request("GET", "/healthz", b"").await.unwrap().code,
        200
    );
    assert_eq!(
        metric(&mut first, "tidings_refused_connections_total").await,
        1
    );
    assert_eq!(metric(&mut first, "tidings_connections").await, 4);
    // When one is gone there is room again.
    others.pop();
    let begun = Instant::now();
    loop {
        if let Ok(mut again) = server.client.connect().await
            && again.request("GET", "/healthz", b"").await.is_ok()
        {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "no room");
    }
}

#[tokio::test]
async fn a_client_of_http2_that_says_nothing_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&directory.path().join("data"), &[]).await;
    let mut silent = server.client.http2_stream().await.unwrap();
    // Half a preface is not enough either.
    let mut slow = server.client.http2_stream().await.unwrap();
    slow.write_all(b"PRI * HTTP/2.0").await.unwrap();
    let closed = async {
        let _ = silent.read_to_end(&mut Vec::new()).await;
        let _ = slow.read_to_end(&mut Vec::new()).await;
    };
    let closed = tokio::time::timeout(Duration::from_secs(30), closed).await;
    assert!(closed.is_ok(), "the server keeps silent connections");
}

#[tokio::test]
async fn more_connections_than_files_are_refused_with_what_to_change() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let output = std::process::Command::new("sh")
        .args([
            "-c",
            "ulimit -n 300 && exec \"$0\" serve --data-dir \"$1\" --max-connections 200",
            BINARY,
        ])
        .arg(&data)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && !data.exists());
    assert!(
        text.contains("--max-connections 200 needs more open files than the 300 that are allowed"),
        "{text}"
    );
}
