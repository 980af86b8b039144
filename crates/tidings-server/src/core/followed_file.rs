//! Files with credentials that may change while the server runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use super::credentials_error::CredentialsError;

/// The time and the size of a file: if they change, so may its content. `None`: there is no file.
type FileStamp = Option<(Option<SystemTime>, u64)>;

/// What a file says. It is read again when the file changes; one that is wrong changes nothing.
pub(super) struct FollowedFile<T> {
    path: PathBuf,
    parse: fn(&Path, Option<&[u8]>) -> Result<T, CredentialsError>,
    current: RwLock<Arc<T>>,
    stamp: Mutex<FileStamp>,
}

fn stamp(path: &Path) -> FileStamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok(), metadata.len()))
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
            stamp: Mutex::new(stamp),
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
        let known = self.stamp.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        if *known == now {
            return;
        }
        *known = now;
        match read(&self.path, self.parse) {
            Ok(read) => {
                tracing::info!(path = %self.path.display(), "a file of credentials has changed and was read again");
                let current = self.current.write();
                *current.unwrap_or_else(PoisonError::into_inner) = Arc::new(read);
            }
            Err(error) => {
                tracing::error!(%error, "a file of credentials has changed and is wrong: what it said before stays");
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
