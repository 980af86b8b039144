//! Writes the log: appends groups, replaces the list of segments, and repairs both after a failure.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::directory::DirectoryFormat;
use super::frame::{FrameFormat, FrameGroup, LogEntry};
use super::manifest::Manifest;
use super::segment::{self, HEADER_BYTES};
use super::{LogRecords, LogWriter, ReadableSegment, SegmentId, SegmentInfo};
use crate::contract::{Revision, SyncTimes};
use crate::embedded::disk::DiskFile;
use crate::embedded::record::AppendError;

/// The minimum reserve: space for the list of segments and a mark, which compaction needs besides the new segment.
pub(super) const RESERVE_LEAST: u64 = 64 << 10;
/// Below this free space the disk counts as full: a commit may need more.
const FREE_BYTES_LEAST: u64 = 1 << 20;

impl LogRecords {
    /// Converts a directory from format 2 to format 3.
    pub(super) fn convert(&self, writer: &mut LogWriter) -> io::Result<()> {
        if writer.format == DirectoryFormat::Two {
            // In this order, because a directory of format 3 must have a list with a checksum.
            let segments = writer.segments.clone();
            self.replace_list(writer, &segments)?;
            self.directory.write_format()?;
            writer.format = DirectoryFormat::Three;
        }
        Ok(())
    }

    /// Replaces the list of segments. If it fails, either list may be in effect: nothing may be written before
    /// [`LogRecords::repair`] has succeeded.
    pub(super) fn replace_list(
        &self,
        writer: &mut LogWriter,
        segments: &[SegmentInfo],
    ) -> io::Result<()> {
        let closed = |segment: &SegmentInfo| (segment.id, segment.closed.then_some(segment.bytes));
        self.directory.write_manifest(&Manifest {
            oldest: writer.oldest,
            time_ms: writer.time_ms,
            converted: writer.converted,
            newest_gap: writer.newest_gap,
            segments: segments.iter().map(closed).collect(),
        })?;
        writer.manifest_unknown = true;
        self.directory.publish_manifest()?;
        writer.manifest_unknown = false;
        Ok(())
    }

    /// Removes files that are not part of the log any more.
    pub(super) fn sweep(&self, writer: &mut LogWriter) {
        if !writer.manifest_unknown {
            let disk = &self.directory.disk;
            writer.leftovers.retain(|path| match disk.remove(path) {
                Ok(()) => false,
                Err(error) => error.kind() != io::ErrorKind::NotFound,
            });
        }
    }

    /// Repairs the state that a failure has left unknown, so that the log can be written again.
    pub(super) fn repair(&self, writer: &mut LogWriter) -> io::Result<()> {
        self.settle(writer)?;
        self.convert(writer)?;
        if writer.manifest_unknown {
            let segments = writer.segments.clone();
            self.replace_list(writer, &segments)?;
        }
        if writer.tail_unknown {
            let last = writer.segments.last().copied();
            let file = last.and_then(|last| self.contents().files.get(&last.id).cloned());
            let undone = last
                .zip(file)
                .is_some_and(|(last, ReadableSegment { file, .. })| {
                    segment::undo(&*file, last.bytes).is_ok()
                });
            if !undone {
                self.roll(writer)?; // bytes after the end of a closed segment are ignored
            }
            writer.tail_unknown = false;
        }
        Ok(())
    }

    /// Makes the last group of the opened log durable, if that failed at the start.
    fn settle(&self, writer: &mut LogWriter) -> io::Result<()> {
        if let Some(loaded) = writer.unsettled
            && let Some(last) = writer.segments.last()
            && let Some(readable) = self.contents().files.get(&last.id)
        {
            segment::settle(&*readable.file, &loaded)?;
            writer.unsettled = None;
        }
        Ok(())
    }

    /// Closes the last segment and starts a new one.
    pub(super) fn roll(&self, writer: &mut LogWriter) -> io::Result<()> {
        let mut segments = writer.segments.clone();
        if let Some(last) = segments.last_mut() {
            last.closed = true;
        }
        let group = FrameGroup::at(writer.next_id, HEADER_BYTES);
        let place = segments.len();
        self.insert_segment(writer, segments, place, &group, false)
    }

    /// Creates a segment with some frames, inserts it into a list of segments, and publishes that list.
    pub(super) fn insert_segment(
        &self,
        writer: &mut LogWriter,
        mut segments: Vec<SegmentInfo>,
        place: usize,
        group: &FrameGroup,
        closed: bool,
    ) -> io::Result<()> {
        let id = writer.next_id;
        writer.next_id += 1;
        let path = self.directory.segment_path(id);
        let info = SegmentInfo {
            id,
            bytes: group.end(),
            live_bytes: group.as_bytes().len() as u64,
            closed,
        };
        segments.insert(place, info);
        let begun = segment::create(&*self.directory.disk, &path, group);
        let begun = begun.and_then(|file| self.replace_list(writer, &segments).map(|()| file));
        let file = match begun {
            Ok(file) => file,
            Err(error) => {
                // The new list may be in effect, so the file stays until the list is repaired.
                writer.leftovers.push(path);
                self.sweep(writer);
                return Err(error);
            }
        };
        writer.segments = segments;
        let format = FrameFormat::Two;
        self.contents_mut()
            .files
            .insert(id, ReadableSegment { file, format });
        Ok(())
    }

