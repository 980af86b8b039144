//! Helpers of the tests: starts a server for a test, and runs commands against it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, ensure};
use tempfile::TempDir;
use tidings_testing::{Etcd, StartOptions};

/// A server with an empty store, and a home directory for its clients. The store is on disk, or in a separate etcd if
/// `TIDINGS_TEST_STORAGE` is `etcd`.
#[derive(Debug)]
pub struct Server {
    /// The running server.
    pub server: tidings_testing::Server,
    home: TempDir,
    _etcd: Option<Etcd>,
}

impl Server {
    /// Starts a server.
    ///
    /// # Errors
    /// If the binary is not built, or does not start.
    pub async fn start() -> anyhow::Result<Server> {
        let home = tempfile::tempdir()?;
        let in_etcd = std::env::var("TIDINGS_TEST_STORAGE").is_ok_and(|engine| engine == "etcd");
        let etcd = in_etcd.then(Etcd::start).transpose()?;
        let endpoints = etcd.as_ref().map(Etcd::argument);
        let arguments = endpoints
            .as_deref()
            .map(|endpoints| ["--storage", "etcd", "--etcd-endpoints", endpoints]);
        let start = StartOptions {
            binary: &binary()?,
            data_dir: &home.path().join("data"),
            arguments: arguments.as_ref().map_or(&[], |arguments| &arguments[..]),
        };
        let server = tidings_testing::Server::start(&start).await?;
        Ok(Server {
            server,
            home,
            _etcd: etcd,
        })
    }

    /// The path of the server's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.path().join("data/kubeconfig")
    }

    /// The home directory of clients, removed with the server.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// A command with the server's kubeconfig and a home directory of its own, so that caches are not shared.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env("KUBECONFIG", self.kubeconfig())
            .env("HOME", self.home())
            .current_dir(self.home());
        command
    }

    /// `kubectl` with arguments.
    pub fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut command = self.command("kubectl");
        command.args(arguments);
        command
    }

    /// Runs `kubectl` and returns its standard output.
    ///
    /// # Errors
    /// If it fails; with its output.
    pub fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        said(&self.kubectl(arguments).output().context("kubectl")?)
            .with_context(|| format!("kubectl {}", arguments.join(" ")))
    }

    /// Writes a file into the home directory and returns its path.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn file(&self, name: &str, content: &str) -> anyhow::Result<String> {
        let path = self.home().join(name);
        std::fs::write(&path, content)?;
        Ok(path.display().to_string())
    }
}

/// The standard output of a command that must have succeeded.
///
/// # Errors
/// If the command failed; with its output.
pub fn said(output: &Output) -> anyhow::Result<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(
        output.status.success(),
        "{}: {}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    Ok(text(&output.stdout))
}

/// The directory `interop` of the repository.
pub fn directory() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The binary `tidings` that `cargo test --workspace` builds beside the tests.
fn binary() -> anyhow::Result<PathBuf> {
    let test = std::env::current_exe()?;
    let built = test.parent().and_then(Path::parent);
    let binary = built.context("no target directory")?.join("tidings");
    ensure!(
        binary.exists(),
        "{} is missing: run cargo build -p tidings-cli, or cargo test --workspace",
        binary.display()
    );
    Ok(binary)
}
