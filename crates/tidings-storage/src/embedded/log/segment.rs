//! A segment: one file of the log, with a header and frames.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::SegmentId;
use super::frame::{self, FrameFormat, FrameGroup, LogEntry};
use super::open_error::OpenError;
use crate::embedded::disk::{self, Disk, DiskFile, OpenMode};

const HEADER: &[u8; 8] = b"tidings2";
/// The header of earlier versions.
const HEADER_1: &[u8; 8] = b"tidings1";
pub(super) const HEADER_BYTES: u64 = HEADER.len() as u64;

/// Creates a segment with some frames, durably. The caller makes its name durable.
pub(super) fn create(
    disk: &dyn Disk,
    path: &Path,
    group: &FrameGroup,
) -> io::Result<Arc<dyn DiskFile>> {
    let file = disk.open(path, OpenMode::Create)?;
    disk::write_all_at(&*file, HEADER, 0)?;
    disk::write_all_at(&*file, group.as_bytes(), HEADER_BYTES)?;
    file.sync()?;
    Ok(file)
}

/// Appends frames to a segment, durably.
pub(super) fn append(file: &dyn DiskFile, offset: u64, frames: &[u8]) -> io::Result<()> {
    disk::write_all_at(file, frames, offset)?;
    file.sync()
}

/// Undoes a failed write.
pub(super) fn undo(file: &dyn DiskFile, offset: u64) -> io::Result<()> {
    file.set_bytes(offset)?;
    file.sync()
}

/// A frame and its position.
#[derive(Debug)]
pub(crate) struct PlacedFrame {
    pub(crate) entry: LogEntry,
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}

/// The result of reading a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadedSegment {
    pub(crate) format: FrameFormat,
    /// The offset after the last frame.
    pub(crate) end: u64,
    /// The number of bytes after `end`, left by a crash.
    pub(crate) left_over: u64,
    /// The offset of the last group.
    last_group: u64,
}

/// Reads a segment and calls `visit` for its frames. `closed_at` is its length if it is closed. An open segment may end with an
/// interrupted write, which is ignored.
pub(crate) fn load(
    file: &dyn DiskFile,
    path: &Path,
    id: SegmentId,
    closed_at: Option<u64>,
    visit: &mut dyn FnMut(PlacedFrame),
) -> Result<LoadedSegment, OpenError> {
    let contents = disk::read_all(file).map_err(|source| OpenError::io(path, source))?;
    let contents = Bytes::from(contents);
    let damaged = |offset, what| OpenError::Damaged {
        path: path.to_owned(),
        offset,
        what,
    };
    let format = match contents.first_chunk() {
        Some(HEADER) => FrameFormat::Two,
        Some(HEADER_1) => FrameFormat::One,
        // An earlier version crashed while it created the file.
        None if closed_at.is_none() && HEADER_1.starts_with(&contents) => FrameFormat::One,
        _ => return Err(damaged(0, "it does not start with the header of a segment")),
    };
    let length = contents.len() as u64;
    let mut end = closed_at.unwrap_or(length);
    if end > length {
        return Err(damaged(length, "its end is missing"));
    }
    let frames = contents.slice(..end as usize);
    let mut offset = HEADER_BYTES;
    let mut last_group = HEADER_BYTES;
    while offset < end {
        match frame::read(&frames.slice(offset as usize..), format, id, offset) {
            Ok(frame) => {
                visit(PlacedFrame {
                    entry: frame.entry,
                    offset: offset as u32,
                    bytes: frame.bytes as u32,
                });
                offset += frame.bytes as u64;
                last_group = u64::from(frame.group).max(last_group);
            }
            Err(_) if closed_at.is_none() && frame::is_torn_end(&contents, format, id, offset) => {
                end = offset;
            }
            Err(what) => return Err(damaged(offset, what)),
        }
    }
    Ok(LoadedSegment {
        format,
        end,
        left_over: length - end,
        last_group,
    })
}

/// Makes the last group of the last segment durable. The process that wrote it may have been killed before the sync, or the sync
/// may have failed, so the group is written again.
pub(super) fn settle(file: &dyn DiskFile, loaded: &LoadedSegment) -> io::Result<()> {
    if loaded.format == FrameFormat::Two && loaded.last_group < loaded.end {
        let mut group = vec![0; (loaded.end - loaded.last_group) as usize];
        disk::read_exact_at(file, &mut group, loaded.last_group)?;
        disk::write_all_at(file, &group, loaded.last_group)?;
    }
    file.sync()
}