    /// The open segment; starts a new one if needed.
    fn open_last(&self, writer: &mut LogWriter) -> io::Result<(SegmentInfo, Arc<dyn DiskFile>)> {
        self.repair(writer)?;
        let is_open = |last: &&SegmentInfo| !last.closed && last.bytes < self.segment_bytes_max;
        if writer.segments.last().filter(is_open).is_none() {
            self.roll(writer)?;
        }
        let last = writer.segments.last().copied();
        let last = last.ok_or_else(|| io::Error::other("there is no segment to write to"))?;
        let contents = self.contents();
        let file = contents.files.get(&last.id);
        let file = file.ok_or_else(|| io::Error::other("the last segment is not open"))?;
        Ok((last, file.file.clone()))
    }

    /// Appends a group to the log, durably. `make` fills it.
    pub(super) fn write_group(
        &self,
        writer: &mut LogWriter,
        make: impl FnOnce(&mut FrameGroup),
    ) -> Result<(SegmentId, FrameGroup), AppendError> {
        let (last, file) = self.open_last(writer).map_err(|error| refused(&error))?;
        let mut group = FrameGroup::at(last.id, last.bytes);
        make(&mut group);
        let started = Instant::now();
        if let Err(error) = segment::append(&*file, last.bytes, group.as_bytes()) {
            if segment::undo(&*file, last.bytes).is_ok() {
                return Err(refused(&error));
            }
            writer.tail_unknown = true;
            return Err(AppendError::Unknown(error.to_string()));
        }
        self.figures().0.syncs.note(started.elapsed());
        if let Some(last) = writer.segments.last_mut() {
            last.bytes = group.end();
        }
        Ok((last.id, group))
    }

    /// Appends a mark to the log.
    pub(super) fn write_mark(
        &self,
        writer: &mut LogWriter,
        entry: &LogEntry,
    ) -> Result<(), AppendError> {
        self.write_group(writer, |group| group.push(entry))
            .map(|_| ())
    }

    /// Runs `act`; if the disk is full, releases the reserve and runs it again.
    pub(super) fn with_reserve<T>(
        &self,
        writer: &mut LogWriter,
        act: impl Fn(&mut LogWriter) -> Result<T, AppendError>,
    ) -> Result<T, AppendError> {
        match act(writer) {
            Err(error) if error.is_full() && writer.reserve.release() => act(writer),
            outcome => outcome,
        }
    }

    /// The space that compaction may need: for half a segment and for the list of segments.
    pub(super) fn reserve_wanted(&self, writer: &LogWriter) -> u64 {
        let closed = writer.segments.iter().any(|segment| segment.closed);
        RESERVE_LEAST
            + if closed {
                self.segment_bytes_max / 2
            } else {
                0
            }
    }

    pub(super) fn forget_in(&self, writer: &mut LogWriter, forgotten: &[Revision]) {
        let mut contents = self.contents_mut();
        for revision in forgotten {
            let Some(location) = contents.locations.remove(revision) else {
                continue;
            };
            let mut segments = writer.segments.iter_mut();
            if let Some(segment) = segments.find(|segment| segment.id == location.segment) {
                segment.live_bytes -= u64::from(location.bytes);
            }
        }
    }
}

/// Why the log cannot be written; `None` if no reason is known.
pub(super) fn trouble(writer: &LogWriter, free_bytes: Option<u64>) -> Option<String> {
    if writer.tail_unknown || writer.manifest_unknown || writer.unsettled.is_some() {
        let what = "a write has failed half-way and could not be undone; will retry";
        return Some(what.to_owned());
    }
    let free = free_bytes.filter(|free| *free < FREE_BYTES_LEAST)?;
    Some(format!("the disk is full: {free} bytes are free"))
}

/// The error of a write that has written nothing.
pub(super) fn refused(error: &io::Error) -> AppendError {
    let full = matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    );
    AppendError::Refused {
        why: error.to_string(),
        full,
    }
}

impl SyncTimes {
    fn note(&mut self, took: Duration) {
        self.count += 1;
        self.sum += took;
        let seconds = took.as_secs_f64();
        for (bound, count) in SyncTimes::BOUNDS.iter().zip(&mut self.buckets) {
            *count += u64::from(seconds <= *bound);
        }
    }
}
