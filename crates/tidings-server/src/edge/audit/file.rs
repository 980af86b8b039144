//! The audit log in a file: a thread appends lines, and starts another file when one is large.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use tokio::sync::mpsc::Receiver;

use super::queue::{AuditCounts, WaitingEvent};

/// How many events are written together.
const BATCH_MAX: usize = 256;
/// What comes between the name of a file and its extension when it is put aside.
const STAMP: &str = "-%Y-%m-%dT%H-%M-%S%.3f";

/// Where the audit log goes, and how much of it is kept.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AuditFileOptions {
    /// The file. `-` is standard output.
    pub path: PathBuf,
    /// A file of more bytes is put aside; 0: never.
    pub bytes_max: u64,
    /// How many files that were put aside are kept; 0: all.
    pub backups_max: usize,
    /// How long files that were put aside are kept; zero: for ever.
    pub age_max: Duration,
    /// Compress files that were put aside.
    pub compress: bool,
}

impl AuditFileOptions {
    /// A file, with kube-apiserver's defaults.
    pub fn new(path: impl Into<PathBuf>) -> AuditFileOptions {
        AuditFileOptions {
            path: path.into(),
            bytes_max: 100 << 20,
            backups_max: 100,
            age_max: Duration::from_secs(366 * 24 * 3600),
            compress: false,
        }
    }
}

/// What lines are written to.
enum Target {
    Stdout,
    File { file: File, bytes: u64 },
}

pub(super) struct AuditFile {
    options: AuditFileOptions,
    target: Target,
    /// Removes and compresses what was put aside.
    tidying: Option<JoinHandle<()>>,
}

impl AuditFile {
    /// Opens the file, which only its owner can read.
    pub(super) fn open(options: AuditFileOptions) -> io::Result<AuditFile> {
        let target = match options.path.as_os_str() == "-" {
            true => Target::Stdout,
            false => open(&options.path)?,
        };
        Ok(AuditFile {
            options,
            target,
            tidying: None,
        })
    }

    /// Writes what comes, until nobody sends any more. Blocks.
    pub(super) fn run(mut self, mut events: Receiver<WaitingEvent>, counts: &AuditCounts) {
        let mut batch = Vec::new();
        let mut fails = false;
        while let Some(event) = events.blocking_recv() {
            batch.push(event);
            while batch.len() < BATCH_MAX
                && let Ok(event) = events.try_recv()
            {
                batch.push(event);
            }
            let written = self.write(&batch);
            match &written {
                Err(error) if !fails => {
                    tracing::error!(path = %self.options.path.display(), %error, "audit events cannot be written");
                }
                Ok(()) if fails => tracing::info!("audit events are written again"),
                _ => {}
            }
            fails = written.is_err();
            counts.waiting.fetch_sub(batch.len(), Ordering::Relaxed);
            if fails {
                counts.lost.fetch_add(batch.len() as u64, Ordering::Relaxed);
            }
            for event in batch.drain(..) {
                event.settle(!fails);
            }
        }
        if let Some(tidying) = self.tidying.take() {
            let _ = tidying.join();
        }
    }

