//! One file of the log.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use bytes::Bytes;

use super::directory::OpenError;
use super::frame::{self, Entry};
use crate::embedded::record::Record;

const HEADER: &[u8; 8] = b"tidings1";
pub(super) const HEADER_BYTES: u64 = HEADER.len() as u64;

/// Creates an empty segment, durably. The caller syncs the directory.
pub(super) fn create(path: &Path) -> io::Result<File> {
    // A file of this name can only be left from a creation that failed before anything was written to it.
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all_at(HEADER, 0)?;
    file.sync_all()?;
    Ok(file)
}

/// Puts frames at the end of the segment, durably.
pub(super) fn append(file: &File, offset: u64, frames: &[u8]) -> io::Result<()> {
    file.write_all_at(frames, offset)?;
    file.sync_data()
}

/// Takes back a write that failed.
pub(super) fn undo(file: &File, offset: u64) -> io::Result<()> {
    file.set_len(offset)?;
    file.sync_all()
}

/// Puts a segment with the given frames in place of another, at once or not at all. The caller syncs the directory.
pub(super) fn replace(path: &Path, frames: &[u8]) -> io::Result<File> {
    let fresh = path.with_extension("new");
    let file = create(&fresh)?;
    file.write_all_at(frames, HEADER_BYTES)?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    Ok(file)
}

/// Reads one record.
pub(super) fn read(file: &File, offset: u32, bytes: u32) -> io::Result<Record> {
    let mut frame = Vec::new();
    copy(file, offset, bytes, &mut frame)?;
    match frame::read(&Bytes::from(frame)) {
        Ok((Entry::Record(_, record), _)) => Ok(record),
        Ok(_) => Err(io::Error::other("there is no record where one should be")),
        Err(what) => Err(io::Error::other(what)),
    }
}

/// Appends the bytes of one frame to `frames`.
pub(super) fn copy(file: &File, offset: u32, bytes: u32, frames: &mut Vec<u8>) -> io::Result<()> {
    let start = frames.len();
    frames.resize(start + bytes as usize, 0);
    file.read_exact_at(&mut frames[start..], u64::from(offset))
}

/// Reads a whole segment, visiting its entries with their offsets and sizes. Returns the file and its length.
///
/// In the newest segment, what a crash left at the end is moved to a file beside it.
pub(super) fn load(
    path: &Path,
    newest: bool,
    visit: &mut dyn FnMut(Entry, u32, u32),
) -> Result<(File, u64), OpenError> {
    let io_error = |source| OpenError::Io {
        path: path.to_owned(),
        source,
    };
    let damaged = |offset, what: &'static str| OpenError::Damaged {
        path: path.to_owned(),
        offset: offset as u64,
        what,
    };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(io_error)?;
    let mut contents = Vec::new();
    file.read_to_end(&mut contents).map_err(io_error)?;
    if newest && contents.len() < HEADER.len() && HEADER.starts_with(&contents) {
        file.write_all_at(HEADER, 0)
            .and_then(|()| file.sync_all())
            .map_err(io_error)?;
        return Ok((file, HEADER_BYTES));
    }
    if !contents.starts_with(HEADER) {
        return Err(damaged(0, "it does not begin as a segment of the log does"));
    }
    let contents = Bytes::from(contents);
    let mut offset = HEADER.len();
    while offset < contents.len() {
        let rest = contents.slice(offset..);
        match frame::read(&rest) {
            Ok((entry, bytes)) => {
                visit(entry, offset as u32, bytes as u32);
                offset += bytes;
            }
            Err(what) if !newest || frame::follows(&rest.slice(1..)) => {
                return Err(damaged(offset, what));
            }
            Err(_) => {
                let aside = path.with_extension(format!("torn-{offset}"));
                tracing::warn!(
                    segment = %path.display(), offset, bytes = rest.len(), kept = %aside.display(),
                    "the log ends with a write that was not acknowledged; it is set aside"
                );
                std::fs::write(&aside, &rest).map_err(io_error)?;
                undo(&file, offset as u64).map_err(io_error)?;
                break;
            }
        }
    }
    Ok((file, offset as u64))
}
