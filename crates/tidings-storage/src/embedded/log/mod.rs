//! Records on disk: an append-only log in segments.
//!
//! A record is written once, with a checksum, at the end of the last segment. Records that compaction has made useless stay
//! where they are until half of their segment is useless; then a segment without them takes its place. The list of segments
//! (`manifest`) says which of them count, in the order of revisions; it is replaced as a whole.
//!
//! After a crash the last segment may end with part of a group that nobody was told of. It is ignored: the segment is closed
//! where its last whole frame ends, and another one is begun. Damage anywhere else is reported and never repaired.
//!
//! Opening writes nothing but to a new directory, so that a store can be read on a disk that is full.

mod build;
pub mod check;
mod directory;
pub(crate) mod frame;
#[cfg(feature = "simulation")]
pub mod fuzzing;
mod manifest;
mod reclaim;
mod reserve;
pub(crate) mod segment;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::disk::{self, Disk, DiskFile, OpenMode};
use super::record::{AppendError, Record, Records};
use crate::contract::{DiskStats, Error, Revision, SyncTimes};
pub(crate) use build::LogBuilder;
pub(crate) use directory::Directory;
pub(crate) use directory::DirectoryFormat;
pub use directory::OpenError;
use frame::{Entry, FrameFormat, Group};
use manifest::Manifest;
use reserve::Reserve;
use segment::{HEADER_BYTES, Placed};

pub(crate) type SegmentId = u64;

/// What compaction needs besides the segment that it writes: the list of segments, a mark.
const RESERVE_LEAST: u64 = 64 << 10;
/// With less than this the disk is called full: a commit may have more.
const FREE_BYTES_LEAST: u64 = 1 << 20;
/// Records that stand this close to each other are read at once.
const READ_GAP: u64 = 4 << 10;
const READ_AT_ONCE: u64 = 256 << 10;

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
    format: DirectoryFormat,
    /// A write failed and could not be taken back: what stands behind the end of the last segment is not known.
    tail_unknown: bool,
    /// Whether the list of segments that was written last counts is not known.
    manifest_unknown: bool,
    /// Files that count no more and could not be removed yet.
    leftovers: Vec<PathBuf>,
    reserve: Reserve,
    syncs: SyncTimes,
}

#[derive(Debug)]
pub(super) struct LogRecords {
    directory: Directory,
    segment_bytes_max: u64,
    contents: RwLock<Contents>,
    writer: Mutex<Writer>,
}

/// A log that was opened, and what it says of the store.
pub(super) struct Opened {
    pub(super) log: LogRecords,
    /// Where history starts.
    pub(super) oldest: Revision,
    /// The store's running time when the last entry was written.
    pub(super) time_ms: u64,
}

