//! How a log is opened: every segment that counts is read, and what it says is put together.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};

use super::check::newest_gap;
use super::directory::{self, Directory, DirectoryFormat, OpenError};
use super::frame::{Entry, FrameFormat};
use super::reserve::Reserve;
use super::segment::{self, HEADER_BYTES, Placed};
use super::{Contents, Figures, Location, LogRecords, Readable, SegmentId, SegmentInfo, Writer};
use crate::contract::Revision;
use crate::embedded::disk::{Disk, DiskFile, OpenMode};
use crate::embedded::record::Record;

/// A log that was opened, and what it says of the store.
pub(in crate::embedded) struct Opened {
    pub(in crate::embedded) log: LogRecords,
    /// Where history starts.
    pub(in crate::embedded) oldest: Revision,
    /// The store's running time when the last entry was written.
    pub(in crate::embedded) time_ms: u64,
}

/// A record that is found when a log is opened.
pub(in crate::embedded) enum Found<'a> {
    Record(Revision, &'a Record),
    /// A second copy, which a crash of an earlier version left when it joined segments.
    Copy(&'a Record),
}

impl LogRecords {
    /// Opens or creates a log and visits all of its records in order.
    pub(in crate::embedded) fn open(
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
        let writer = Writer {
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
            reserve: Reserve::find(disk.clone(), directory.reserve_path()),
        };
        let mut opening = Opening {
            directory: &directory,
            contents: Contents::default(),
            writer,
            last: Revision(0),
            visit,
        };
        for (id, closed_at) in manifest.segments {
            opening.read(id, closed_at, listed.last() == Some(&id))?;
        }
        let Opening {
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
            figures: Mutex::new(Figures::default()),
        };
        log.after_open();
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
                    tracing::info!("the data directory was converted from format 2 to format 3");
                }
                Err(error) => {
                    tracing::warn!(%error, "the data directory is of format 2 and cannot be converted yet");
                }
            }
        }
        self.show_figures(&writer);
    }
}

/// A log while it is read.
struct Opening<'a, 'v> {
    directory: &'a Directory,
    contents: Contents,
    writer: Writer,
    /// The last revision so far.
    last: Revision,
    visit: &'v mut dyn FnMut(Found<'_>),
}

impl Opening<'_, '_> {
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
        // In format 2 closed segments have no length: they end where the file ends.
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
            return Ok(()); // nothing was ever written to it
        }
        if loaded.left_over > 0 && closed_at.is_none() {
            tracing::warn!(
                segment = %path.display(), offset = loaded.end, bytes = loaded.left_over,
                "the log ends with a write that was not acknowledged; it is ignored"
            );
        }
        if is_newest {
            match segment::settle(&*file, &loaded) {
                // Some file systems need room to write what is there once more. Until then nothing else is written.
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
        self.contents.files.insert(id, Readable { file, format });
        Ok(())
    }

    /// Takes in an entry, and says how many bytes of it are needed.
    fn take(&mut self, segment: SegmentId, placed: Placed) -> Result<u64, OutOfOrder> {
        let Placed {
            entry,
            offset,
            bytes,
        } = placed;
        let writer = &mut self.writer;
        match entry {
            Entry::Record(revision, record) if revision <= self.last => {
                // Earlier versions left such when they joined segments and were killed.
                if writer.format == DirectoryFormat::Three && revision > writer.converted {
                    return Err(OutOfOrder);
                }
                (self.visit)(Found::Copy(&record));
                return Ok(0);
            }
            Entry::Record(revision, record) => {
                self.last = revision;
                writer.time_ms = writer.time_ms.max(record.written_ms);
                (self.visit)(Found::Record(revision, &record));
                let location = Location {
                    segment,
                    offset,
                    bytes,
                };
                self.contents.locations.insert(revision, location);
                return Ok(u64::from(bytes));
            }
            Entry::Oldest(oldest, time_ms) => {
                writer.oldest = writer.oldest.max(oldest);
                writer.time_ms = writer.time_ms.max(time_ms);
            }
            Entry::Closed(time_ms) => writer.time_ms = writer.time_ms.max(time_ms),
            Entry::Backup { .. } | Entry::BackupEnd(_) => {}
        }
        Ok(0)
    }
}

/// A record that is older than one before it.
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
