//! Figures as lines of JSON, of which `scripts/bench` makes a report.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use hdrhistogram::Histogram;

static FILE: OnceLock<Mutex<File>> = OnceLock::new();

/// Appends all figures from now on to a file.
pub(crate) fn keep_in(path: &Path) -> anyhow::Result<()> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    FILE.get_or_init(|| Mutex::new(file));
    Ok(())
}

/// Notes the figures of a scenario at a size, each with its unit.
pub(crate) fn note(scenario: &str, size: usize, figures: &[(&str, &str, f64)]) {
    let Some(file) = FILE.get() else {
        return;
    };
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    for (figure, unit, value) in figures {
        let row = serde_json::json!({"scenario": scenario, "size": size, "figure": figure, "unit": unit, "value": value});
        // A figure that cannot be kept is still printed.
        let _ = writeln!(file, "{row}");
    }
}

/// A quantile of latencies in milliseconds.
pub(crate) fn milliseconds(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1000.0
}
