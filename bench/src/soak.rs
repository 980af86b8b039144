//! A soak: writes at four fifths of what the server can do, for long. Neither memory nor the time that events take may grow.

use std::time::{Duration, Instant};

use anyhow::ensure;
use tidings_testing::{Client, Server};
use tokio::task::JoinSet;

use crate::figures::{self, milliseconds};
use crate::scenario::{CONFIGMAPS, CountingWatches, Extent, fill_with, mebibytes, object, open};

/// How many watches are told of every write.
const WATCHES: usize = 100;
const WRITERS: usize = 8;
/// How many objects are written, one after the other.
const OBJECTS: usize = 1_000;
/// How many parts the time is divided into, for each of which figures are taken.
const PARTS: u32 = 10;
/// How long the greatest rate is looked for.
const PROBE: Duration = Duration::from_secs(5);
/// The part of the greatest rate that is kept up.
const LOAD: f64 = 0.8;

/// Updates objects until a time, at full speed or at a rate for all writers together. Returns the number of updates.
async fn write(client: &Client, rate: Option<f64>, until: Instant) -> anyhow::Result<u64> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let client = client.clone();
        let pause = rate.map(|rate| Duration::from_secs_f64(WRITERS as f64 / rate));
        writers.spawn(async move {
            let mut connection = client.connect().await?;
            let (mut written, mut next) = (0, Instant::now());
            while Instant::now() < until {
                let number = (written as usize * WRITERS + writer) % OBJECTS;
                let name = format!("s{number}");
                let path = format!("{CONFIGMAPS}/{name}");
                let (code, _) = connection.measure("PUT", &path, &object(&name)).await?;
                ensure!(code == 200, "PUT {path}: {code}");
                written += 1;
                if let Some(pause) = pause {
                    next += pause;
                    tokio::time::sleep_until(next.into()).await;
                }
            }
            anyhow::Ok(written)
        });
    }
    let mut written = 0;
    while let Some(writer) = writers.join_next().await {
        written += writer??;
    }
    Ok(written)
}

async fn watches(server: &Server) -> anyhow::Result<CountingWatches> {
    CountingWatches::of(open(&server.client, WATCHES).await?, WATCHES)
}

/// Keeps the load up for the time that the extent says, in seconds.
pub(crate) async fn soak(server: &Server, extent: &Extent) -> anyhow::Result<()> {
    fill_with(&server.client, OBJECTS, |number| {
        (CONFIGMAPS.to_owned(), object(&format!("s{number}")))
    })
    .await?;
    let audience = watches(server).await?;
    write(&server.client, None, Instant::now() + PROBE).await?; // warm up
    let written = write(&server.client, None, Instant::now() + PROBE).await?;
    audience.leave().await?;
    let rate = written as f64 / PROBE.as_secs_f64() * LOAD;
    let part = Duration::from_secs(extent.seconds) / PARTS;
    println!(
        "soak at {rate:.0} updates/s to {WATCHES} watches, {:.0} s a line",
        part.as_secs_f64()
    );
    for number in 1..=PARTS {
        let audience = watches(server).await?;
        audience.begin();
        let until = Instant::now() + part;
        let written = write(&server.client, Some(rate), until).await?;
        // What was written last is on its way.
        let expected = written * WATCHES as u64;
        let patience = Instant::now() + Duration::from_secs(10);
        while audience.delivered() < expected && Instant::now() < patience {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let delivered = audience.delivered();
        ensure!(
            delivered == expected,
            "{delivered} of {expected} events were delivered"
        );
        let latency = audience.leave().await?;
        let memory = mebibytes(server.memory());
        let (p50, p99) = (milliseconds(&latency, 0.5), milliseconds(&latency, 0.99));
        println!(
            "  part {number}: {:.0} updates/s, p50 {p50:.2} ms, p99 {p99:.2} ms, {memory:.1} MiB",
            written as f64 / part.as_secs_f64()
        );
        figures::note(
            "soak at 80 % of the limit, by tenths of the time",
            number as usize,
            &[
                ("updates", "1/s", written as f64 / part.as_secs_f64()),
                ("p50", "ms", p50),
                ("p99", "ms", p99),
                ("memory", "MiB", memory),
            ],
        );
    }
    Ok(())
}
