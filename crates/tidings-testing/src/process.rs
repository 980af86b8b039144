//! A server process: starts, pauses and kills it, and reads its CPU time and memory.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::client::Client;

/// How long a process may take to stop.
const PATIENCE: Duration = Duration::from_secs(30);

/// How to start a server.
#[derive(Debug)]
pub struct StartOptions<'a> {
    /// The binary `tidings`.
    pub binary: &'a Path,
    /// Its data directory.
    pub data_dir: &'a Path,
    /// More arguments.
    pub arguments: &'a [&'a str],
}

/// A running server and its client.
#[derive(Debug)]
pub struct Server {
    /// A client with the administrator's token.
    pub client: Client,
    /// The URL of the server.
    pub url: String,
    pids: Vec<u32>,
    child: Option<Child>,
    /// How long it took until it was ready.
    pub started_in: Duration,
}

impl Server {
    /// Starts a server and waits until it is ready. Dropping it kills the server.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn start(start: &StartOptions<'_>) -> anyhow::Result<Server> {
        let started = Instant::now();
        let mut arguments = start.arguments.iter();
        let is_placed = arguments.any(|argument| argument.starts_with("--listen"));
        let free_port = (!is_placed).then_some("--listen=127.0.0.1:0");
        let mut child = Command::new(start.binary)
            .args(["serve", "--data-dir"])
            .arg(start.data_dir)
            .args(free_port)
            .args(start.arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| {
                format!(
                    "{} cannot be started: build it with cargo build --profile dist",
                    start.binary.display()
                )
            })?;
        let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let url = loop {
            match lines.next_line().await? {
                Some(line) => {
                    if let Some(url) = line.strip_prefix("ready: ") {
                        break url.to_owned();
                    }
                }
                None => bail!("the server ended before it was ready"),
            }
        };
        let started_in = started.elapsed();
        let kubeconfig = fs::read_to_string(start.data_dir.join("kubeconfig"))?;
        let token = kubeconfig
            .lines()
            .find_map(|line| line.trim().strip_prefix("token: "))
            .context("no token")?;
        let client = Client::new(&url, token)?;
        let pids = child.id().into_iter().collect();
        Ok(Server {
            client,
            url,
            pids,
            child: Some(child),
            started_in,
        })
    }

    /// A handle for a server that is already running.
    ///
    /// # Errors
    /// If the URL does not start with `https://`.
    pub fn running(url: &str, token: &str, pids: &[u32]) -> anyhow::Result<Server> {
        let client = Client::new(url, token)?;
        Ok(Server {
            client,
            url: url.to_owned(),
            pids: pids.to_vec(),
            child: None,
            started_in: Duration::ZERO,
        })
    }

    /// User and system time so far.
    pub fn cpu(&self) -> Duration {
        self.pids.iter().copied().map(cpu).sum()
    }

    /// User and system time so far of the threads with this name.
    pub fn thread_cpu(&self, name: &str) -> Duration {
        let threads = self.pids.iter().flat_map(|pid| threads(*pid));
        let threads = threads.filter(|path| is_named(path, name));
        Duration::from_millis(threads.filter_map(|path| ticks(&path)).sum::<u64>() * 10)
    }

    /// Resident memory in bytes.
    pub fn memory(&self) -> u64 {
        self.pids.iter().filter_map(|pid| resident(*pid)).sum()
    }

    /// The process ids.
    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// Kills the server with SIGKILL and waits until it has ended.
    ///
    /// # Errors
    /// If the process cannot be killed.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().await?;
        }
        Ok(())
    }

    /// Waits until the server has ended by itself.
    ///
    /// # Errors
    /// If it is not a child of this process.
    pub async fn ended(mut self) -> anyhow::Result<std::process::ExitStatus> {
        Ok(self
            .child
            .take()
            .context("not started here")?
            .wait()
            .await?)
    }
}

/// User and system time of a process so far.
pub fn cpu(pid: u32) -> Duration {
    let ticks = ticks(&format!("/proc/{pid}")).unwrap_or(0);
    Duration::from_millis(ticks * 10) // Linux counts in hundredths of a second
}

/// Stops a process with SIGSTOP until [`resume`]: its connections stay open but are not answered.
///
/// A thread on another processor may still run when the signal was sent, so this waits until all threads have stopped.
///
/// # Errors
/// If there is no such process, or a thread of it does not stop.
pub fn pause(pid: u32) -> anyhow::Result<()> {
    signal(pid, "-STOP")?;
    let started = Instant::now();
    let stopped = |path: &String| stat(path).is_none_or(|fields| fields[0] == "T");
    while !threads(pid).iter().all(stopped) {
        if started.elapsed() > PATIENCE {
            bail!("process {pid} does not stop");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Continues a paused process with SIGCONT.
///
/// # Errors
/// If there is no such process.
pub fn resume(pid: u32) -> anyhow::Result<()> {
    signal(pid, "-CONT")
}

fn signal(pid: u32, name: &str) -> anyhow::Result<()> {
    let mut kill = std::process::Command::new("kill");
    if !kill.args([name, &pid.to_string()]).status()?.success() {
        bail!("process {pid} cannot be sent {name}");
    }
    Ok(())
}

/// The `/proc` directories of the threads of a process.
fn threads(pid: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    entries
        .flatten()
        .map(|entry| entry.path().display().to_string())
        .collect()
}

fn is_named(path: &str, name: &str) -> bool {
    fs::read_to_string(format!("{path}/comm")).is_ok_and(|comm| comm.trim() == name)
}

/// The fields of `/proc/.../stat` of a process or thread, from the state on.
fn stat(path: &str) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("{path}/stat")).ok()?;
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some(fields.map(str::to_owned).collect())
}

fn ticks(path: &str) -> Option<u64> {
    let fields = stat(path)?;
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

/// The resident memory of a process, in bytes.
pub fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}
