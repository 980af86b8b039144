//! `tidings backup` and `tidings restore`: write all objects of a server to a file, and make a store from such a file.

use std::fs::OpenOptions;
use std::io::{BufWriter, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use http_body::Body;
use tidings_kube::connect;
use tidings_storage::backup::{BackupSummary, restore, verify};
use tidings_storage::disk::{Disk, RealDisk};

use crate::serve::BESIDE;

/// The path at which a server sends its backup.
const PATH: &str = "/tidings/backup";
/// How often progress is shown on a terminal.
const SHOW_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
pub(crate) struct BackupArguments {
    /// The file to write; it must not exist
    file: PathBuf,

    /// The kubeconfig of the server [default: KUBECONFIG, or .kube/config in the home directory]
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArguments {
    /// The data directory to create: new, or with only certificates in it
    directory: PathBuf,

    /// The backup
    file: PathBuf,
}

pub(crate) fn run_backup(arguments: &BackupArguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(back_up(arguments))
}

async fn back_up(arguments: &BackupArguments) -> anyhow::Result<()> {
    let file = &arguments.file;
    if file.exists() {
        bail!(
            "{} exists: choose another file, or move it away",
            file.display()
        );
    }
    let connection = connect(
        arguments.kubeconfig.as_deref(),
        arguments.context.as_deref(),
    )
    .await?;
    let request = http::Request::get(PATH).header(http::header::ACCEPT, "*/*");
    let request = request.body(bytes::Bytes::new())?;
    let answer = connection.client.request(request).await;
    let mut body = answer
        .with_context(|| format!("{} did not send a backup", connection.server))?
        .into_body();
    // First under another name, so that a file of the final name is always complete.
    let partial = with_suffix(file, ".partial");
    let written = write(&mut body, &partial).await;
    let summary = written.and_then(|()| {
        verify(&partial).context("the received backup is incomplete or damaged; try again")
    });
    let summary = match summary {
        Ok(summary) => summary,
        Err(error) => {
            let _ = std::fs::remove_file(&partial);
            return Err(error);
        }
    };
    std::fs::rename(&partial, file).with_context(|| cannot_write(file))?;
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    RealDisk
        .sync_names(folder.unwrap_or(Path::new(".")))
        .with_context(|| cannot_write(file))?;
    let bytes = std::fs::metadata(file)?.len();
    println!(
        "{}: {} objects at version {}, {}",
        file.display(),
        summary.records,
        summary.revision,
        size(bytes)
    );
    Ok(())
}

fn cannot_write(file: &Path) -> String {
    format!("{} cannot be written", file.display())
}

fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Writes the body to a file that only its owner can read, because it contains Secrets.
async fn write<B>(body: &mut B, path: &Path) -> anyhow::Result<()>
where
    B: Body<Data = bytes::Bytes, Error: std::error::Error + Send + Sync + 'static> + Unpin,
{
    let cannot = || cannot_write(path);
    // Never writes into an existing file, which may belong to another user.
    let _ = std::fs::remove_file(path);
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(cannot)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let mut progress = ProgressLine::new("bytes received");
    loop {
        let frame = std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
        let Some(frame) = frame else { break };
        let frame = frame.context("the connection was lost")?;
        if let Ok(bytes) = frame.into_data() {
            out.write_all(&bytes).with_context(cannot)?;
            progress.add(bytes.len() as u64);
        }
    }
    let file = out
        .into_inner()
        .map_err(|error| error.into_error())
        .with_context(cannot)?;
    file.sync_all().with_context(cannot)?;
    progress.clear();
    Ok(())
}

pub(crate) fn run_restore(arguments: &RestoreArguments) -> anyhow::Result<()> {
    let RestoreArguments { directory, file } = arguments;
    if directory.is_file() {
        bail!(
            "{} is a file: write the data directory first, then the backup",
            directory.display()
        );
    }
    let now_ms = jiff::Timestamp::now()
        .as_millisecond()
        .try_into()
        .unwrap_or(0);
    let mut progress = ProgressLine::new("objects restored");
    let restored = restore(directory, file, BESIDE, now_ms, &mut |done, _| {
        progress.reach(done)
    });
    progress.clear();
    let (
        BackupSummary {
            records,
            taken_ms,
            revision,
        },
        next,
    ) = restored?;
    let taken = jiff::Timestamp::from_millisecond(taken_ms as i64).unwrap_or_default();
    println!(
        "{}: {records} objects of version {revision}, backed up at {}",
        directory.display(),
        taken.strftime("%Y-%m-%d %H:%M:%S UTC")
    );
    println!("versions continue at {next}: clients with older versions are told to relist");
    Ok(())
}

/// A line on the terminal that shows progress.
struct ProgressLine {
    what: &'static str,
    done: u64,
    shown: Option<Instant>,
}

impl ProgressLine {
    fn new(what: &'static str) -> ProgressLine {
        let terminal = std::io::stderr().is_terminal();
        ProgressLine {
            what,
            done: 0,
            shown: terminal.then(Instant::now),
        }
    }

    fn add(&mut self, more: u64) {
        self.reach(self.done + more);
    }

    fn reach(&mut self, done: u64) {
        self.done = done;
        if self
            .shown
            .is_some_and(|shown| shown.elapsed() >= SHOW_EVERY)
        {
            self.shown = Some(Instant::now());
            let _ = write!(std::io::stderr(), "\r\x1b[K{} {}", self.done, self.what);
        }
    }

    fn clear(&self) {
        if self.shown.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// A size in bytes, KiB or MiB.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}