/// A record that is found when a log is opened.
pub(super) enum Found<'a> {
    Record(Revision, &'a Record),
    /// A second copy, which a crash of an earlier version left when it joined segments.
    Copy(&'a Record),
}

impl LogRecords {
    /// Opens or creates a log and visits all of its records in order.
    pub(super) fn open(
        disk: &Arc<dyn Disk>,
        path: &Path,
        beside: &[&str],
        segment_bytes_max: u64,
        visit: &mut dyn FnMut(Found<'_>),
    ) -> Result<Opened, OpenError> {
        let directory = Directory::open(disk.clone(), path, beside)?;
        let manifest = directory.manifest()?;
        let listed: Vec<SegmentId> = manifest.segments.iter().map(|(id, _)| *id).collect();
        let leftovers = directory.unlisted(&listed);
        let leftovers = leftovers.map_err(|source| OpenError::io(path, source))?;
        // A number is not used again while a file of it may be there, and be removed.
        let left_over = leftovers
            .iter()
            .filter_map(|path| directory::segment_id(path));
        let newest_id = listed.iter().copied().chain(left_over).max();
        let mut contents = Contents::default();
        let mut writer = Writer {
            segments: Vec::new(),
            next_id: newest_id.unwrap_or(0) + 1,
            oldest: manifest.oldest,
            time_ms: manifest.time_ms,
            converted: manifest.converted,
            format: directory.format(),
            tail_unknown: false,
            manifest_unknown: false,
            leftovers,
            reserve: Reserve::find(disk.clone(), directory.reserve_path()),
            syncs: SyncTimes::default(),
        };
        let mut last = Revision(0);
        let newest = manifest.segments.last().map(|(id, _)| *id);
        for (id, closed_at) in manifest.segments {
            let path = directory.segment_path(id);
            let is_newest = newest == Some(id);
            // In format 2 closed segments have no length: they end where the file ends.
            let file = open_segment(&**disk, &path)?;
            let closed_at = match closed_at {
                None if !is_newest => Some(
                    file.bytes()
                        .map_err(|source| OpenError::io(&path, source))?,
                ),
                closed_at => closed_at,
            };
            let mut live_bytes = 0;
            let loaded = segment::load(
                &*file,
                &path,
                id,
                closed_at,
                &mut |Placed {
                          entry,
                          offset,
                          bytes,
                      }| {
                    match entry {
                        Entry::Record(revision, record) if revision <= last => {
                            debug_assert!(
                                writer.format == DirectoryFormat::Two,
                                "revisions only grow"
                            );
                            visit(Found::Copy(&record));
                            let _ = revision;
                        }
                        Entry::Record(revision, record) => {
                            last = revision;
                            writer.time_ms = writer.time_ms.max(record.written_ms);
                            visit(Found::Record(revision, &record));
                            let segment = id;
                            contents.locations.insert(
                                revision,
                                Location {
                                    segment,
                                    offset,
                                    bytes,
                                },
                            );
                            live_bytes += u64::from(bytes);
                        }
                        Entry::Oldest(oldest, time_ms) => {
                            writer.oldest = writer.oldest.max(oldest);
                            writer.time_ms = writer.time_ms.max(time_ms);
                        }
                        Entry::Closed(time_ms) => writer.time_ms = writer.time_ms.max(time_ms),
                        Entry::Backup { .. } | Entry::BackupEnd(_) => {}
                    }
                },
            )?;
            if loaded.end < HEADER_BYTES {
                continue; // nothing was ever written to it
            }
            if loaded.left_over > 0 && closed_at.is_none() {
                tracing::warn!(
                    segment = %path.display(), offset = loaded.end, bytes = loaded.left_over,
                    "the log ends with a write that was not acknowledged; it is ignored"
                );
            }
            if is_newest {
                segment::settle(&*file, &loaded).map_err(|source| OpenError::io(&path, source))?;
            }
            writer.segments.push(SegmentInfo {
                id,
                bytes: loaded.end,
                live_bytes,
                closed: closed_at.is_some()
                    || loaded.left_over > 0
                    || loaded.format == FrameFormat::One,
            });
            let format = loaded.format;
            contents.files.insert(id, Readable { file, format });
        }
        if writer.format == DirectoryFormat::Two {
            writer.converted = last;
        }
        let log = LogRecords {
            directory,
            segment_bytes_max: segment_bytes_max.clamp(1, 1 << 30),
            contents: RwLock::new(contents),
            writer: Mutex::new(writer),
        };
        log.after_open();
        let writer = log.writer();
        let (oldest, time_ms) = (writer.oldest, writer.time_ms);
        drop(writer);
        Ok(Opened {
            log,
            oldest,
            time_ms,
        })
    }

    /// Removes what a crash has left, and converts a store of an earlier version. Neither is needed to go on.
    fn after_open(&self) {
        let mut writer = self.writer();
        self.sweep(&mut writer);
        if writer.format == DirectoryFormat::Two {
            match self.convert(&mut writer) {
                Ok(()) => {
                    tracing::info!("the data directory was converted from format 2 to format 3")
                }
                Err(error) => {
                    tracing::warn!(%error, "the data directory is of format 2 and cannot be converted yet");
                }
            }
        }
    }

    fn convert(&self, writer: &mut Writer) -> io::Result<()> {
        if writer.format == DirectoryFormat::Two {
            self.directory.write_format()?;
            let segments = writer.segments.clone();
            self.replace_list(writer, &segments)?;
            writer.format = DirectoryFormat::Three;
        }
        Ok(())
    }

    fn contents(&self) -> RwLockReadGuard<'_, Contents> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn contents_mut(&self) -> RwLockWriteGuard<'_, Contents> {
        self.contents
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes another list of segments the one that counts. If it fails, the old one may count or the new one: nothing may be
    /// written before [`LogRecords::repair`] has settled it.
    fn replace_list(&self, writer: &mut Writer, segments: &[SegmentInfo]) -> io::Result<()> {
        let closed = |segment: &SegmentInfo| (segment.id, segment.closed.then_some(segment.bytes));
        self.directory.write_manifest(&Manifest {
            oldest: writer.oldest,
            time_ms: writer.time_ms,
            converted: writer.converted,
            segments: segments.iter().map(closed).collect(),
        })?;
        writer.manifest_unknown = true;
        self.directory.publish_manifest()?;
        writer.manifest_unknown = false;
        Ok(())
    }

    /// Removes files that count no more.
    fn sweep(&self, writer: &mut Writer) {
        if !writer.manifest_unknown {
            let disk = &self.directory.disk;
            writer.leftovers.retain(|path| match disk.remove(path) {
                Ok(()) => false,
                Err(error) => error.kind() != io::ErrorKind::NotFound,
            });
        }
    }

    /// Settles what a failure has left unknown, so that the log can be written to again.
    fn repair(&self, writer: &mut Writer) -> io::Result<()> {
        self.convert(writer)?;
        if writer.manifest_unknown {
            let segments = writer.segments.clone();
            self.replace_list(writer, &segments)?;
        }
        if writer.tail_unknown {
            let last = writer.segments.last().copied();
            let file = last.and_then(|last| self.contents().files.get(&last.id).cloned());
            let undone = last.zip(file).is_some_and(|(last, Readable { file, .. })| {
                segment::undo(&*file, last.bytes).is_ok()
            });
            if !undone {
                self.roll(writer)?; // what stands behind the end of a closed segment does not count
            }
            writer.tail_unknown = false;
        }
        Ok(())
    }

    /// Closes the last segment and begins another.
    fn roll(&self, writer: &mut Writer) -> io::Result<()> {
        let mut segments = writer.segments.clone();
        if let Some(last) = segments.last_mut() {
            last.closed = true;
        }
        let group = Group::at(writer.next_id, HEADER_BYTES);
        self.begin_segment(writer, segments, &group, false)
            .map(|_| ())
    }

    /// Makes a segment with some frames the last of a list, and that list the one that counts.
    fn begin_segment(
        &self,
        writer: &mut Writer,
        mut segments: Vec<SegmentInfo>,
        group: &Group,
        closed: bool,
    ) -> io::Result<SegmentInfo> {
        let place = segments.len();
        self.insert_segment(writer, &mut segments, place, group, closed)
    }

    /// Makes a segment with some frames part of a list, and that list the one that counts.
    fn insert_segment(
        &self,
        writer: &mut Writer,
        segments: &mut Vec<SegmentInfo>,
        place: usize,
        group: &Group,
        closed: bool,
    ) -> io::Result<SegmentInfo> {
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
        let begun = begun.and_then(|file| self.replace_list(writer, segments).map(|()| file));
        let file = match begun {
            Ok(file) => file,
            Err(error) => {
                // It counts if the list is found to have been replaced, so it stays until that is settled.
                writer.leftovers.push(path);
                self.sweep(writer);
                return Err(error);
            }
        };
        writer.segments.clone_from(segments);
        let format = FrameFormat::Two;
        self.contents_mut()
            .files
            .insert(id, Readable { file, format });
        Ok(info)
    }

    /// The segment to write to.
    fn open_last(&self, writer: &mut Writer) -> io::Result<(SegmentInfo, Arc<dyn DiskFile>)> {
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

    /// Puts a group at the end of the log, durably. `make` fills it.
    fn write_group(
        &self,
        writer: &mut Writer,
        make: impl FnOnce(&mut Group),
    ) -> Result<(SegmentId, Group), AppendError> {
        let (last, file) = self.open_last(writer).map_err(|error| refused(&error))?;
        let mut group = Group::at(last.id, last.bytes);
        make(&mut group);
        let started = Instant::now();
        if let Err(error) = segment::append(&*file, last.bytes, group.as_bytes()) {
            if segment::undo(&*file, last.bytes).is_ok() {
                return Err(refused(&error));
            }
            writer.tail_unknown = true;
            return Err(AppendError::Unknown(error.to_string()));
        }
        writer.syncs.note(started.elapsed());
        if let Some(last) = writer.segments.last_mut() {
            last.bytes = group.end();
        }
        Ok((last.id, group))
    }

    /// Puts a mark at the end of the log.
    fn write_mark(&self, writer: &mut Writer, entry: &Entry) -> Result<(), AppendError> {
        self.write_group(writer, |group| group.push(entry))
            .map(|_| ())
    }

    /// Does something for which the reserve may be used, if the disk is full.
    fn with_reserve<T>(
        &self,
        writer: &mut Writer,
        act: impl Fn(&mut Writer) -> Result<T, AppendError>,
    ) -> Result<T, AppendError> {
        match act(writer) {
            Err(error) if error.is_full() && writer.reserve.release() => act(writer),
            outcome => outcome,
        }
    }

    /// How much room compaction may need: for a segment that is half useless, and for the list of segments.
    fn reserve_wanted(&self, writer: &Writer) -> u64 {
        let closed = writer.segments.iter().any(|segment| segment.closed);
        RESERVE_LEAST
            + if closed {
                self.segment_bytes_max / 2
            } else {
                0
            }
    }

    fn forget_in(&self, writer: &mut Writer, forgotten: &[Revision]) {
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

    /// What keeps the log from being written to, if anything is known to.
    fn trouble(&self, writer: &Writer) -> Option<String> {
        if writer.tail_unknown || writer.manifest_unknown {
            return Some(
                "a write has failed half-way and could not be taken back; it is tried again"
                    .to_owned(),
            );
        }
        let free = self.directory.free_bytes().ok()?;
        (free < FREE_BYTES_LEAST).then(|| format!("the disk is full: {free} bytes are free"))
    }
}

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

fn refused(error: &io::Error) -> AppendError {
    let full = matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    );
    AppendError::Refused {
        why: error.to_string(),
        full,
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

/// Frames that are read at once: they stand in one file, close to each other.
struct Stretch {
    segment: SegmentId,
    start: u64,
    end: u64,
    /// Which of the wanted records, and where they stand.
    records: Vec<(usize, Location)>,
}

/// Puts locations together that can be read at once. They are in the order in which they are wanted.
fn stretches(locations: impl Iterator<Item = (usize, Location)>) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for (wanted, location) in locations {
        let (start, end) = (
            u64::from(location.offset),
            u64::from(location.offset) + u64::from(location.bytes),
        );
        match stretches.last_mut() {
            Some(last)
                if last.segment == location.segment
                    && start >= last.end
                    && start - last.end <= READ_GAP
                    && end - last.start <= READ_AT_ONCE =>
            {
                last.end = end;
                last.records.push((wanted, location));
            }
            _ => stretches.push(Stretch {
                segment: location.segment,
                start,
                end,
                records: vec![(wanted, location)],
            }),
        }
    }
    stretches
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
        let (stretches, files) = {
            let contents = self.contents();
            let locations = revisions.iter().enumerate();
            let locations = locations.filter_map(|(wanted, revision)| {
                Some((wanted, *contents.locations.get(revision)?))
            });
            let stretches = stretches(locations);
            let file = |stretch: &Stretch| contents.files.get(&stretch.segment).cloned();
            let files: Vec<_> = stretches.iter().map(file).collect();
            (stretches, files)
        };
        let mut found = vec![None; revisions.len()];
        for (stretch, readable) in stretches.iter().zip(files) {
            let failed = |why: &dyn std::fmt::Display| {
                Error::Failed(format!(
                    "the store cannot read revision {}: {why}",
                    revisions[stretch.records[0].0]
                ))
            };
            let Readable { file, format } =
                readable.ok_or_else(|| failed(&"its segment is gone"))?;
            let mut bytes = vec![0; (stretch.end - stretch.start) as usize];
            disk::read_exact_at(&*file, &mut bytes, stretch.start)
                .map_err(|error| failed(&error))?;
            let bytes = Bytes::from(bytes);
            for (wanted, location) in &stretch.records {
                let offset = u64::from(location.offset);
                let from = (offset - stretch.start) as usize;
                let frame = bytes.slice(from..from + location.bytes as usize);
                let frame = frame::read(&frame, format, location.segment, offset);
                match frame.map_err(|what| failed(&what))?.entry {
                    Entry::Record(revision, record) if revision == revisions[*wanted] => {
                        found[*wanted] = Some(record);
                    }
                    _ => return Err(failed(&"another one stands where it should be")),
                }
            }
        }
        Ok(found)
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

    fn reclaim(&self) -> Result<Option<Vec<Bytes>>, Error> {
        let mut writer = self.writer();
        let reclaimed = self.with_reserve(&mut writer, |writer| self.reclaim_step(writer));
        reclaimed
            .map_err(|error| Error::Failed(format!("the store cannot rewrite a segment: {error}")))
    }

    fn maintain(&self) -> Option<String> {
        let mut writer = self.writer();
        let repaired = self.repair(&mut writer);
        self.sweep(&mut writer);
        let wanted = self.reserve_wanted(&writer);
        let filled = repaired.and_then(|()| writer.reserve.fill(wanted));
        let trouble = self.trouble(&writer);
        trouble.or_else(|| {
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

    fn stats(&self) -> DiskStats {
        let writer = self.writer();
        let bytes: u64 = writer.segments.iter().map(|segment| segment.bytes).sum();
        DiskStats {
            bytes: bytes + writer.reserve.bytes(),
            segments: writer.segments.len() as u64,
            reserve_bytes: writer.reserve.bytes(),
            free_bytes: self.directory.free_bytes().ok(),
            syncs: writer.syncs,
        }
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
