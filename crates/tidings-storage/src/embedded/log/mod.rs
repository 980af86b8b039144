//! Records on disk: an append-only log in segments.
//!
//! A record is written once, with a checksum, at the end of the last segment. Records that compaction has made useless stay
//! where they are until half of their segment is useless; then the segment is rewritten without them. Segments are in the
//! order of revisions, always.
//!
//! After a crash the end of the last segment may hold part of a group that nobody was told of; it is cut off and kept in a
//! file beside the segment. Damage anywhere else is reported and never repaired.

mod directory;
mod frame;
mod segment;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::record::{Record, Records, Visit};
use crate::contract::{Error, Revision};
use directory::Directory;
pub use directory::OpenError;
use frame::Entry;

/// A segment is closed when it has grown to this: small enough to rewrite in a moment, large enough to be few.
const SEGMENT_BYTES_MAX: u64 = 16 << 20;

type SegmentId = u64;

/// Where a record stands.
#[derive(Debug, Clone, Copy)]
struct Location {
    segment: SegmentId,
    offset: u32,
    bytes: u32,
}

/// What readers need. Locations and files change together, so a location always fits the file it is read from.
#[derive(Debug, Default)]
struct Contents {
    locations: BTreeMap<Revision, Location>,
    files: BTreeMap<SegmentId, Arc<File>>,
}

