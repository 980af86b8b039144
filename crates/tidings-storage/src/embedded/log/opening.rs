//! Opens a log: reads all its segments and rebuilds the positions of the records.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};

use super::check::newest_gap;
use super::directory::{self, DataDirectory, DirectoryFormat};
use super::frame::{FrameFormat, LogEntry};
use super::open_error::OpenError;
use super::reserve::DiskReserve;
use super::segment::{self, HEADER_BYTES, PlacedFrame};
use super::{
    LogContents, LogFigures, LogRecords, LogWriter, ReadableSegment, RecordLocation, SegmentId,
    SegmentInfo,
};
use crate::contract::Revision;
use crate::embedded::disk::{Disk, DiskFile, OpenMode};
use crate::embedded::record::Record;

/// An open log with the state that it stores.
pub(in crate::embedded) struct OpenedLog {
    pub(in crate::embedded) log: LogRecords,
    /// The revision at which history starts.
    pub(in crate::embedded) oldest: Revision,
    /// The running time of the store at the last entry.
    pub(in crate::embedded) time_ms: u64,
}

/// A record that was found while the log was opened.
pub(in crate::embedded) enum FoundRecord<'a> {
    Record(Revision, &'a Record),
    /// A duplicate record, left by an earlier version that crashed while it joined segments.
    Copy(&'a Record),
}

impl LogRecords {
    /// Opens or creates a log and calls `visit` for all records in order.
    pub(in crate::embedded) fn open(
        disk: &Arc<dyn Disk>,
        path: &Path,
        beside: &[&str],
        segment_bytes_max: u64,
        visit: &mut dyn FnMut(FoundRecord<'_>),
    ) -> Result<OpenedLog, OpenError> {
        let directory = DataDirectory::open(disk.clone(), path, beside)?;
        let manifest = directory.manifest()?;
        let listed: Vec<SegmentId> = manifest.segments.iter().map(|(id, _)| *id).collect();
        let leftovers = directory.unlisted(&listed);
        let leftovers = leftovers.map_err(|source| OpenError::io(path, source))?;
        // The numbers of leftover files are not reused, because these files will be removed.
        let left_over = leftovers
            .iter()
            .filter_map(|path| directory::segment_id(path));
        let newest_id = listed.iter().copied().chain(left_over).max();
        let writer = LogWriter {
            segments: Vec::new(),
            next_id: newest_id.unwrap_or(0) + 1,
            oldest: manifest.oldest,
            time_ms: manifest.time_ms,
            converted: manifest.converted,
            newest_gap: manifest.newest_gap,
            format: directory.format(),
            unsettled: None,
            tail_unknown: false,
            manifest_unknown: false,
            unreadable: Vec::new(),
            leftovers,
            reserve: DiskReserve::find(disk.clone(), directory.reserve_path()),
        };
        let mut opening = LogOpening {
            directory: &directory,
            contents: LogContents::default(),
            writer,
            last: Revision(0),
            visit,
        };
        for (id, closed_at) in manifest.segments {
            opening.read(id, closed_at, listed.last() == Some(&id))?;
        }
        let LogOpening {
            contents,
            mut writer,
            last,
            ..
        } = opening;
        if writer.format == DirectoryFormat::Two {
            writer.converted = last;
            writer.newest_gap = newest_gap(contents.locations.keys().rev().copied());
        }
        let (oldest, time_ms) = (writer.oldest, writer.time_ms);
        let log = LogRecords {
            directory,
            segment_bytes_max: segment_bytes_max.clamp(1, 1 << 30),
            contents: RwLock::new(contents),
            writer: Mutex::new(writer),
            figures: Mutex::new(LogFigures::default()),
        };
        log.after_open();
        Ok(OpenedLog {
            log,
            oldest,
            time_ms,
        })
    }

    /// Removes leftovers of a crash and converts a store of an earlier version. The store works also if either fails.
    fn after_open(&self) {
        let mut writer = self.writer();
        self.sweep(&mut writer);
        if writer.format == DirectoryFormat::Two {
            match self.convert(&mut writer) {
                Ok(()) => {
                    tracing::info!("the data directory was converted from format 2 to format 3");
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot convert the data directory from format 2 to format 3; will retry");
                }
            }
        }
        self.show_figures(&writer);
    }
}

/// The state while a log is opened.
struct LogOpening<'a, 'v> {
    directory: &'a DataDirectory,
    contents: LogContents,
    writer: LogWriter,
    /// The last revision that was read.
    last: Revision,
    visit: &'v mut dyn FnMut(FoundRecord<'_>),
}

impl LogOpening<'_, '_> {
    /// Reads a segment.
    fn read(
        &mut self,
        id: SegmentId,
        closed_at: Option<u64>,
        is_newest: bool,
    ) -> Result<(), OpenError> {
        let path = self.directory.segment_path(id);
        let io_error = |source| OpenError::io(&path, source);
        let file = open_segment(&*self.directory.disk, &path)?;
        // In format 2 closed segments have no length; they end with the file.
        let closed_at = match closed_at {
            None if !is_newest => Some(file.bytes().map_err(io_error)?),
            closed_at => closed_at,
        };
        let mut live_bytes = 0;
        let mut out_of_order = None;
        let loaded = segment::load(&*file, &path, id, closed_at, &mut |placed| {
            let at = placed.offset;
            match self.take(id, placed) {
                Ok(bytes) => live_bytes += bytes,
                Err(OutOfOrder) => out_of_order = out_of_order.or(Some(at)),
            }
        })?;
        if let Some(offset) = out_of_order {
            return Err(OpenError::Damaged {
                path,
                offset: u64::from(offset),
                what: "a record is older than one before it",
            });
        }
        if loaded.end < HEADER_BYTES {
            return Ok(()); // the segment was never written
        }
        if loaded.left_over > 0 && closed_at.is_none() {
            tracing::warn!(
                segment = %path.display(), offset = loaded.end, bytes = loaded.left_over,
                "the log ends with a write that was not acknowledged; it is ignored"
            );
        }
        if is_newest {
            match segment::settle(&*file, &loaded) {
                // Some file systems need free space to overwrite data. Until there is some, nothing else is written.
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    self.writer.unsettled = Some(loaded);
                }
                settled => settled.map_err(io_error)?,
            }
        }
        let closed = closed_at.is_some() || loaded.left_over > 0;
        self.writer.segments.push(SegmentInfo {
            id,
            bytes: loaded.end,
            live_bytes,
            closed: closed || loaded.format == FrameFormat::One,
        });
        let format = loaded.format;
        self.contents
            .files
            .insert(id, ReadableSegment { file, format });
        Ok(())
    }

    /// Applies an entry. Returns its number of needed bytes.
    fn take(&mut self, segment: SegmentId, placed: PlacedFrame) -> Result<u64, OutOfOrder> {
        let PlacedFrame {
            entry,
            offset,
            bytes,
        } = placed;
        let writer = &mut self.writer;
        match entry {
            LogEntry::Record(revision, record) if revision <= self.last => {
                // Earlier versions left duplicates if they were killed while they joined segments.
                if writer.format == DirectoryFormat::Three && revision > writer.converted {
                    return Err(OutOfOrder);
                }
                (self.visit)(FoundRecord::Copy(&record));
                return Ok(0);
            }
            LogEntry::Record(revision, record) => {
                self.last = revision;
                writer.time_ms = writer.time_ms.max(record.written_ms);
                (self.visit)(FoundRecord::Record(revision, &record));
                let location = RecordLocation {
                    segment,
                    offset,
                    bytes,
                };
                self.contents.locations.insert(revision, location);
                return Ok(u64::from(bytes));
            }
            LogEntry::Oldest(oldest, time_ms) => {
                writer.oldest = writer.oldest.max(oldest);
                writer.time_ms = writer.time_ms.max(time_ms);
            }
            LogEntry::Closed(time_ms) => writer.time_ms = writer.time_ms.max(time_ms),
            LogEntry::Backup { .. } | LogEntry::BackupEnd(_) => {}
        }
        Ok(0)
    }
}

/// A record has a lower revision than one before it.
struct OutOfOrder;

fn open_segment(disk: &dyn Disk, path: &Path) -> Result<Arc<dyn DiskFile>, OpenError> {
    disk.open(path, OpenMode::Write)
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => OpenError::Damaged {
                path: path.to_owned(),
                offset: 0,
                what: "it is missing",
            },
            _ => OpenError::io(path, error),
        })
}
