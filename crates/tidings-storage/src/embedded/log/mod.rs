//! Records on disk: an append-only log in segments.
//!
//! A record is written once, with a checksum, at the end of the last segment. Records that compaction has forgotten stay in their
//! segment until half of it is unneeded; then a new segment without them replaces it. The list of segments (`manifest`) names the
//! valid segments in the order of revisions; it is replaced as a whole.
//!
//! After a crash the last segment may end with a part of a group that was never acknowledged. That part is ignored: the segment
//! is closed after its last valid frame, and a new one is started. Damage anywhere else is reported and never repaired.
//!
//! Opening a store needs no free disk space, unless the directory is new, so that a store can be read on a full disk.

mod build;
pub mod check;
mod directory;
pub(crate) mod frame;
#[cfg(feature = "simulation")]
pub mod fuzzing;
mod manifest;
mod open_error;
mod opening;
mod reading;
mod reclaim;
mod reserve;
pub(crate) mod segment;
mod writing;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;

use super::disk::DiskFile;
use super::record::{AppendError, Record, RecordStore};
use crate::contract::{DiskStats, Error, Revision};
pub(crate) use build::LogBuilder;
use directory::{DataDirectory, DirectoryFormat};
use frame::{FrameFormat, LogEntry};
pub use open_error::OpenError;
pub(super) use opening::FoundRecord;
use reserve::DiskReserve;
use segment::LoadedSegment;
use writing::trouble;

pub(crate) type SegmentId = u64;

/// The position of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RecordLocation {
    segment: SegmentId,
    offset: u32,
    bytes: u32,
}

/// An open segment, for readers.
#[derive(Debug, Clone)]
struct ReadableSegment {
    file: Arc<dyn DiskFile>,
    format: FrameFormat,
}

/// The positions of all records and the open segments. They change together, so a position always fits its file.
#[derive(Debug, Default)]
struct LogContents {
    locations: BTreeMap<Revision, RecordLocation>,
    files: BTreeMap<SegmentId, ReadableSegment>,
}

/// A segment, for the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SegmentInfo {
    id: SegmentId,
    /// The offset after its last frame.
    bytes: u64,
    /// Bytes of needed records.
    live_bytes: u64,
    /// True if nothing more is written to it.
    closed: bool,
}

/// The state that only the committing thread uses.
#[derive(Debug)]
struct LogWriter {
    /// All segments in the order of revisions. Only the last one may be open.
    segments: Vec<SegmentInfo>,
    next_id: SegmentId,
    oldest: Revision,
    time_ms: u64,
    converted: Revision,
    newest_gap: Revision,
    format: DirectoryFormat,
    /// The last segment, if its last group could not be made durable since the start.
    unsettled: Option<LoadedSegment>,
    /// True if a write failed and could not be undone: the bytes after the end of the last segment are unknown.
    tail_unknown: bool,
    /// True if it is unknown whether the last list of segments was published.
    manifest_unknown: bool,
    /// Damaged segments that could not be rewritten. They are not tried again before the next start.
    unreadable: Vec<SegmentId>,
    /// Files that are not part of the log any more but could not be removed yet.
    leftovers: Vec<PathBuf>,
    reserve: DiskReserve,
}

/// Figures for metrics, behind a lock of their own so that metrics do not wait for the disk.
#[derive(Debug, Default)]
struct LogFigures(DiskStats);

/// A [`RecordStore`] in a data directory.
#[derive(Debug)]
pub(super) struct LogRecords {
    directory: DataDirectory,
    segment_bytes_max: u64,
    contents: RwLock<LogContents>,
    writer: Mutex<LogWriter>,
    figures: Mutex<LogFigures>,
}

