//! Records on disk: an append-only log in segments.
//!
//! A record is written once, with a checksum, at the end of the last segment. Records that compaction has made useless stay
//! where they are until half of their segment is useless; then a segment without them takes its place. The list of segments
//! (`manifest`) says which of them count, in the order of revisions; it is replaced as a whole.
//!
//! After a crash the last segment may end with part of a group that nobody was told of. It is ignored: the segment is closed
//! where its last whole frame ends, and another one is begun. Damage anywhere else is reported and never repaired.
//!
//! Opening needs no room on the disk, unless the directory is new, so that a store can be read on a disk that is full.

mod build;
pub mod check;
mod directory;
pub(crate) mod frame;
#[cfg(feature = "simulation")]
pub mod fuzzing;
mod manifest;
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
use super::record::{AppendError, Record, Records};
use crate::contract::{DiskStats, Error, Revision};
pub(crate) use build::LogBuilder;
pub use directory::OpenError;
use directory::{Directory, DirectoryFormat};
use frame::{Entry, FrameFormat};
pub(super) use opening::Found;
use reserve::Reserve;
use segment::Loaded;
use writing::trouble;

pub(crate) type SegmentId = u64;

/// Where a record stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Location {
    segment: SegmentId,
    offset: u32,
    bytes: u32,
}

/// A segment as readers need it.
#[derive(Debug, Clone)]
struct Readable {
    file: Arc<dyn DiskFile>,
    format: FrameFormat,
}

/// What readers need. Locations and files change together, so a location always fits the file it is read from.
#[derive(Debug, Default)]
struct Contents {
    locations: BTreeMap<Revision, Location>,
    files: BTreeMap<SegmentId, Readable>,
}

/// A segment as the writer needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SegmentInfo {
    id: SegmentId,
    /// Where its last frame ends.
    bytes: u64,
    /// Bytes of records that are still needed.
    live_bytes: u64,
    /// Nothing is written to it any more.
    closed: bool,
}

/// What only the committing thread needs.
#[derive(Debug)]
struct Writer {
    /// In the order of revisions. Only the last one may be open.
    segments: Vec<SegmentInfo>,
    next_id: SegmentId,
    oldest: Revision,
    time_ms: u64,
    converted: Revision,
    newest_gap: Revision,
    format: DirectoryFormat,
    /// The last segment was found so, and its last group could not be made durable yet.
    unsettled: Option<Loaded>,
    /// A write failed and could not be taken back: what stands behind the end of the last segment is not known.
    tail_unknown: bool,
    /// Whether the list of segments that was written last counts is not known.
    manifest_unknown: bool,
    /// Segments that could not be read when they were to be rewritten. They are left alone until the next start.
    unreadable: Vec<SegmentId>,
    /// Files that count no more and could not be removed yet.
    leftovers: Vec<PathBuf>,
    reserve: Reserve,
}

/// What metrics show. Whoever asks does not wait for the disk.
#[derive(Debug, Default)]
struct Figures(DiskStats);

#[derive(Debug)]
pub(super) struct LogRecords {
    directory: Directory,
    segment_bytes_max: u64,
    contents: RwLock<Contents>,
    writer: Mutex<Writer>,
    figures: Mutex<Figures>,
}

impl LogRecords {
    fn contents(&self) -> RwLockReadGuard<'_, Contents> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn contents_mut(&self) -> RwLockWriteGuard<'_, Contents> {
        self.contents
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn figures(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets metrics see how large the log is.
    fn show_figures(&self, writer: &Writer) {
        let log: u64 = writer.segments.iter().map(|segment| segment.bytes).sum();
        let reserve_bytes = writer.reserve.bytes();
        let stats = &mut self.figures().0;
        stats.bytes = log + reserve_bytes;
        stats.segments = writer.segments.len() as u64;
        stats.reserve_bytes = reserve_bytes;
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LogRecords {
    /// Marks the end as one that no crash made: damage before it will be seen as what it is.
    fn drop(&mut self) {
        let mut writer = self.writer();
        if writer.segments.last().is_some_and(|last| !last.closed) {
            let mark = Entry::Closed(writer.time_ms);
            if let Err(error) = self.write_mark(&mut writer, &mark) {
                tracing::debug!(%error, "the log is closed without a mark");
            }
        }
    }
}

impl Records for LogRecords {
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
            let location = Location {
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
        let mark = Entry::Oldest(oldest, time_ms);
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
            Some(format!("no room can be kept for compaction: {error}"))
        })
    }

    fn probe(&self) -> Result<(), Error> {
        let mut writer = self.writer();
        let mark = Entry::Oldest(writer.oldest, writer.time_ms);
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
