//! Files with credentials that may change while the server runs.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::credentials_error::CredentialsError;

/// What changes with the content of a file. `None`: there is no file.
type FileStamp = Option<(u64, u64, i64, i64, i64, i64)>;

/// What is known of a file.
#[derive(Default)]
struct SeenFile {
    /// The file that was read.
    read: FileStamp,
    /// The file that could not be read, which the log says once.
    failed: Option<FileStamp>,
}

/// What a file says. It is read again when the file changes; one that is wrong changes nothing.
pub(super) struct FollowedFile<T> {
    path: PathBuf,
    parse: fn(&Path, Option<&[u8]>) -> Result<T, CredentialsError>,
    current: RwLock<Arc<T>>,
    seen: Mutex<SeenFile>,
}

fn stamp(path: &Path) -> FileStamp {
    let file = std::fs::metadata(path).ok()?;
    Some((
        file.ino(),
        file.len(),
        file.mtime(),
        file.mtime_nsec(),
        file.ctime(),
        file.ctime_nsec(),
    ))
}

impl<T> FollowedFile<T> {
    /// Reads a file. `parse` gets its path and its content, or nothing if there is no file.
    pub(super) fn open(
        path: &Path,
        parse: fn(&Path, Option<&[u8]>) -> Result<T, CredentialsError>,
    ) -> Result<FollowedFile<T>, CredentialsError> {
        // Before the content: a change in between is seen at the next look.
        let stamp = stamp(path);
        Ok(FollowedFile {
            current: RwLock::new(Arc::new(read(path, parse)?)),
            path: path.to_owned(),
            parse,
            seen: Mutex::new(SeenFile {
                read: stamp,
                failed: None,
            }),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What the file says.
    pub(super) fn current(&self) -> Arc<T> {
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the file again if it has changed. One that is wrong changes nothing, and the log says why. Blocks.
    pub(super) fn follow(&self) {
        let now = stamp(&self.path);
        let seen = self.seen.lock();
        let mut seen = seen.unwrap_or_else(PoisonError::into_inner);
        if seen.read == now {
            return;
        }
        match read(&self.path, self.parse) {
            Ok(read) => {
                tracing::info!(path = %self.path.display(), "a file of credentials has changed and was read again");
                let current = self.current.write();
                *current.unwrap_or_else(PoisonError::into_inner) = Arc::new(read);
                *seen = SeenFile {
                    read: now,
                    failed: None,
                };
            }
            // It is tried again at every look: a disk may have failed for a moment.
            Err(error) => {
                if seen.failed.replace(now) != Some(now) {
                    tracing::error!(%error, "a file of credentials has changed and is wrong: what it said before stays");
                }
            }
        }
    }
}

fn read<T>(
    path: &Path,
    parse: fn(&Path, Option<&[u8]>) -> Result<T, CredentialsError>,
) -> Result<T, CredentialsError> {
    match std::fs::read(path) {
        Ok(bytes) => parse(path, Some(&bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => parse(path, None),
        Err(source) => Err(CredentialsError::Unreadable {
            path: path.to_owned(),
            source,
        }),
    }
}
