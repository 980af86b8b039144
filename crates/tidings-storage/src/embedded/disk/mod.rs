//! The files that the store is kept in: what the log asks of an operating system, and nothing more.
//!
//! [`RealDisk`] passes every call on. `SimulatedDisk` (feature `simulation`) fails on purpose: it loses what was not synced,
//! is full, returns errors, and repeats all of that from a seed.

mod real;
#[cfg(any(test, feature = "simulation"))]
mod simulated;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use real::RealDisk;
#[cfg(any(test, feature = "simulation"))]
pub use simulated::{Fault, SimulatedDisk};

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// To read what is there.
    Read,
    /// To read and write what is there.
    Write,
    /// To write a new one, in place of one that is there. Only its owner may read it.
    Create,
}

/// A file system. Names are durable after [`Disk::sync_names`] of their directory, contents after [`DiskFile::sync`].
pub trait Disk: fmt::Debug + Send + Sync {
    /// Makes a directory and its parents, if they are not there. Only its owner may look into it.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory, in any order.
    fn names(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;

    /// Gives a file or directory another name, in place of whatever file has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable, new and removed ones.
    fn sync_names(&self, directory: &Path) -> io::Result<()>;

    /// Locks a file, which is made if `create` says so, until what is returned is dropped. The error has the kind
    /// [`io::ErrorKind::WouldBlock`] if another process has locked it.
    fn lock(&self, path: &Path, create: bool) -> io::Result<Box<dyn Lock>>;

    /// How many bytes can still be written below a directory.
    fn free_bytes(&self, directory: &Path) -> io::Result<u64>;
}

/// A lock that ends when it is dropped.
pub trait Lock: fmt::Debug + Send + Sync {}

/// An open file.
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// How long it is.
    fn bytes(&self) -> io::Result<u64>;

    /// Reads at a position; fewer bytes than asked for may come, and none behind the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at a position; fewer bytes than given may be written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Cuts it off, or extends it with zeros.
    fn set_bytes(&self, bytes: u64) -> io::Result<()>;

    /// Makes its contents and length durable.
    fn sync(&self) -> io::Result<()>;
}

/// Writes all of `bytes`, in as many calls as it takes.
pub(super) fn write_all_at(
    file: &dyn DiskFile,
    mut bytes: &[u8],
    mut offset: u64,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills `buffer`, in as many calls as it takes.
pub(super) fn read_exact_at(
    file: &dyn DiskFile,
    mut buffer: &mut [u8],
    mut offset: u64,
) -> io::Result<()> {
    while !buffer.is_empty() {
        match file.read_at(buffer, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                buffer = &mut buffer[read..];
                offset += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The whole content of a file.
///
/// # Errors
/// If it cannot be read.
pub fn read_all(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let mut contents = vec![0; file.bytes()? as usize];
    read_exact_at(file, &mut contents, 0)?;
    Ok(contents)
}

/// Where a file is written before it takes its name.
pub(super) fn aside(path: &Path) -> PathBuf {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    fresh.into()
}

/// Writes a file durably, beside the one of that name. See [`take_name`].
pub(super) fn write_aside(disk: &dyn Disk, path: &Path, contents: &[u8]) -> io::Result<()> {
    let file = disk.open(&aside(path), OpenMode::Create)?;
    write_all_at(&*file, contents, 0)?;
    file.sync()
}

/// Puts the file that was written beside another in its place, durably.
pub(super) fn take_name(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    disk.rename(&aside(path), path)?;
    disk.sync_names(folder(path))
}

/// The directory that a file is in.
pub(super) fn folder(path: &Path) -> &Path {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Writes a whole file for its owner only, durably, and in place of another at once or not at all.
///
/// # Errors
/// If it cannot be written. The one that was there stays.
pub fn write_durably(disk: &dyn Disk, path: &Path, contents: &[u8]) -> io::Result<()> {
    write_aside(disk, path, contents)?;
    take_name(disk, path)
}
