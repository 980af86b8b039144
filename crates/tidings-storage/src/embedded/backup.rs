//! Writes a backup, which is a file with all keys and values of a store at one revision, and restores a store from it.
//!
//! A backup is a line of text and then frames in the format of the log: a head, the records in the order of their keys, an end.
//! The checksum of a frame covers its number, so a missing, duplicate or moved frame is noticed.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::disk::{Disk, RealDisk};
use super::log::frame::{self, FrameFormat, FrameGroup, LogEntry};
use super::log::{LogBuilder, OpenError};
use super::record::Record;
use crate::contract::{KeyValue, Revision};

const TITLE: &[u8] = b"tidings backup, format 1\n";
/// A restored store starts at least this many revisions after the backup, so that it does not reuse revisions that the original
/// store assigned after the backup.
const REVISIONS_AHEAD: u64 = 1_000_000_000;
/// The restored store skips this many more revisions for each millisecond since the backup: no store writes faster.
const REVISIONS_PER_MS: u64 = 1000;
/// The size at which a segment is closed.
const SEGMENT_BYTES: u64 = 16 << 20;

/// Why a backup cannot be restored. The directory is not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The file is not a backup, or is from a later version.
    #[error("{} is not a backup that this version of Tidings can read", .path.display())]
    NotABackup {
        /// The file.
        path: PathBuf,
    },
    /// The backup is damaged.
    #[error("the backup {} is damaged at byte {offset}: {what}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The position of the damage.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// The directory has a store already.
    #[error("{} holds a store already: choose a new directory, or move that one away", .path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] OpenError),
    /// The operating system refused to read a file.
    #[error("{} cannot be read", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Makes the bytes of a backup, part by part.
#[derive(Debug)]
pub struct BackupWriter {
    frames: u64,
    records: u64,
}

impl BackupWriter {
    /// Starts a backup of a revision. `records` is the expected number of records, `taken_ms` the time in milliseconds since
    /// 1970. Also returns the first bytes.
    pub fn start(revision: Revision, taken_ms: u64, records: u64) -> (BackupWriter, Bytes) {
        let mut writer = BackupWriter {
            frames: 0,
            records: 0,
        };
        let mut bytes = TITLE.to_vec();
        let head = LogEntry::Backup {
            revision,
            taken_ms,
            records,
        };
        writer.push(&mut bytes, &head);
        (writer, bytes.into())
    }

    fn push(&mut self, bytes: &mut Vec<u8>, entry: &LogEntry) {
        let mut group = FrameGroup::at(self.frames, 0);
        group.push(entry);
        bytes.extend_from_slice(group.as_bytes());
        self.frames += 1;
    }

    /// The bytes of the next entries, which must be in the order of their keys.
    pub fn entries(&mut self, entries: Vec<KeyValue>) -> Bytes {
        let mut bytes = Vec::new();
        for KeyValue {
            key,
            value,
            revision,
        } in entries
        {
            let record = Record {
                written_ms: 0,
                key,
                value: Some(value),
            };
            self.push(&mut bytes, &LogEntry::Record(revision, record));
            self.records += 1;
        }
        bytes.into()
    }

    /// The last bytes. A file without them is refused.
    pub fn end(mut self) -> Bytes {
        let mut bytes = Vec::new();
        let end = LogEntry::BackupEnd(self.records);
        self.push(&mut bytes, &end);
        bytes.into()
    }
}

/// The contents of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupSummary {
    /// The revision of the backup.
    pub revision: Revision,
    /// The time of the backup, in milliseconds since 1970.
    pub taken_ms: u64,
    /// The number of keys.
    pub records: u64,
}

/// Reads the frames of a backup in order.
struct BackupReader<'a> {
    path: &'a Path,
    file: BufReader<File>,
    offset: u64,
    frames: u64,
}

