//! The data directory: its owner, its format, and the lock that keeps other processes out.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::SegmentId;
use super::manifest::Manifest;
use super::open_error::OpenError;
use crate::embedded::disk::{self, Disk, Lock, OpenMode};

const FORMAT: &str = "FORMAT";
const FORMAT_TEXT: &str = "tidings data directory, format 3\n";
/// The format of earlier versions. It is converted when the directory is opened.
const FORMAT_2_TEXT: &str = "tidings data directory, format 2\n";
const LOCK: &str = "LOCK";
const LOG: &str = "log";
const SEGMENT: &str = "seg";
const SEGMENTS: &str = "SEGMENTS";
const RESERVE: &str = "RESERVE";

/// The format of a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirectoryFormat {
    /// The format of earlier versions.
    Two,
    Three,
}

/// A data directory that this process has locked.
#[derive(Debug)]
pub(crate) struct DataDirectory {
    pub(super) disk: Arc<dyn Disk>,
    path: PathBuf,
    log: PathBuf,
    format: DirectoryFormat,
    /// Held while the store is open. `None` for a copy of a directory without a lock file, which is only inspected.
    _lock: Option<Box<dyn Lock>>,
}

impl DataDirectory {
    /// Opens a data directory, or creates one in an empty or missing directory.
    /// `beside` names other files that its owner keeps there.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        path: &Path,
        beside: &[&str],
    ) -> Result<DataDirectory, OpenError> {
        let io_error = |source| OpenError::io(path, source);
        disk.create_dir(path).map_err(io_error)?;
        let format = read_format(&*disk, path)?;
        if format.is_none() {
            check_foreign(&*disk, path, beside)?;
        }
        let lock = lock(&*disk, path, true)?;
        let directory = DataDirectory {
            log: path.join(LOG),
            format: format.unwrap_or(DirectoryFormat::Three),
            path: path.to_owned(),
            disk,
            _lock: Some(lock),
        };
        if format.is_none() {
            directory.create().map_err(io_error)?;
        }
        directory.sync_path().map_err(io_error)?;
        Ok(directory)
    }

    /// Prepares a directory in which [`super::build::LogBuilder`] writes a store. `None` if it has a store.
    pub(super) fn claim(
        disk: Arc<dyn Disk>,
        path: &Path,
        beside: &[&str],
    ) -> Result<Option<DataDirectory>, OpenError> {
        let io_error = |source| OpenError::io(path, source);
        disk.create_dir(path).map_err(io_error)?;
        if read_format(&*disk, path)?.is_some() {
            return Ok(None);
        }
        check_foreign(&*disk, path, beside)?;
        let lock = lock(&*disk, path, true)?;
        let log = path.join(LOG);
        disk.create_dir(&log).map_err(io_error)?;
        Ok(Some(DataDirectory {
            log,
            format: DirectoryFormat::Three,
            path: path.to_owned(),
            disk,
            _lock: Some(lock),
        }))
    }

    /// Removes the files of an unfinished store.
    pub(super) fn abandon(&self, made: &[PathBuf]) {
        let (list, format) = (self.log.join(SEGMENTS), self.path.join(FORMAT));
        let others = [disk::aside(&list), list, disk::aside(&format), format];
        for path in made.iter().chain(&others) {
            let _ = self.disk.remove(path);
        }
        let _ = self.disk.remove_dir(&self.log);
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a data directory for reading only.
    pub(crate) fn inspect(disk: Arc<dyn Disk>, path: &Path) -> Result<DataDirectory, OpenError> {
        let format = read_format(&*disk, path)?.ok_or_else(|| OpenError::Missing {
            path: path.to_owned(),
        })?;
        let lock = match lock(&*disk, path, false) {
            Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
            lock => Some(lock?),
        };
        Ok(DataDirectory {
            log: path.join(LOG),
            format,
            path: path.to_owned(),
            disk,
            _lock: lock,
        })
    }

    /// Creates an empty store. The format file is written last, because it marks a store.
    fn create(&self) -> io::Result<()> {
        self.disk.create_dir(&self.log)?;
        self.write_manifest(&Manifest::default())?;
        self.publish_manifest()?;
        self.write_format()
    }

    /// Makes the names on the path to the log durable: an earlier process may have been killed before it could do so.
    pub(super) fn sync_path(&self) -> io::Result<()> {
        match self.sync_names() {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {} // a missing log is reported later
        }
        self.disk.sync_names(&self.path)?;
        match self.disk.sync_names(disk::folder(&self.path)) {
            // A process that may not read the parent directory cannot have created this one.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        }
    }

    /// Writes the format file for the current format.
    pub(super) fn write_format(&self) -> io::Result<()> {
        let path = self.path.join(FORMAT);
        disk::write_durably(&*self.disk, &path, FORMAT_TEXT.as_bytes())
    }

    pub(crate) fn format(&self) -> DirectoryFormat {
        self.format
    }

    /// Writes a new list of segments to its temporary path.
    pub(super) fn write_manifest(&self, manifest: &Manifest) -> io::Result<()> {
        let path = self.log.join(SEGMENTS);
        disk::write_aside(&*self.disk, &path, manifest.to_text().as_bytes())
    }

    /// Replaces the list of segments by the one that was written last.
    pub(super) fn publish_manifest(&self) -> io::Result<()> {
        disk::take_name(&*self.disk, &self.log.join(SEGMENTS))
    }

    /// The list of segments.
    pub(super) fn manifest(&self) -> Result<Manifest, OpenError> {
        let path = self.log.join(SEGMENTS);
        let damaged = |what| OpenError::Damaged {
            path: path.clone(),
            offset: 0,
            what,
        };
        let contents = self
            .disk
            .open(&path, OpenMode::Read)
            .and_then(|file| disk::read_all(&*file));
        let text = match contents {
            Ok(contents) => String::from_utf8(contents).ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(damaged("it is missing"));
            }
            Err(source) => return Err(OpenError::io(&path, source)),
        };
        let manifest = text.and_then(|text| match self.format {
            DirectoryFormat::Two => Manifest::parse_format_2(&text),
            DirectoryFormat::Three => Manifest::parse(&text),
        });
        let manifest = manifest
            .ok_or_else(|| damaged("it is not a list of segments, or not as it was written"))?;
        // The list of format 2 has no checksum: an emptied list looks like a store without segments.
        if manifest.segments.is_empty() && self.has_written_segments() {
            return Err(damaged("it names no segments, and there are some"));
        }
        Ok(manifest)
    }

    /// True if any segment has more than its header.
    fn has_written_segments(&self) -> bool {
        let unlisted = self.unlisted(&[]).unwrap_or_default();
        let mut segments = unlisted.iter().filter(|path| segment_id(path).is_some());
        segments.any(|path| {
            let bytes = self
                .disk
                .open(path, OpenMode::Read)
                .and_then(|file| file.bytes());
            bytes.is_ok_and(|bytes| bytes > super::segment::HEADER_BYTES)
        })
    }

    /// Files of the log that are not in the list of segments: leftovers of an operation that a crash interrupted.
    pub(crate) fn unlisted(&self, listed: &[SegmentId]) -> io::Result<Vec<PathBuf>> {
        let mut unlisted = Vec::new();
        for name in self.disk.names(&self.log)? {
            let path = self.log.join(&name);
            let extension = path.extension().and_then(|extension| extension.to_str());
            let is_listed = listed.iter().any(|id| self.segment_path(*id) == path);
            if (extension == Some(SEGMENT) && !is_listed) || extension == Some("new") {
                unlisted.push(path);
            }
        }
        unlisted.sort();
        Ok(unlisted)
    }

    pub(super) fn segment_path(&self, id: SegmentId) -> PathBuf {
        self.log.join(format!("{id:020}.{SEGMENT}"))
    }

    pub(super) fn reserve_path(&self) -> PathBuf {
        self.log.join(RESERVE)
    }

    /// Makes created and removed files of the log durable.
    pub(super) fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_names(&self.log)
    }

    /// The free space on the disk.
    pub(super) fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes(&self.log)
    }
}

