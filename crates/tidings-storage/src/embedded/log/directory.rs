//! The data directory: whose it is, and that only one server has it.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

const FORMAT: &str = "FORMAT";
const FORMAT_TEXT: &str = "tidings data directory, format 1\n";
const LOCK: &str = "LOCK";
const LOG: &str = "log";
const SEGMENT: &str = "seg";

/// Why a data directory is refused. It is left as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another server has it.
    #[error("the data directory {} is in use by another server: stop that one, or choose another directory", .path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// It holds something else.
    #[error(
        "the directory {} is not a data directory of Tidings (it holds {found}): choose an empty or a new directory",
        .path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// A file in it.
        found: String,
    },
    /// It was written in a form that this version does not know.
    #[error(
        "the data directory {} has the format {found:?}, which this version does not know: use the version that wrote it",
        .path.display()
    )]
    Format {
        /// The directory.
        path: PathBuf,
        /// What the format file says.
        found: String,
    },
    /// A file is not as it was written.
    #[error(
        "the data file {} is damaged at byte {offset}: {what}. Nothing was changed. Restore the data directory from a backup, \
         or move it away to start empty",
        .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What was found.
        what: &'static str,
    },
    /// The operating system refused.
    #[error("the data directory cannot be used: {}", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

#[derive(Debug)]
pub(super) struct Directory {
    log: PathBuf,
    /// Locked as long as the store is open.
    _lock: File,
}

impl Directory {
    /// Opens a data directory, or makes one of an empty or missing directory.
    /// `beside` names what its owner keeps there too.
    pub(super) fn open(path: &Path, beside: &[&str]) -> Result<Directory, OpenError> {
        let io_error = |source| OpenError::Io {
            path: path.to_owned(),
            source,
        };
        std::fs::create_dir_all(path).map_err(io_error)?;
        match std::fs::read_to_string(path.join(FORMAT)) {
            Ok(text) if text == FORMAT_TEXT => {}
            Ok(text) => {
                return Err(OpenError::Format {
                    path: path.to_owned(),
                    found: text.trim().to_owned(),
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut entries = std::fs::read_dir(path)
                    .map_err(io_error)?
                    .filter_map(Result::ok);
                // A lock alone is left from a start that ended before it had written anything.
                let own = |name: &str| name == LOCK || beside.contains(&name);
                if let Some(entry) =
                    entries.find(|entry| !entry.file_name().to_str().is_some_and(own))
                {
                    let found = entry.file_name().to_string_lossy().into_owned();
                    return Err(OpenError::Foreign {
                        path: path.to_owned(),
                        found,
                    });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(OpenError::Format {
                    path: path.to_owned(),
                    found: "bytes that are not text".to_owned(),
                });
            }
            Err(error) => return Err(io_error(error)),
        }
        let lock = File::create(path.join(LOCK)).map_err(io_error)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => OpenError::InUse {
                path: path.to_owned(),
            },
            TryLockError::Error(error) => io_error(error),
        })?;
        let log = path.join(LOG);
        std::fs::create_dir_all(&log).map_err(io_error)?;
        if !path.join(FORMAT).exists() {
            write_durably(&path.join(FORMAT), FORMAT_TEXT.as_bytes()).map_err(io_error)?;
            sync(path).map_err(io_error)?;
        }
        Ok(Directory { log, _lock: lock })
    }

    /// The segments there are, oldest first.
    pub(super) fn segments(&self) -> Result<Vec<u64>, OpenError> {
        let io_error = |source| OpenError::Io {
            path: self.log.clone(),
            source,
        };
        let mut ids = Vec::new();
        for entry in std::fs::read_dir(&self.log).map_err(io_error)? {
            let path = entry.map_err(io_error)?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == SEGMENT)
            {
                let stem = path.file_stem().and_then(|stem| stem.to_str());
                let id = stem.and_then(|stem| stem.parse().ok());
                ids.push(id.ok_or_else(|| OpenError::Damaged {
                    path: path.clone(),
                    offset: 0,
                    what: "its name is not that of a segment of the log",
                })?);
            }
        }
        ids.sort_unstable();
        Ok(ids)
    }

    pub(super) fn segment_path(&self, id: u64) -> PathBuf {
        self.log.join(format!("{id:020}.{SEGMENT}"))
    }

    /// Makes new and removed names durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        sync(&self.log)
    }
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn write_durably(path: &Path, contents: &[u8]) -> io::Result<()> {
    std::fs::write(path, contents)?;
    File::open(path)?.sync_all()
}
