//! Files that may change while a program runs.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// What changes with the content of a file. `None`: there is no file.
type FileStamp = Option<(u64, u64, i64, i64, i64, i64)>;

/// Reads the content of a file, or says what is wrong with it. It gets the path and the bytes, or why there are none.
pub type FileParser<T, E> = dyn Fn(&Path, io::Result<&[u8]>) -> Result<T, E> + Send + Sync;

/// What is known of a file.
#[derive(Default)]
struct SeenFile {
    /// The file that was read.
    read: FileStamp,
    /// The file that could not be read, which the log says once.
    failed: Option<FileStamp>,
}

/// What a file says. It is read again when the file changes; one that is wrong changes nothing.
pub struct FollowedFile<T, E> {
    path: PathBuf,
    parse: Box<FileParser<T, E>>,
    current: RwLock<Arc<T>>,
    seen: Mutex<SeenFile>,
}

impl<T, E> fmt::Debug for FollowedFile<T, E> {
    /// Shows only the path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FollowedFile({})", self.path.display())
    }
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

impl<T, E: fmt::Display> FollowedFile<T, E> {
    /// Reads a file.
    ///
    /// # Errors
    /// With what `parse` says.
    pub fn open(
        path: &Path,
        parse: impl Fn(&Path, io::Result<&[u8]>) -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<FollowedFile<T, E>, E> {
        // Before the content: a change in between is seen at the next look.
        let stamp = stamp(path);
        Ok(FollowedFile {
            current: RwLock::new(Arc::new(read(path, &parse)?)),
            path: path.to_owned(),
            parse: Box::new(parse),
            seen: Mutex::new(SeenFile {
                read: stamp,
                failed: None,
            }),
        })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the file says.
    pub fn current(&self) -> Arc<T> {
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the file again if it has changed. One that is wrong changes nothing, and the log says why. Returns true if it says something new.
    /// Blocks.
    pub fn follow(&self) -> bool {
        let now = stamp(&self.path);
        let seen = self.seen.lock();
        let mut seen = seen.unwrap_or_else(PoisonError::into_inner);
        if seen.read == now {
            return false;
        }
        match read(&self.path, &*self.parse) {
            Ok(read) => {
                tracing::info!(path = %self.path.display(), "a file has changed and was read again");
                let current = self.current.write();
                *current.unwrap_or_else(PoisonError::into_inner) = Arc::new(read);
                *seen = SeenFile {
                    read: now,
                    failed: None,
                };
                true
            }
            // It is tried again at every look: a disk may have failed for a moment.
            Err(error) => {
                if seen.failed.replace(now) != Some(now) {
                    tracing::error!(%error, "a file has changed and is wrong: what it said before stays");
                }
                false
            }
        }
    }
}

fn read<T, E>(path: &Path, parse: &FileParser<T, E>) -> Result<T, E> {
    match std::fs::read(path) {
        Ok(bytes) => parse(path, Ok(&bytes)),
        Err(error) => parse(path, Err(error)),
    }
}
