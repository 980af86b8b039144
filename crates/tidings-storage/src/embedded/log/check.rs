//! Checks a data directory and reports its contents and any damage. Does not change it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::directory::{DataDirectory, DirectoryFormat};
use super::frame::LogEntry;
use super::open_error::OpenError;
use super::segment::{self, PlacedFrame};
use crate::contract::Revision;
use crate::embedded::disk::{Disk, OpenMode, RealDisk};

/// The contents and the damage of a data directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The format of the directory.
    pub format: u32,
    /// The number of segments.
    pub segments: u64,
    /// The size of all segments.
    pub bytes: u64,
    /// The number of records, needed or not.
    pub records: u64,
    /// The number of existing keys.
    pub keys: u64,
    /// The newest revision.
    pub revision: Revision,
    /// The revision at which history starts.
    pub oldest: Revision,
    /// Bytes at the end of the log from a write that a crash interrupted. It was never acknowledged.
    pub torn_bytes: u64,
    /// All damage that was found.
    pub damage: Vec<Damage>,
    /// Files that an interrupted start or compaction left behind; the next start removes them.
    pub leftovers: Vec<PathBuf>,
    /// Keys that may have been deleted but are back: an earlier version of Tidings wrote them, and a later revision is missing
    /// that may have been their deletion.
    pub doubtful: Vec<(Bytes, Revision)>,
    /// How many values have each of the labels that [`check_labelled`] was asked for.
    pub labels: BTreeMap<String, LabelCounts>,
}

/// How many values have a label.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LabelCounts {
    /// Values of existing keys.
    pub current: u64,
    /// Values that were replaced or deleted since, and are in the log for now.
    pub past: u64,
}

/// Puts values into groups by how they are stored.
type ValueLabel<'a> = &'a dyn Fn(&[u8]) -> Option<String>;

/// A damaged place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// The position in the file.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
}

/// Reads everything in a data directory.
///
/// # Errors
/// If the directory is not a data directory, is in use by a server, or cannot be read. Damage is part of the report.
pub fn check(directory: &Path) -> Result<Report, OpenError> {
    check_labelled(directory, &|_| None)
}

/// As [`check`], and counts values by a label, for example the key that has encrypted them.
///
/// # Errors
/// As [`check`].
pub fn check_labelled(directory: &Path, label: ValueLabel<'_>) -> Result<Report, OpenError> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let directory = DataDirectory::inspect(disk.clone(), directory)?;
    let mut report = Report {
        format: match directory.format() {
            DirectoryFormat::Two => 2,
            DirectoryFormat::Three => 3,
        },
        ..Report::default()
    };
    let manifest = match directory.manifest() {
        Ok(manifest) => manifest,
        Err(OpenError::Damaged { path, offset, what }) => {
            report.damage.push(damage(path, offset, what));
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    report.oldest = manifest.oldest;
    let mut found = CheckedRecords::default();
    let last = manifest.segments.last().map(|(id, _)| *id);
    for (id, closed_at) in &manifest.segments {
        let path = directory.segment_path(*id);
        report.segments += 1;
        let file = match disk.open(&path, OpenMode::Read) {
            Ok(file) => file,
            Err(error) => {
                report.damage.push(damage(path, 0, error.to_string()));
                continue;
            }
        };
        let bytes = file.bytes().unwrap_or(0);
        report.bytes += bytes;
        // In format 2 closed segments have no length.
        let closed_at = closed_at.or_else(|| (last != Some(*id)).then_some(bytes));
        let loaded = segment::load(&*file, &path, *id, closed_at, &mut |placed| {
            found.take(placed, label, &mut report);
        });
        match loaded {
            Ok(loaded) if closed_at.is_none() => report.torn_bytes += loaded.left_over,
            Ok(_) => {}
            Err(OpenError::Damaged { path, offset, what }) => {
                report.damage.push(damage(path, offset, what));
            }
            Err(error) => report.damage.push(damage(path, 0, error.to_string())),
        }
    }
    let listed: Vec<_> = manifest.segments.iter().map(|(id, _)| *id).collect();
    report.leftovers = directory.unlisted(&listed).unwrap_or_default();
    report.revision = report.revision.max(report.oldest);
    let newest_gap = match directory.format() {
        DirectoryFormat::Two => newest_gap(found.revisions.iter().rev().copied()),
        DirectoryFormat::Three => manifest.newest_gap,
    };
    report.keys = found.live().count() as u64;
    found.settle_labels(&mut report);
    report.doubtful = found.doubtful(newest_gap);
    Ok(report)
}

fn damage(path: PathBuf, offset: u64, what: impl Into<String>) -> Damage {
    let what = what.into();
    Damage { path, offset, what }
}

/// The records that were found in a log.
#[derive(Debug, Default)]
struct CheckedRecords {
    /// The last change of each key, and whether it was a deletion.
    latest: BTreeMap<Bytes, (Revision, bool)>,
    revisions: BTreeSet<Revision>,
    /// The labels of the values in `latest`.
    labels: BTreeMap<Bytes, (Revision, String)>,
}

impl CheckedRecords {
    /// Counts the labels of existing keys as current instead of past.
    fn settle_labels(&self, report: &mut Report) {
        for (key, revision) in self.live() {
            let labelled = self.labels.get(key).filter(|(at, _)| *at == revision);
            if let Some((_, label)) = labelled {
                let counts = report.labels.entry(label.clone()).or_default();
                counts.past = counts.past.saturating_sub(1);
                counts.current += 1;
            }
        }
    }

    fn take(&mut self, placed: PlacedFrame, label: ValueLabel<'_>, report: &mut Report) {
        match placed.entry {
            LogEntry::Record(revision, record) => {
                report.records += 1;
                report.revision = report.revision.max(revision);
                if self.revisions.insert(revision) {
                    let key = Bytes::copy_from_slice(&record.key);
                    if let Some(label) = record.value.as_deref().and_then(label) {
                        report.labels.entry(label.clone()).or_default().past += 1;
                        self.labels.insert(key.clone(), (revision, label));
                    }
                    self.latest.insert(key, (revision, record.value.is_none()));
                }
            }
            LogEntry::Oldest(oldest, _) => report.oldest = report.oldest.max(oldest),
            LogEntry::Closed(_) | LogEntry::Backup { .. } | LogEntry::BackupEnd(_) => {}
        }
    }

    fn live(&self) -> impl Iterator<Item = (&Bytes, Revision)> {
        let latest = self.latest.iter();
        latest
            .filter(|(_, (_, deleted))| !deleted)
            .map(|(key, (revision, _))| (key, *revision))
    }

    /// Keys whose deletion an earlier version may have lost: keys that were last written before a missing revision.
    fn doubtful(&self, newest_gap: Revision) -> Vec<(Bytes, Revision)> {
        let doubtful = self.live().filter(|(_, revision)| *revision < newest_gap);
        doubtful
            .map(|(key, revision)| (key.clone(), revision))
            .collect()
    }
}

/// The newest revision without a record, although every revision had one once. `newest_first` are the revisions with records.
pub(super) fn newest_gap(newest_first: impl Iterator<Item = Revision>) -> Revision {
    let mut newest_first = newest_first.peekable();
    let Some(mut expected) = newest_first.peek().copied() else {
        return Revision(0);
    };
    for revision in newest_first {
        if revision != expected {
            break;
        }
        expected = Revision(expected.0.saturating_sub(1));
    }
    expected
}
