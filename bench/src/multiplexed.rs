//! Many watches over one connection of HTTP/2, as client-go opens them, beside watches with a connection each.

use std::time::Duration;

use anyhow::ensure;
use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use http::Request;
use tidings_testing::{Client, Server};

use crate::scenario::{
    CONFIGMAPS, CountingWatches, WatchBytes, measure, mebibytes, open, print, watch_path,
};

/// How many watches there are; a server allows a thousand streams over a connection.
const WATCHES: [usize; 2] = [100, 1_000];
/// The windows of client-go's transport.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;
/// The number of watches that measure the latency of events.
const SAMPLED: usize = 20;

/// A watch that shares its connection.
struct StreamWatch {
    body: RecvStream,
    /// Keeps the connection open.
    _requests: SendRequest<Bytes>,
}

impl WatchBytes for StreamWatch {
    async fn next(&mut self) -> anyhow::Result<impl AsRef<[u8]> + Send> {
        let bytes = self.body.data().await.transpose()?.unwrap_or_default();
        self.body.flow_control().release_capacity(bytes.len())?;
        Ok(bytes)
    }
}

/// Opens watches over one connection.
async fn multiplex(client: &Client, count: usize) -> anyhow::Result<Vec<StreamWatch>> {
    let stream = client.http2_stream().await?;
    let builder = h2::client::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .to_owned();
    let (requests, connection) = builder.handshake::<_, Bytes>(stream).await?;
    tokio::spawn(connection);
    let mut requests = requests.ready().await?;
    let path = watch_path(CONFIGMAPS, "");
    let mut watches = Vec::with_capacity(count);
    for _ in 0..count {
        requests = requests.ready().await?;
        let request = Request::get(format!("https://{}{path}", client.address()))
            .header("authorization", format!("Bearer {}", client.token()))
            .header("accept", "application/json")
            .body(())?;
        let (response, _) = requests.send_request(request, true)?;
        let response = response.await?;
        ensure!(response.status() == 200, "watch: {}", response.status());
        watches.push(StreamWatch {
            body: response.into_body(),
            _requests: requests.clone(),
        });
    }
    Ok(watches)
}

/// Fan-out over one connection and over many, at full speed and paced, and beside streams that are never read.
pub(crate) async fn multiplexed(server: &Server, seconds: u64) -> anyhow::Result<()> {
    for count in WATCHES {
        for (what, writers, pause) in [
            ("4 writers at full speed", 4, None),
            ("50 updates/s", 1, Some(Duration::from_millis(20))),
        ] {
            let one = CountingWatches::of(multiplex(&server.client, count).await?, SAMPLED)?;
            let one = measure(server, one, writers, pause, seconds).await?;
            print(
                &format!("{count} watches over one HTTP/2 connection, {what}"),
                &one,
            );
            let many = CountingWatches::of(open(&server.client, count).await?, SAMPLED)?;
            let many = measure(server, many, writers, pause, seconds).await?;
            print(
                &format!("{count} watches over a connection each, {what}"),
                &many,
            );
        }
    }
    let mut watches = multiplex(&server.client, 112).await?;
    let stalled = watches.split_off(100);
    let before = server.memory();
    let audience = CountingWatches::of(watches, SAMPLED)?;
    let beside = measure(server, audience, 4, None, seconds).await?;
    print(
        "100 watches over one HTTP/2 connection, 12 more of which are stalled",
        &beside,
    );
    println!(
        "memory while 12 streams were stalled: {:+.1} MiB",
        mebibytes(server.memory()) - mebibytes(before)
    );
    drop(stalled);
    let before = server.memory();
    let idle = multiplex(&server.client, 1_000).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let kibibytes = server.memory().saturating_sub(before) as f64 / 1024.0 / idle.len() as f64;
    println!(
        "idle watch over a shared HTTP/2 connection: {kibibytes:.1} KiB each, of {}",
        idle.len()
    );
    Ok(())
}
