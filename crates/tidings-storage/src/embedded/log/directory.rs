//! The data directory: whose it is, and that only one server has it.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const FORMAT: &str = "FORMAT";
const FORMAT_TEXT: &str = "tidings data directory, format 2\n";
const LOCK: &str = "LOCK";
const LOG: &str = "log";
const SEGMENT: &str = "seg";
const SEGMENTS: &str = "SEGMENTS";

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
    lock: File,
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that is being started beside this one has it open for a moment.
        let _ = self.lock.unlock();
    }
}

impl Directory {
    /// Opens a data directory, or makes one of an empty or missing directory.
    /// `beside` names what its owner keeps there too.
    pub(super) fn open(path: &Path, beside: &[&str]) -> Result<Directory, OpenError> {
        let io_error = |source| OpenError::Io {
            path: path.to_owned(),
            source,
        };
        create_private(path).map_err(io_error)?;
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
        let directory = Directory {
            log: path.join(LOG),
            lock,
        };
        if !path.join(FORMAT).exists() {
            create_private(&directory.log).map_err(io_error)?;
            directory.record_segments(&[]).map_err(io_error)?;
            write_durably(&path.join(FORMAT), FORMAT_TEXT.as_bytes()).map_err(io_error)?;
            sync(path).map_err(io_error)?;
        }
        Ok(directory)
    }

    /// Notes durably which segments make up the log. What is not noted holds nothing that was acknowledged.
    pub(super) fn record_segments(&self, ids: &[u64]) -> io::Result<()> {
        let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
        let fresh = self.log.join(format!("{SEGMENTS}.new"));
        write_durably(&fresh, lines.as_bytes())?;
        std::fs::rename(fresh, self.log.join(SEGMENTS))?;
        sync(&self.log)
    }

    /// The segments that make up the log, oldest first. Each of them is there.
    pub(super) fn segments(&self) -> Result<Vec<u64>, OpenError> {
        let path = self.log.join(SEGMENTS);
        let damaged = |path: PathBuf, what| OpenError::Damaged {
            path,
            offset: 0,
            what,
        };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(damaged(path, "it is missing"));
            }
            Err(source) => return Err(OpenError::Io { path, source }),
        };
        let mut ids = Vec::new();
        for line in text.lines() {
            let id = line
                .parse()
                .map_err(|_| damaged(path.clone(), "it does not list segments"))?;
            if !self.segment_path(id).exists() {
                return Err(damaged(self.segment_path(id), "it is missing"));
            }
            ids.push(id);
        }
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

/// Makes a directory that only its owner can look into: it holds Secrets.
fn create_private(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn write_durably(path: &Path, contents: &[u8]) -> io::Result<()> {
    std::fs::write(path, contents)?;
    File::open(path)?.sync_all()
}