impl Contents {
    fn find(&self, revision: Revision) -> Option<(Location, Arc<File>)> {
        let location = self.locations.get(&revision)?;
        Some((*location, self.files.get(&location.segment)?.clone()))
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Size {
    bytes: u64,
    /// Bytes of records that are still needed.
    live_bytes: u64,
}

/// What only the committing thread needs.
#[derive(Debug, Default)]
struct Writer {
    /// Oldest first; the last one is written to.
    sizes: BTreeMap<SegmentId, Size>,
    oldest: Revision,
    /// A failed write could not be undone: what stands at the end of the log is unknown until it is opened again.
    broken: bool,
}

#[derive(Debug)]
pub(super) struct LogRecords {
    directory: Directory,
    contents: RwLock<Contents>,
    writer: Mutex<Writer>,
}

impl LogRecords {
    /// Opens or creates a log, visits all of its records in order, and says at which revision history starts.
    pub(super) fn open(
        path: &Path,
        beside: &[&str],
        visit: &mut dyn FnMut(Revision, &Record),
    ) -> Result<(LogRecords, Revision), OpenError> {
        let directory = Directory::open(path, beside)?;
        let mut contents = Contents::default();
        let mut writer = Writer::default();
        let mut last = Revision(0);
        let ids = directory.segments()?;
        for id in ids.iter().copied() {
            let newest = Some(&id) == ids.last();
            let mut size = Size::default();
            let (file, bytes) = segment::load(
                &directory.segment_path(id),
                newest,
                &mut |entry, offset, bytes| match entry {
                    Entry::Oldest(oldest) => writer.oldest = writer.oldest.max(oldest),
                    Entry::Closed => {}
                    // A crash in the middle of a merge leaves records twice: the first time counts.
                    Entry::Record(revision, _) if revision <= last => {}
                    Entry::Record(revision, record) => {
                        last = revision;
                        visit(revision, &record);
                        contents.locations.insert(
                            revision,
                            Location {
                                segment: id,
                                offset,
                                bytes,
                            },
                        );
                        size.live_bytes += u64::from(bytes);
                    }
                },
            )?;
            size.bytes = bytes;
            writer.sizes.insert(id, size);
            contents.files.insert(id, Arc::new(file));
        }
        let oldest = writer.oldest;
        let log = LogRecords {
            directory,
            contents: RwLock::new(contents),
            writer: Mutex::new(writer),
        };
        Ok((log, oldest))
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

    /// Appends frames to the last segment, durably, and returns where they stand. After a failure the log is as before.
    fn write(&self, writer: &mut Writer, frames: &[u8]) -> io::Result<(SegmentId, u32)> {
        if writer.broken {
            return Err(io::Error::other(
                "an earlier write failed half-way; restart the server to recover",
            ));
        }
        let (id, offset) = match writer.sizes.last_key_value() {
            Some((id, size)) if size.bytes < SEGMENT_BYTES_MAX => (*id, size.bytes),
            last => {
                let id = last.map_or(1, |(id, _)| id + 1);
                let file = segment::create(&self.directory.segment_path(id))?;
                let ids: Vec<SegmentId> = writer.sizes.keys().copied().chain([id]).collect();
                self.directory.record_segments(&ids)?;
                writer.sizes.insert(
                    id,
                    Size {
                        bytes: segment::HEADER_BYTES,
                        live_bytes: 0,
                    },
                );
                self.contents_mut().files.insert(id, Arc::new(file));
                (id, segment::HEADER_BYTES)
            }
        };
        let file = self
            .contents()
            .files
            .get(&id)
            .cloned()
            .ok_or_else(|| io::Error::other("no segment to write to"))?;
        if let Err(error) = segment::append(&file, offset, frames) {
            writer.broken = segment::undo(&file, offset).is_err();
            return Err(error);
        }
        if let Some(size) = writer.sizes.get_mut(&id) {
            size.bytes += frames.len() as u64;
        }
        Ok((id, offset as u32))
    }

    /// Records that nobody needs any more but that still stand in their segments.
    pub(super) fn forget(&self, forgotten: &[Revision]) {
        self.forget_in(&mut self.writer(), forgotten);
    }

    fn forget_in(&self, writer: &mut Writer, forgotten: &[Revision]) {
        let mut contents = self.contents_mut();
        for location in forgotten
            .iter()
            .filter_map(|revision| contents.locations.remove(revision))
        {
            if let Some(size) = writer.sizes.get_mut(&location.segment) {
                size.live_bytes -= u64::from(location.bytes);
            }
        }
    }

    /// Rewrites segments that are half useless, and joins neighbours that have become small.
    fn reclaim(&self, writer: &mut Writer) -> io::Result<()> {
        while let Some(ids) = wasteful(&writer.sizes) {
            let into = ids[0];
            let mut frames = Vec::new();
            frame::put_oldest(&mut frames, writer.oldest);
            let mut moved = Vec::new();
            {
                let contents = self.contents();
                for (revision, location) in contents
                    .locations
                    .iter()
                    .filter(|(_, at)| ids.contains(&at.segment))
                {
                    let offset = segment::HEADER_BYTES as u32 + frames.len() as u32;
                    segment::copy(
                        &contents.files[&location.segment],
                        location.offset,
                        location.bytes,
                        &mut frames,
                    )?;
                    moved.push((
                        *revision,
                        Location {
                            segment: into,
                            offset,
                            bytes: location.bytes,
                        },
                    ));
                }
            }
            let file = segment::replace(&self.directory.segment_path(into), &frames)?;
            self.directory.sync()?;
            let live_bytes = moved
                .iter()
                .map(|(_, location)| u64::from(location.bytes))
                .sum();
            let bytes = segment::HEADER_BYTES + frames.len() as u64;
            writer.sizes.retain(|id, _| !ids.contains(id));
            writer.sizes.insert(into, Size { bytes, live_bytes });
            {
                let mut contents = self.contents_mut();
                contents.locations.extend(moved);
                contents.files.retain(|id, _| !ids.contains(id));
                contents.files.insert(into, Arc::new(file));
            }
            let rest: Vec<SegmentId> = writer.sizes.keys().copied().collect();
            self.directory.record_segments(&rest)?;
            for id in &ids[1..] {
                std::fs::remove_file(self.directory.segment_path(*id))?;
            }
        }
        Ok(())
    }
}

impl Drop for LogRecords {
    /// Marks the end as one that no crash made: damage before it will be seen as what it is.
    fn drop(&mut self) {
        let mut writer = self.writer();
        let mut frames = Vec::new();
        frame::put_closed(&mut frames);
        if !writer.sizes.is_empty()
            && let Err(error) = self.write(&mut writer, &frames)
        {
            tracing::debug!(%error, "the log is closed without a mark");
        }
    }
}

/// Which segments to rewrite into one, if any: a closed one with its successor if both fit into half a segment, or one
/// that is half useless.
fn wasteful(sizes: &BTreeMap<SegmentId, Size>) -> Option<Vec<SegmentId>> {
    let closed: Vec<(SegmentId, Size)> = sizes
        .iter()
        .rev()
        .skip(1)
        .map(|(id, size)| (*id, *size))
        .collect();
    let oldest_first: Vec<_> = closed.into_iter().rev().collect();
    for (at, (id, size)) in oldest_first.iter().enumerate() {
        if let Some((next, next_size)) = oldest_first.get(at + 1)
            && size.live_bytes + next_size.live_bytes <= SEGMENT_BYTES_MAX / 2
        {
            return Some(vec![*id, *next]);
        }
        if size.live_bytes * 2 < size.bytes && size.bytes > SEGMENT_BYTES_MAX / 4 {
            return Some(vec![*id]);
        }
    }
    None
}

fn failed(what: &str, error: &io::Error) -> Error {
    Error::Failed(format!("{what}: {error}"))
}

impl Records for LogRecords {
    fn append(&self, records: &[(Revision, Record)]) -> Result<(), Error> {
        let mut frames =
            Vec::with_capacity(records.iter().map(|(_, record)| record.bytes() + 64).sum());
        let mut ends = Vec::with_capacity(records.len());
        for (revision, record) in records {
            frame::put_record(&mut frames, *revision, record);
            ends.push(frames.len() as u32);
        }
        let mut writer = self.writer();
        let (segment, offset) = self
            .write(&mut writer, &frames)
            .map_err(|error| failed("the store cannot write", &error))?;
        if let Some(size) = writer.sizes.get_mut(&segment) {
            size.live_bytes += frames.len() as u64;
        }
        let mut contents = self.contents_mut();
        let mut start = 0;
        for ((revision, _), end) in records.iter().zip(ends) {
            contents.locations.insert(
                *revision,
                Location {
                    segment,
                    offset: offset + start,
                    bytes: end - start,
                },
            );
            start = end;
        }
        Ok(())
    }

    fn get(&self, revision: Revision) -> Result<Option<Record>, Error> {
        let Some((location, file)) = self.contents().find(revision) else {
            return Ok(None);
        };
        let record = segment::read(&file, location.offset, location.bytes);
        record.map(Some).map_err(|error| {
            failed(
                &format!("the store cannot read revision {revision}"),
                &error,
            )
        })
    }

    fn scan(&self, after: Revision, through: Revision, visit: Visit<'_>) -> Result<(), Error> {
        let mut position = after;
        loop {
            let next = {
                let contents = self.contents();
                let mut rest = contents
                    .locations
                    .range((Bound::Excluded(position), Bound::Included(through)));
                rest.next().map(|(revision, _)| *revision)
            };
            let Some(revision) = next else { return Ok(()) };
            // A record that is compacted at this very moment is missed here; the caller checks where history starts.
            if let Some(record) = self.get(revision)?
                && !visit(revision, record)
            {
                return Ok(());
            }
            position = revision;
        }
    }

    fn compact(&self, forgotten: &[Revision], oldest: Revision) -> Result<(), Error> {
        let mut writer = self.writer();
        let mut frames = Vec::new();
        frame::put_oldest(&mut frames, oldest);
        self.write(&mut writer, &frames)
            .map_err(|error| failed("the store cannot write", &error))?;
        writer.oldest = oldest;
        self.forget_in(&mut writer, forgotten);
        self.reclaim(&mut writer)
            .map_err(|error| failed("the store cannot rewrite a segment", &error))
    }
}