impl<'a> BackupReader<'a> {
    fn open(path: &'a Path) -> Result<BackupReader<'a>, RestoreError> {
        let io_error = |source| RestoreError::Io {
            path: path.to_owned(),
            source,
        };
        let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(io_error)?);
        let mut title = [0; TITLE.len()];
        match file.read_exact(&mut title) {
            Ok(()) if title == TITLE => {}
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                return Err(io_error(error));
            }
            _ => {
                return Err(RestoreError::NotABackup {
                    path: path.to_owned(),
                });
            }
        }
        Ok(BackupReader {
            path,
            file,
            offset: TITLE.len() as u64,
            frames: 0,
        })
    }

    fn damaged(&self, what: &'static str) -> RestoreError {
        RestoreError::Damaged {
            path: self.path.to_owned(),
            offset: self.offset,
            what,
        }
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), RestoreError> {
        self.file
            .read_exact(buffer)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => self.damaged("the file ends too early"),
                _ => RestoreError::Io {
                    path: self.path.to_owned(),
                    source: error,
                },
            })
    }

    /// The next frame and its position.
    fn next(&mut self) -> Result<(LogEntry, FramePlace), RestoreError> {
        let mut bytes = vec![0; frame::HEADER];
        self.fill(&mut bytes)?;
        let length = frame::body_bytes(&bytes).map_err(|what| self.damaged(what))?;
        bytes.resize(frame::HEADER + length, 0);
        let (_, body) = bytes.split_at_mut(frame::HEADER);
        self.fill(body)?;
        let place = FramePlace {
            offset: self.offset,
            bytes: bytes.len() as u64,
            number: self.frames,
        };
        let entry = place.read(bytes).map_err(|what| self.damaged(what))?;
        self.offset += place.bytes;
        self.frames += 1;
        Ok((entry, place))
    }

    /// True at the end of the file.
    fn is_at_end(&mut self) -> Result<bool, RestoreError> {
        match self.file.read(&mut [0]) {
            Ok(read) => Ok(read == 0),
            Err(source) => Err(RestoreError::Io {
                path: self.path.to_owned(),
                source,
            }),
        }
    }
}

/// The position of a frame in a backup.
#[derive(Debug, Clone, Copy)]
struct FramePlace {
    offset: u64,
    bytes: u64,
    number: u64,
}

impl FramePlace {
    fn read(self, bytes: Vec<u8>) -> Result<LogEntry, &'static str> {
        let frame = frame::read(&bytes.into(), FrameFormat::Two, self.number, 0)?;
        Ok(frame.entry)
    }
}

/// Reads a whole backup. Returns the positions of its records, in the order of their revisions.
fn scan(path: &Path) -> Result<(BackupSummary, Vec<(Revision, FramePlace)>), RestoreError> {
    let mut reader = BackupReader::open(path)?;
    let (
        LogEntry::Backup {
            revision, taken_ms, ..
        },
        _,
    ) = reader.next()?
    else {
        return Err(reader.damaged("the first frame is not the head of a backup"));
    };
    let mut places = Vec::new();
    loop {
        match reader.next()? {
            (LogEntry::Record(at, Record { value: Some(_), .. }), place) if at <= revision => {
                places.push((at, place));
            }
            (LogEntry::BackupEnd(count), _) if count == places.len() as u64 => break,
            _ => return Err(reader.damaged("the frame does not belong to a backup")),
        }
    }
    if !reader.is_at_end()? {
        return Err(reader.damaged("the file continues after the end of the backup"));
    }
    places.sort_by_key(|(at, _)| *at);
    let summary = BackupSummary {
        revision,
        taken_ms,
        records: places.len() as u64,
    };
    Ok((summary, places))
}

/// Reads and checks a whole backup.
///
/// # Errors
/// If the file is not a backup or is damaged.
pub fn verify(path: &Path) -> Result<BackupSummary, RestoreError> {
    scan(path).map(|(summary, _)| summary)
}

/// The first revision of a store that is restored at `now_ms`. It is after all revisions that the original store, or a store that
/// was restored from the same backup before, can have assigned since the backup.
fn first_revision(backup: BackupSummary, now_ms: u64) -> Revision {
    let since_ms = now_ms.saturating_sub(backup.taken_ms);
    let ahead = since_ms.saturating_mul(REVISIONS_PER_MS);
    Revision(
        backup
            .revision
            .0
            .saturating_add(REVISIONS_AHEAD)
            .saturating_add(ahead),
    )
}