impl LogRecords {
    fn contents(&self) -> RwLockReadGuard<'_, LogContents> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn contents_mut(&self) -> RwLockWriteGuard<'_, LogContents> {
        self.contents
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn figures(&self) -> MutexGuard<'_, LogFigures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the sizes in the metrics.
    fn show_figures(&self, writer: &LogWriter) {
        let log: u64 = writer.segments.iter().map(|segment| segment.bytes).sum();
        let reserve_bytes = writer.reserve.bytes();
        let stats = &mut self.figures().0;
        stats.bytes = log + reserve_bytes;
        stats.segments = writer.segments.len() as u64;
        stats.reserve_bytes = reserve_bytes;
    }

    fn writer(&self) -> MutexGuard<'_, LogWriter> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LogRecords {
    /// Writes a mark that the store was closed, so that damage before it is not mistaken for an interrupted write.
    fn drop(&mut self) {
        let mut writer = self.writer();
        if writer.segments.last().is_some_and(|last| !last.closed) {
            let mark = LogEntry::Closed(writer.time_ms);
            if let Err(error) = self.write_mark(&mut writer, &mark) {
                tracing::debug!(%error, "cannot write the closing mark of the log");
            }
        }
    }
}

impl RecordStore for LogRecords {
    fn append(&self, records: &[(Revision, Record)]) -> Result<(), AppendError> {
        let mut writer = self.writer();
        let mut ends = Vec::with_capacity(records.len());
        let (segment, group) = self.write_group(&mut writer, |group| {
            let bytes = records.iter().map(|(_, record)| record.bytes() + 64);
            group.reserve(bytes.sum());
            for (revision, record) in records {
                let start = group.end();
                group.push_record(*revision, record);
                ends.push((start as u32, (group.end() - start) as u32));
            }
        })?;
        if let Some(last) = writer.segments.last_mut() {
            last.live_bytes += group.as_bytes().len() as u64;
        }
        if let Some((_, record)) = records.last() {
            writer.time_ms = writer.time_ms.max(record.written_ms);
        }
        self.show_figures(&writer);
        let mut contents = self.contents_mut();
        for ((revision, _), (offset, bytes)) in records.iter().zip(ends) {
            let location = RecordLocation {
                segment,
                offset,
                bytes,
            };
            contents.locations.insert(*revision, location);
        }
        Ok(())
    }

    fn read(&self, revisions: &[Revision]) -> Result<Vec<Option<Record>>, Error> {
        self.read_records(revisions)
    }

    fn note_oldest(&self, oldest: Revision, time_ms: u64) -> Result<(), Error> {
        let mut writer = self.writer();
        let mark = LogEntry::Oldest(oldest, time_ms);
        let written = self.with_reserve(&mut writer, |writer| self.write_mark(writer, &mark));
        written.map_err(|error| Error::Failed(format!("the store cannot write: {error}")))?;
        writer.oldest = oldest;
        writer.time_ms = writer.time_ms.max(time_ms);
        Ok(())
    }

    fn forget(&self, forgotten: &[Revision]) {
        self.forget_in(&mut self.writer(), forgotten);
    }

    fn reclaim(&self, urgent: bool) -> Result<Option<Vec<Bytes>>, Error> {
        let mut writer = self.writer();
        let reclaimed = self.with_reserve(&mut writer, |writer| self.reclaim_step(writer, urgent));
        self.show_figures(&writer);
        reclaimed
            .map_err(|error| Error::Failed(format!("the store cannot rewrite a segment: {error}")))
    }

    fn maintain(&self) -> Option<String> {
        let mut writer = self.writer();
        let repaired = self.repair(&mut writer);
        self.sweep(&mut writer);
        let free_bytes = self.directory.free_bytes().ok();
        let wanted = self.reserve_wanted(&writer);
        let filled = repaired.and_then(|()| writer.reserve.fill(wanted, free_bytes));
        self.figures().0.free_bytes = free_bytes;
        self.show_figures(&writer);
        trouble(&writer, free_bytes).or_else(|| {
            let error = filled.err()?;
            Some(format!("cannot reserve disk space for compaction: {error}"))
        })
    }

    fn probe(&self) -> Result<(), Error> {
        let mut writer = self.writer();
        let mark = LogEntry::Oldest(writer.oldest, writer.time_ms);
        let written = self.write_mark(&mut writer, &mark);
        written.map_err(|error| Error::Failed(error.to_string()))
    }

    fn note_time(&self, time_ms: u64) {
        let mut writer = self.writer();
        writer.time_ms = writer.time_ms.max(time_ms);
    }

    fn stats(&self) -> DiskStats {
        self.figures().0
    }
}