/// The number of a segment, from its file name.
pub(super) fn segment_id(path: &Path) -> Option<SegmentId> {
    path.file_stem()?.to_str()?.parse().ok()
}

/// The format in the format file; `None` if there is no such file.
fn read_format(disk: &dyn Disk, path: &Path) -> Result<Option<DirectoryFormat>, OpenError> {
    let read = disk
        .open(&path.join(FORMAT), OpenMode::Read)
        .and_then(|file| disk::read_all(&*file));
    let contents = match read {
        Ok(contents) => contents,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(OpenError::io(path, source)),
    };
    match std::str::from_utf8(&contents) {
        Ok(FORMAT_TEXT) => Ok(Some(DirectoryFormat::Three)),
        Ok(FORMAT_2_TEXT) => Ok(Some(DirectoryFormat::Two)),
        text => Err(OpenError::Format {
            path: path.to_owned(),
            found: text.map_or("bytes that are not text", str::trim).to_owned(),
        }),
    }
}

/// Refuses a directory without a format file that contains foreign files.
fn check_foreign(disk: &dyn Disk, path: &Path, beside: &[&str]) -> Result<(), OpenError> {
    let names = disk
        .names(path)
        .map_err(|source| OpenError::io(path, source))?;
    for name in names {
        let own = match &*name {
            LOCK | "FORMAT.new" => true,
            LOG => match disk.names(&path.join(LOG)) {
                // From an interrupted first start: no write was acknowledged.
                Ok(inside) if inside.iter().all(|name| name.starts_with(SEGMENTS)) => true,
                Ok(inside) if inside.iter().all(|name| is_of_log(name)) => {
                    return Err(OpenError::Unfinished {
                        path: path.to_owned(),
                    });
                }
                _ => false,
            },
            name => beside.contains(&name),
        };
        if !own {
            return Err(OpenError::Foreign {
                path: path.to_owned(),
                found: name,
            });
        }
    }
    Ok(())
}

fn is_of_log(name: &str) -> bool {
    name.starts_with(SEGMENTS) || segment_id(Path::new(name)).is_some()
}

fn lock(disk: &dyn Disk, path: &Path, create: bool) -> Result<Box<dyn Lock>, OpenError> {
    disk.lock(&path.join(LOCK), create)
        .map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => OpenError::InUse {
                path: path.to_owned(),
            },
            _ => OpenError::io(path, error),
        })
}
