//! Measures a start with all objects in the history, with and without definitions, and the time of a new definition then.

use std::path::Path;
use std::time::{Duration, Instant};

use tidings_testing::{Server, StartOptions};

use crate::custom::define;
use crate::figures;
use crate::scenario::{CONFIGMAPS, fill_with, object};

/// The number of objects and of definitions in each round.
const SIZES: [(usize, usize); 4] = [(10_000, 0), (100_000, 0), (100_000, 50), (200_000, 0)];
/// The number of starts in each round.
const STARTS: usize = 5;
/// The number of new definitions that are measured.
const DEFINED: usize = 10;

pub(crate) async fn restart(binary: &Path) -> anyhow::Result<()> {
    for (objects, definitions) in SIZES {
        let directory = tempfile::tempdir()?;
        let data_dir = directory.path().join("data");
        let start = StartOptions {
            binary,
            data_dir: &data_dir,
            arguments: &[],
        };
        let server = Server::start(&start).await?;
        for number in 0..definitions {
            define(&server, number).await?;
        }
        fill_with(&server.client, objects, |number| {
            let name = format!("o{number}");
            (CONFIGMAPS.to_owned(), object(&name))
        })
        .await?;
        server.kill().await?;
        let (mut cpu, mut wall) = (Vec::new(), Vec::new());
        for _ in 0..STARTS {
            let started = Instant::now();
            let server = Server::start(&start).await?;
            wall.push(started.elapsed());
            cpu.push(server.cpu());
            server.kill().await?;
        }
        if definitions == 0 {
            figures::note(
                "restart with objects in the history",
                objects,
                &[
                    ("CPU", "s", middle(&mut cpu).as_secs_f64()),
                    ("time", "s", middle(&mut wall).as_secs_f64()),
                ],
            );
        }
        println!(
            "start with {objects} objects in the history and {definitions} definitions: {:.2} s of CPU, {:.2} s, middle of {STARTS} (CPU {:.2} to {:.2})",
            middle(&mut cpu).as_secs_f64(),
            middle(&mut wall).as_secs_f64(),
            cpu[0].as_secs_f64(),
            cpu[STARTS - 1].as_secs_f64(),
        );
        let server = Server::start(&start).await?;
        let mut took = Vec::new();
        for number in definitions..definitions + DEFINED {
            took.push(define(&server, number).await?);
        }
        println!(
            "with {objects} objects in the history, from a definition to its first object: middle {:.1} ms, worst {:.1} ms of {DEFINED}",
            middle(&mut took).as_secs_f64() * 1e3,
            took[DEFINED - 1].as_secs_f64() * 1e3
        );
        server.kill().await?;
    }
    Ok(())
}

/// The median. Sorts the durations.
fn middle(durations: &mut [Duration]) -> Duration {
    durations.sort();
    durations[durations.len() / 2]
}
