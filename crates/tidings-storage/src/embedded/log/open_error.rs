//! Why a data directory cannot be opened.

use std::io;
use std::path::{Path, PathBuf};

/// Why a data directory is refused. It is not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process uses the directory.
    #[error("the data directory {} is in use by another server: stop that one, or choose another directory", .path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The directory contains something else.
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
    /// The directory contains an interrupted restore.
    #[error("the directory {} holds what is left of a restore that was interrupted: delete it and restore again", .path.display())]
    Unfinished {
        /// The directory.
        path: PathBuf,
    },
    /// The directory has no store.
    #[error("there is no data directory of Tidings at {}", .path.display())]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// The directory has a format that this version does not know.
    #[error(
        "the data directory {} has the format {found:?}, which this version does not know: use the version that wrote it, or a \
         newer one",
        .path.display()
    )]
    Format {
        /// The directory.
        path: PathBuf,
        /// The content of the format file.
        found: String,
    },
    /// A file is damaged.
    #[error(
        "the data file {} is damaged at byte {offset}: {what}. Nothing was changed. `tidings check` lists all damage; restore \
         the data directory from a backup, or move it away to start empty",
        .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The position of the damage.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// The operating system refused an operation.
    #[error("the data directory cannot be used: {}", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn io(path: &Path, source: io::Error) -> OpenError {
        OpenError::Io {
            path: path.to_owned(),
            source,
        }
    }
}
