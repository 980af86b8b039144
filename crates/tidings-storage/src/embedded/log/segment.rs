//! One file of the log: a header, then frames.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::SegmentId;
use super::directory::OpenError;
use super::frame::{self, Entry, FrameFormat, Group};
use crate::embedded::disk::{self, Disk, DiskFile, OpenMode};

const HEADER: &[u8; 8] = b"tidings2";
/// Of earlier versions.
const HEADER_1: &[u8; 8] = b"tidings1";
pub(super) const HEADER_BYTES: u64 = HEADER.len() as u64;

/// Makes a segment with some frames, durably. The caller makes its name durable.
pub(super) fn create(disk: &dyn Disk, path: &Path, group: &Group) -> io::Result<Arc<dyn DiskFile>> {
    let file = disk.open(path, OpenMode::Create)?;
    disk::write_all_at(&*file, HEADER, 0)?;
    disk::write_all_at(&*file, group.as_bytes(), HEADER_BYTES)?;
    file.sync()?;
    Ok(file)
}

/// Puts frames at the end of a segment, durably.
pub(super) fn append(file: &dyn DiskFile, offset: u64, frames: &[u8]) -> io::Result<()> {
    disk::write_all_at(file, frames, offset)?;
    file.sync()
}

/// Takes back a write that failed.
pub(super) fn undo(file: &dyn DiskFile, offset: u64) -> io::Result<()> {
    file.set_bytes(offset)?;
    file.sync()
}

/// A frame, and where it stands.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) entry: Entry,
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}

/// What a segment was found to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loaded {
    pub(crate) format: FrameFormat,
    /// Up to here there are frames; the header counts.
    pub(crate) end: u64,
    /// How many bytes stand behind that: what a crash has left.
    pub(crate) left_over: u64,
    /// Where the last group starts.
    last_group: u64,
}

/// Reads a segment and visits its frames. `closed_at` is its length if it is closed; else what a crash left at its end does not
/// count.
pub(crate) fn load(
    file: &dyn DiskFile,
    path: &Path,
    id: SegmentId,
    closed_at: Option<u64>,
    visit: &mut dyn FnMut(Placed),
) -> Result<Loaded, OpenError> {
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
        // A crash while an earlier version made the file.
        None if closed_at.is_none() && HEADER_1.starts_with(&contents) => FrameFormat::One,
        _ => return Err(damaged(0, "it does not begin as a segment of the log does")),
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
                visit(Placed {
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
    Ok(Loaded {
        format,
        end,
        left_over: length - end,
        last_group,
    })
}

/// Makes what was loaded of the last segment durable: the process that wrote its last group may have been killed before it had
/// synced it, or a sync of it may have failed, so it is written once more.
pub(super) fn settle(file: &dyn DiskFile, loaded: &Loaded) -> io::Result<()> {
    if loaded.format == FrameFormat::Two && loaded.last_group < loaded.end {
        let mut group = vec![0; (loaded.end - loaded.last_group) as usize];
        disk::read_exact_at(file, &mut group, loaded.last_group)?;
        disk::write_all_at(file, &group, loaded.last_group)?;
    }
    file.sync()
}
