//! The file system operations that the log needs.
//!
//! [`RealDisk`] uses the operating system. `SimulatedDisk` (feature `simulation`) fails on purpose: it loses data that was not
//! synced, runs full and returns errors, and a seed repeats its failures.

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
    /// Read an existing file.
    Read,
    /// Read and write an existing file.
    Write,
    /// Create a new file, in place of an existing one. Only its owner may read it.
    Create,
}

/// A file system. Names are durable after [`Disk::sync_names`] of their directory, contents after [`DiskFile::sync`].
pub trait Disk: fmt::Debug + Send + Sync {
    /// Creates a directory and its parents, if they do not exist. Only the owner may read it.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory, in any order.
    fn names(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file or directory. Replaces an existing file of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes created and removed names in a directory durable.
    fn sync_names(&self, directory: &Path) -> io::Result<()>;

    /// Locks a file until the returned lock is dropped. With `create`, makes the file if it does not exist. The error has the
    /// kind [`io::ErrorKind::WouldBlock`] if another process holds the lock.
    fn lock(&self, path: &Path, create: bool) -> io::Result<Box<dyn Lock>>;

    /// The free space for files in a directory.
    fn free_bytes(&self, directory: &Path) -> io::Result<u64>;
}

/// A lock that ends when it is dropped.
pub trait Lock: fmt::Debug + Send + Sync {}

/// An open file.
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// The length of the file.
    fn bytes(&self) -> io::Result<u64>;

    /// Reads at a position. May return fewer bytes than requested, and none after the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at a position. May write fewer bytes than given.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Truncates the file, or extends it with zeros.
    fn set_bytes(&self, bytes: u64) -> io::Result<()>;

    /// Makes contents and length durable.
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

/// The temporary path at which a new version of a file is written.
pub(super) fn aside(path: &Path) -> PathBuf {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    fresh.into()
}

/// Writes a new version of a file durably to its temporary path. See [`take_name`].
pub(super) fn write_aside(disk: &dyn Disk, path: &Path, contents: &[u8]) -> io::Result<()> {
    let file = disk.open(&aside(path), OpenMode::Create)?;
    write_all_at(&*file, contents, 0)?;
    file.sync()
}

/// Renames the new version of a file from its temporary path to its name, durably.
pub(super) fn take_name(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    disk.rename(&aside(path), path)?;
    disk.sync_names(folder(path))
}

/// The directory of a file.
pub(super) fn folder(path: &Path) -> &Path {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Writes a whole file durably and atomically, in place of an existing one. Only its owner may read it.
///
/// # Errors
/// If it cannot be written. Then the existing file stays.
pub fn write_durably(disk: &dyn Disk, path: &Path, contents: &[u8]) -> io::Result<()> {
    write_aside(disk, path, contents)?;
    take_name(disk, path)
}
