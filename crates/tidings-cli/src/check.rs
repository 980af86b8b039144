//! `tidings check`: reads a data directory completely, and reports its contents and damage. Changes nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::bail;
use tidings_encryption::ValueMark;
use tidings_storage::check::{Report, check_labelled};

use crate::backup::size;

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArguments {
    /// The data directory of a server that is stopped
    directory: PathBuf,

    /// Name every object that may be a deleted one that came back
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(arguments: &CheckArguments) -> anyhow::Result<()> {
    let directory = &arguments.directory;
    if directory.is_file() {
        bail!(
            "{} is a file: write the data directory of a server",
            directory.display()
        );
    }
    let encrypted_with = |value: &[u8]| ValueMark::of(value).map(|mark| mark.to_string());
    let report = check_labelled(directory, &encrypted_with)?;
    show(&report, arguments.list);
    if !report.damage.is_empty() {
        bail!(
            "{} is damaged: restore it from a backup, or move it away to start empty",
            directory.display()
        );
    }
    println!("everything was read, and all checksums match");
    Ok(())
}

fn show(report: &Report, list: bool) {
    let Report {
        format,
        segments,
        bytes,
        records,
        keys,
        revision,
        oldest,
        ..
    } = report;
    println!(
        "format {format}, {segments} files of the log, {}",
        size(*bytes)
    );
    println!("{keys} objects, {records} records, versions {oldest} to {revision}");
    if report.torn_bytes > 0 {
        println!(
            "the log ends with {} of a write that a crash interrupted; it was never acknowledged, and is ignored",
            size(report.torn_bytes)
        );
    }
    for path in &report.leftovers {
        println!(
            "{} is left from an interrupted operation; the next start removes it",
            path.display()
        );
    }
    for damage in &report.damage {
        println!(
            "{} is damaged at byte {}: {}",
            damage.path.display(),
            damage.offset,
            damage.what
        );
    }
    show_keys(report);
    show_doubtful(report, list);
}

/// Which keys of encryption are still needed.
fn show_keys(report: &Report) {
    for (key, counts) in &report.labels {
        match (counts.current, counts.past) {
            (0, past) => println!(
                "{past} earlier versions of objects are encrypted with {key}: it is needed until they leave the history"
            ),
            (current, past) => println!(
                "{current} objects are encrypted with {key}, and {past} earlier versions of objects: it is needed"
            ),
        }
    }
}

fn show_doubtful(report: &Report, list: bool) {
    if report.doubtful.is_empty() {
        return;
    }
    println!(
        "{} objects may have been deleted and have come back: a version of Tidings before format 3 wrote them, it could lose \
         deletions, and they have not been changed since",
        report.doubtful.len()
    );
    if !list {
        println!("by kind (--list names them):");
        let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
        for (key, _) in &report.doubtful {
            let key = String::from_utf8_lossy(key);
            let kind = key.split('/').next().unwrap_or_default();
            *kinds.entry(kind.to_owned()).or_default() += 1;
        }
        for (kind, count) in kinds {
            println!("  {kind}: {count}");
        }
        return;
    }
    for (key, revision) in &report.doubtful {
        println!("  {} (version {revision})", String::from_utf8_lossy(key));
    }
}