    fn write(&mut self, events: &[WaitingEvent]) -> io::Result<()> {
        let mut lines = Vec::new();
        for event in events {
            lines.extend_from_slice(&event.json);
            lines.push(b'\n');
        }
        let most = self.options.bytes_max;
        if let Target::File { bytes, .. } = &self.target
            && most > 0
            && *bytes > 0
            && *bytes + lines.len() as u64 > most
        {
            self.start_another()?;
        }
        match &mut self.target {
            Target::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(&lines)?;
                out.flush()
            }
            Target::File { file, bytes } => {
                if let Err(error) = file.write_all(&lines) {
                    // Half a line would spoil the next one.
                    let _ = file.set_len(*bytes);
                    return Err(error);
                }
                *bytes += lines.len() as u64;
                Ok(())
            }
        }
    }

    /// Puts the file aside and opens another one.
    fn start_another(&mut self) -> io::Result<()> {
        let path = &self.options.path;
        let aside = aside(path, Timestamp::now());
        fs::rename(path, aside)?;
        self.target = open(path)?;
        if self.tidying.as_ref().is_none_or(JoinHandle::is_finished) {
            let options = self.options.clone();
            let thread = std::thread::Builder::new().name("tidings-audit-tidy".into());
            let tidying = thread.spawn(move || {
                if let Err(error) = tidy(&options, Timestamp::now()) {
                    tracing::warn!(%error, "old audit logs cannot be removed or compressed");
                }
            });
            self.tidying = tidying.ok();
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<Target> {
    if let Some(directory) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
    }
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    let bytes = file.metadata()?.len();
    Ok(Target::File { file, bytes })
}

/// The name of a file that is put aside, as kube-apiserver names it: `audit-2026-01-31T12-00-00.000.log`.
fn aside(path: &Path, now: Timestamp) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path
        .extension()
        .map(|extension| format!(".{}", extension.to_string_lossy()));
    let name = format!(
        "{stem}{}{}",
        now.strftime(STAMP),
        extension.unwrap_or_default()
    );
    path.with_file_name(name)
}