/// Restores a backup to a new or empty directory. `beside` names other files that may be there; `now_ms` is the time in
/// milliseconds since 1970. Returns what was restored and the first revision of the store: everything before it counts as
/// compacted.
///
/// # Errors
/// If the backup or the directory cannot be used. Then no files are left behind.
pub fn restore(
    directory: &Path,
    backup: &Path,
    beside: &[&str],
    now_ms: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(BackupSummary, Revision), RestoreError> {
    let (summary, places) = scan(backup)?;
    let mut file = File::open(backup).map_err(|source| RestoreError::Io {
        path: backup.to_owned(),
        source,
    })?;
    let first = first_revision(summary, now_ms);
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let Some(mut log) = LogBuilder::begin(disk, directory, beside, SEGMENT_BYTES)? else {
        return Err(RestoreError::Exists {
            path: directory.to_owned(),
        });
    };
    for (done, (revision, place)) in places.iter().enumerate() {
        let mut bytes = vec![0; place.bytes as usize];
        let read = file
            .seek(SeekFrom::Start(place.offset))
            .and_then(|_| file.read_exact(&mut bytes));
        let read = read.map_err(|source| RestoreError::Io {
            path: backup.to_owned(),
            source,
        });
        let entry = read.and_then(|()| {
            place.read(bytes).map_err(|what| RestoreError::Damaged {
                path: backup.to_owned(),
                offset: place.offset,
                what,
            })
        });
        match entry {
            Ok(LogEntry::Record(_, record)) => log.push(*revision, &record)?,
            Ok(_) => {}
            Err(error) => {
                log.abandon();
                return Err(error);
            }
        }
        progress(done as u64 + 1, summary.records);
    }
    log.finish(first)?;
    Ok((summary, first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Range, Storage, Write};
    use crate::{Embedded, EmbeddedOptions, Error};

    fn entry(key: &str, revision: u64) -> KeyValue {
        KeyValue {
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: format!("value of {key}").into(),
            revision: Revision(revision),
        }
    }

    fn backup() -> Vec<u8> {
        let (mut writer, head) = BackupWriter::start(Revision(9), 1000, 3);
        let mut bytes = head.to_vec();
        bytes.extend(writer.entries(vec![entry("a", 7), entry("b", 3)]));
        bytes.extend(writer.entries(vec![entry("c", 9)]));
        bytes.extend(writer.end());
        bytes
    }

    #[tokio::test]
    async fn a_restored_store_has_everything_and_gives_out_no_revision_again() {
        let home = tempfile::tempdir().unwrap();
        let (file, data) = (home.path().join("backup"), home.path().join("data"));
        std::fs::write(&file, backup()).unwrap();
        let (summary, first) = restore(&data, &file, &[], 3000, &mut |_, _| {}).unwrap();
        assert_eq!((summary.revision, summary.records), (Revision(9), 3));
        assert_eq!(first, Revision(9 + 1_000_000_000 + 2_000_000));
        let store = Embedded::open(&data, EmbeddedOptions::default()).unwrap();
        assert_eq!(store.oldest().await.unwrap(), first);
        let found = store.range(Range::default()).await.unwrap();
        assert_eq!(found.entries, [entry("a", 7), entry("b", 3), entry("c", 9)]);
        // A client with a resourceVersion from before the restore must relist.
        for before in [Revision(9), Revision(first.0 - 1)] {
            let watch = store.watch("".into(), before).await;
            assert!(matches!(watch, Err(Error::Compacted { .. })));
        }
        let next = store.write(Write::update("a", Revision(7), "new")).await;
        assert_eq!(next.unwrap().0, first.0 + 1);
        drop(store);
        let again = restore(&data, &file, &[], 3000, &mut |_, _| {}).unwrap_err();
        assert!(matches!(again, RestoreError::Exists { .. }), "{again}");
        let later = first_revision(summary, 3001);
        assert!(later.0 >= first.0 + 1000, "one restored later is further");
    }

    #[test]
    fn a_backup_that_is_not_whole_is_refused_and_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        let (file, data) = (home.path().join("backup"), home.path().join("data"));
        let whole = backup();
        let refused = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            let error = restore(&data, &file, &[], 0, &mut |_, _| {}).unwrap_err();
            assert!(!data.join("FORMAT").exists() && !data.join("log").exists());
            error
        };
        for cut in 0..whole.len() {
            let error = refused(&whole[..cut]);
            let expected = cut < TITLE.len();
            assert_eq!(
                matches!(error, RestoreError::NotABackup { .. }),
                expected,
                "{cut}: {error}"
            );
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            refused(&damaged);
        }
        let mut longer = whole;
        longer.push(0);
        assert!(
            refused(&longer)
                .to_string()
                .contains("the file continues after the end")
        );
    }
}
