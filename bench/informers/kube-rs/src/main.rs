//! Measures kube-runtime's reflectors for comparison with Tidings' informers.
//!
//! One run prints one line of JSON on stdout. The same command line works for the client-go peer.

mod modes;
mod scenarios;
mod taps;
mod usage;

use std::{path::PathBuf, time::Duration};

use clap::{Parser, ValueEnum};
use serde_json::{Map, Value, json};

/// The JSON line; a map, because each scenario adds fields of its own.
pub type Report = Map<String, Value>;

#[derive(Parser, Clone)]
pub struct Run {
    /// File that names the server.
    #[arg(long)]
    kubeconfig: PathBuf,
    #[arg(long, value_enum, default_value = "configmaps")]
    resource: Resource,
    #[arg(long, value_enum, default_value = "list")]
    mode: Mode,
    #[arg(long, value_enum, default_value = "sync")]
    scenario: Scenario,
    /// Consumers of the reflector (sync: 0, otherwise 1).
    #[arg(long)]
    handlers: Option<usize>,
    /// The first handler sleeps for ever in its first callback.
    #[arg(long)]
    stalled: bool,
    /// With --stalled: it sleeps in the first callback of the events window, after the initial state.
    #[arg(long)]
    stall_late: bool,
    /// How long the events scenario listens.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Slots of a shared reflector's queue; 256 is what kube's own example of shared streams uses.
    #[arg(long, default_value_t = 256)]
    buffer: usize,
}

#[derive(ValueEnum, Clone, Copy, PartialEq)]
enum Resource {
    Configmaps,
    Pods,
}

#[derive(ValueEnum, Clone, Copy, PartialEq)]
enum Mode {
    List,
    ListAny,
    Stream,
    ListStripped,
    Metadata,
    Dynamic,
}

#[derive(ValueEnum, Clone, Copy, PartialEq)]
enum Scenario {
    Sync,
    Relist,
    Events,
}

impl Run {
    fn handlers(&self) -> usize {
        self.handlers
            .unwrap_or(usize::from(self.scenario != Scenario::Sync))
    }

    fn window(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

fn name(value: &impl ValueEnum) -> String {
    value
        .to_possible_value()
        .map(|v| v.get_name().to_owned())
        .unwrap_or_default()
}

#[tokio::main]
async fn main() {
    let run = Run::parse();
    let mut report = Report::new();
    report.insert("peer".into(), json!("kube-rs"));
    report.insert("version".into(), json!("5.0.0"));
    report.insert("mode".into(), json!(name(&run.mode)));
    report.insert("resource".into(), json!(name(&run.resource)));
    report.insert("scenario".into(), json!(name(&run.scenario)));

    let outcome = modes::measure(&run, &mut report).await;
    if let Err(error) = &outcome {
        report.insert("error".into(), json!(format!("{error:#}")));
    }
    println!("{}", Value::Object(report));
    // A stalled handler never ends: leave without waiting for the tasks.
    std::process::exit(i32::from(outcome.is_err()));
}