/// Files that were put aside, from old to new, with the time in their name.
fn all_aside(path: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path
        .extension()
        .map(|extension| format!(".{}", extension.to_string_lossy()));
    let extension = extension.unwrap_or_default();
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let mut found = Vec::new();
    for entry in fs::read_dir(directory.unwrap_or(Path::new(".")))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        let stamp = plain
            .strip_prefix(&*stem)
            .and_then(|rest| rest.strip_prefix('-'))
            .and_then(|rest| rest.strip_suffix(&extension));
        let is_stamp = |stamp: &&str| stamp.len() == 23 && stamp.as_bytes()[10] == b'T';
        if let Some(stamp) = stamp.filter(is_stamp) {
            found.push((stamp.to_owned(), entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// Removes files that are too many or too old, and compresses the others if that is wanted.
fn tidy(options: &AuditFileOptions, now: Timestamp) -> io::Result<()> {
    let all = all_aside(&options.path)?;
    let beyond = match options.backups_max {
        0 => 0,
        most => all.len().saturating_sub(most),
    };
    let oldest = (!options.age_max.is_zero()).then(|| {
        let oldest = now
            .checked_sub(options.age_max)
            .unwrap_or(Timestamp::UNIX_EPOCH);
        oldest.strftime(&STAMP[1..]).to_string()
    });
    for (at, (stamp, path)) in all.iter().enumerate() {
        if at < beyond || oldest.as_ref().is_some_and(|oldest| stamp < oldest) {
            fs::remove_file(path)?;
        } else if options.compress && path.extension().is_none_or(|extension| extension != "gz") {
            compress(path)?;
        }
    }
    Ok(())
}

fn compress(path: &Path) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    let unfinished = path.with_extension("packing");
    let packed = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)?;
    let mut packer = GzEncoder::new(packed, Compression::default());
    io::copy(&mut File::open(path)?, &mut packer)?;
    packer.finish()?.sync_all()?;
    fs::rename(&unfinished, name)?;
    fs::remove_file(path)
}

/// Starts the thread that writes.
pub(super) fn start(
    file: AuditFile,
    events: Receiver<WaitingEvent>,
    counts: Arc<AuditCounts>,
) -> io::Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name("tidings-audit".into());
    thread.spawn(move || file.run(events, &counts))
}

#[cfg(test)]
mod tests {
    use super::super::queue::{AuditMode, EventQueue};
    use super::*;

    /// Writes lines of ten bytes to files of at most 25, and returns the names and contents in the folder.
    fn written(lines: usize, change: impl FnOnce(&mut AuditFileOptions)) -> Vec<(String, String)> {
        let directory = tempfile::tempdir().unwrap();
        let mut options = AuditFileOptions::new(directory.path().join("logs/audit.log"));
        options.bytes_max = 25;
        change(&mut options);
        let mut file = AuditFile::open(options).unwrap();
        for line in 0..lines {
            let (queue, mut events) = EventQueue::new(AuditMode::Batch, 1);
            queue.offer(format!("line {line:04}").into_bytes().into());
            file.write(&[events.try_recv().unwrap()]).unwrap();
            if let Some(tidying) = file.tidying.take() {
                tidying.join().unwrap();
            }
            // Names of files have milliseconds.
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut found: Vec<_> = fs::read_dir(directory.path().join("logs"))
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let bytes = fs::read(entry.path()).unwrap();
                let mut text = String::new();
                match bytes.starts_with(&[0x1f, 0x8b]) {
                    true => {
                        io::Read::read_to_string(
                            &mut flate2::read::GzDecoder::new(&*bytes),
                            &mut text,
                        )
                        .unwrap();
                    }
                    false => text = String::from_utf8(bytes).unwrap(),
                }
                (entry.file_name().to_string_lossy().into_owned(), text)
            })
            .collect();
        found.sort();
        found
    }

    fn contents(files: &[(String, String)]) -> Vec<&str> {
        files.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn a_full_file_is_put_aside_and_as_many_as_wanted_are_kept() {
        let all = written(7, |_| {});
        assert_eq!(
            contents(&all),
            [
                "line 0000\nline 0001\n",
                "line 0002\nline 0003\n",
                "line 0004\nline 0005\n",
                "line 0006\n"
            ]
        );
        let (old, current) = (&all[0].0, &all[3].0);
        assert_eq!(current, "audit.log");
        assert!(
            old.starts_with("audit-20")
                && old.ends_with(".log")
                && old.len() == "audit-2026-01-31T12-00-00.000.log".len(),
            "{old}"
        );

        let few = written(7, |options| options.backups_max = 1);
        assert_eq!(contents(&few), ["line 0004\nline 0005\n", "line 0006\n"]);
        let packed = written(5, |options| options.compress = true);
        assert!(packed[0].0.ends_with(".log.gz"), "{packed:?}");
        assert_eq!(
            contents(&packed),
            [
                "line 0000\nline 0001\n",
                "line 0002\nline 0003\n",
                "line 0004\n"
            ]
        );
        let one = written(7, |options| options.bytes_max = 0);
        assert_eq!(one.len(), 1);
    }

    #[test]
    fn old_files_are_removed_and_others_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let options = AuditFileOptions::new(directory.path().join("audit.log"));
        let names = [
            "audit-2020-01-01T00-00-00.000.log",
            "audit-2026-01-01T00-00-00.000.log.gz",
            "audit-notes.log",
            "audit.log",
            "other.log",
        ];
        for name in names {
            fs::write(directory.path().join(name), "x").unwrap();
        }
        tidy(&options, "2026-06-01T00:00:00Z".parse().unwrap()).unwrap();
        let left = |name: &&str| directory.path().join(name).exists();
        assert_eq!(names.iter().filter(|name| left(name)).count(), 4);
        assert!(!left(&names[0]));
    }

    #[test]
    fn events_that_cannot_be_written_are_counted_and_told() {
        let counts = AuditCounts::default();
        let file = AuditFile {
            options: AuditFileOptions::new("/dev/full"),
            target: open(Path::new("/dev/full")).unwrap(),
            tidying: None,
        };
        let (queue, events) = EventQueue::new(AuditMode::Blocking, 4);
        let writer = std::thread::spawn(move || {
            file.run(events, &counts);
            counts.lost.load(Ordering::Relaxed)
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        assert!(!runtime.block_on(queue.deliver("event".into())));
        drop(queue);
        assert_eq!(writer.join().unwrap(), 1);
    }
}
